// Signals that end the process. The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks for a clean end,
// and so does SIGPIPE: nobody reads what is printed any more. A second one of the first three
// kills. SIGUSR1 asks for the figures so far, and so does SIGHUP where there is no terminal that
// could hang up: a service is told to reload by it.
#pragma once

#include <atomic>
#include <thread>

namespace rrdk::testrpc {

enum class HangUp { kEnds, kAsksForFiguresWithoutTerminal };
void catch_stop_signals(HangUp hang_up = HangUp::kEnds);
bool stop_requested() noexcept;
// Once for each time that the figures are asked for.
bool take_figures_request() noexcept;

// For a prompt: from now on SIGINT asks for nothing, but take_interrupt() tells of it, once.
void leave_interrupts_to_prompt();
bool take_interrupt() noexcept;

// While it lives nobody asks stop_requested(), since something goes on that may take long, or never
// end. The first signal that asks for an end, even one that came before, then is the end, and a
// line says what went on: "testrpc: ended by SIGTERM while EAL starts". A thread takes the signals,
// as EAL's start blocks them in the one that calls it.
class EndsAtOnce {
 public:
  explicit EndsAtOnce(const char* what);  // a literal
  ~EndsAtOnce();
  EndsAtOnce(const EndsAtOnce&) = delete;
  EndsAtOnce& operator=(const EndsAtOnce&) = delete;

 private:
  const char* const before_;
  std::atomic<bool> over_ = false;
  std::thread taker_;
};

// At the end of all: the process that was asked by SIGHUP or SIGPIPE dies of it, now that it has
// cleaned up, so that its parent sees what it would have seen. What was printed is written before.
void die_as_asked();

}  // namespace rrdk::testrpc

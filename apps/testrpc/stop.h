// Signals that end the process. The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks for a clean end,
// and so does SIGPIPE, because the output is no longer read. A second one of the first three kills.
// SIGUSR1 asks for the figures so far, and so does SIGHUP if there is no terminal that could hang
// up: services reload on it.
#pragma once

#include <atomic>
#include <thread>

namespace rrdk::testrpc {

enum class HangUp { kEnds, kAsksForFiguresWithoutTerminal };
void catch_stop_signals(HangUp hang_up = HangUp::kEnds);
bool stop_requested() noexcept;
// Returns true once for each request for the figures.
bool take_figures_request() noexcept;

// For a prompt: from now on SIGINT does not ask for an end, and take_interrupt() reports it once.
void leave_interrupts_to_prompt();
bool take_interrupt() noexcept;

// For a time in which stop_requested() is not called, because something may take long or never end.
// During its lifetime the first signal that asks for an end, even one that came before, ends the
// process at once, and a line says what was going on: "testrpc: ended by SIGTERM while EAL starts".
// A thread takes the signals, because EAL's start blocks them in the calling thread.
class EndsAtOnce {
 public:
  explicit EndsAtOnce(const char* what);  // a string literal
  ~EndsAtOnce();
  EndsAtOnce(const EndsAtOnce&) = delete;
  EndsAtOnce& operator=(const EndsAtOnce&) = delete;

 private:
  const char* const before_;
  std::atomic<bool> over_ = false;
  std::thread taker_;
};

// Called last. If SIGHUP or SIGPIPE asked for the end, the process, which has cleaned up, dies of
// that signal after flushing its output, so that its parent sees the usual status.
void die_as_asked();

}  // namespace rrdk::testrpc

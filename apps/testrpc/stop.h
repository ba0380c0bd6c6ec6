// Signals that end the process. The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks for a clean end,
// and so does SIGPIPE: nobody reads what is printed any more. A second one of the first three
// kills. SIGUSR1 asks for the figures so far, and so does SIGHUP where there is no terminal that
// could hang up: a service is told to reload by it.
#pragma once

namespace rrdk::testrpc {

enum class HangUp { kEnds, kAsksForFiguresWithoutTerminal };
void catch_stop_signals(HangUp hang_up = HangUp::kEnds);
bool stop_requested() noexcept;
// Once for each time that the figures are asked for.
bool take_figures_request() noexcept;

// For a prompt: from now on SIGINT asks for nothing, but take_interrupt() tells of it, once.
void leave_interrupts_to_prompt();
bool take_interrupt() noexcept;

// At the end of all: the process that was asked by SIGHUP or SIGPIPE dies of it, now that it has
// cleaned up, so that its parent sees what it would have seen. What was printed is written before.
void die_as_asked();

}  // namespace rrdk::testrpc

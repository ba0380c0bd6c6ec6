// Signals that end the process. The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks for a clean end,
// and so does SIGPIPE: nobody reads what is printed any more. A second one of the first three
// kills.
#pragma once

namespace rrdk::testrpc {

void catch_stop_signals();
bool stop_requested() noexcept;

// For a prompt: from now on SIGINT asks for nothing, but take_interrupt() tells of it, once.
void leave_interrupts_to_prompt();
bool take_interrupt() noexcept;

// At the end of all: the process that was asked by SIGHUP or SIGPIPE dies of it, now that it has
// cleaned up, so that its parent sees what it would have seen.
void die_as_asked();

}  // namespace rrdk::testrpc

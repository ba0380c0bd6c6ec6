// Ctrl-C and SIGTERM: the first asks for a clean end, a second one, whichever it is, kills.
#pragma once

namespace rrdk::testrpc {

void catch_stop_signals();
bool stop_requested() noexcept;

}  // namespace rrdk::testrpc

// What a process that was forked from one where EAL runs must not do: EAL's memory is shared with
// its parent, and the threads are the parent's alone (rrdk/eal.h).
#pragma once

#include <memory>

namespace rrdk::base {

// True in such a child. Set between fork() and the child's return from it; no system call to ask.
inline constinit bool forked = false;

// From now on forks are noticed. Idempotent, any thread.
void notice_forks();

// Never destroys it, and leak checkers find it reachable.
void keep_for_good(std::shared_ptr<const void> object);

}  // namespace rrdk::base

// How long an object exists: until its last user has left, or for good; and what remains usable in
// a child of fork().
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace rrdk::base {

// Counts the users of an object, including its owner. The last one destroys the object.
class Users {
 public:
  void enter() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  // Returns true if no user is left.
  [[nodiscard]] bool leave() noexcept {
    return count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 private:
  std::atomic<uint32_t> count_ = 1;  // the owner
};

// True in a process that was forked from one where EAL runs. EAL's memory is shared with the
// parent, and the threads exist only there, so almost nothing may be done in the child
// (rrdk/eal.h).
//
// Set between fork() and the child's return from it; reading it makes no system call.
inline constinit bool forked = false;
inline constexpr const char* kOfParent =
    "belongs to the process that this one was forked from: call exec() after fork()";

// Makes forks set `forked` from now on. Idempotent, any thread.
inline void notice_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  (void)registered;  // without memory for a handler a fork can do little harm
}

// Never destroys the object, and keeps it reachable for leak checkers. No lock: in a child of
// fork() the thread that holds it may not exist.
inline void keep_for_good(std::shared_ptr<const void> object) {
  struct Kept {
    std::shared_ptr<const void> object;
    Kept* next;
  };
  static std::atomic<Kept*> all = nullptr;
  auto* kept = new Kept{std::move(object), all.load(std::memory_order_relaxed)};
  while (!all.compare_exchange_weak(kept->next, kept, std::memory_order_release))
    continue;
}

}  // namespace rrdk::base

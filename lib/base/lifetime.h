// How long an object lives: until the last of those who use it has left, or for good; and what of
// it is left to a child of fork().
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace rrdk::base {

// How many use an object, its owner among them: the last of them destroys it.
class Users {
 public:
  void enter() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  // True: nobody else is left.
  [[nodiscard]] bool leave() noexcept {
    return count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 private:
  std::atomic<uint32_t> count_ = 1;  // the owner
};

// True in a process that was forked from one where EAL runs. EAL's memory is shared with its
// parent, and the threads are the parent's alone, so next to nothing may be done there
// (rrdk/eal.h).
//
// Set between fork() and the child's return from it; asking makes no system call.
inline constinit bool forked = false;
inline constexpr const char* kOfParent =
    "belongs to the process that this one was forked from: call exec() after fork()";

// From now on forks are noticed. Idempotent, any thread.
inline void notice_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  (void)registered;  // without memory for a handler there is little that a fork could spoil
}

// Never destroys the object, and keeps it reachable for leak checkers. No lock: in a child of
// fork() the thread that holds it may no longer exist.
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

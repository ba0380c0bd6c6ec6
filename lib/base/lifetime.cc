#include "base/lifetime.h"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace rrdk::base {

void notice_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  (void)registered;  // without memory for a handler there is little that a fork could spoil
}

// No lock: in a child of fork() its owner may not be there any more.
void keep_for_good(std::shared_ptr<const void> object) {
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

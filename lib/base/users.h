// How many use an object, its owner among them: the last of them destroys it.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::base {

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

}  // namespace rrdk::base

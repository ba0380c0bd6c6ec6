// Memory for what must be remembered of connections that have ended. Each connection sets aside, as
// long as it lives, what it may come to leave behind; so that there is always room for that, and a
// lack of it is found before a call runs and not after.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::server {

// Any thread.
class ReplayRoom {
 public:
  // A part of `whole`, which outlives it; null: it is the whole.
  explicit ReplayRoom(uint64_t bytes, ReplayRoom* whole = nullptr) : bytes_(bytes), whole_(whole) {}
  ReplayRoom(const ReplayRoom&) = delete;
  ReplayRoom& operator=(const ReplayRoom&) = delete;

  // False: nothing was taken.
  bool take(uint64_t bytes) noexcept {
    uint64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - taken)
        return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    if (whole_ == nullptr || whole_->take(bytes))
      return true;
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void give(uint64_t bytes) noexcept {
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr)
      whole_->give(bytes);
  }
  uint64_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }

 private:
  const uint64_t bytes_;
  ReplayRoom* const whole_;
  std::atomic<uint64_t> taken_ = 0;
};

}  // namespace rrdk::server

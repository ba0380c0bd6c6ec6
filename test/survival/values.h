// Checks that each value of a counter comes exactly once. Values come nearly in order, so this
// keeps the number up to which all have come, and one bit for each value in a window beyond it.
#pragma once

#include <cstdint>
#include <vector>

namespace rrdk::survival {

class Values {
 public:
  Values() : seen_(kWindow) {}

  void take(uint64_t value) {
    if (value <= all_up_to_) {
      ++doubled_;
      return;
    }
    if (value - all_up_to_ > kWindow) {
      ++astray_;
      return;
    }
    if (seen_[value % kWindow])
      ++doubled_;
    seen_[value % kWindow] = true;
    while (seen_[(all_up_to_ + 1) % kWindow])
      seen_[++all_up_to_ % kWindow] = false;
  }

  uint64_t all_up_to() const { return all_up_to_; }
  uint64_t doubled() const { return doubled_; }
  uint64_t astray() const { return astray_; }  // further ahead than calls can be in flight

 private:
  static constexpr uint64_t kWindow = 1u << 22;  // of thousands some wait for seconds

  std::vector<bool> seen_;  // of the values all_up_to_ + 1 to all_up_to_ + kWindow
  uint64_t all_up_to_ = 0;
  uint64_t doubled_ = 0;
  uint64_t astray_ = 0;
};

}  // namespace rrdk::survival

// For whoever waits for a poll core: says, once, that nobody polls it.
#pragma once

#include <cstdint>
#include <string>

namespace rrdk::runtime {

class PollCore;

class StallWatch {
 public:
  // "`what` `whom`" is who waits; both outlive the watch.
  StallWatch(const PollCore& core, const char* what, const std::string& whom) noexcept
      : core_(core), what_(what), whom_(whom) {}

  // Now and then while waiting.
  void look() noexcept;

 private:
  static constexpr uint64_t kStallNs = 5'000'000'000;

  const PollCore& core_;
  const char* const what_;
  const std::string& whom_;
  uint64_t polls_ = 0;
  uint64_t due_ns_ = 0;  // when `polls_` should have grown; 0: not looked yet
  bool said_ = false;
};

}  // namespace rrdk::runtime

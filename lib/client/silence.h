// Whether a peer that says nothing is still there.
//
// It is asked (a NULL call) when nothing has come for a while, and given up when nothing at all
// comes for some times as long after that. Where it can not be asked, because every credit is held
// by a call, silence is no evidence: these calls may just be slow. Their own deadlines end them,
// and a connection whose credits are all held by calls that have ended is given up anyway
// (V1-CREDIT-23).
//
// Time is what looks add up to: a look counts for little however late it comes. So it is not held
// against the peer that we did not look, be it that nobody polled or that the process was stopped.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rrdk {

class SilenceWatch {
 public:
  enum class Verdict : uint8_t {
    kFine,
    kAsk,   // make a call that it will answer at once
    kGone,  // it did not answer
  };

  SilenceWatch(uint32_t silence_ms, uint32_t patience) noexcept
      : silence_ns_(uint64_t{silence_ms} * 1'000'000),
        patience_ns_(silence_ns_ * patience),
        longest_step_ns_(std::max(silence_ns_ / 8, kTickNs)) {}

  // A new connection.
  void restart() noexcept {
    last_look_ns_ = heard_ = quiet_ns_ = 0;
    asked_ = false;
  }

  // `heard` counts the peer's messages; `can_ask`: a call would be sent at once, or the last
  // question is still unanswered.
  Verdict look(uint64_t now_ns, uint64_t heard, bool can_ask) noexcept {
    uint64_t step = last_look_ns_ == 0 ? 0 : std::min(now_ns - last_look_ns_, longest_step_ns_);
    last_look_ns_ = now_ns;
    if (heard != heard_) {
      heard_ = heard;
      quiet_ns_ = 0;
      asked_ = false;
      return Verdict::kFine;
    }
    quiet_ns_ += step;
    if (asked_)
      return quiet_ns_ < patience_ns_ ? Verdict::kFine : Verdict::kGone;
    if (quiet_ns_ < silence_ns_ || !can_ask)
      return Verdict::kFine;
    asked_ = true;
    quiet_ns_ = 0;
    return Verdict::kAsk;
  }

  // A look before then tells nothing that one then does not.
  uint64_t next_look_ns() const noexcept { return last_look_ns_ + longest_step_ns_; }

 private:
  static constexpr uint64_t kTickNs = 1'000'000;

  uint64_t silence_ns_;
  uint64_t patience_ns_;
  uint64_t longest_step_ns_;
  uint64_t last_look_ns_ = 0;
  uint64_t heard_ = 0;
  uint64_t quiet_ns_ = 0;  // since something came, or since it was asked
  bool asked_ = false;
};

}  // namespace rrdk

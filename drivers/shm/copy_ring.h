// Which bytes of our copies the peer still has to take: the sender's private record.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/assert.h"

namespace rrdk::shm {

class CopyRing {
 public:
  // `bytes` and `slots` must be powers of two. Each message in the ring has its own slot.
  CopyRing(uint32_t bytes, uint32_t slots) : bytes_(bytes), mask_(slots - 1), lent_(slots) {}

  bool fits(uint32_t length) const noexcept { return first_ == last_ || place(length).fits; }
  // Returns where a message of `length` bytes goes, in one piece: the offset from the ring's start.
  // The peer uses it until `number` slots are consumed. Empty until more is consumed.
  std::optional<uint32_t> take(uint32_t length, uint64_t number) noexcept {
    const std::optional<uint64_t> at = find(length);
    if (!at) [[unlikely]]
      return std::nullopt;
    keep(*at, length, number);
    return offset(*at);
  }
  // The same in two steps, for a message whose length is not known yet: find() returns a place for
  // `most` bytes, which is taken only when keep() gets the message's length.
  std::optional<uint64_t> find(uint32_t most) noexcept {
    RRDK_ASSERT(most <= bytes_, most);
    if (first_ == last_)
      used_ = freed_ = 0;
    const Place place = this->place(most);
    if (!place.fits) [[unlikely]]
      return std::nullopt;
    return place.at;
  }
  void keep(uint64_t at, uint32_t length, uint64_t number) noexcept {
    RRDK_ASSERT(at >= used_ && last_ - first_ <= mask_, at, used_);
    used_ = whole_lines(at + length);
    lent_[last_++ & mask_] = {number, used_};
  }
  uint32_t offset(uint64_t at) const noexcept { return static_cast<uint32_t>(at & (bytes_ - 1)); }

  // Returns where take() would put a message of `length` bytes now.
  std::optional<uint32_t> next(uint32_t length) const noexcept {
    const Place place = this->place(length);
    if (!place.fits) [[unlikely]]
      return std::nullopt;
    return offset(place.at);
  }

  void consumed(uint64_t number) noexcept {
    for (; first_ != last_ && lent_[first_ & mask_].number <= number; ++first_)
      freed_ = lent_[first_ & mask_].end;
  }

 private:
  static constexpr uint64_t kLine = 64;
  struct Lent {
    uint64_t number;
    uint64_t end;
  };
  struct Place {
    uint64_t at;
    bool fits;
  };

  // Neighbouring bytes are written while the peer reads this message.
  static uint64_t whole_lines(uint64_t end) noexcept { return (end + kLine - 1) & ~(kLine - 1); }

  Place place(uint32_t length) const noexcept {
    RRDK_ASSERT(freed_ <= used_ && used_ - freed_ <= bytes_, freed_, used_);
    uint64_t at = used_;
    const uint32_t to_end = bytes_ - offset(at);
    if (length > to_end)
      at += to_end;
    return {at, whole_lines(at + length) - freed_ <= bytes_};
  }

  const uint32_t bytes_;
  const uint32_t mask_;
  uint64_t used_ = 0;   // including the gaps at the ring's end
  uint64_t freed_ = 0;  // of these
  uint64_t first_ = 0;
  uint64_t last_ = 0;
  std::vector<Lent> lent_;
};

}  // namespace rrdk::shm

// The lane of a connection (fabric/lane.h). There is no ring: a received message is shown in place
// in the staging buffer, and a message to send is written after the space for its headers. What is
// sent between two flushes leaves by one send(), unless the outbox is full, or another connection
// of the completion queue needs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "drivers/iwarp/segment.h"
#include "fabric/lane.h"

namespace rrdk::iwarp {

class QueuePair;

// The longest message of a lane, if it fits one segment.
constexpr uint32_t kMostInLane = 4096;
// How much can be loaded after a message that is short (fabric::LaneMessage::kAlwaysReadable).
constexpr uint32_t kBehindStaging = fabric::LaneMessage::kAlwaysReadable;

// Whole FPDUs that wait for a send(). A completion queue has one outbox, used by one of its queue
// pairs at a time.
class LaneOutbox {
 public:
  // What precedes and follows a payload that needs no pad.
  static constexpr uint32_t kHead = kLengthField + kUntaggedHeader;
  static constexpr uint32_t kFrame = kHead + kCrcField;

  bool fits(uint32_t payload) const noexcept { return used_ + kFrame + payload <= kBytes; }
  // Where the next FPDU begins.
  std::byte* next() noexcept { return bytes_.data() + used_; }
  void add(uint32_t payload) noexcept {
    RRDK_ASSERT(fits(payload), used_, payload);
    used_ += kFrame + payload;
  }
  std::span<std::byte> pending() noexcept { return std::span(bytes_).first(used_); }
  void clear() noexcept {
    used_ = 0;
    owner = nullptr;
  }

  QueuePair* owner = nullptr;  // the queue pair that uses it

 private:
  static constexpr uint32_t kBytes = 32 << 10;

  uint32_t used_ = 0;
  alignas(64) std::array<std::byte, kBytes> bytes_;
};

class Lane final : public fabric::Lane {
 public:
  explicit Lane(QueuePair& qp) noexcept : qp_(qp) { close(); }

  // Control path. Messages longer than `most` do not fit one segment.
  void open(uint32_t most) noexcept { most_ = most; }
  // The connection is over.
  void end() noexcept { close(); }
  // Whether it is between begin() and send().
  bool begun() const noexcept { return claimed_ != Claimed::kNothing; }
  // Everything that was sent has been given to TCP, or is kept for it.
  void told() noexcept {
    sent_something_ = false;
    taken_told_ = taken_;
  }
  uint64_t taken() const noexcept { return taken_; }
  // Whether its user has seen the next message, and left it.
  bool left_one() const noexcept { return offered_ == taken_ + 1; }

 private:
  fabric::LaneMessage slow_peek(uint64_t word) noexcept override;
  void slow_take(const fabric::LaneMessage& message) noexcept override;
  std::byte* slow_begin(uint32_t most) noexcept override;
  void slow_send(uint32_t length, uint32_t invalidate) noexcept override;
  void slow_flush() noexcept override;
  Untaken untaken() noexcept override;

  QueuePair& qp_;
};

}  // namespace rrdk::iwarp

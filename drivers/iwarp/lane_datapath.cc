// The lane of a connection (lane.h), and the turns of its user.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/assert.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"
#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

fabric::Lane* QueuePair::lane() {
  return status_.load(std::memory_order_acquire) == Status::kEstablished ? &lane_ : nullptr;
}

void QueuePair::set_lane_user(fabric::LaneUser* user) {
  lane_user_ = user;
  if (user == nullptr)
    lane_turn_ = LaneTurn::kNone;  // it may be in its turn
  left_to_receive_ = 0;
  cq_.activate(*this);
}

// Whether the user has a turn now: messages that are reported in this poll come before what it
// would take.
bool QueuePair::lane_runs() const noexcept {
  return lane_user_ != nullptr && (shared_receives_ == nullptr || receives_ == shared_receives_);
}

// One burst. A message that the user leaves, or does not look at, goes to a Receive, and so does
// everything that has arrived after it.
void QueuePair::offer_burst() noexcept {
  const uint64_t before = lane_.taken();
  in_burst_ = true;
  lane_user_->on_burst(lane_, lane_left_);
  in_burst_ = false;
  const auto took = static_cast<uint32_t>(lane_.taken() - before);
  cq_.count_lane(took);
  lane_left_ -= std::min(took, lane_left_);
  stalled_ = stalled_ && took == 0;
  if (took == 0 || lane_.left_one()) {
    left_to_receive_ = next_send_;
    lane_turn_ = LaneTurn::kNone;
  } else if (StagedSend next; lane_left_ == 0 || staged_send(next)) {
    lane_turn_ = LaneTurn::kOver;
  }
}

fabric::LaneMessage Lane::slow_peek(uint64_t /*word*/) noexcept {
  QueuePair::StagedSend next;
  if (!qp_.lane_message(next, most_))
    return {};
  return found(next.payload, next.length, next.kills ? next.key : 0, /*plain=*/false,
               /*shared=*/false);
}

// A message with an invalid key is not for the lane, and neither is a damaged one.
bool QueuePair::lane_message(StagedSend& next, uint32_t most) noexcept {
  const bool good = status_.load(std::memory_order_relaxed) == Status::kEstablished &&
                    staged_send(next) && next.length - 4u <= most - 4u && next.length % 4 == 0 &&
                    (!next.kills || stags_.find(next.key) != nullptr) && is_intact(next);
  if (good)
    hear();  // its user may answer before it takes the message
  return good;
}

void Lane::slow_take(const fabric::LaneMessage& message) noexcept {
  qp_.take_lane_message(message);
}

void QueuePair::take_lane_message(const fabric::LaneMessage& message) noexcept {
  RRDK_ASSERT(in_.stage == Stage::kHeader && !receiving_);
  RRDK_ASSERT(message.length() + LaneOutbox::kFrame <= staged_end_ - staged_begin_);
  if (message.invalidated() != 0)
    (void)kill(message.invalidated());
  staged_begin_ += message.length() + LaneOutbox::kFrame;
  ++next_send_;
}

std::byte* Lane::slow_begin(uint32_t most) noexcept {
  if (begun() || most > most_ || !qp_.begin_lane_message(most))
    return nullptr;
  claimed_ = Claimed::kElsewhere;
  return qp_.lane_outbox().next() + LaneOutbox::kHead;
}

// The outbox has messages of one queue pair. A queue pair takes it from another one in a burst of
// its own, which may bring many messages; otherwise it would change back and forth, with a system
// call each time.
bool QueuePair::begin_lane_message(uint32_t most) noexcept {
  if (!nothing_waits())
    return false;
  LaneOutbox& out = cq_.lane_outbox();
  if (out.owner != nullptr && out.owner != this) {
    if (out.owner->begun_in_lane() || (!in_burst_ && !out.pending().empty()))
      return false;
    out.owner->send_lane();
  }
  if (!out.fits(most)) {
    send_lane();
    if (!nothing_waits())
      return false;
  }
  out.owner = this;
  return true;
}

// The connection may have ended since begin().
void Lane::slow_send(uint32_t length, uint32_t invalidate) noexcept {
  if (claimed_ != Claimed::kElsewhere)
    return;
  claimed_ = Claimed::kNothing;
  sent_something_ = true;
  qp_.add_lane_message(length, invalidate);
}

void QueuePair::add_lane_message(uint32_t length, uint32_t invalidate) noexcept {
  LaneOutbox& out = cq_.lane_outbox();
  RRDK_ASSERT(out.owner == this && length <= kMostInLane, length);
  std::byte* const at = out.next();
  store_u16(at, static_cast<uint16_t>(kUntaggedHeader + length));
  (void)encode({.last = true,
                .opcode = invalidate != 0 ? Opcode::kSendInvalidate : Opcode::kSend,
                .stag = invalidate,
                .queue = kSendQueue,
                .number = cursor_.send_number++},
               at + kLengthField);
  const uint32_t covered = LaneOutbox::kHead + length;
  finish_fpdu(at + covered, 0, agreed_.crc, agreed_.crc ? add_crc(kCrcStart, at, covered) : 0);
  out.add(length);
}

void Lane::slow_flush() noexcept {
  qp_.send_lane();
}

fabric::Lane::Untaken Lane::untaken() noexcept {
  return qp_.untaken();
}

// What TCP has can no longer be observed.
fabric::Lane::Untaken QueuePair::untaken() const noexcept {
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return {};
  return {!kept_.empty(), (uint64_t{kept_rounds_} << 32) + kept_sent_};
}

// Adds what waits, before what is posted, to the same send(). Returns the number of bytes.
size_t QueuePair::lend_lane(Outbox& out) noexcept {
  LaneOutbox& lane = cq_.lane_outbox();
  if (lane.owner != this || lane.pending().empty())
    return 0;
  RRDK_ASSERT(out.empty() && kept_.empty() && cut_ == 0 && !lane_.begun(), cut_);
  lane_.told();
  const std::span<std::byte> bytes = lane.pending();
  if (!bytes.empty())
    out.lend(bytes.data(), bytes.size());
  return bytes.size();
}

// TCP took `taken` bytes, of which the first `lent` were the lane's; or `taken` is -errno. Returns
// the corresponding result for everything after the lane's bytes. What TCP did not take waits with
// the other data that it has not taken.
ssize_t QueuePair::took_lane(ssize_t taken, size_t lent) noexcept {
  if (lent == 0)
    return taken;
  LaneOutbox& lane = cq_.lane_outbox();
  const std::span<const std::byte> bytes = lane.pending();
  lane.clear();
  if (taken >= static_cast<ssize_t>(lent)) [[likely]]
    return taken - static_cast<ssize_t>(lent);
  keep(bytes.subspan(static_cast<size_t>(std::max<ssize_t>(taken, 0))));
  return std::min<ssize_t>(taken, 0);
}

// The same by a separate send().
void QueuePair::send_lane() noexcept {
  LaneOutbox& out = cq_.lane_outbox();
  if (out.owner != this || lane_.begun())
    return;
  lane_.told();
  std::span<const std::byte> bytes = out.pending();
  out.clear();
  if (!bytes.empty() && kept_.empty() && writable_) {
    constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
    // datapath-allow: this is the wire
    const ssize_t sent = ::send(socket_fd_, bytes.data(), bytes.size(), kFlags);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != EINTR)
      return (void)sending_ended(errno);
    if (sent < 0 ? errno != EINTR : sent != static_cast<ssize_t>(bytes.size()))
      (void)tcp_is_full();
    bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  }
  if (!bytes.empty()) [[unlikely]]
    keep(bytes);
}

}  // namespace rrdk::iwarp

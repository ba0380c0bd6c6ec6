// The receiving half: takes messages out of the peer's ring into posted Receives, and polls a queue
// pair as a whole. Everything that the peer can write is read once, into locals, and checked.
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

using fabric::Op;
using fabric::WcStatus;

namespace {

// Work for one queue pair before others have their turn.
constexpr uint32_t kMostSlotsAtOnce = 64;
// In each turn; a peer that registers what each message brings, and deregisters it, needs no more.
constexpr uint32_t kPacketsForgiven = 2 * kMostSlotsAtOnce;
// Bytes of Writes: the first number always, and up to the second one from a peer that is far ahead.
constexpr uint64_t kWrittenAtOnce = uint64_t{64} << 10;
constexpr uint64_t kMostWrittenAtOnce = uint64_t{128} << 10;
// A longer Write is copied in parts of this size; the clock is read after each.
constexpr uint32_t kMostPlaced = 256 << 10;

}  // namespace

// The contents of a slot, read once.
struct QueuePair::SlotHeader {
  uint32_t length = 0;
  uint32_t key = 0;
  uint32_t flags;
  uint32_t num_sges;
  uint64_t address = 0;  // not for inline ones

  explicit SlotHeader(const Slot& slot) noexcept {
    const SlotWord word = slot.word.load(std::memory_order_relaxed);
    flags = word.flags;
    num_sges = word.num_sges;
    if ((flags & kInline) != 0) {
      length = word.length;
      if ((flags & kInvalidate) != 0 && length <= Slot::kMaxInline)
        key = fabric::load_once<uint32_t>(slot.room + length);
    } else {
      length = slot.far.length;
      key = slot.far.key;
      address = slot.far.address;
    }
    // Keeps the compiler from reading the slot a second time when these are used.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // Whether it is valid as a message from a peer with `copies` bytes of copies.
  bool sane(uint32_t copies) const noexcept {
    if ((flags & kInline) != 0)
      return length <= Slot::kMaxInline;
    if ((flags & kCopied) != 0)
      return length <= copies && address <= copies - length;
    return num_sges <= Slot::kMaxSges;
  }
};

uint32_t QueuePair::poll(std::span<fabric::Completion> out, uint32_t burst) noexcept {
  const Status status = status_.load(std::memory_order_acquire);
  if (status == Status::kEstablished) [[likely]] {
    if (regions_changed_.load(std::memory_order_relaxed)) [[unlikely]] {
      cq_.begin_slow_work();
      apply_region_changes();
      (void)cq_.over_budget();
    }
    if (packets_read_ != 0) [[unlikely]]
      packets_read_ -= std::min(packets_read_, kPacketsForgiven);
    const uint64_t before = taken_;
    uint32_t n = reap_sends(out);
    n += receive(out.subspan(n), burst);
    if (n != 0 || taken_ != before)
      return n;
    if (unsure_)
      make_sure_told();
    if (peer_closed()) [[unlikely]] {
      // What was sent before the close is still received.
      n = receive(out, burst);
      if (n == 0 && taken_ == before)
        fail_with(end_of_peer());
    }
    return n;
  }
  if (status != Status::kError) {
    if (dead_.load(std::memory_order_acquire) != End::kNotYet)
      fail_with(End::kNeverConnected);
    return 0;
  }
  return flush(out);
}

uint32_t QueuePair::pull(std::span<fabric::Completion> out) noexcept {
  uint32_t n = 0;
  for (uint32_t slots = 0; slots < kMostSlotsAtOnce && n < out.size() && message_ready(); ++slots) {
    const Slot& slot = theirs_.slot(taken_);
    const SlotHeader header(slot);
    // The next two messages of a burst are fetched from the other core while this one is copied.
    prefetch_slot(&slot + 1, header.flags, header.length);
    prefetch_slot(&slot + 2, header.flags, header.length);
    if ((header.flags & kWrite) != 0) {
      if (!take_write(slot, header))
        break;
    } else if (take_message(slot, header, out[n])) {
      ++n;
    } else {
      break;
    }
  }
  if (taken_ != taken_told_)
    tell_consumed();
  return n;
}

// Whether this turn copies more of the peer's Writes. Each turn costs a pass of the core, so fewer
// and longer turns cost less. But long turns must not leave either end without work: they continue
// only while more slots wait than were taken. Writes without a message between them belong to one
// reply, and are taken like one long Write.
bool QueuePair::goes_on_writing() const noexcept {
  if (written_ != 0 && cq_.known_over_budget()) [[unlikely]]
    return false;
  if (taken_ - turn_began_ >= kPacketsForgiven) [[unlikely]]  // possibly without any bytes
    return false;
  if (written_ < kWrittenAtOnce || taken_ == behind_write_)
    return true;
  const uint64_t behind = taken_ + (taken_ - turn_began_);
  return written_ < kMostWrittenAtOnce &&
         theirs_.slot(behind).word.load(std::memory_order_relaxed).sequence ==
             static_cast<uint32_t>(behind + 1);
}

bool QueuePair::message_ready() noexcept {
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return false;
  const uint32_t sequence = theirs_.slot(taken_).word.load(std::memory_order_acquire).sequence;
  if (sequence == static_cast<uint32_t>(taken_ + 1))
    return true;
  if (sequence != previous_sequence()) [[unlikely]] {
    Counters::count(device_.counts().bad_slots);
    fail_with(End::kProtocol, taken_ + 1);
  }
  return false;
}

// Takes the next message into the next Receive. Returns false if it must be retried or the
// connection has failed.
bool QueuePair::take_message(const Slot& slot, const SlotHeader& header,
                             fabric::Completion& out) noexcept {
  RRDK_ASSERT((header.flags & kWrite) == 0 && &slot == &theirs_.slot(taken_), taken_);
  if (receives_->empty()) {
    if (!std::exchange(stalled_, true))
      Counters::count(device_.counts().rnr_waits);
    return false;
  }
  stalled_ = false;
  const fabric::ReceiveWr receive = receives_->front();
  WcStatus status = WcStatus::kSuccess;
  if (!header.sane(theirs_.copies_bytes)) {
    Counters::count(device_.counts().bad_slots);
    status = WcStatus::kRemoteOperation;
  } else if (header.length > receive.buffer.length) {
    Counters::count(device_.counts().messages_too_long);
    status = WcStatus::kLocalLength;
  } else if ((header.flags & kInline) != 0) {
    copy_short(receive.buffer.data, slot.room, header.length);
  } else if ((header.flags & kCopied) != 0) {
    std::memcpy(receive.buffer.data, theirs_.copies + header.address, header.length);
  } else {
    status = gather_remote(slot, header.num_sges, header.length, receive.buffer.data,
                           {0, header.length});
    if (std::exchange(region_is_late_, false)) [[unlikely]]
      return false;
    // A sender that has closed may reuse its memory: what was copied is valid only if it had not
    // closed.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (theirs_.state->closed.load(std::memory_order_relaxed) != 0)
      return false;
  }
  const bool invalidates = (header.flags & kInvalidate) != 0;
  // The message itself shows that the peer no longer reads by this key.
  if (status == WcStatus::kSuccess && invalidates && !keys_.kill_for_peer(header.key)) {
    Counters::count(device_.counts().bad_invalidations);
    status = WcStatus::kRemoteAccess;
  }
  receives_->pop();
  const bool good = status == WcStatus::kSuccess;
  out = {.wr_id = receive.wr_id,
         .owner = owner_,
         .op = Op::kReceive,
         .status = status,
         .has_invalidated = good && invalidates,
         .byte_length = good ? header.length : 0,
         .invalidated_key = header.key};
  if (!good) {
    refuse_message(status);
    return true;
  }
  ++taken_;
  acknowledge_ = acknowledge_ || (header.flags & kAckWanted) != 0;
  return true;
}

// Called if the next slot is an RDMA Write. The peer may have changed it meanwhile.
bool QueuePair::take_next_write() noexcept {
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return false;
  const Slot& slot = theirs_.slot(taken_);
  const SlotHeader header(slot);
  return (header.flags & kWrite) != 0 && take_write(slot, header);
}

// Handles an RDMA Write by the peer, a long one in parts. Returns false if it must be retried, or
// continued, or if the connection has failed. The peer can change the slot between two parts: each
// is checked as a whole Write.
bool QueuePair::take_write(const Slot& slot, const SlotHeader& header) noexcept {
  RRDK_ASSERT((header.flags & kWrite) != 0 && &slot == &theirs_.slot(taken_), taken_);
  if (!goes_on_writing())
    return false;
  WcStatus status = WcStatus::kRemoteOperation;
  if (header.num_sges <= Slot::kMaxSges)
    status = place_parts(slot, header);
  else
    Counters::count(device_.counts().bad_slots);
  if (std::exchange(region_is_late_, false)) [[unlikely]]
    return false;
  // As with messages. The copied data is not reported.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (theirs_.state->closed.load(std::memory_order_relaxed) != 0)
    return false;
  if (status != WcStatus::kSuccess) [[unlikely]] {
    refuse_message(status);
    return false;
  }
  if (placed_ != 0)
    return false;
  behind_write_ = ++taken_;
  acknowledge_ = true;
  return true;
}

// Continues where the last turn has stopped, if it has. If this one stops before the end, placed_
// says where.
WcStatus QueuePair::place_parts(const Slot& slot, const SlotHeader& header) noexcept {
  if (header.length >= kLargeCopy)
    cq_.begin_slow_work();
  auto status = WcStatus::kSuccess;
  uint32_t done = std::min(std::exchange(placed_, 0), header.length);
  do {
    const Part part = {done, std::min(header.length - done, kMostPlaced)};
    status = place(slot, header, part);
    if (status != WcStatus::kSuccess) [[unlikely]]
      return status;
    done += part.length;
    written_ += part.length;
    (void)cq_.copied(part.length);
  } while (done != header.length && !cq_.known_over_budget());
  if (done != header.length)
    placed_ = done;
  return status;
}

// Copies what a Write names to the place that its key denotes. Only we can change our own entry of
// the key.
WcStatus QueuePair::place(const Slot& slot, const SlotHeader& header, Part part) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Counters& counts = device_.counts();
  const auto refuse = [](Counters::Count& reason) {
    Counters::count(reason);
    return WcStatus::kRemoteAccess;
  };
  const uint64_t address = header.address;
  const KeyEntry* const key = keys_.bound(header.key);
  if (key == nullptr)
    return refuse(counts.refused_keys);
  if (key->rights.load(kRelaxed) != static_cast<uint32_t>(fabric::Rights::kRemoteWrite))
    return refuse(counts.refused_rights);
  const uint64_t window = key->length.load(kRelaxed);
  const uint64_t skip = address - key->address.load(kRelaxed);  // huge if the address is before it
  if (skip > window || header.length > window - skip)
    return refuse(counts.refused_bounds);
  return gather_remote(slot, header.num_sges, header.length,
                       reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address)), part);
}

void QueuePair::refuse_message(WcStatus status) noexcept {
  fail_with(its_fault_or(status == WcStatus::kLocalLength    ? End::kMessageTooLong
                         : status == WcStatus::kRemoteAccess ? End::kAccessRefused
                                                             : End::kProtocol),
            taken_ + 1);
}

// If the peer broke the protocol in the socket, or showed memory there that we cannot take, that is
// the reason why its messages and keys name memory that we do not know.
QueuePair::End QueuePair::its_fault_or(End otherwise) const noexcept {
  const End dead = dead_.load(std::memory_order_relaxed);
  const bool by_socket = dead == End::kTooMuchMemory || dead == End::kProtocol ||
                         dead == End::kNoDescriptors || dead == End::kNotMapped;
  return by_socket ? dead : otherwise;
}

// Copies a part of a message that is in the peer's memory. `length` must fit the destination.
WcStatus QueuePair::gather_remote(const Slot& slot, uint32_t count, uint32_t length, std::byte* to,
                                  Part part) noexcept {
  RRDK_ASSERT(count <= Slot::kMaxSges, count);
  RRDK_ASSERT(part.skip <= length && part.length <= length - part.skip, part.skip, part.length);
  to += part.skip;
  std::array<RemoteSge, Slot::kMaxSges> sges;
  std::memcpy(sges.data(), slot.far.sges, count * sizeof(RemoteSge));
  std::atomic_signal_fence(std::memory_order_seq_cst);
  uint32_t left = length;
  for (uint32_t i = 0; i != count; ++i) {
    const RemoteSge& sge = sges[i];
    const std::byte* from = sge.length <= left
                                ? peer_bytes(sge.region, sge.offset, sge.length, Naming::kMessage)
                                : nullptr;
    if (from == nullptr) {
      if (!region_is_late_)
        Counters::count(device_.counts().bad_regions);
      return WcStatus::kRemoteOperation;
    }
    if (i + 1 != count)
      expect_run(sges[i + 1]);
    const uint32_t skip = std::min(part.skip, sge.length);
    const uint32_t copied = std::min(part.length, sge.length - skip);
    if (count == 1)
      std::memcpy(to, from + skip, copied);
    else
      copy_page(to, from + skip, copied);
    to += copied;
    part = {part.skip - skip, part.length - copied};
    left -= sge.length;
  }
  if (left == 0)
    return WcStatus::kSuccess;
  Counters::count(device_.counts().bad_slots);
  return WcStatus::kRemoteOperation;
}

const std::byte* QueuePair::peer_bytes(WireId region, uint64_t offset, uint64_t length,
                                       Naming by) noexcept {
  const std::byte* bytes = peer_regions_.at(region, offset, length);
  uint64_t end;
  if (bytes == nullptr && !__builtin_add_overflow(offset, length, &end) &&
      learn_peer_region(region, end, by)) [[unlikely]]
    bytes = peer_regions_.at(region, offset, length);
  return bytes;
}

void QueuePair::tell_consumed() noexcept {
  RRDK_ASSERT(taken_told_ < taken_, taken_told_, taken_);
  taken_told_ = taken_;
  mine_.state->consumed.store(taken_, std::memory_order_release);
  if (!std::exchange(acknowledge_, false))
    return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if ((theirs_.state->wants.load(std::memory_order_relaxed) & kWantsConsumed) != 0) [[unlikely]] {
    Counters::count(device_.counts().doorbells);
    ring(bell_);
  }
}

bool QueuePair::peer_closed() noexcept {
  return theirs_.state->closed.load(std::memory_order_acquire) != 0 ||
         dead_.load(std::memory_order_acquire) != End::kNotYet;
}

uint32_t QueuePair::flush(std::span<fabric::Completion> out) noexcept {
  RRDK_ASSERT(status_.load(std::memory_order_relaxed) == Status::kError);
  uint32_t n = reap_sends(out);
  for (; n < out.size() && !own_receives_.empty(); own_receives_.pop())
    out[n++] = {.wr_id = own_receives_.front().wr_id,
                .owner = owner_,
                .op = Op::kReceive,
                .status = WcStatus::kFlushed,
                .has_invalidated = false,
                .byte_length = 0,
                .invalidated_key = 0};
  return n;
}

// A message without a Receive waits. A held queue pair takes Receives from its own queue, which is
// empty.
void QueuePair::hold_receives(bool hold) {
  RRDK_ASSERT(shared_receives_ == nullptr || own_receives_.empty());
  if (shared_receives_ == nullptr)
    return;
  receives_->stop_waiting(*this);
  receives_ = hold ? &own_receives_ : shared_receives_;
  cq_.activate(*this);
}

uint32_t QueuePair::post_receive(std::span<const fabric::ReceiveWr> wrs) {
  if (shared_receives_ != nullptr)
    return 0;
  const uint32_t taken = own_receives_.post(wrs);
  if (status_.load(std::memory_order_relaxed) == Status::kError)
    cq_.activate(*this);
  return taken;
}

bool QueuePair::look() noexcept {
  const Status status = status_.load(std::memory_order_acquire);
  if (status == Status::kError)
    return send_head_ != send_tail_ || !own_receives_.empty();
  if (status != Status::kEstablished)
    return dead_.load(std::memory_order_acquire) != End::kNotYet;
  if (peer_closed() || regions_changed_.load(std::memory_order_relaxed))
    return true;
  if (message_ready() &&
      (!receives_->empty() || !next_needs_receive() || (lane_runs() && offered_ != taken_ + 1)))
    return true;
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return true;  // a message in the ring ended the connection
  if (refused_copy_ != 0 && !lacks_copies())
    return true;
  if (send_head_ == send_tail_)
    return false;
  // No event signals the last release of a key, so poll for it.
  SendRecord& oldest = sends_[send_head_ & send_mask_];
  return oldest.wait == Wait::kReader || done(oldest);
}

// For a message that message_ready() has found.
bool QueuePair::next_needs_receive() noexcept {
  return (SlotHeader(theirs_.slot(taken_)).flags & kWrite) == 0;
}

bool QueuePair::rest() noexcept {
  RRDK_ASSERT(active);
  const bool waits = send_head_ != send_tail_ || refused_copy_ != 0;
  const uint32_t wants = kWantsMessages | (waits ? kWantsConsumed : 0u);
  mine_.state->wants.store(wants, std::memory_order_seq_cst);
  if (unsure_)
    make_sure_told();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (look()) {
    awake();
    return false;
  }
  if (status_.load(std::memory_order_relaxed) == Status::kEstablished && message_ready())
    receives_->wait(*this);
  return true;
}

void QueuePair::awake() noexcept {
  mine_.state->wants.store(0, std::memory_order_relaxed);
  receives_->stop_waiting(*this);
}

}  // namespace rrdk::shm

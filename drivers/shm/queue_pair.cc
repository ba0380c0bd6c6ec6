#include "drivers/shm/queue_pair.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/system.h"

namespace rrdk::shm {

namespace {

// The ring has space for all sends that wait to be consumed, and for as many inline ones that do
// not; the copies take at most half as much, which a core's own cache holds.
Geometry geometry_of(const fabric::QueuePairOptions& options) {
  const uint32_t slots = std::max(2 * std::bit_ceil(options.send_wrs), 16u);
  return {.slots = slots,
          .keys = std::bit_ceil(std::max(options.keys, 1u)),
          .copies = std::clamp(slots * uint32_t{Slot::kSize} / 2, 2 * kMaxCopied, kMaxCopies)};
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::create(Device& device,
                                                     const fabric::QueuePairOptions& options) {
  if (auto checked = drivers::check(options, device.capabilities()); !checked)
    return tl::unexpected(checked.error());
  const Geometry geometry = geometry_of(options);
  Result<SharedMemory> segment = create_shared("rrdk-channel", geometry.bytes(), Writers::kOwner);
  if (!segment)
    return tl::unexpected(segment.error());
  Result<WakeUp> wake_up = create_wake_up();
  if (!wake_up)
    return tl::unexpected(wake_up.error());
  auto& cq = static_cast<CompletionQueue&>(*options.cq);
  if (Result<void> woken = cq.wake_by(wake_up->receiver.get()); !woken)
    return tl::unexpected(woken.error());
  std::unique_ptr<QueuePair> qp(
      new QueuePair(device, options, geometry, std::move(*segment), std::move(*wake_up)));
  Result<uint32_t> bit = cq.add(*qp);
  if (!bit)
    return tl::unexpected(bit.error());
  qp->bit_ = *bit;
  return qp;
}

Result<QueuePair::WakeUp> QueuePair::create_wake_up() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return base::system_failure("socketpair");
  const uid_t us = ::geteuid();  // until a peer has it
  return WakeUp{.receiver = PeerSocket(Fd(ends[0]), us), .sender = PeerFd(Fd(ends[1]), us)};
}

QueuePair::QueuePair(Device& device, const fabric::QueuePairOptions& options, Geometry geometry,
                     SharedMemory segment, WakeUp wake_up)
    : device_(device),
      cq_(static_cast<CompletionQueue&>(*options.cq)),
      owner_(options.owner),
      reads_(options.reads),
      mine_(segment.mapping.base(), geometry),
      own_receives_(options.srq == nullptr ? options.receive_wrs : 0),
      shared_receives_(options.srq == nullptr
                           ? nullptr
                           : &static_cast<drivers::SharedReceiveQueue*>(options.srq)->queue()),
      receives_(shared_receives_ != nullptr ? shared_receives_ : &own_receives_),
      keys_(mine_.keys, geometry.keys),
      send_limit_(options.send_wrs),
      send_mask_(std::bit_ceil(options.send_wrs) - 1),
      sends_(send_mask_ + 1),
      copies_(mine_.copies_bytes, geometry.slots),
      geometry_(geometry),
      segment_(std::move(segment)),
      wake_up_(std::move(wake_up)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  // What each poll and each Send touches.
  static_assert(offsetof(QueuePair, unsure_) - offsetof(QueuePair, status_) < 160);
#pragma GCC diagnostic pop
  mine_.state->wants.store(kWantsMessages, std::memory_order_relaxed);
  out_ = reinterpret_cast<std::byte*>(mine_.slots);
  out_mask_ = mine_.slot_mask;
  most_ = kMaxCopied;
  close();
}

QueuePair::~QueuePair() {
  device_.control().forget(*this);
  disconnect();
  receives_->stop_waiting(*this);
  cq_.remove(*this, bit_, own_bells_);
  cq_.ignore(wake_up_.receiver.get());
  device_.control().forget(*this);
  device_.control().unwatch(socket_.get());
}

void QueuePair::disconnect() {
  fail_with(End::kDisconnected);
}

// The end of the data path, whichever end is at fault. The peer learns the reason from the segment.
void QueuePair::fail_with(End end, uint64_t number) noexcept {
  const Status before = status_.exchange(Status::kError, std::memory_order_acq_rel);
  if (before == Status::kError)
    return;
  cq_.begin_slow_work();
  end_.store(before == Status::kEstablished ? end : End::kNeverConnected,
             std::memory_order_release);
  close();
  if (before == Status::kEstablished) {
    // What was taken stays taken, also in the burst of a lane that ends the connection.
    mine_.state->consumed.store(taken_, std::memory_order_release);
    mine_.state->closed_number.store(number, std::memory_order_relaxed);
    mine_.state->closed.store(static_cast<uint32_t>(close_reason(end)), std::memory_order_seq_cst);
    keys_.kill_all();
    settle_sends();
    ring(bell_);
    close_socket_half();
  }
  cq_.activate(*this);
  device_.control().nudge(*this);
  (void)cq_.over_budget();
}

// The reason that is given to the peer.
CloseReason QueuePair::close_reason(End end) noexcept {
  switch (end) {
    case End::kMessageTooLong:
      return CloseReason::kMessageTooLong;
    case End::kAccessRefused:
      return CloseReason::kAccessRefused;
    case End::kProtocol:
      return CloseReason::kProtocol;
    case End::kLocalError:
      return CloseReason::kLocalError;
    case End::kTooMuchMemory:
      return CloseReason::kTooMuchMemory;
    case End::kNoDescriptors:
      return CloseReason::kNoDescriptors;
    case End::kNotMapped:
      return CloseReason::kNotMapped;
    case End::kNotYet:
    case End::kDisconnected:
    case End::kNeverConnected:
    case End::kPeerClosed:
    case End::kPeerGone:
      break;
  }
  return CloseReason::kDisconnected;
}

// If peer_closed(): what the socket said counts first, but its mere end says less than the peer
// did.
QueuePair::End QueuePair::end_of_peer() const noexcept {
  const End dead = dead_.load(std::memory_order_acquire);
  if (dead != End::kNotYet && dead != End::kPeerGone)
    return dead;
  return theirs_.state->closed.load(std::memory_order_acquire) != 0 ? End::kPeerClosed
                                                                    : End::kPeerGone;
}

// For a request of ours that failed.
QueuePair::End QueuePair::end_of(fabric::WcStatus status) noexcept {
  switch (status) {
    case fabric::WcStatus::kRemoteAccess:
      return End::kAccessRefused;
    case fabric::WcStatus::kRemoteOperation:
      return End::kProtocol;
    case fabric::WcStatus::kPeerLost:
      return End::kPeerGone;
    default:
      return End::kLocalError;
  }
}

// Decides what becomes of each send that was still waiting. After one that failed none succeeds,
// not even a Send that is in the ring: the peer stopped before it.
void QueuePair::settle_sends() noexcept {
  RRDK_ASSERT(send_tail_ - send_head_ <= send_limit_, send_head_, send_tail_);
  const uint64_t consumed = theirs_.state->consumed.load(std::memory_order_acquire);
  const auto reason =
      static_cast<CloseReason>(theirs_.state->closed.load(std::memory_order_acquire));
  const uint64_t at_fault = theirs_.state->closed_number.load(std::memory_order_relaxed);
  bool lost =
      reason == CloseReason::kOpen && dead_.load(std::memory_order_acquire) == End::kPeerGone;
  bool failed = false;
  for (uint64_t i = send_head_; i != send_tail_; ++i) {
    SendRecord& record = sends_[i & send_mask_];
    if (record.wait == Wait::kConsumed && record.number > consumed) {
      record.status = fabric::WcStatus::kFlushed;
      if (reason != CloseReason::kOpen && reason != CloseReason::kDisconnected &&
          record.number == at_fault)
        record.status = reason == CloseReason::kMessageTooLong ? fabric::WcStatus::kRemoteInvalid
                        : reason == CloseReason::kAccessRefused
                            ? fabric::WcStatus::kRemoteAccess
                            : fabric::WcStatus::kRemoteOperation;
      else if (std::exchange(lost, false))
        record.status = fabric::WcStatus::kPeerLost;
    } else if (record.wait == Wait::kReader) {
      record.status = fabric::WcStatus::kFlushed;
    } else if (failed && record.status == fabric::WcStatus::kSuccess) {
      record.status = fabric::WcStatus::kFlushed;
    }
    failed = failed || record.status != fabric::WcStatus::kSuccess;
    record.wait = Wait::kNothing;
  }
}

// The peer's end of the socket ends when we have stopped; ours when the peer has.
void QueuePair::close_socket_half() noexcept {
  const std::lock_guard lock(control_mutex_);
  if (socket_)
    ::shutdown(socket_.get(), SHUT_WR);
}

}  // namespace rrdk::shm

// What a segment may do, and what it does when it is complete. This is the only place where the
// peer is checked: RFC 5040 sections 5 to 7, RFC 5041 sections 5 to 7.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

using fabric::Op;
using fabric::Rights;
using fabric::WcStatus;

// The peer has sent something.
void QueuePair::hear() noexcept {
  if (!may_speak_ || !heard_.load(std::memory_order_relaxed)) [[unlikely]] {
    may_speak_ = true;
    heard_.store(true, std::memory_order_relaxed);
  }
}

// Returns false if it has to wait for a Receive, or if the connection is over.
bool QueuePair::begin_segment() noexcept {
  hear();
  in_.sink = Sink::kNowhere;
  switch (in_.header.opcode) {
    case Opcode::kWrite:
      return begin_write();
    case Opcode::kReadResponse:
      return begin_response();
    case Opcode::kReadRequest:
      return begin_small(kReadQueue, next_read_, kReadRequestBody, kReadRequestBody);
    case Opcode::kTerminate:
      return begin_small(kTerminateQueue, 1, 0, kMaxTerminate);
    case Opcode::kSend:
    case Opcode::kSendInvalidate:
    case Opcode::kSendSolicited:
    case Opcode::kSendSolicitedInvalidate:
      return begin_send();
  }
  return refuse(Cause::kUnexpectedOpcode, device_.counts().bad_opcodes);
}

bool QueuePair::begin_send() noexcept {
  const SegmentHeader& header = in_.header;
  Counters& counts = device_.counts();
  if (header.queue != kSendQueue)
    return refuse(Cause::kInvalidQueue, counts.bad_queues);
  if (header.number != next_send_)
    return refuse(Cause::kMessageNumber, counts.bad_numbers);
  if (header.offset != (receiving_ ? received_ : 0))
    return refuse(Cause::kMessageOffset, counts.bad_offsets);
  // The initiator's ready-to-receive message takes no Receive. Only the first message can be one.
  if (std::exchange(agreed_.rtr_send, false) && in_.payload == 0 && header.last)
    return true;
  if (!receiving_) {
    if (receives_->empty()) {
      if (!stalled_)
        Counters::count(counts.rnr_waits);
      stalled_ = true;
      if (lane_runs())
        left_to_receive_ = next_send_;
      receives_->wait(*this);
      return false;
    }
    receive_ = receives_->front();
    receives_->pop();
    receive_status_ = WcStatus::kFlushed;
    receiving_ = true;
    received_ = 0;
  }
  if (in_.payload > receive_.buffer.length - received_) {
    receive_status_ = WcStatus::kLocalLength;
    return refuse(Cause::kMessageTooLong, counts.messages_too_long);
  }
  in_.sink = Sink::kReceive;
  in_.to = receive_.buffer.data + received_;
  return true;
}

bool QueuePair::begin_write() noexcept {
  if (in_.payload == 0)
    return true;  // its STag is ignored (RFC 5040 section 5.1)
  const Stags::Window* target =
      window(in_.header.stag, in_.header.offset, in_.payload, Rights::kRemoteWrite, kWriteCauses);
  if (target == nullptr)
    return false;
  in_.sink = Sink::kWindow;
  in_.to = target->base + (in_.header.offset - target->address());
  return true;
}

// Responses come in the order of the Reads, so only that of the oldest one can come.
bool QueuePair::begin_response() noexcept {
  const SegmentHeader& header = in_.header;
  // The first Read may be the empty one, which has no record.
  if (rtr_read_pending_ && in_.payload == 0 && header.last)
    return true;
  read_head_ = std::max(read_head_, head_);
  while (read_head_ != tail_ && (record(read_head_).op != Op::kRead || record(read_head_).done))
    ++read_head_;
  const bool any =
      !rtr_read_pending_ && read_head_ != tail_ && reads_answered_ + 1 != cursor_.read_number;
  const Record& r = record(read_head_);
  if (!any || header.stag != r.read_number || header.offset != read_received_ ||
      in_.payload > r.length - read_received_ ||
      header.last != (in_.payload == r.length - read_received_))
    return refuse(Cause::kTaggedInvalidStag, device_.counts().bad_responses);
  in_.sink = Sink::kRead;
  return true;
}

// A message of one segment that is processed when it is complete.
bool QueuePair::begin_small(uint32_t queue, uint32_t number, uint32_t least,
                            uint32_t most) noexcept {
  Counters& counts = device_.counts();
  if (in_.header.queue != queue)
    return refuse(Cause::kInvalidQueue, counts.bad_queues);
  if (in_.header.number != number)
    return refuse(Cause::kMessageNumber, counts.bad_numbers);
  if (in_.header.offset != 0)
    return refuse(Cause::kMessageOffset, counts.bad_offsets);
  if (!in_.header.last || in_.payload < least || in_.payload > most)
    return refuse(Cause::kCatastrophic, counts.bad_lengths);
  in_.sink = Sink::kSmall;
  in_.to = small_.data();
  return true;
}

bool QueuePair::end_segment(std::span<fabric::Completion> out, uint32_t& count) noexcept {
  switch (in_.header.opcode) {
    case Opcode::kWrite:
      return true;
    case Opcode::kReadResponse:
      return end_response();
    case Opcode::kReadRequest:
      return end_read_request();
    case Opcode::kTerminate:
      end_terminate();
      return false;
    default:
      break;
  }
  if (in_.sink == Sink::kNowhere) {
    ++next_send_;
    return true;
  }
  RRDK_ASSERT(receiving_ && in_.left == 0, in_.left);
  received_ += in_.payload;
  RRDK_ASSERT(received_ <= receive_.buffer.length, received_, receive_.buffer.length);
  if (!in_.header.last)
    return true;
  count += end_send(out[count]);
  return true;
}

// Returns false if the message does something that it must not.
bool QueuePair::end_send(fabric::Completion& out) noexcept {
  RRDK_ASSERT(receiving_ && in_.header.last);
  const bool kills = invalidates(in_.header.opcode);
  if (kills && stags_.find(in_.header.stag) == nullptr) {
    receive_status_ = WcStatus::kRemoteAccess;
    return refuse(Cause::kCannotInvalidate, device_.counts().bad_invalidations);
  }
  if (kills)
    (void)kill(in_.header.stag);
  out = {.wr_id = receive_.wr_id,
         .owner = owner_,
         .op = Op::kReceive,
         .status = WcStatus::kSuccess,
         .has_invalidated = kills,
         .byte_length = received_,
         .invalidated_key = kills ? in_.header.stag : 0};
  receiving_ = false;
  lane_turn_ = LaneTurn::kNone;
  ++next_send_;
  return true;
}

bool QueuePair::end_response() noexcept {
  if (in_.sink == Sink::kNowhere) {
    rtr_read_pending_ = false;
    ++reads_answered_;
    return true;
  }
  read_received_ += in_.payload;
  RRDK_ASSERT(read_received_ <= record(read_head_).length, read_received_);
  if (!in_.header.last)
    return true;
  read_received_ = 0;
  ++reads_answered_;
  large_reads_ -= is_large_read(record(read_head_));
  record(read_head_).done = true;
  return true;
}

bool QueuePair::end_read_request() noexcept {
  RRDK_ASSERT(in_.payload == kReadRequestBody && in_.left == 0, in_.payload, in_.left);
  ++next_read_;
  const ReadRequest request = decode_read_request(small_.data());
  if (response_tail_ - cursor_.response >= agreed_.ird)
    return refuse(Cause::kNoBuffer, device_.counts().read_overruns);
  if (request.length != 0 && window(request.source_stag, request.source_offset, request.length,
                                    Rights::kRemoteRead, kReadCauses) == nullptr)
    return false;
  if (response_tail_ - cursor_.response == responses_.size() && !grow_responses()) [[unlikely]] {
    fail_with(End::kLocalError);
    return false;
  }
  responses_[response_tail_++ & response_mask_] = {.sink_stag = request.sink_stag,
                                                   .source_stag = request.source_stag,
                                                   .sink_offset = request.sink_offset,
                                                   .source_offset = request.source_offset,
                                                   .length = request.length,
                                                   .number = in_.header.number};
  return true;
}

// For our Reads, the peer names the one that it refused; Sends and Writes have already been
// reported.
void QueuePair::end_terminate() noexcept {
  Counters::count(device_.counts().terminates_received);
  const Terminate terminate = decode_terminate(std::span(small_).first(in_.payload));
  cause_ = terminate.cause;
  const SegmentHeader& fault = terminate.segment;
  if (terminate.has_segment && !fault.tagged && fault.queue == kReadQueue)
    refused_read_ = fault.number;
  const bool of_write = !terminate.has_segment || (fault.tagged && fault.opcode == Opcode::kWrite);
  access_refused_ = of_write && refuses_access(terminate.cause);
  fail_with(End::kTerminated);
}

// Returns the memory of a key if the peer may access it so; otherwise the connection is over.
const Stags::Window* QueuePair::window(uint32_t key, uint64_t offset, uint64_t length,
                                       Rights rights, const AccessCauses& causes) noexcept {
  Counters& counts = device_.counts();
  const Stags::Window* found = stags_.find(key);
  Cause cause = causes.stag;
  Counters::Count* count = &counts.refused_keys;
  if (found != nullptr) {
    const uint64_t skip = offset - found->address();  // huge if the offset is before it
    if (found->rights != rights) {
      cause = causes.rights;
      count = &counts.refused_rights;
    } else if (skip > found->length || length > found->length - skip) {
      cause = causes.bounds;
      count = &counts.refused_bounds;
    } else {
      return found;
    }
  }
  (void)refuse(cause, *count);
  return nullptr;
}

bool QueuePair::refuse_header(SegmentFault fault) noexcept {
  Counters& counts = device_.counts();
  switch (fault) {
    case SegmentFault::kDdpVersion:
      return refuse(in_.header.tagged ? Cause::kTaggedDdpVersion : Cause::kUntaggedDdpVersion,
                    counts.bad_versions);
    case SegmentFault::kRdmapVersion:
      return refuse(Cause::kRdmapVersion, counts.bad_versions);
    default:
      return refuse(Cause::kUnexpectedOpcode, counts.bad_opcodes);
  }
}

// Always returns false.
bool QueuePair::refuse(Cause cause, Counters::Count& count) noexcept {
  Counters::count(count);
  cause_ = cause;
  fail_with(End::kRefused);
  return false;
}

}  // namespace rrdk::iwarp

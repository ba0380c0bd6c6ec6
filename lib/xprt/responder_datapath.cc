// The life of a call at the responder, from its Receive to the completion of its reply's Send.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "proto/codec.h"
#include "rrdk/xdr.h"
#include "xprt/refusals.h"
#include "xprt/responder.h"

namespace rrdk::xprt {

using proto::ErrorCode;
using proto::MessageType;
using proto::Verdict;

namespace {

constexpr uint32_t kProcError = 4;  // rdma_proc, the same word in all versions

// The first word of the message, wherever it lies; empty when there are fewer than four bytes.
std::optional<uint32_t> first_word(std::span<const Fragment> message) {
  std::byte word[4];
  uint32_t have = 0;
  for (const Fragment& f : message) {
    uint32_t n = std::min<uint32_t>(f.length, 4 - have);
    std::memcpy(word + have, f.data, n);
    have += n;
    if (have == 4)
      return xdr::load_u32(word);
  }
  return std::nullopt;
}

bool carries_message(MessageType type) {
  return type == MessageType::kMsg || type == MessageType::kNoMsg || type == MessageType::kMsgp;
}

// The error that says what is wrong with a header. Versions that have no such code write their
// general one.
proto::ErrorBody error_of(Verdict verdict, const proto::Limits& limits) {
  switch (verdict) {
    case Verdict::kBadVersion:
      return {.code = ErrorCode::kVersion,
              .low = limits.versions.low(),
              .high = limits.versions.high()};
    case Verdict::kBadProc:
      return {.code = ErrorCode::kBadProc};
    case Verdict::kTooManyReadChunks:
      return {.code = ErrorCode::kReadChunks, .maximum = limits.read_chunks};
    case Verdict::kTooManyWriteChunks:
      return {.code = ErrorCode::kWriteChunks, .maximum = limits.write_chunks};
    case Verdict::kTooManySegments:
      return {.code = ErrorCode::kSegments,
              .maximum = std::min({limits.chunk_segments, limits.read_segments, limits.segments})};
    case Verdict::kTooManyBytes:
      return {.code = ErrorCode::kSystem};
    default:
      return {.code = ErrorCode::kBadHeader};
  }
}

}  // namespace

// A peer that makes calls without ever taking the replies is held back here: beyond twice the
// credits its messages stay in their Receives, which are then not posted again.
void Responder::on_receive(ReceiveSlot& slot, uint32_t length) noexcept {
  bool in_order = link_.receives.parked() == nullptr;
  if (!in_order || !take(slot, length))
    link_.receives.park(slot, length);
}

bool Responder::take(ReceiveSlot& slot, uint32_t length) noexcept {
  if (link_.draining && link_.up()) [[unlikely]] {
    ++link_.counters.refused_draining;
    link_.receives.repost(slot);
    return true;
  }
  if (!link_.up() || calls_ >= 2 * link_.options.credits)
    return false;
  std::span<const std::byte> message(slot.buffer.data(), length);
  std::span<const std::byte> bytes =
      link_.pool.header_copy().take(message, link_.options.limits.versions);
  std::optional<proto::FixedWords> words = proto::peek(bytes);
  if (!words || words->proc == kProcError) {
    // Errors are never answered by errors, whatever their version (V1-ERR-11).
    ++(words ? link_.counters.error_ignored : link_.counters.refused_short);
    refuse_message(slot, words ? Refusal::kError : Refusal::kTooShort);
    return true;
  }
  Incoming* call = link_.pool.get();
  if (call == nullptr)
    return false;
  proto::Decoded decoded =
      proto::decode(bytes, proto::Direction::kCall, link_.options.limits, call->header);
  if (decoded.verdict == Verdict::kOk && carries_message(call->header.type)) [[likely]] {
    if (call->header.direction == proto::Direction::kCall) [[likely]] {
      admit(*call);
      accept(*call, slot, decoded.header_length, length);
      return true;
    }
  }
  if (ignore(call->header, decoded.verdict, slot)) {
    link_.pool.put(*call);
    return true;
  }
  admit(*call);
  link_.receives.repost(slot);
  if (decoded.verdict == Verdict::kOk)
    refuse_type(*call);
  else
    refuse(*call, decoded.verdict);
  return true;
}

void Responder::refuse_message(ReceiveSlot& slot, Refusal reason) noexcept {
  link_.refused(reason);
  link_.receives.repost(slot);
}

// What gets no answer: what is too short to be answered, what expects none, and replies, whole or
// not, since errors go to requesters only (V2D4-ERR-23).
bool Responder::ignore(const proto::Header& header, Verdict verdict, ReceiveSlot& slot) noexcept {
  bool whole = verdict == Verdict::kOk;
  if (verdict == Verdict::kTooShort) {
    ++link_.counters.refused_short;
    refuse_message(slot, Refusal::kTooShort);
  } else if (whole && header.type == MessageType::kDone) {
    // Means nothing without the Read-Read model (V1-DONE-03).
    ++link_.counters.done_ignored;
    refuse_message(slot, Refusal::kDone);
  } else if (whole && header.type == MessageType::kRespProp) {  // an answer itself (V2D4-POP-26)
    refuse_message(slot, Refusal::kProperties);
  } else if (header.direction == proto::Direction::kReply) {
    ++link_.counters.stale_replies;
    refuse_message(slot, Refusal::kReplyToServer);
  } else {
    return false;
  }
  return true;
}

// A whole message of version 2 that is no call of a program's (draft-04 sections 5.3 and 6.2.4).
void Responder::refuse_type(Incoming& call) noexcept {
  bool is_option = call.header.type == MessageType::kOptional;
  ++link_.counters.refused_header;
  link_.refused(is_option ? Refusal::kUnknownOption : Refusal::kProperties);
  answer_error(call, ErrorCode::kBadOption);
}

void Responder::admit(Incoming& call) noexcept {
  call.responder = this;
  call.is_error = false;
  call.num_sinks = 0;
  call.num_buffers = 0;
  call.chunk_bytes = 0;
  call.waits_since_ns = 0;
  call.user = nullptr;
  call.older = newest_;
  call.newer = nullptr;
  if (newest_ != nullptr)
    newest_->newer = &call;
  newest_ = &call;
  ++calls_;
  if (grant.on_call(call.header.credits)) [[unlikely]] {
    link_.refused(Refusal::kCreditOverrun);
    if (++link_.counters.credit_overruns > link_.options.overrun_limit) {
      link_.fault = "it made too many calls beyond its credits";
      link_.wants_disconnect = true;
    }
  }
}

void Responder::accept(Incoming& call, ReceiveSlot& slot, uint32_t header_length,
                       uint32_t length) noexcept {
  ++link_.counters.calls_received;
  call.receive = std::move(slot.buffer);
  if (!link_.receives.refill(slot)) [[unlikely]]
    ++link_.counters.waits_buffer;
  if (call.header.lists.num_segments != 0 && link_.upcalls.failed_before(call.header.xid))
      [[unlikely]] {
    ++link_.counters.refused_again;
    answer_error(call, ErrorCode::kSystem);
    return;
  }
  bool is_long = call.header.type == MessageType::kNoMsg;
  if (is_long && length != header_length) [[unlikely]] {
    ++link_.counters.trailing_bytes;
    link_.refused(Refusal::kTrailingBytes);
  }
  call.inline_data = call.receive.data() + header_length;
  call.inline_length = is_long ? 0 : length - header_length;
  call.item_chunks = static_cast<uint16_t>(call.header.lists.num_reads - is_long);
  if (call.header.lists.num_reads == 0) [[likely]] {
    call.whole = {call.inline_data, call.inline_length};
    call.message = {&call.whole, 1};
    if (call.header.lists.num_segments == 0 && turn.open() && !turn.waits) [[likely]] {
      turn.charge(Turn::kCallCost);
      deliver(call);
    } else {
      begin(call);
    }
    return;
  }
  if (is_long)
    ++link_.counters.long_calls;
  if (call.header.lists.read_length + call.inline_length > link_.options.max_call) {
    refuse(call, Verdict::kTooManyBytes);
  } else if (!fits_sinks(call)) {
    refuse(call, Verdict::kTooManySegments);
  } else {
    begin(call);
  }
}

void Responder::refuse(Incoming& call, Verdict verdict) noexcept {
  link_.refused(refusal_of(verdict));
  switch (verdict) {
    case Verdict::kBadVersion:
      ++link_.counters.refused_version;
      break;
    case Verdict::kTooManyReadChunks:
    case Verdict::kTooManyWriteChunks:
    case Verdict::kTooManySegments:
    case Verdict::kTooManyBytes:
      ++link_.counters.refused_limits;
      break;
    default:
      ++link_.counters.refused_header;
  }
  answer_error(call, error_of(verdict, link_.options.limits));
}

// The XID in the transport header must be that of the message (V1-HDR-16, V1-LONG-15).
void Responder::deliver(Incoming& call) noexcept {
  if (first_word(call.message) != call.header.xid) [[unlikely]] {
    ++link_.counters.refused_xid;
    link_.refused(Refusal::kXid);
    answer_error(call, ErrorCode::kBadHeader);
    return;
  }
  call.state = CallState::kAbove;
  link_.upcalls.on_call(call);
}

void Responder::reply(Incoming& call) noexcept {
  if (link_.phase == Phase::kDead) {
    finish(call);
    return;
  }
  // The arguments are done with. A bare slot gets their buffer before the Send that promises the
  // Receive (V1-CREDIT-14, EXP-17).
  release_sinks(call);
  if (link_.receives.has_bare())
    link_.receives.give(std::move(call.receive));
  proto::ErrorBody error;
  Plan plan = wait_room_.empty() ? plan_reply(call, error) : Plan::kWait;
  if (plan != Plan::kWait) [[likely]] {
    answer(call, plan, error);
    return;
  }
  ++link_.counters.waits_buffer;
  call.state = CallState::kWaitingRoom;
  call.waits_since_ns = 0;
  wait_room_.push(call);
}

void Responder::answer(Incoming& call, Plan plan, const proto::ErrorBody& error) noexcept {
  if (plan == Plan::kReady) [[likely]] {
    ++link_.counters.replies_sent;
    post(call);
  } else {
    ++link_.counters.refused_reply_room;
    link_.refused(Refusal::kNoReplyRoom);
    answer_error(call, error);
  }
}

// Errors are plain Sends, use no chunk of the call and need nothing but its header room, so that
// they can always be sent (V1-ERR-26, PD-34).
void Responder::answer_error(Incoming& call, const proto::ErrorBody& error) noexcept {
  release_memory(call);
  if (call.receive)
    link_.receives.give(std::move(call.receive));
  proto::Header& header = call.header;
  header.type = MessageType::kError;
  header.error = error;
  if (error.code == ErrorCode::kVersion)  // the same in all
    header.wire = proto::Wire::kVersion1;
  header.credits = grant.on_answer(link_.receives.posted());
  MemorySpan room = call.header_room();
  uint32_t length = proto::encode(header, {room.data, room.length});
  call.plan.sges[0] = {room.data, length, room.region};
  call.plan.num_sges = 1;
  call.is_error = true;
  ++link_.counters.errors_sent;
  post(call);
}

void Responder::answer_error(Incoming& call, ErrorCode code) noexcept {
  answer_error(call, proto::ErrorBody{.code = code});
}

// The upper layer's binding does not allow the chunks of this call (EXP-24).
void Responder::refuse(Incoming& call, uint32_t max_reads, uint32_t max_writes) noexcept {
  ++link_.counters.refused_binding;
  link_.refused(Refusal::kBindingChunks);
  if (link_.phase == Phase::kDead)
    finish(call);
  else if (call.item_chunks > max_reads)
    answer_error(call, {.code = ErrorCode::kReadChunks, .maximum = max_reads});
  else if (call.header.lists.num_writes > max_writes)
    answer_error(call, {.code = ErrorCode::kWriteChunks, .maximum = max_writes});
  else
    answer_error(call, ErrorCode::kSystem);
}

void Responder::drop(Incoming& call) noexcept {
  link_.wants_disconnect = true;
  grant.on_no_answer();
  finish(call);
}

void Responder::post(Incoming& call) noexcept {
  call.state = CallState::kReplying;
  if (link_.up() && link_.sends.idle() && emit(call)) [[likely]]
    return;
  ++link_.counters.waits_send_queue;
  link_.sends.push(call.job);
}

void Responder::on_reply_completed(Incoming& call) noexcept {
  if (call.job.settled())
    finish(call);
}

void Responder::release_sinks(Incoming& call) noexcept {
  for (uint32_t i = 0; i < call.num_buffers; ++i)
    call.buffers[i].reset();
  call.num_buffers = 0;
}

void Responder::release_memory(Incoming& call) noexcept {
  call.reply.clear();
  call.plan.clear();
  release_sinks(call);
}

// The one place where a call ends, whatever became of it.
void Responder::finish(Incoming& call) noexcept {
  release_memory(call);
  if (call.receive)
    link_.receives.give(std::move(call.receive));
  if (call.newer != nullptr)
    call.newer->older = call.older;
  else
    newest_ = call.older;
  if (call.older != nullptr)
    call.older->newer = call.newer;
  --calls_;
  chunk_bytes_ -= call.chunk_bytes;
  auto* on_ended = std::exchange(call.on_ended, nullptr);
  void* user = call.user;
  link_.pool.put(call);
  if (on_ended != nullptr) [[unlikely]]
    on_ended(user);
}

// What waits for memory or a Read ends now; what is posted ends when it was reported; what is with
// the upper layer ends when that replies.
void Responder::on_dead() noexcept {
  while (!wait_turn_.empty())
    wait_turn_.pop().chunk_bytes = 0;  // they were not started
  turn.waits = false;
  wait_buffers_.clear();
  wait_reads_.clear();
  wait_room_.clear();
  link_.receives.drop_parked();
  for (Incoming* call = newest_; call != nullptr;) {
    Incoming& dead = *std::exchange(call, call->older);
    bool posted = dead.reads_posted != 0 || !dead.job.settled();
    if (dead.state == CallState::kAbove || posted)
      continue;
    bool tells = dead.on_ended != nullptr;
    finish(dead);
    if (tells)  // who was told may have ended others, `call` among them
      call = newest_;
  }
}

// The first of a queue may need more buffers than there are, or those that an idle connection has
// posted: it would wait for ever, and the others behind it (V1-ERR-25).
void Responder::refuse_overdue(CallQueue& queue, uint64_t now_ns) noexcept {
  Incoming* call = queue.front();
  if (call == nullptr)
    return;
  if (call->waits_since_ns == 0) {
    call->waits_since_ns = now_ns;
  } else if (now_ns - call->waits_since_ns >= link_.options.buffer_wait_ns) {
    queue.pop();
    ++link_.counters.refused_buffers;
    link_.refused(Refusal::kNoBuffers);
    answer_error(*call, ErrorCode::kSystem);
  }
}

void Responder::on_tick(uint64_t now_ns) noexcept {
  if (!link_.up())
    return;
  pump();  // with buffers that others gave back, it may have waited long enough
  refuse_overdue(wait_room_, now_ns);
  refuse_overdue(wait_buffers_, now_ns);
}

void Responder::pump() noexcept {
  if (!link_.up())
    return;
  link_.receives.refill_bare();
  while (!wait_room_.empty()) {
    Incoming& call = *wait_room_.front();
    proto::ErrorBody error;
    Plan plan = plan_reply(call, error);
    if (plan == Plan::kWait)
      break;
    answer(wait_room_.pop(), plan, error);
  }
  while (!wait_buffers_.empty() && take_sinks(*wait_buffers_.front()))
    start_reads(wait_buffers_.pop());
  pump_reads();
  start_waiting();
  while (link_.receives.parked() != nullptr) {
    ReceiveSlot& slot = link_.receives.unpark();
    if (!take(slot, slot.length)) {
      link_.receives.park_first(slot);
      break;
    }
  }
}

}  // namespace rrdk::xprt

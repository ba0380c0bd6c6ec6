// Events: completions, dispatched by their tags; ticks; and requests of the upper layer.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/prefetch_datapath.h"
#include "engine/connection.h"

namespace rrdk::engine {

using fabric::Completion;
using fabric::WcStatus;

namespace {

constexpr EndReason kDrained = {
    EndedBy::kProgram, {}, Errc::kShutdown, "the server takes no more calls (Server::drain())"};

}  // namespace

// What a short call and its reply touch.
void Connection::prefetch() const noexcept {
  base::prefetch_lines(&common_, &common_.counters.rdma_read_bytes);
  responder_.prefetch();
  requester_.prefetch();
  properties_.prefetch();
}

void Connection::on_completions(std::span<const Completion> completions) {
  RRDK_ON_CORE(common_.pool);
  if (!completions.empty())
    foresee(completions[0]);
  for (size_t i = 0; i != completions.size(); ++i) {
    if (i + 1 != completions.size())
      foresee(completions[i + 1]);
    common_.plain_limit = 0;
    dispatch(completions[i]);
  }
  pump();
  common_.plain_limit = 0;
}

// Copied Sends complete when they are posted; so do those that were posted directly before.
void Connection::on_posted() {
  RRDK_ON_CORE(common_.pool);
  while (Job* job = common_.sends.pop_copied()) {
    if (job->tag.kind == WorkKind::kReply)
      responder_.on_reply_completed(*static_cast<ServedCall*>(job->tag.owner));
    else
      requester_.advance(*static_cast<Requester::Slot*>(job->tag.owner));
  }
  pump();
  common_.plain_limit = 0;
}

void Connection::count_begun(bool begun) noexcept {
  RRDK_ON_CORE(common_.pool);
  if (common_.share.count_begun(begun)) [[likely]]
    return;
  common_.end(Refusal::kCreditOverrun,
              "it sent more than there were Receives for, beyond its credits");
}

// Prefetches the entry that describes the key of a call's chunk, which is in the peer's caches,
// while this call or the one before it is processed.
inline void Connection::foresee(const Completion& completion) const noexcept {
  const WorkTag& tag = WorkTag::of(completion.wr_id);
  if (tag.kind != WorkKind::kReceive || completion.status != WcStatus::kSuccess)
    return;
  const auto& slot = *static_cast<const ReceiveSlot*>(tag.owner);
  const uint32_t length = std::min(completion.byte_length, slot.buffer.capacity());
  if (const uint32_t key = proto::guess_read_key({slot.buffer.data(), length}); key != 0)
    common_.keys.expect_read(key);
}

void Connection::dispatch(const Completion& completion) noexcept {
  const WorkTag& tag = WorkTag::of(completion.wr_id);
  if (completion.status != WcStatus::kSuccess) [[unlikely]]
    on_failure(completion);
  switch (tag.kind) {
    case WorkKind::kReceive:
      on_receive(*static_cast<ReceiveSlot*>(tag.owner), completion);
      return;
    case WorkKind::kSilent:
      return;
    case WorkKind::kRead:
      responder_.on_read_completed(*static_cast<ServedCall*>(tag.owner), completion.byte_length);
      return;
    case WorkKind::kReply: {
      ServedCall& call = *static_cast<ServedCall*>(tag.owner);
      common_.sends.complete(call.job);
      responder_.on_reply_completed(call);
      return;
    }
    case WorkKind::kCall: {
      auto& slot = *static_cast<Requester::Slot*>(tag.owner);
      common_.sends.complete(slot.send_job);
      requester_.advance(slot);
      return;
    }
    case WorkKind::kRevoke: {
      auto& slot = *static_cast<Requester::Slot*>(tag.owner);
      common_.sends.complete(slot.revoke_job);
      requester_.advance(slot);
      return;
    }
    case WorkKind::kProperties: {
      auto& message = *static_cast<Properties::Outgoing*>(tag.owner);
      common_.sends.complete(message.job);
      properties_.on_sent(message);
      return;
    }
    case WorkKind::kReplyRead:
      common_.sends.complete_read();
      reader_->on_read_completed(*static_cast<ReplyReader::Reading*>(tag.owner));
      return;
    case WorkKind::kDone: {
      auto& reading = *static_cast<ReplyReader::Reading*>(tag.owner);
      common_.sends.complete(reading.done_job);
      reader_->on_done_completed(reading);
      return;
    }
  }
}

void Connection::on_receive(ReceiveSlot& slot, const Completion& completion) noexcept {
  common_.receives.on_completion(slot);
  bool usable = completion.status == WcStatus::kSuccess && common_.phase != Phase::kDead;
  if (usable && completion.byte_length > slot.buffer.capacity()) [[unlikely]] {
    common_.end(Refusal::kMessageTooLong, "it sent a message longer than our Receives");
    usable = false;
  }
  if (!usable) [[unlikely]] {
    common_.receives.drop(slot);
    return;
  }
  RRDK_ASSERT(slot.buffer && completion.byte_length <= slot.buffer.capacity());
  ++common_.counters.messages_received;
  bool answers = common_.options.role == Role::kRequester ||
                 (common_.both_ways() && answers_us(slot, completion));
  if (!answers)
    requester_.note_invalidation(completion);
  if (!answers || !requester_.on_receive(slot, completion))
    responder_.on_receive(slot, completion.byte_length);
}

// Server: whether the message answers a call of ours. Checked first, since a reply must not wait
// behind calls.
bool Connection::answers_us(const ReceiveSlot& slot, const Completion& completion) noexcept {
  if (!requester_.awaits())
    return false;
  std::span<const std::byte> message(slot.buffer.data(), completion.byte_length);
  const proto::Limits& limits = common_.options.limits;
  proto::Plain plain;
  if (proto::match_plain(message, limits.versions, plain)) [[likely]]
    return plain.direction == proto::Direction::kReply;
  proto::Header& header = common_.pool.scratch();
  proto::decode(message, proto::Direction::kCall, limits, header);
  return header.direction == proto::Direction::kReply;
}

// Reports which RDMA Read or Write ended the connection. What a lost connection flushes, and what
// fails because the peer is gone, is not reported. A reply's Writes are unsignaled: the first reply
// to be reported, as flushed, after a failed Write is the one that the Write belonged to.
void Connection::note_access(const Completion& completion) noexcept {
  const WorkTag& tag = WorkTag::of(completion.wr_id);
  if (tag.kind == WorkKind::kReplyRead)  // it belongs to no call of the peer
    return;
  bool access = completion.op == fabric::Op::kRead || completion.op == fabric::Op::kWrite;
  bool failed =
      access && completion.status != WcStatus::kFlushed && completion.status != WcStatus::kPeerLost;
  if (failed && tag.kind != WorkKind::kRead)
    write_failed_ = true;
  if ((failed && tag.kind == WorkKind::kRead) ||
      (tag.kind == WorkKind::kReply && std::exchange(write_failed_, false)))
    common_.upcalls.on_access_failed(static_cast<ServedCall*>(tag.owner)->xid);
}

// A failed work request ends the queue pair (V1-ERR-18): nothing more is sent, and the owner must
// disconnect. Calls end once the disconnection has fenced their memory. A request that was only
// flushed does not say why; the fabric's last event does.
void Connection::on_failure(const Completion& completion) noexcept {
  WcStatus status = completion.status;
  note_access(completion);
  if (status == WcStatus::kLocalProtection)
    common_.end({EndedBy::kProgram, {}, Errc::kConnectionLost, fabric::to_string(status)});
  else if (status != WcStatus::kFlushed && status != WcStatus::kPeerLost)
    common_.end(refusal_of(status), fabric::to_string(status));
  fail();
}

// A reply with this XID was behind a Write in the lane.
void Connection::on_write_refused(uint32_t xid) noexcept {
  common_.end(refusal_of(WcStatus::kRemoteAccess), fabric::to_string(WcStatus::kRemoteAccess));
  common_.upcalls.on_access_failed(xid);
}

bool Connection::has_drained() const noexcept {
  return common_.end_reason.text == kDrained.text;
}

void Connection::fail() noexcept {
  if (common_.phase == Phase::kDead)
    return;
  common_.phase = Phase::kFailing;
  common_.port = nullptr;
  common_.plain_limit = 0;
  common_.receives.close();
}

// Retries what waits. Chains for the send queue come first, in the order in which they were queued.
void Connection::pump() noexcept {
  if (!common_.up())
    return;
  if (!common_.sends.idle()) [[unlikely]]
    pump_sends();
  if (properties_.waiting()) [[unlikely]]
    properties_.pump();
  if (reader_ != nullptr) [[unlikely]]
    reader_->pump();
  if (responder_.waiting()) [[unlikely]]
    responder_.pump();
  if (requester_.waiting()) [[unlikely]]
    requester_.pump();
  if (common_.phase == Phase::kDraining && responder_.calls() == 0) [[unlikely]]
    common_.end(kDrained);
}

void Connection::pump_sends() noexcept {
  while (Job* job = common_.sends.front()) {
    bool all = false;
    switch (job->tag.kind) {
      case WorkKind::kReply:
        all = responder_.emit(*static_cast<ServedCall*>(job->tag.owner));
        break;
      case WorkKind::kDone:
        all = reader_->emit_done(*static_cast<ReplyReader::Reading*>(job->tag.owner));
        break;
      case WorkKind::kCall:
        all = requester_.emit_call(*static_cast<Requester::Slot*>(job->tag.owner));
        break;
      case WorkKind::kProperties:
        all = properties_.emit(*static_cast<Properties::Outgoing*>(job->tag.owner));
        break;
      default:
        all = requester_.emit_revoke(*static_cast<Requester::Slot*>(job->tag.owner));
    }
    if (!all)
      return;
    common_.sends.pop();
    // The peer had invalidated all keys, or a call that was given up was sent at once: neither is
    // reported otherwise.
    if ((job->tag.kind == WorkKind::kRevoke || job->tag.kind == WorkKind::kCall) && job->settled())
      requester_.advance(*static_cast<Requester::Slot*>(job->tag.owner));
  }
}

void Connection::on_tick(uint64_t now_ns) {
  RRDK_ON_CORE(common_.pool);
  requester_.on_tick(now_ns);
  properties_.on_tick(now_ns);
  if (responder_.waiting() || responder_.reading()) [[unlikely]]
    responder_.on_tick(now_ns);
  pump();
  common_.plain_limit = 0;
}

void Connection::start_waiting() {
  RRDK_ON_CORE(common_.pool);
  pump();
  common_.plain_limit = 0;
}
void Connection::drop(ServedCall& call, const EndReason& why) {
  RRDK_ON_CORE(common_.pool);
  if (common_.up())  // otherwise it is already lost
    common_.end(why);
  leave_unanswered(call);
}
void Connection::leave_unanswered(ServedCall& call) {
  RRDK_ON_CORE(common_.pool);
  RRDK_ASSERT(call.state == CallState::kAbove, call.state);
  responder_.drop(call);
  common_.plain_limit = 0;
}
void Connection::drain() {
  RRDK_ON_CORE(common_.pool);
  common_.plain_limit = 0;
  if (common_.phase == Phase::kUp)
    common_.phase = Phase::kDraining;
  else if (common_.phase == Phase::kNew)  // it ends as soon as it is established
    common_.end(kDrained);
  pump();
}

}  // namespace rrdk::engine

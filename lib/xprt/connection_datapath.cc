// Events in: completions by their tags, ticks, and the upper layer's requests.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/prefetch_datapath.h"
#include "xprt/connection_impl.h"
#include "xprt/link.h"

namespace rrdk::xprt {

using fabric::Completion;
using fabric::WcStatus;

namespace {

constexpr EndReason kDrained = {
    EndedBy::kProgram, {}, Errc::kShutdown, "the server takes no more calls (Server::drain())"};

}  // namespace

// Without the counters of what is rare.
void Connection::prefetch() const noexcept {
  base::prefetch_lines(&impl_->link, &impl_->link.counters.rdma_read_bytes);
  base::prefetch_lines(&impl_->responder, &impl_->properties);
}

void Connection::on_completions(std::span<const Completion> completions) {
  RRDK_ON_CORE(impl_->link.pool);
  if (!completions.empty())
    impl_->foresee(completions[0]);
  for (size_t i = 0; i != completions.size(); ++i) {
    if (i + 1 != completions.size())
      impl_->foresee(completions[i + 1]);
    impl_->link.plain_limit = 0;
    impl_->dispatch(completions[i]);
  }
  impl_->pump();
  impl_->link.plain_limit = 0;
}

// Copied Sends are done when they are posted, and those that went at once before.
void Connection::on_posted() {
  RRDK_ON_CORE(impl_->link.pool);
  while (Job* job = impl_->link.sends.pop_copied()) {
    if (job->tag.kind == WorkKind::kReply)
      impl_->responder.on_reply_completed(*static_cast<ServedCall*>(job->tag.owner));
    else
      impl_->requester.advance(*static_cast<OutgoingCall::State*>(job->tag.owner));
  }
  impl_->pump();
  impl_->link.plain_limit = 0;
}

void Connection::set_sender(Sender* sender) noexcept {
  impl_->link.sender = sender;
}

void Connection::count_begun(bool begun) noexcept {
  RRDK_ON_CORE(impl_->link.pool);
  Link& link = impl_->link;
  if (link.share.count_begun(begun)) [[likely]]
    return;
  link.end(Refusal::kCreditOverrun,
           "it sent more than there were Receives for, beyond its credits");
}

// The entry that tells what the key of a call's chunk stands for is in the peer's caches. It is
// fetched while the call, or the one before it, is processed.
inline void Connection::Impl::foresee(const Completion& completion) const noexcept {
  const WorkTag& tag = WorkTag::of(completion.wr_id);
  if (tag.kind != WorkKind::kReceive || completion.status != WcStatus::kSuccess)
    return;
  const auto& slot = *static_cast<const ReceiveSlot*>(tag.owner);
  const uint32_t length = std::min(completion.byte_length, slot.buffer.capacity());
  if (const uint32_t key = proto::guess_read_key({slot.buffer.data(), length}); key != 0)
    link.keys.expect_read(key);
}

void Connection::Impl::dispatch(const Completion& completion) noexcept {
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
      responder.on_read_completed(*static_cast<ServedCall*>(tag.owner), completion.byte_length);
      return;
    case WorkKind::kReply: {
      ServedCall& call = *static_cast<ServedCall*>(tag.owner);
      link.sends.complete(call.job);
      responder.on_reply_completed(call);
      return;
    }
    case WorkKind::kCall: {
      auto& call = *static_cast<OutgoingCall::State*>(tag.owner);
      link.sends.complete(call.send_job);
      requester.advance(call);
      return;
    }
    case WorkKind::kRevoke: {
      auto& call = *static_cast<OutgoingCall::State*>(tag.owner);
      link.sends.complete(call.revoke_job);
      requester.advance(call);
      return;
    }
    case WorkKind::kProperties: {
      auto& message = *static_cast<Properties::Outgoing*>(tag.owner);
      link.sends.complete(message.job);
      properties.on_sent(message);
      return;
    }
    case WorkKind::kReplyRead:
      link.sends.complete_read();
      reader->on_read_completed(*static_cast<ReplyReader::Reading*>(tag.owner));
      return;
    case WorkKind::kDone: {
      auto& reading = *static_cast<ReplyReader::Reading*>(tag.owner);
      link.sends.complete(reading.done_job);
      reader->on_done_completed(reading);
      return;
    }
  }
}

void Connection::Impl::on_receive(ReceiveSlot& slot, const Completion& completion) noexcept {
  link.receives.on_completion(slot);
  bool usable = completion.status == WcStatus::kSuccess && link.phase != Phase::kDead;
  if (usable && completion.byte_length > slot.buffer.capacity()) [[unlikely]] {
    link.end(Refusal::kMessageTooLong, "it sent a message longer than our Receives");
    usable = false;
  }
  if (!usable) [[unlikely]] {
    link.receives.drop(slot);
    return;
  }
  RRDK_ASSERT(slot.buffer && completion.byte_length <= slot.buffer.capacity());
  ++link.counters.messages_received;
  bool answers =
      link.options.role == Role::kRequester || (link.both_ways() && answers_us(slot, completion));
  if (!answers)
    requester.note_invalidation(completion);
  if (!answers || !requester.on_receive(slot, completion))
    responder.on_receive(slot, completion.byte_length);
}

// At a server: whether the message belongs to a call of ours. Looked at before anything else, since
// a reply must not wait behind calls.
bool Connection::Impl::answers_us(const ReceiveSlot& slot, const Completion& completion) noexcept {
  if (!requester.awaits())
    return false;
  std::span<const std::byte> message(slot.buffer.data(), completion.byte_length);
  const proto::Limits& limits = link.options.limits;
  proto::Plain plain;
  if (proto::match_plain(message, limits.versions, plain)) [[likely]]
    return plain.direction == proto::Direction::kReply;
  proto::Header& header = link.pool.scratch();
  proto::decode(message, proto::Direction::kCall, limits, header);
  return header.direction == proto::Direction::kReply;
}

// Whose RDMA Read or Write it was that ended the connection. What a lost connection flushes, and
// what fails because the peer is gone, is nobody's fault. A reply's Writes are silent: the first
// reply to be reported after a failed one, flushed, is the one that it belonged to.
void Connection::Impl::note_access(const Completion& completion) noexcept {
  const WorkTag& tag = WorkTag::of(completion.wr_id);
  if (tag.kind == WorkKind::kReplyRead)  // of no call of the peer's
    return;
  bool access = completion.op == fabric::Op::kRead || completion.op == fabric::Op::kWrite;
  bool failed =
      access && completion.status != WcStatus::kFlushed && completion.status != WcStatus::kPeerLost;
  if (failed && tag.kind != WorkKind::kRead)
    write_failed = true;
  if ((failed && tag.kind == WorkKind::kRead) ||
      (tag.kind == WorkKind::kReply && std::exchange(write_failed, false)))
    link.upcalls.on_access_failed(static_cast<ServedCall*>(tag.owner)->xid);
}

// A failed work request is the end of the queue pair (V1-ERR-18): nothing more is sent, and the
// owner is told to disconnect. Calls end once the disconnection has fenced their memory. What was
// only flushed does not say why: the fabric's last event does.
void Connection::Impl::on_failure(const Completion& completion) noexcept {
  WcStatus status = completion.status;
  note_access(completion);
  if (status == WcStatus::kLocalProtection)
    link.end({EndedBy::kProgram, {}, Errc::kConnectionLost, fabric::to_string(status)});
  else if (status != WcStatus::kFlushed && status != WcStatus::kPeerLost)
    link.end(refusal_of(status), fabric::to_string(status));
  fail();
}

void Connection::Impl::fail() noexcept {
  if (link.phase == Phase::kDead)
    return;
  link.phase = Phase::kFailing;
  link.plain_limit = 0;
  link.receives.close();
}

// Retries what waits. Chains for the send queue come first, in the order in which they were queued.
void Connection::Impl::pump() noexcept {
  if (!link.up())
    return;
  if (!link.sends.idle()) [[unlikely]]
    pump_sends();
  if (properties.waiting()) [[unlikely]]
    properties.pump();
  if (reader != nullptr) [[unlikely]]
    reader->pump();
  if (responder.waiting()) [[unlikely]]
    responder.pump();
  if (requester.waiting()) [[unlikely]]
    requester.pump();
  if (link.phase == Phase::kDraining && responder.calls() == 0) [[unlikely]]
    link.end(kDrained);
}

void Connection::Impl::pump_sends() noexcept {
  while (Job* job = link.sends.front()) {
    bool all = false;
    switch (job->tag.kind) {
      case WorkKind::kReply:
        all = responder.emit(*static_cast<ServedCall*>(job->tag.owner));
        break;
      case WorkKind::kDone:
        all = reader->emit_done(*static_cast<ReplyReader::Reading*>(job->tag.owner));
        break;
      case WorkKind::kCall:
        all = requester.emit_call(*static_cast<OutgoingCall::State*>(job->tag.owner));
        break;
      case WorkKind::kProperties:
        all = properties.emit(*static_cast<Properties::Outgoing*>(job->tag.owner));
        break;
      default:
        all = requester.emit_revoke(*static_cast<OutgoingCall::State*>(job->tag.owner));
    }
    if (!all)
      return;
    link.sends.pop();
    if (job->tag.kind == WorkKind::kRevoke && job->settled())  // the peer had revoked all
      requester.advance(*static_cast<OutgoingCall::State*>(job->tag.owner));
  }
}

void Connection::on_tick(uint64_t now_ns) {
  RRDK_ON_CORE(impl_->link.pool);
  impl_->requester.on_tick(now_ns);
  impl_->properties.on_tick(now_ns);
  if (impl_->responder.waiting() || impl_->responder.reading()) [[unlikely]]
    impl_->responder.on_tick(now_ns);
  impl_->pump();
  impl_->link.plain_limit = 0;
}

void Connection::start_waiting() {
  RRDK_ON_CORE(impl_->link.pool);
  impl_->pump();
  impl_->link.plain_limit = 0;
}
bool Connection::wants_turn() const noexcept {
  return impl_->responder.backlogged();
}

void Connection::submit(OutgoingCall& call) {
  RRDK_ON_CORE(impl_->link.pool);
  RRDK_ASSERT(call.state->stage == CallStage::kIdle, call.state->stage);
  impl_->requester.submit(call);
  impl_->link.plain_limit = 0;
}
void Connection::cancel(OutgoingCall& call) {
  RRDK_ON_CORE(impl_->link.pool);
  impl_->requester.cancel(call);
  impl_->link.plain_limit = 0;
}
void Connection::forget_plain_limit() noexcept {
  impl_->link.plain_limit = 0;
}
void Connection::reply(ServedCall& call) {
  RRDK_ON_CORE(impl_->link.pool);
  RRDK_ASSERT(call.state == CallState::kAbove, call.state);
  impl_->responder.reply(call);
}
void Connection::refuse(ServedCall& call, uint32_t max_reads, uint32_t max_writes) {
  RRDK_ON_CORE(impl_->link.pool);
  RRDK_ASSERT(call.state == CallState::kAbove, call.state);
  impl_->responder.refuse(call, max_reads, max_writes);
}
void Connection::drop(ServedCall& call, const EndReason& why) {
  RRDK_ON_CORE(impl_->link.pool);
  RRDK_ASSERT(call.state == CallState::kAbove, call.state);
  if (impl_->link.up())  // else it is lost already
    impl_->link.end(why);
  impl_->responder.drop(call);
}
uint32_t Connection::plain_credits() const {
  return impl_->responder.plain_credits();
}
uint32_t Connection::receive_bytes() const {
  return impl_->link.receives.size();
}
uint32_t Connection::plain_turn() const {
  return impl_->responder.turn.calls_left();
}
bool Connection::plain_goes_on(uint32_t credits) const {
  return impl_->link.phase == Phase::kUp && impl_->responder.grant.last() == credits;
}
void Connection::end_plain(ServedCall& call) {
  impl_->responder.end_plain(call);
}
bool Connection::may_have_plain() const {
  const ConnectionOptions& options = impl_->link.options;
  return !options.rfc5666.enabled && !impl_->link.both_ways() && options.limits.versions.one;
}
uint32_t Connection::asked() const {
  return impl_->responder.grant.asked();
}
void Connection::begin_plain(ServedCall& call) {
  impl_->responder.begin_plain(call);
}
void Connection::count_plain(uint32_t calls) {
  impl_->responder.count_plain(calls);
}
void Connection::adopt_plain(ServedCall& call) {
  impl_->responder.adopt_plain(call);
}
void Connection::drain() {
  RRDK_ON_CORE(impl_->link.pool);
  Link& link = impl_->link;
  link.plain_limit = 0;
  if (link.phase == Phase::kUp)
    link.phase = Phase::kDraining;
  else if (link.phase == Phase::kNew)  // it ends as soon as it is established
    link.end(kDrained);
  impl_->pump();
}
void Connection::end(Refusal reason, const char* text) {
  impl_->link.end(reason, text);
}
void Connection::fail() {
  impl_->fail();
}
void Connection::count_ended(EndedBy by) {
  Counters& counters = impl_->link.counters;
  switch (by) {
    case EndedBy::kNobody:
      return;
    case EndedBy::kPeer:
      ++counters.ended_by_peer;
      return;
    case EndedBy::kProgram:
      ++counters.ended_by_program;
      return;
    case EndedBy::kLimit:
      ++counters.ended_by_limit;
      return;
    case EndedBy::kNetwork:
      ++counters.ended_by_network;
      return;
  }
}
void Connection::count_refusal(Refusal reason) {
  RRDK_ON_CORE(impl_->link.pool);
  impl_->link.refused(reason);
}

}  // namespace rrdk::xprt

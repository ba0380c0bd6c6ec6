// The life of a call at the responder, from its Receive to the completion of its reply's Send.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "engine/responder.h"
#include "engine/version2/properties.h"
#include "proto/codec.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

using proto::ErrorCode;
using proto::MessageType;
using proto::Verdict;

namespace {

constexpr uint32_t kProcError = 4;  // rdma_proc, the same word in all versions
constexpr uint32_t kKeptReplyBytes = 4096;

// Returns the memory that the call may come to hold: its chunks, and for its reply as much as fits
// the memory that was offered. Credits limit what it sends and gets inline.
uint64_t chunk_bytes_of(const proto::ChunkLists& lists, const ConnectionOptions& options) {
  uint64_t offered = lists.has_reply ? lists.reply.length : 0;
  for (uint32_t i = 0; i < lists.num_writes; ++i)
    offered += lists.writes[i].length;
  return std::min(lists.read_length + std::min(offered, options.max_reply),
                  options.max_chunk_bytes);
}

bool carries_message(MessageType type) {
  return type == MessageType::kMsg || type == MessageType::kNoMsg || type == MessageType::kMsgp;
}

}  // namespace

// Limits a peer that makes calls without ever taking the replies: beyond twice the credits its
// messages stay in their Receives, which are not posted again meanwhile.
void Responder::on_receive(ReceiveSlot& slot, uint32_t length) noexcept {
  if (!exposed_.empty() && take_done(slot, length)) [[unlikely]]
    return;
  bool in_order = common_.share.parked() == nullptr;
  if (in_order && take(slot, length)) [[likely]]
    return;
  if (take_property(slot, length)) [[unlikely]]
    return;
  if (!common_.share.park(slot, length)) [[unlikely]] {
    common_.receives.repost(slot);
    common_.end(Refusal::kCreditOverrun,
                "it made more calls than it has credits, while its other calls waited");
  }
}

// A connection that drains, or is about to end, runs no further call.
bool Responder::leave_unserved(ReceiveSlot& slot) noexcept {
  if (!common_.up())
    return false;
  ++common_.counters.calls_not_run;
  common_.receives.repost(slot);
  return true;
}

bool Responder::take(ReceiveSlot& slot, uint32_t length) noexcept {
  RRDK_ASSERT(in_hand_.call == nullptr);
  if (common_.phase != Phase::kUp) [[unlikely]]
    return leave_unserved(slot);
  if (calls_ >= max_calls_ || !may_have_call())
    return false;
  std::span<const std::byte> bytes(slot.buffer.data(), length);
  proto::Plain plain;
  bool is_plain_call = proto::match_plain(bytes, common_.options.limits.versions, plain) &&
                       plain.direction == proto::Direction::kCall &&
                       (plain.wire != proto::Wire::kDraft04 || !common_.share.lacks_spares());
  Taken taken = is_plain_call ? take_plain(plain) : take_other(slot, bytes);
  if (taken.call == nullptr) [[unlikely]]
    return taken.done;
  ServedCall& call = *taken.call;
  admit(call);
  call.receive = std::move(slot.buffer);  // from here on the call has the Receive's bytes
  in_hand_ = {&call, &slot};
  accept(call, taken.header_length, length);
  refill_receive();
  return true;
}

Responder::Taken Responder::take_plain(const proto::Plain& plain) noexcept {
  ServedCall* call = common_.pool.get();
  if (call == nullptr) [[unlikely]]
    return kLater;
  call->type = MessageType::kMsg;
  call->wire = plain.wire;
  call->xid = plain.xid;
  call->version = proto::version_of(plain.wire);
  call->credits = plain.credits;
  return {call, plain.header_length()};
}

// A message that is not a plain call, or whose version may need more Receives.
Responder::Taken Responder::take_other(ReceiveSlot& slot,
                                       std::span<const std::byte> bytes) noexcept {
  std::optional<proto::FixedWords> words = proto::peek(bytes);
  if (!words || words->proc == kProcError) {
    // Errors are never answered by errors, in any version (V1-ERR-11).
    if (words && is_property_error(bytes)) {
      common_.receives.repost(slot);
      return kDone;
    }
    refuse_message(slot, words ? Refusal::kError : Refusal::kTooShort);
    return kDone;
  }
  ServedCall* call = common_.pool.get_with_part();
  if (call == nullptr)
    return kLater;
  proto::Header& header = call->part->header;
  proto::Decoded decoded =
      proto::decode(bytes, proto::Direction::kCall, common_.options.limits, header);
  if (!has_spares(header, decoded.verdict)) [[unlikely]] {
    common_.pool.put(*call);
    return kLater;
  }
  call->take_header(header);
  if (decoded.verdict == Verdict::kOk && carries_message(header.type)) [[likely]] {
    if (header.direction == proto::Direction::kCall) [[likely]]
      return {call, decoded.header_length};
  }
  if (decoded.verdict == Verdict::kOk && header.type > MessageType::kOptional) {
    common_.properties->on_message(header, bytes);
    common_.pool.put(*call);
    common_.receives.repost(slot);
    return kDone;
  }
  if (ignore(header, decoded.verdict, slot)) {
    common_.pool.put(*call);
    return kDone;
  }
  admit(*call);
  common_.receives.repost(slot);
  if (decoded.verdict != Verdict::kOk)
    refuse(*call, decoded.verdict);
  else if (header.type == MessageType::kOptional)
    take_option(*call, bytes, decoded.header_length);
  else
    refuse_type(*call);
  return kDone;
}

// Call objects are shared as buffers are: when they are scarce, a client must leave as many to the
// others as it has; but each connection may have one.
bool Responder::may_have_call() const noexcept {
  return !common_.pool.scarce() || calls_ == 0 || turn.client.calls < common_.pool.left();
}

// The peer may send property messages as soon as a message of draft-04 has been answered. So the
// message that shows that the peer speaks draft-04 waits until there are Receives for them.
bool Responder::has_spares(const proto::Header& header, Verdict verdict) noexcept {
  if (!common_.share.lacks_spares() || header.wire != proto::Wire::kDraft04) [[likely]]
    return true;
  return verdict != Verdict::kOk || common_.share.add_spares();
}

// Takes a property message that would otherwise be parked. It needs no call object and takes no
// credit, so it must not keep a Receive that was promised to a call, which it may have used if
// there was no spare one.
bool Responder::take_property(ReceiveSlot& slot, uint32_t length) noexcept {
  std::span<const std::byte> bytes(slot.buffer.data(), length);
  std::optional<proto::FixedWords> words = proto::peek(bytes);
  if (!words || words->proc < kProcError || !common_.up())
    return false;
  if (words->proc == kProcError) {
    if (!is_property_error(bytes))
      return false;
  } else {
    proto::Header& header = common_.pool.scratch();
    proto::Decoded decoded =
        proto::decode(bytes, proto::Direction::kCall, common_.options.limits, header);
    if (decoded.verdict != Verdict::kOk || header.type <= MessageType::kOptional ||
        !has_spares(header, decoded.verdict))
      return false;
    common_.properties->on_message(header, bytes);
  }
  common_.receives.repost(slot);
  return true;
}

// Whether the message is an error for a property message of ours.
bool Responder::is_property_error(std::span<const std::byte> message) noexcept {
  proto::Header& header = common_.pool.scratch();
  proto::Decoded decoded =
      proto::decode(message, proto::Direction::kReply, common_.options.limits, header);
  return decoded.verdict == Verdict::kOk && common_.properties->on_error(header);
}

void Responder::admit(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state == CallState::kProcessing && call.job.settled() && !call.receive,
              call.state);
  call.responder = this;
  call.is_error = false;
  call.chunk_bytes = 0;
  call.waits_since_ns = 0;
  call.user = nullptr;
  call.stages = common_.pool.stages().take(call.xid, false);
  if (call.stages != nullptr) [[unlikely]]
    call.stages->stamp(Stage::kReceived);
  enroll(call);
}

// Adds it to the connection's calls; it counts against the credits.
void Responder::enroll(ServedCall& call) noexcept {
  all_.push_front(call);
  ++calls_;
  ++turn.client.calls;
  const bool beyond = grant.on_call(call.credits);
  common_.share.promise_calls(grant.due());
  if (beyond) [[unlikely]] {
    if (common_.counters.refusals[Refusal::kCreditOverrun] >= common_.options.overrun_limit)
      common_.end(Refusal::kCreditOverrun, "it made too many calls beyond its credits");
    else
      common_.refused(Refusal::kCreditOverrun);
  }
}

// Plain calls that are served in place.

uint32_t Responder::plain_credits() const noexcept {
  const bool waits = turn.waits || !wait_buffers_.empty() || !wait_reads_.empty() ||
                     !wait_room_.empty() || common_.share.parked() != nullptr ||
                     common_.receives.has_bare() || !common_.sends.idle() ||
                     !common_.sends.list().empty();
  if (waits || common_.phase != Phase::kUp || !exposed_.empty() || !common_.calling ||
      common_.wire != proto::Wire::kVersion1 || calls_ >= max_calls_ || !may_have_call() ||
      !turn.open() || common_.borrower.exceeded())
    return 0;
  return grant.steady(common_.receives_for_calls());
}

void Responder::begin_plain(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state == CallState::kProcessing && call.part == nullptr, call.state);
  call.responder = this;
  call.is_error = false;
  call.type = MessageType::kMsg;
  call.wire = proto::Wire::kVersion1;
  call.version = 1;
  call.credits = grant.asked();
  call.item_chunks = 0;
  call.chunk_bytes = 0;
  call.waits_since_ns = 0;
  call.user = nullptr;
}

void Responder::end_plain(ServedCall& call) noexcept {
  release_memory(call);
  call.receive.reset();
}

void Responder::count_plain(uint32_t calls) noexcept {
  common_.counters.messages_received += calls;
  common_.counters.calls_received += calls;
  common_.counters.replies_sent += calls;
  turn.charge(uint64_t{calls} * kCallCost);
  if (!common_.receives.shared())
    return;
  const uint64_t answers = common_.receives.count_answers(calls);
  if (grant.count_answers(calls)) [[unlikely]]
    adapt_grant(answers, common_.receives.most_for_one(common_.share.calls()));
}

void Responder::adopt_plain(ServedCall& call) noexcept {
  ++common_.counters.messages_received;
  ++common_.counters.calls_received;
  turn.charge(kCallCost + call.read_length());
  if (call.has_chunks()) {
    call.chunk_bytes = chunk_bytes_of(call.part->header.lists, common_.options);
    chunk_bytes_ += call.chunk_bytes;
  }
  call.inline_data = call.whole.data;
  call.inline_length = call.whole.length;
  call.state = CallState::kAbove;
  enroll(call);
}

bool Responder::may_serve_chunk(const ServedCall& call) const noexcept {
  const proto::ChunkLists& lists = call.part->header.lists;
  const uint64_t length = lists.segments[0].length;
  if (lists.num_reads != 0 && (length + call.whole.length > common_.options.max_call ||
                               length > common_.memory.largest_buffer()))
    return false;
  return length != 0 &&
         chunk_bytes_ + chunk_bytes_of(lists, common_.options) <= common_.options.max_chunk_bytes &&
         !common_.upcalls.failed_before(call.xid);
}

void Responder::charge_moved(const ServedCall& call, uint32_t written) noexcept {
  common_.counters.rdma_written_bytes += written;
  turn.charge(call.read_length() + written);
}

// The duplicate request cache is told about a larger grant before the peer is.
void Responder::adapt_grant(uint64_t answers, uint32_t most) noexcept {
  grant.adapt(answers, most);
  tell_most_granted();
}

void Responder::tell_most_granted() const noexcept {
  std::atomic<uint32_t>* most = common_.most_granted;
  if (most == nullptr)
    return;
  uint32_t told = most->load(std::memory_order_relaxed);
  while (told < grant.most_ever() &&
         !most->compare_exchange_weak(told, grant.most_ever(), std::memory_order_relaxed)) {
  }
}

// Returns the word for an answer's header. If Receives are shared, those that it promises beyond
// earlier answers are posted first, and the sum of all promises never exceeds what is posted
// (V1-CREDIT-24).
uint32_t Responder::grant_credits() noexcept {
  ReceiveQueue& receives = common_.receives;
  uint32_t posted = common_.receives_for_calls();
  if (receives.shared()) {
    const uint64_t answers = receives.count_answer();
    if (grant.count_answer()) [[unlikely]]
      adapt_grant(answers, receives.most_for_one(common_.share.calls()));
    const uint32_t lacking = grant.lacks(posted);
    if (lacking != 0) [[unlikely]] {
      receives.make_more_unpromised(lacking);
      posted = common_.receives_for_calls();
    }
  }
  const uint32_t credits = grant.on_answer(posted);
  common_.share.promise_calls(grant.due());
  return credits;
}

// The call was not answered at once and keeps its bytes: the slot gets another buffer.
void Responder::refill_receive() noexcept {
  if (in_hand_.call == nullptr)
    return;
  if (!common_.receives.refill(*std::exchange(in_hand_, {}).slot)) [[unlikely]]
    ++common_.counters.waits_buffer;
}

// The arguments are no longer needed. Their slot, or a bare one, is posted again with their buffer
// before the Send that promises the Receive (V1-CREDIT-14, EXP-17).
void Responder::return_receive(ServedCall& call) noexcept {
  RRDK_ASSERT(call.receive);
  if (in_hand_.call == &call) [[likely]] {
    ReceiveSlot& slot = *std::exchange(in_hand_, {}).slot;
    slot.buffer = std::move(call.receive);
    common_.receives.repost(slot);
  } else {
    common_.receives.give(std::move(call.receive));
  }
}

void Responder::accept(ServedCall& call, uint32_t header_length, uint32_t length) noexcept {
  RRDK_ASSERT(header_length <= length, header_length, length);
  ++common_.counters.calls_received;
  if (common_.options.role == Role::kRequester) [[unlikely]] {
    if (refuse_backward(call))
      return;
  } else {
    common_.follow(call.wire);
  }
  if (call.has_chunks() && common_.upcalls.failed_before(call.xid)) [[unlikely]] {
    ++common_.counters.calls_failed_again;
    answer_error(call, ErrorCode::kSystem);
    return;
  }
  bool is_long = call.type == MessageType::kNoMsg;
  if (is_long && length != header_length) [[unlikely]]
    common_.refused(Refusal::kTrailingBytes);
  call.inline_data = call.receive.data() + header_length;
  call.inline_length = is_long ? 0 : length - header_length;
  const uint32_t num_reads = call.part != nullptr ? call.part->header.lists.num_reads : 0;
  call.item_chunks = static_cast<uint16_t>(num_reads - is_long);
  if (num_reads == 0) [[likely]] {
    call.whole = {call.inline_data, call.inline_length};
    call.message = {&call.whole, 1};
    if (!call.has_chunks() && turn.open() && !turn.waits && !common_.borrower.exceeded())
        [[likely]] {
      turn.charge(kCallCost);
      deliver(call);
      return;
    }
  } else {
    common_.counters.long_calls += is_long;
    if (call.read_length() + call.inline_length > common_.options.max_call)
      return refuse(call, Verdict::kTooManyBytes);
    if (!fits_sinks(call))
      return refuse(call, Verdict::kTooManySegments);
    if (common_.rfc5666.peer_serves_no_reads) [[unlikely]]
      return refuse_reads(call);
  }
  begin(call);
}

void Responder::refuse_xid(ServedCall& call) noexcept {
  common_.refused(Refusal::kXid);
  answer_error(call, ErrorCode::kBadHeader);
}

// Whether a result by reference lies in the call's own memory; that memory is then kept until the
// reply is sent.
bool Responder::names_arguments(const ServedCall& call) noexcept {
  if (!call.reply.borrows()) [[likely]]
    return false;
  auto in = [](const Buffer& buffer, const MemorySpan& bytes) {
    return buffer && bytes.data >= buffer.data() && bytes.data < buffer.data() + buffer.capacity();
  };
  const std::span<const Buffer> buffers = call.sink_buffers();
  auto is_argument = [&](const MemorySpan& run) {
    return in(call.receive, run) ||
           std::ranges::any_of(buffers, [&](const Buffer& buffer) { return in(buffer, run); });
  };
  return std::ranges::any_of(call.reply.pieces(), [&](const Piece& piece) {
    return piece.item && std::ranges::any_of(piece.runs(), is_argument);
  });
}

void Responder::reply(ServedCall& call) noexcept {
  if (common_.phase == Phase::kDead) [[unlikely]] {
    finish(call);
    return;
  }
  if (call.stages != nullptr) [[unlikely]]
    common_.unposted.add(*call.stages, Stage::kReplied);
  if (names_arguments(call)) [[unlikely]] {
    if (in_hand_.call == &call)
      refill_receive();
  } else {
    if (call.part != nullptr)
      call.part->release_sinks();
    if (call.receive && (in_hand_.call == &call || common_.receives.has_bare()))
      return_receive(call);
  }
  if (wait_room_.empty() && (send_plain(call) || send_with_result(call))) [[likely]]
    return;
  proto::ErrorBody error;
  Plan plan = wait_room_.empty() ? plan_reply(call, error) : Plan::kWait;
  if (plan != Plan::kWait) [[likely]] {
    answer(call, plan, error);
    return;
  }
  ++common_.counters.waits_buffer;
  call.state = CallState::kWaitingRoom;
  call.waits_since_ns = 0;
  wait_room_.push(call);
}

void Responder::answer(ServedCall& call, Plan plan, const proto::ErrorBody& error) noexcept {
  if (plan == Plan::kReady) [[likely]] {
    ++common_.counters.replies_sent;
    bool in_draft04 = call.wire == proto::Wire::kDraft04;
    post(call);
    if (in_draft04)
      common_.properties->announce();
  } else {
    common_.refused(Refusal::kNoReplyRoom);
    answer_error(call, error);
  }
}

void Responder::drop(ServedCall& call) noexcept {
  grant.on_no_answer();
  finish(call);
}

void Responder::post(ServedCall& call) noexcept {
  RRDK_ASSERT(!call.job.queued &&
              (call.is_error ? call.error_length : call.part->plan.num_sges) != 0);
  call.state = CallState::kReplying;
  if (common_.up() && common_.sends.idle() && emit(call)) [[likely]]
    return;
  ++common_.counters.waits_send_queue;
  common_.sends.push(call.job);
}

void Responder::on_reply_completed(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state >= CallState::kReplying, call.state);
  if (call.job.settled() && (call.exposure == nullptr || on_exposed(call))) [[likely]]
    finish(call);
}

// The buffer of a short reply stays with the object, for its next call. CallPool::release_idle()
// gives such buffers back when buffers run short.
void Responder::release_memory(ServedCall& call) noexcept {
  std::span<Buffer> buffers = call.reply.buffers();
  if (names_arguments(call)) [[unlikely]]
    common_.note_named(call.sink_buffers());
  if (buffers.size() != 1 || buffers[0].capacity() > kKeptReplyBytes) {
    common_.note_named(buffers);
    call.reply.clear();
  }
  if (call.part != nullptr) {
    call.part->plan.clear();
    call.part->release_sinks();
  }
}

// A call that waited for nothing is complete when it is received, so the clock is not read again.
void Responder::note_whole(const ServedCall& call) noexcept {
  const bool at_once = call.state == CallState::kProcessing;
  const uint64_t now = at_once ? call.stages->at(Stage::kReceived) : base::Tsc::ticks();
  call.stages->stamp(Stage::kWhole, call.stages->pass(Stage::kWhole, now));
}

// The only place where a call ends, however it went.
void Responder::finish(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state != CallState::kFree && call.responder == this, call.state);
  RRDK_ASSERT(call.job.settled() && call.reads_posted == 0, call.job.signals, call.reads_posted);
  RRDK_ASSERT(calls_ != 0 && turn.client.calls != 0, calls_, turn.client.calls);
  RRDK_ASSERT(call.chunk_bytes <= chunk_bytes_, call.chunk_bytes, chunk_bytes_);
  if (call.exposure != nullptr) [[unlikely]]
    unexpose(call);
  if (call.stages != nullptr) [[unlikely]]
    call.stages->complete();
  release_memory(call);
  if (call.receive)
    return_receive(call);
  all_.remove(call);
  --calls_;
  --turn.client.calls;
  chunk_bytes_ -= call.chunk_bytes;
  auto* on_ended = std::exchange(call.on_ended, nullptr);
  void* user = call.user;
  common_.pool.put(call);
  if (on_ended != nullptr) [[unlikely]]
    on_ended(user);
}

// Calls that wait for memory or a Read end now; posted ones end when they have been reported; those
// with the upper layer end when it replies.
void Responder::on_dead() noexcept {
  RRDK_ASSERT(common_.phase == Phase::kDead, common_.phase);
  while (!wait_turn_.empty())
    wait_turn_.pop().chunk_bytes = 0;  // they were not started
  turn.waits = false;
  wait_buffers_.clear();
  note_shortage(mem::Shortage::kNone);
  reading_bytes_ = 0;
  wait_reads_.clear();
  wait_room_.clear();
  for (ServedCall* call = all_.front(); call != nullptr;) {
    ServedCall& dead = *std::exchange(call, call->links.next);
    bool posted = dead.reads_posted != 0 || !dead.job.settled();
    if (dead.state == CallState::kAbove || posted)
      continue;
    bool tells = dead.on_ended != nullptr;
    finish(dead);
    if (tells)  // the upcall may have ended others, `call` among them
      call = all_.front();
  }
}

// The first call of a queue may need more buffers than there are, or those that an idle connection
// has posted. It would wait for ever, and so would those behind it (V1-ERR-25).
void Responder::refuse_overdue(CallQueue& queue, uint64_t now_ns) noexcept {
  ServedCall* call = queue.front();
  if (call == nullptr)
    return;
  if (call->waits_since_ns == 0) {
    call->waits_since_ns = now_ns;
  } else if (now_ns - call->waits_since_ns >= common_.options.buffer_wait_ns) {
    queue.pop();
    common_.refused(Refusal::kNoBuffers);
    answer_error(*call, ErrorCode::kSystem);
  }
}

void Responder::on_tick(uint64_t now_ns) noexcept {
  if (!common_.up())
    return;
  if (!exposed_.empty()) [[unlikely]]
    check_dones(now_ns);
  if (!wait_room_.empty() || !wait_buffers_.empty() || common_.receives.has_bare()) [[unlikely]]
    common_.pool.release_idle();
  pump();  // first: others may have given back the buffers that a call waits for
  refuse_overdue(wait_room_, now_ns);
  // A call may wait for its peer's share without a time limit, as for max_chunk_bytes, since the
  // peer's own calls hold that share.
  if (shortage_ == mem::Shortage::kShare)
    wait_buffers_.front()->waits_since_ns = 0;
  else
    refuse_overdue(wait_buffers_, now_ns);
  if (wait_buffers_.empty())
    note_shortage(mem::Shortage::kNone);
  if (reading())
    check_progress(now_ns);
  else
    progress_since_ns_ = 0;
}

void Responder::pump() noexcept {
  if (!common_.up())
    return;
  common_.receives.refill_bare();
  while (!wait_room_.empty()) {
    ServedCall& call = *wait_room_.front();
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
  while (common_.share.parked() != nullptr) {
    ReceiveSlot& slot = common_.share.unpark();
    if (!take(slot, slot.length)) {
      common_.share.park_first(slot);
      break;
    }
  }
}

// When a call that has arrived is started: its chunks are fetched, or the call is delivered. What
// it uses beyond its share of the core or of memory makes it wait here, in order, while its Receive
// has been posted again, so that a peer may always use the credits that it was granted.

inline void Responder::start(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state == CallState::kProcessing || call.state == CallState::kWaitingTurn,
              call.state);
  chunk_bytes_ += call.chunk_bytes;
  turn.charge(kCallCost + call.read_length());
  if (call.part == nullptr || call.part->header.lists.num_reads == 0) [[likely]]
    deliver(call);
  else
    fetch(call);
}

void Responder::begin(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state == CallState::kProcessing && call.chunk_bytes == 0, call.state);
  if (call.has_chunks())
    call.chunk_bytes = chunk_bytes_of(call.part->header.lists, common_.options);
  if (turn.open() && !turn.waits && has_room(call)) [[likely]] {
    start(call);
    return;
  }
  if (!turn.open())
    ++common_.counters.waits_turn;
  call.state = CallState::kWaitingTurn;
  wait_turn_.push(call);
  turn.waits = true;
  note_held_up();
}

void Responder::start_waiting() noexcept {
  while (!wait_turn_.empty() && turn.open() && has_room(*wait_turn_.front())) {
    held_up_ = nullptr;
    start(wait_turn_.pop());
  }
  turn.waits = !wait_turn_.empty();
  note_held_up();
}

void Responder::note_held_up() noexcept {
  const ServedCall* first = wait_turn_.front();
  if (first == nullptr || first == held_up_ || has_room(*first))
    return;
  held_up_ = first;
  ++(common_.borrower.exceeded() ? common_.counters.waits_share
                                 : common_.counters.waits_chunk_bytes);
}

}  // namespace rrdk::engine

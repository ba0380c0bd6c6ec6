// The life of a plain call (plain_calls.h), from the slot with the call to the slot of its reply.
//
//   on_burst     what holds for all calls of a burst; serve() one after the other
//   serve        peek, match, find; answer_null(), or a record and run(), or a worker
//   run          the handler, and its reply if that is plain as well
//   leave        a call that its handler has kept, or answered otherwise, continues like any other
//
// chunk_calls_datapath.cc has what is different for a call with a chunk.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "runtime/poll_core.h"
#include "service/plain_words.h"

namespace rrdk::service {

// Decides for all calls of a burst: a connection on which something waits, or that drains, ends, or
// needs more than a slot, takes the general path. So does the first call of a connection, which
// shows its version and service.
bool PlainCalls::open() noexcept {
  if (!link_.lane_open() || !link_.core().turns().empty() || dispatcher_.last_service_ == nullptr ||
      dispatcher_.services_.edition() != dispatcher_.last_edition_)
    return false;
  link_.begin_turn();
  const uint32_t credits = responder().plain_credits();
  if (credits == 0)
    return false;
  if (edition_ != dispatcher_.last_edition_ || service_ != dispatcher_.last_service_ ||
      credits != credits_) [[unlikely]]
    make_templates(credits);
  asked_ = be(responder().grant.asked());
  return true;
}

// Whether that decision still holds after a handler has run.
bool PlainCalls::goes_on() const noexcept {
  return link_.lane_open() && responder().plain_goes_on(credits_);
}

void PlainCalls::make_templates(uint32_t credits) noexcept {
  edition_ = dispatcher_.last_edition_;
  service_ = dispatcher_.last_service_;
  found_ = find(0);
  credits_ = credits;
  call_a_ = {0, be(1), 0, 0, 0, 0, 0, 0};
  call_b_ = {0, be(2), be(service_->binding->program), be(service_->binding->version), 0, 0, 0, 0};
  reply_a_ = {0, be(1), be(credits), 0, 0, 0, 0, 0};
  reply_b_ = {0, 0, 0, be(1), 0, 0, 0, 0};
}

PlainCalls::Found PlainCalls::find(uint32_t number) const noexcept {
  const Procedure* const procedure = service_->find(number);
  const bool serves = procedure != nullptr ? procedure->idempotent : number == 0;
  const auto takes = [&](Acceptance callers) {
    return serves && (procedure == nullptr || procedure->accepts == kAcceptAny ||
                      (procedure->accepts & callers) != 0);
  };
  const uint32_t least_body = takes(kAcceptNone) ? 0 : 1;
  const uint32_t past_body = takes(kAcceptSys) ? kNotPlain : 1;
  const bool on_worker = procedure != nullptr && procedure->dispatch == Dispatch::kWorker &&
                         link_.core().workers() != nullptr;
  ProcedureCounters* const all = dispatcher_.last_counters_;
  const Binding& binding = *service_->binding;
  return {number,
          least_body,
          past_body - least_body,
          on_worker,
          binding.allows(number, 1, 0),
          binding.allows(number, 0, 1),
          procedure,
          all != nullptr ? &all[service_->index_of(procedure)] : nullptr};
}

void PlainCalls::on_burst(fabric::Lane& lane, uint32_t most) noexcept {
  RRDK_ON_CORE(link_.core());
  if (!open()) [[unlikely]]
    return;
  most = std::min(most, responder().turn.calls_left());
  longest_ = responder().receive_bytes();
  reads_ = link_.engine().options().reads_at_once;
  writes_ = lane.can_write();
  Burst burst;
  for (uint32_t taken = 0; taken != most; ++taken) {
    const Outcome outcome = serve(lane, burst);
    if (outcome == Outcome::kUntouched) [[unlikely]]
      break;
    burst.served += outcome == Outcome::kServed;
    if (outcome != Outcome::kServed)
      burst.record = nullptr;
    // What the call moved may have used up the turn, a handler may have changed the services, and a
    // call beyond its credits may end the connection.
    if (outcome == Outcome::kLeft || !responder().turn.open() ||
        dispatcher_.services_.edition() != edition_ || (outcome == Outcome::kGiven && !goes_on()))
        [[unlikely]]
      break;
  }
  burst.tally.flush();
  if (burst.served != 0)
    responder().count_plain(burst.served);
  if (burst.record != nullptr) {
    burst.record->results.reset();
    responder().end_plain(*burst.record);
    link_.core().call_pool().put(*burst.record);
  }
}

// Serves the next call of a burst.
PlainCalls::Outcome PlainCalls::serve(fabric::Lane& lane, Burst& burst) noexcept {
  const fabric::LaneMessage message = lane.peek();
  const uint32_t length = message.length();
  // A server shows no keys here: a message that invalidates one is left to the general path.
  if (length < kShortest || length > longest_ || message.invalidated() != 0) [[unlikely]]
    return Outcome::kUntouched;
  const auto a = message.load<__m256i>(0);
  const auto xid = static_cast<uint32_t>(_mm256_extract_epi32(a, 0));
  if (asked_ != static_cast<uint32_t>(_mm256_extract_epi32(a, 2))) [[unlikely]]
    return Outcome::kUntouched;
  const __m256i wrong = _mm256_and_si256(_mm256_xor_si256(a, load(call_a_)), load(kSameStart));
  if (!_mm256_testz_si256(wrong, wrong))
    return may_show_chunk(a) ? serve_with_chunk(lane, message, a, burst) : Outcome::kUntouched;
  const auto b = message.load<__m256i>(32);
  // The XID in the transport header must be that of the message (V1-HDR-16).
  if (!matches(b) || xid != static_cast<uint32_t>(_mm256_extract_epi32(a, 7))) [[unlikely]]
    return Outcome::kUntouched;
  const uint32_t body = credential_length(
      b, length - kTransport,
      [&]<typename Value>(Value, uint32_t at) { return message.load<Value>(kTransport + at); });
  const uint32_t number = be(static_cast<uint32_t>(_mm256_extract_epi32(b, 4)));
  if (!may_serve(number, body)) [[unlikely]]
    return Outcome::kUntouched;
  const bool sampled = link_.core().call_pool().stages().samples(be(xid));
  if (found_.procedure == nullptr && !sampled) [[likely]] {
    if (!answer_null(lane, message, xid)) [[unlikely]]
      return Outcome::kUntouched;
    burst.tally.count(found_.counters, length - kTransport, kReplyHeader);
    return Outcome::kServed;
  }
  if (burst.record == nullptr && (burst.record = take_record()) == nullptr) [[unlikely]]
    return Outcome::kUntouched;
  ServedCall& call = *burst.record;
  std::byte* const bytes = call.receive.data();
  store(bytes, a);
  store(bytes + 32, b);
  const uint32_t verifier = kTransport + kVerifier + body;
  message.copy(bytes + kAlways, kAlways, verifier - std::min(verifier, kAlways));
  std::memset(bytes + verifier, 0, kNoneBytes);
  message.copy(bytes + verifier + kNoneBytes, verifier + kNoneBytes,
               length - verifier - kNoneBytes);
  lane.take(message);
  call.whole = {bytes + kTransport, length - kTransport};
  fill(call, be(xid), number, body);
  if (sampled) [[unlikely]]
    sample(call, be(xid), number);
  return run_or_hand_over(lane, call, burst);
}

// Whether calls of that procedure are served here: those of NULL, and those that may run twice;
// with a credential whose body has that length. Never if that is kNotPlain.
bool PlainCalls::may_serve(uint32_t number, uint32_t body) noexcept {
  if (number != found_.number) [[unlikely]]
    found_ = find(number);
  return found_.serves(body) && (!found_.on_worker || responder().may_adopt_plain());
}

PlainCalls::Outcome PlainCalls::run_or_hand_over(fabric::Lane& lane, ServedCall& call,
                                                 Burst& burst) noexcept {
  if (found_.on_worker) {  // its answer takes the general path
    adopt(call);
    dispatcher_.dispatch(call);
    return Outcome::kGiven;
  }
  if (!run(lane, call)) [[unlikely]] {
    leave(call);
    return Outcome::kLeft;
  }
  burst.tally.count(found_.counters, call.args.length(), call.results->position());
  return Outcome::kServed;
}

bool PlainCalls::matches(__m256i b) const noexcept {
  const __m256i wrong = _mm256_and_si256(_mm256_xor_si256(b, load(call_b_)), load(kSameRest));
  return _mm256_testz_si256(wrong, wrong) != 0;
}

bool PlainCalls::answer_null(fabric::Lane& lane, const fabric::LaneMessage& message,
                             uint32_t xid) noexcept {
  std::byte* const to = lane.begin(kEmptyReply);
  if (to == nullptr) [[unlikely]]
    return false;
  lane.take(message);
  const __m256i xids = _mm256_set1_epi32(static_cast<int>(xid));
  store(to, _mm256_blend_epi32(load(reply_a_), xids, 0b1000'0001));
  store(to + 20, _mm256_blend_epi32(load(reply_b_), xids, 0b0000'0100));
  lane.send(kEmptyReply);
  return true;
}

// Returns a record for the calls of this burst, one after the other, with a buffer of its own: what
// a handler reads must not change, and a peer can write to the slot at any time.
ServedCall* PlainCalls::take_record() noexcept {
  engine::CallPool& pool = link_.core().call_pool();
  ServedCall* const call = pool.get();
  if (call == nullptr)
    return nullptr;
  call->receive = dispatcher_.memory_.get_fitting(responder().receive_bytes());
  if (!call->receive) {
    pool.put(*call);
    return nullptr;
  }
  responder().begin_plain(*call);
  return call;
}

void PlainCalls::fill(ServedCall& call, uint32_t xid, uint32_t number, uint32_t body) noexcept {
  RRDK_ASSERT(found_.serves(body) && found_.number == number, number);
  call.xid = xid;
  call.message = {&call.whole, 1};
  call.dispatcher = &dispatcher_;
  call.service = service_;
  call.procedure = found_.procedure;
  call.counters = nullptr;  // the burst counts it, unless it leaves
  call.header.xid = xid;
  call.header.program = service_->binding->program;
  call.header.version = service_->binding->version;
  call.header.procedure = number;
  call.header.credential = {};
  if (body != 0)
    call.header.credential = {
        AuthFlavor::kSys,
        ItemView(call.message, kVerifier, xdr::load_u32(call.whole.data + kVerifier - 4))};
  call.header.verifier = {};
  call.not_before_ns = 0;
  call.replay = nullptr;
  call.stages = nullptr;
  call.answered = false;
  call.answer = Answer::kResults;
  call.args = Decoder(call.message);
  call.args.skip_run(kCallHeader + body);
  // The header of the last reply of this record is still there, except its XID.
  if (call.results && call.results->keep_first(kReplyHeader)) [[likely]] {
    xdr::store_u32(call.reply.buffers().front().data(), xid);
    return;
  }
  call.results.reset();
  open_reply(call);
}

// Returns false if the call must leave(), answered or not.
bool PlainCalls::run(fabric::Lane& lane, ServedCall& call) noexcept {
  call.plain = true;
  if (call.procedure != nullptr)
    enter_handler(call);
  else
    call.answered = true;
  call.plain = false;
  // The handler may have answered other calls, which changes what is granted, or have ended the
  // connection or begun a capture.
  if (!goes_on() || !call.answered || call.answer != Answer::kResults || call.not_before_ns != 0 ||
      call.on_ended != nullptr || !call.results->ok()) [[unlikely]]
    return false;
  if (!call.has_chunks()) [[likely]]
    return reply(lane, call, 0);
  return reply_to_chunk(lane, call);
}

bool PlainCalls::reply(fabric::Lane& lane, ServedCall& call, uint32_t invalidate) noexcept {
  const std::span<const std::byte> reply = call.results->run();
  const auto length = static_cast<uint32_t>(kTransport + reply.size());
  const bool fits = !reply.empty() && reply.size() <= call.inline_size() && length <= lane.most() &&
                    length % 4 == 0;
  std::byte* const to = fits ? lane.begin(length) : nullptr;
  if (to == nullptr) [[unlikely]]
    return false;
  const auto xid = static_cast<int>(be(call.xid));
  store(to, _mm256_blend_epi32(load(reply_a_), _mm256_set1_epi32(xid), 0b1000'0001));
  std::memcpy(to + kTransport, reply.data(), reply.size());
  if (call.stages != nullptr) [[unlikely]]
    end_sample(call);
  lane.send(length, invalidate);
  return true;
}

// From here on the call is like any other, with the record that it has.
void PlainCalls::leave(ServedCall& call) noexcept {
  adopt(call);
  if (call.answered)
    dispatcher_.finish(call);
  link_.core().mark_dirty(link_);
}

void PlainCalls::adopt(ServedCall& call) noexcept {
  call.counters = found_.counters;
  if (call.counters != nullptr)
    ++call.counters->calls_in_progress;
  responder().adopt_plain(call);
}

void PlainCalls::sample(ServedCall& call, uint32_t xid, uint32_t number,
                        uint64_t received) noexcept {
  call.stages = link_.core().call_pool().stages().take(xid, false);
  if (call.stages == nullptr)
    return;
  engine::StageRecord& stages = *call.stages;
  uint64_t now = base::Tsc::ticks();
  const uint64_t first = stages.pass(Stage::kReceived, received != 0 ? received : now);
  stages.stamp(Stage::kReceived, first);
  now = std::max(now, first);
  stages.stamp(Stage::kWhole, now = stages.pass(Stage::kWhole, now));
  stages.name(link_.id(), service_->binding->program, service_->binding->version, number);
  stages.stamp(Stage::kDecoded, now = stages.pass(Stage::kDecoded, now));
  if (call.procedure != nullptr)
    return;
  for (Stage stage : {Stage::kEntered, Stage::kAnswered})  // there is no handler
    stages.stamp(stage, now = stages.pass(stage, now));
}

void PlainCalls::end_sample(ServedCall& call) noexcept {
  call.stages->stamp(Stage::kReplied);
  if (call.procedure != nullptr && dispatcher_.last_counters_ != nullptr)
    note_times(*find(call.header.procedure).counters, *call.stages, false);
  std::exchange(call.stages, nullptr)->complete();
}

}  // namespace rrdk::service

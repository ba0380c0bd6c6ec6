// The life of a plain call (plain_calls.h), from the slot that it lies in to the slot of its reply.
//
//   on_burst     peek, match, find; answer_null(), or a record and run(); the next one
//   run          the handler, and its reply if that is plain as well
//   leave        a call that its handler has kept, or answered otherwise, goes on as any other
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/poll_core.h"
#include "service/plain_calls.h"

namespace rrdk::service {

namespace {

// Transport header, RPC header without a credential (RFC 5531 section 9), and those of a reply.
constexpr uint32_t kTransport = proto::kMinHeader;
constexpr uint32_t kCallHeader = 40;
constexpr uint32_t kReplyHeader = 24;
constexpr uint32_t kShortest = kTransport + kCallHeader;
constexpr uint32_t kEmptyReply = kTransport + kReplyHeader;
static_assert(kShortest <= fabric::LaneMessage::kAlwaysReadable);

constexpr uint32_t be(uint32_t value) {
  return __builtin_bswap32(value);
}

// Which words of a call are the same in each: not its XIDs (words 0 and 7), the credits that it
// asks for (2), its procedure (12), its credential's flavour and length (13 and 14), and what comes
// behind these.
alignas(32) constexpr std::array<uint32_t, 8> kSameA = {0, ~0u, 0, ~0u, ~0u, ~0u, ~0u, 0};
alignas(32) constexpr std::array<uint32_t, 8> kSameB = {~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0};
constexpr uint32_t kVerifier = kTransport + 32;  // of a call whose credential has no body
constexpr uint32_t kNoneBytes = 8;                // of a verifier or credential that is AUTH_NONE
constexpr uint32_t kAlways = 64;                  // what is looked at of each call
constexpr uint32_t kNotPlain = UINT32_MAX;

__m256i load(const std::array<uint32_t, 8>& words) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words.data()));
}
void store(std::byte* to, __m256i value) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

}  // namespace

// The verdict on all calls of a burst: whatever has to wait, is draining or ending, or needs more
// than a slot is for the general way. The first call of a connection goes that way, too: it shows
// version and service.
bool PlainCalls::open() noexcept {
  const xprt::Responder& responder = link_.engine().responder();
  if (!link_.lane_open() || !link_.core().turns().empty() || dispatcher_.last_service_ == nullptr ||
      dispatcher_.services_.edition() != dispatcher_.last_edition_)
    return false;
  link_.begin_turn();
  const uint32_t credits = responder.plain_credits();
  if (credits == 0)
    return false;
  if (edition_ != dispatcher_.last_edition_ || service_ != dispatcher_.last_service_ ||
      credits != credits_) [[unlikely]]
    make_templates(credits);
  asked_ = be(responder.grant.asked());
  return true;
}

// Whether that verdict still holds behind a handler.
bool PlainCalls::goes_on() const noexcept {
  return link_.lane_open() && link_.engine().responder().plain_goes_on(credits_);
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
  const bool serves = procedure == nullptr
                          ? number == 0
                          : procedure->idempotent && (procedure->dispatch != Dispatch::kWorker ||
                                                      link_.core().workers() == nullptr);
  ProcedureCounters* const all = dispatcher_.last_counters_;
  return {number, serves, procedure,
          all != nullptr ? &all[service_->index_of(procedure)] : nullptr};
}

void PlainCalls::on_burst(fabric::Lane& lane, uint32_t most) noexcept {
  if (!open()) [[unlikely]]
    return;
  most = std::min(most, link_.engine().responder().turn.calls_left());
  const xprt::StageLog& stages = link_.core().call_pool().stages();
  const uint32_t longest = link_.engine().responder().receive_bytes();
  ServedCall* record = nullptr;
  Tally tally;
  uint32_t served = 0;
  while (served != most) {
    const fabric::LaneMessage message = lane.peek();
    const uint32_t length = message.length();
    if (length < kShortest || length > longest) [[unlikely]]
      break;
    const auto a = message.load<__m256i>(0);
    const auto b = message.load<__m256i>(32);
    const __m256i wrong =
        _mm256_or_si256(_mm256_and_si256(_mm256_xor_si256(a, load(call_a_)), load(kSameA)),
                        _mm256_and_si256(_mm256_xor_si256(b, load(call_b_)), load(kSameB)));
    const auto xid = static_cast<uint32_t>(_mm256_extract_epi32(a, 0));
    // The XID in the transport header must be that of the message (V1-HDR-16).
    if (!_mm256_testz_si256(wrong, wrong) ||
        xid != static_cast<uint32_t>(_mm256_extract_epi32(a, 7)) ||
        asked_ != static_cast<uint32_t>(_mm256_extract_epi32(a, 2))) [[unlikely]]
      break;
    const uint32_t body = credential_length(message, b);
    if (body == kNotPlain) [[unlikely]]
      break;
    const uint32_t number = be(static_cast<uint32_t>(_mm256_extract_epi32(b, 4)));
    if (number != found_.number) [[unlikely]]
      found_ = find(number);
    if (!found_.serves) [[unlikely]]
      break;
    const bool sampled = stages.samples(be(xid));
    if (found_.procedure == nullptr && !sampled) [[likely]] {
      if (!answer_null(lane, message, xid)) [[unlikely]]
        break;
      tally.count(found_.counters, length - kTransport, kReplyHeader);
      ++served;
      continue;
    }
    if (record == nullptr && (record = take_record()) == nullptr) [[unlikely]]
      break;
    ServedCall& call = *record;
    std::byte* const bytes = call.receive.data();
    store(bytes, a);
    store(bytes + 32, b);
    const uint32_t verifier = kVerifier + body;
    message.copy(bytes + kAlways, kAlways, verifier - std::min(verifier, kAlways));
    std::memset(bytes + verifier, 0, kNoneBytes);
    message.copy(bytes + verifier + kNoneBytes, verifier + kNoneBytes,
                 length - verifier - kNoneBytes);
    lane.take(message);
    call.whole = {bytes + kTransport, length - kTransport};
    fill(call, be(xid), number, body);
    if (sampled) [[unlikely]]
      sample(call, be(xid), number);
    if (!run(lane, call)) [[unlikely]] {
      record = nullptr;
      leave(call);
      break;
    }
    tally.count(found_.counters, length - kTransport, call.reply.stream_length());
    ++served;
    if (dispatcher_.services_.edition() != edition_) [[unlikely]]  // by the handler itself
      break;
  }
  tally.flush();
  if (served != 0)
    link_.engine().responder().count_plain(served);
  if (record != nullptr) {
    link_.engine().responder().end_plain(*record);
    link_.core().call_pool().put(*record);
  }
}

// Bytes of the body of the call's credential, with the pad. The flavour is AUTH_NONE, or AUTH_SYS
// with a body, which its handler may decode; the verifier behind it is AUTH_NONE.
uint32_t PlainCalls::credential_length(const fabric::LaneMessage& message, __m256i b) noexcept {
  const auto flavor = static_cast<uint32_t>(_mm256_extract_epi32(b, 5));
  const auto bytes = be(static_cast<uint32_t>(_mm256_extract_epi32(b, 6)));
  if (flavor == 0 && bytes == 0) {
    const bool none = _mm256_extract_epi32(b, 7) == 0 && message.load<uint32_t>(kAlways) == 0;
    return none ? 0 : kNotPlain;
  }
  const uint32_t body = (bytes + 3) & ~3u;
  if (flavor != be(static_cast<uint32_t>(AuthFlavor::kSys)) || bytes == 0 || bytes > kMaxAuthBody ||
      message.length() < kShortest + body || message.load<uint64_t>(kVerifier + body) != 0)
    return kNotPlain;
  return body;
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

// A record for the calls of this burst, one after the other, with a buffer of its own: what a
// handler reads must not change, and a peer can write to the slot at any time.
ServedCall* PlainCalls::take_record() noexcept {
  xprt::CallPool& pool = link_.core().call_pool();
  ServedCall* const call = pool.get();
  if (call == nullptr)
    return nullptr;
  call->receive = dispatcher_.memory_.get_fitting(link_.engine().responder().receive_bytes());
  if (!call->receive) {
    pool.put(*call);
    return nullptr;
  }
  link_.engine().responder().begin_plain(*call);
  return call;
}

void PlainCalls::fill(ServedCall& call, uint32_t xid, uint32_t number, uint32_t body) noexcept {
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
  if (body != 0) {
    constexpr uint32_t kLength = kVerifier - kTransport - sizeof(uint32_t);
    call.header.credential = {
        AuthFlavor::kSys,
        ItemView(call.message, kVerifier - kTransport, xdr::load_u32(call.whole.data + kLength))};
  }
  call.header.verifier = {};
  call.not_before_ns = 0;
  call.replay = nullptr;
  call.stages = nullptr;
  call.answered = false;
  call.answer = Answer::kResults;
  call.args = Decoder(call.message);
  call.args.skip_run(kCallHeader + body);
  open_reply(call);
}

// False: the call is to leave(), answered or not.
bool PlainCalls::run(fabric::Lane& lane, ServedCall& call) noexcept {
  call.plain = true;
  if (call.procedure != nullptr)
    enter_handler(call);
  else
    call.answered = true;
  call.plain = false;
  // Its handler may have answered other calls, which changes what is granted, or have ended the
  // connection, or have begun a capture.
  if (!goes_on() || !call.answered || call.answer != Answer::kResults || call.not_before_ns != 0 ||
      call.on_ended != nullptr || !call.results->ok()) [[unlikely]]
    return false;
  const std::span<const std::byte> reply = call.results->run();
  const auto length = static_cast<uint32_t>(kTransport + reply.size());
  const bool fits = !reply.empty() && reply.size() <= call.inline_size() && length <= lane.most();
  std::byte* const to = fits ? lane.begin(length) : nullptr;
  if (to == nullptr) [[unlikely]]
    return false;
  const auto xid = static_cast<int>(be(call.xid));
  store(to, _mm256_blend_epi32(load(reply_a_), _mm256_set1_epi32(xid), 0b1000'0001));
  std::memcpy(to + kTransport, reply.data(), reply.size());
  if (call.stages != nullptr) [[unlikely]]
    end_sample(call);
  lane.send(length);
  call.results.reset();
  return true;
}

// From here on it is as any other call, with the record that it has.
void PlainCalls::leave(ServedCall& call) noexcept {
  call.counters = find(call.header.procedure).counters;
  if (call.counters != nullptr)
    ++call.counters->calls_in_progress;
  link_.engine().responder().adopt_plain(call);
  if (call.answered)
    end(call, call.answer);
  link_.core().mark_dirty(link_);
}

void PlainCalls::sample(ServedCall& call, uint32_t xid, uint32_t number) noexcept {
  call.stages = link_.core().call_pool().stages().take(xid, false);
  if (call.stages == nullptr)
    return;
  xprt::StageRecord& stages = *call.stages;
  uint64_t now = stages.pass(Stage::kReceived, base::Tsc::ticks());
  stages.stamp(Stage::kReceived, now);
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

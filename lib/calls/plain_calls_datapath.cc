// A plain call (plain_calls.h), from submit() to its callback.
//
//   submit     its own verdict and that of its connection; a slot and an XID; header and call are
//              written to the lane and sent
//   on_burst   peek, match, take, end; the callback, which may submit the next call; the next reply
#include "calls/plain_calls.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "runtime/poll_core.h"
#include "xprt/outgoing_call.h"

namespace rrdk::calls {

namespace {

// Transport header (RFC 8166 section 4.2), and the RPC header of a reply that is accepted and
// successful (RFC 5531 section 9).
constexpr uint32_t kTransport = proto::kMinHeader;
constexpr uint32_t kReplyHeader = 24;
constexpr uint32_t kEmptyReply = kTransport + kReplyHeader;
static_assert(kEmptyReply <= fabric::LaneMessage::kAlwaysReadable);

constexpr uint32_t be(uint32_t value) {
  return __builtin_bswap32(value);
}

// Words 0 to 7 of a reply, and which of them are the same in each: not the XIDs and the credits.
alignas(32) constexpr std::array<uint32_t, 8> kReply = {0, be(1), 0, 0, 0, 0, 0, 0};
alignas(32) constexpr std::array<uint32_t, 8> kSame = {0, ~0u, 0, ~0u, ~0u, ~0u, ~0u, 0};
// Words 8 to 11: an accepted reply with the verifier AUTH_NONE.
alignas(16) constexpr std::array<uint32_t, 4> kAccepted = {be(1), 0, 0, 0};

__m256i load(const std::array<uint32_t, 8>& words) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words.data()));
}

// `length` is a multiple of 4, and not large.
void copy_words(std::byte* to, const std::byte* from, uint32_t length) noexcept {
  const auto move = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
    from += sizeof value;
  };
  for (uint32_t left = length / 32; left != 0; --left)
    move(__m256i{});
  if ((length & 16) != 0)
    move(__m128i{});
  if ((length & 8) != 0)
    move(uint64_t{0});
  if ((length & 4) != 0)
    move(uint32_t{0});
}

// The words of an RPC header, and whatever else moves with them and not in a chunk.
bool is_plain(std::span<const Piece> pieces) noexcept {
  if (pieces.empty() || pieces[0].item || pieces[0].bytes.length < sizeof(uint32_t)) [[unlikely]]
    return false;
  return pieces.size() == 1 || std::ranges::none_of(pieces, &Piece::eligible);
}

// Writes them one behind the other, without the call's XID, which comes first in the first of them.
void gather(std::byte* to, std::span<const Piece> pieces) noexcept {
  const MemorySpan& first = pieces[0].bytes;
  constexpr uint32_t kXid = sizeof(uint32_t);
  copy_words(to + kXid, first.data + kXid, first.length - kXid);
  to += first.length;
  for (const Piece& piece : pieces.subspan(1)) {
    std::memcpy(to, piece.bytes.data, piece.bytes.length);
    to += piece.bytes.length;
    if (!piece.item)
      continue;
    const uint32_t pad = xdr_pad(piece.bytes.length);
    std::memset(to, 0, pad);
    to += pad;
  }
}

}  // namespace

// Something has happened to the connection since the last look, or its window is full.
bool PlainCalls::look() noexcept {
  lane_ = link_.lane();
  if (lane_ == nullptr)
    return false;
  requester_ = &link_.engine().requester();
  if (!requester_->look_for_plain())
    return false;
  const xprt::Requester::PlainSizes sizes = requester_->plain_sizes();
  longest_ = std::min<uint64_t>(sizes.call, lane_->most());
  longest_reply_ = sizes.reply;
  header_ = {0, be(1), be(requester_->asked), 0, 0, 0, 0, 0};
  return true;
}

bool PlainCalls::submit(Call::Impl& call) noexcept {
  xprt::OutgoingCall& outgoing = call.outgoing;
  const std::span<const Piece> pieces = outgoing.message.pieces();
  if (!outgoing.results.empty() || outgoing.resend || outgoing.released != nullptr ||
      !is_plain(pieces)) [[unlikely]]
    return false;
  if ((requester_ == nullptr || !requester_->may_begin_plain()) && !look()) [[unlikely]]
    return false;
  const uint64_t length = kTransport + outgoing.message.stream_length();
  if (length > longest_ || outgoing.max_reply > longest_reply_) [[unlikely]]
    return false;
  std::byte* const to = lane_->begin(static_cast<uint32_t>(length));
  if (to == nullptr) [[unlikely]]
    return false;

  const uint32_t xid = requester_->begin_plain(outgoing);
  call.phase = Call::Impl::Phase::kEngine;
  caller_.in_engine_.push_front(call);
  const bool sampled = link_.core().call_pool().stages().samples(xid);
  if (sampled) [[unlikely]]
    requester_->sample(outgoing);
  const __m256i xids = _mm256_set1_epi32(static_cast<int>(be(xid)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_blend_epi32(load(header_), xids, 0b1000'0001));
  gather(to + kTransport, pieces);
  if (sampled) [[unlikely]]
    link_.engine().before_posting();
  lane_->send(static_cast<uint32_t>(length));
  if (!in_burst_ || link_.lacks_ticks()) [[unlikely]]
    link_.on_sent_in_lane();
  return true;
}

// Replies are taken while calls of ours wait for credits, too: it is they that bring these.
void PlainCalls::on_burst(fabric::Lane& lane, uint32_t most) noexcept {
  xprt::Connection& engine = link_.engine();
  xprt::Requester& requester = engine.requester();
  if (!link_.lane_open() || !requester.takes_plain()) [[unlikely]]
    return;
  link_.note_replies();
  in_burst_ = true;
  const uint32_t longest = requester.receive_bytes();
  uint32_t taken = 0;
  while (taken != most) {
    const fabric::LaneMessage message = lane.peek();
    const uint32_t length = message.length();
    if (length < kEmptyReply || length > longest) [[unlikely]]
      break;
    const auto a = message.load<__m256i>(0);
    const auto b = message.load<__m128i>(32);
    const auto accept_stat = message.load<uint32_t>(48);
    const __m256i wrong = _mm256_and_si256(_mm256_xor_si256(a, load(kReply)), load(kSame));
    const __m128i unlike = _mm_xor_si128(
        b, _mm_load_si128(reinterpret_cast<const __m128i*>(kAccepted.data())));
    const auto word = static_cast<uint32_t>(_mm256_extract_epi32(a, 0));
    // The XID in the transport header must be that of the message (V1-HDR-16).
    if (!_mm256_testz_si256(wrong, wrong) || !_mm_testz_si128(unlike, unlike) ||
        accept_stat != 0 || word != static_cast<uint32_t>(_mm256_extract_epi32(a, 7)) ||
        message.invalidated() != 0) [[unlikely]]
      break;
    xprt::OutgoingCall::State* const state = requester.match_plain(be(word));
    if (state == nullptr) [[unlikely]]
      break;
    auto& call = *static_cast<Call::Impl*>(state->call->user);
    if (length != kEmptyReply) {
      const uint32_t bytes = length - kEmptyReply;
      if (!requester.make_room_for_plain(*state)) [[unlikely]]
        break;
      state->whole = {state->receive.data(), bytes};
      message.copy(state->receive.data(), kEmptyReply, bytes);
    } else {
      state->whole = {nullptr, 0};
    }
    lane.take(message);
    ++taken;
    requester.take_plain_grant(be(static_cast<uint32_t>(_mm256_extract_epi32(a, 2))));
    requester.end_plain(*state);
    if (call.outgoing.stages != nullptr) [[unlikely]]
      call.outgoing.stages->stamp(Stage::kSeen);
    caller_.in_engine_.remove(call);
    call.status = CallStatus::kOk;
    call.results = Decoder(state->whole, kReplyHeader);
    caller_.deliver(call);
    if (requester.waiting()) [[unlikely]]
      requester.pump();
    // The callback may have closed the connection, or have begun a capture.
    if (!link_.lane_open()) [[unlikely]]
      break;
  }
  in_burst_ = false;
  RRDK_ASSERT(requester.plain_limit_holds());
  if (taken != 0) {
    requester.count_plain(taken);
    if (link_.lacks_ticks() && requester.needs_tick()) [[unlikely]]
      link_.on_sent_in_lane();
  }
}

}  // namespace rrdk::calls

// A plain call (plain_calls.h), from submit() to its callback.
//
//   submit     checks the call and its connection; takes a slot and an XID; writes header and call
//              to the lane and sends them
//   on_burst   peek, match, take, end; the callback, which may submit the next call; the next reply
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "calls/plain_calls.h"
#include "engine/outgoing_call.h"
#include "proto/plain_words.h"
#include "runtime/poll_core.h"

namespace rrdk::calls {

namespace {

using namespace plain;

static_assert(kEmptyReply <= fabric::LaneMessage::kAlwaysReadable);

// Words 0 to 7 of a reply.
alignas(32) constexpr std::array<uint32_t, 8> kReply = {0, be(1), 0, 0, 0, 0, 0, 0};
// Words 8 to 11: an accepted reply with the verifier AUTH_NONE.
alignas(16) constexpr std::array<uint32_t, 4> kAccepted = {be(1), 0, 0, 0};

// `length` must be a multiple of 4, and small.
[[gnu::always_inline]] inline void copy_words(std::byte* to, const std::byte* from,
                                              uint32_t length) noexcept {
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

// Whether it consists of an RPC header, and arguments that are inline and not in a chunk.
bool is_plain(std::span<const Piece> pieces) noexcept {
  if (pieces.empty() || pieces[0].item || pieces[0].bytes.length < sizeof(uint32_t)) [[unlikely]]
    return false;
  return pieces.size() == 1 || std::ranges::none_of(pieces, &Piece::eligible);
}

// Copies the pieces, one after the other, without the call's XID, which comes first in the first
// piece.
[[gnu::always_inline]] inline void gather(std::byte* to, std::span<const Piece> pieces) noexcept {
  const MemorySpan& first = pieces[0].bytes;
  constexpr uint32_t kXid = sizeof(uint32_t);
  copy_words(to + kXid, first.data + kXid, first.length - kXid);
  to += first.length;
  for (const Piece& piece : pieces.subspan(1)) {
    for (const MemorySpan& run : piece.runs()) {
      std::memcpy(to, run.data, run.length);
      to += run.length;
    }
    if (!piece.item)
      continue;
    const uint32_t pad = xdr_pad(piece.bytes.length);
    std::memset(to, 0, pad);
    to += pad;
  }
}

}  // namespace

// Updates the state after something has happened to the connection, or its window was full.
bool PlainCalls::look() noexcept {
  lane_ = link_.lane();
  if (lane_ == nullptr)
    return false;
  requester_ = &link_.engine().requester();
  if (!requester_->look_for_plain())
    return false;
  const engine::Requester::PlainSizes sizes = requester_->plain_sizes();
  longest_ = std::min<uint64_t>(sizes.call, lane_->most());
  longest_reply_ = sizes.reply;
  header_ = {0, be(1), be(requester_->asked), 0, 0, 0, 0, 0};
  return true;
}

bool PlainCalls::submit(Call::Impl& call) noexcept {
  const std::span<const Piece> pieces = call.message.pieces();
  if (call.resend || call.secured) [[unlikely]]
    return false;
  const bool has_chunk = !call.results.empty() || !is_plain(pieces);
  if (has_chunk && (requester_ == nullptr || !requester_->may_have_chunk(call))) [[unlikely]]
    return false;
  if ((requester_ == nullptr || !requester_->may_begin_plain()) && !look()) [[unlikely]]
    return false;
  const uint64_t stream = has_chunk ? pieces[0].bytes.length : call.message.stream_length();
  const uint64_t length = kTransport + (has_chunk ? proto::kOneSegmentBytes : 0) + stream;
  if (length > longest_ || call.max_reply > longest_reply_ || length % 4 != 0) [[unlikely]]
    return false;
  // First, since it may end the connection.
  if (has_chunk && !requester_->bind_chunk(call)) [[unlikely]]
    return false;
  std::byte* const to = lane_->begin(static_cast<uint32_t>(length));
  if (to == nullptr) [[unlikely]] {
    if (has_chunk)
      requester_->release_chunk(call);
    return false;
  }

  const uint32_t xid = requester_->begin_plain(call);
  call.phase = Call::Impl::Phase::kEngine;
  caller_.in_engine_.push_front(call);
  const bool sampled = link_.core().call_pool().stages().samples(xid);
  if (sampled) [[unlikely]]
    requester_->sample(call);
  if (has_chunk) {
    requester_->encode_chunk(call, to);
    std::byte* const rpc = to + kTransportOfOne;
    xdr::store_u32(rpc, xid);
    gather(rpc, pieces.first(1));
  } else {
    const __m256i xids = _mm256_set1_epi32(static_cast<int>(be(xid)));
    store(to, _mm256_blend_epi32(load(header_), xids, 0b1000'0001));
    gather(to + kTransport, pieces);
  }
  if (sampled) [[unlikely]]
    link_.engine().before_posting();
  lane_->send(static_cast<uint32_t>(length));
  if (!in_burst_ || link_.lacks_ticks()) [[unlikely]]
    link_.on_sent_in_lane();
  return true;
}

// Returns the call of the next reply, which is taken, if it is one to a plain call. Returns null if
// the reply is left to the general path.
Call::Impl* PlainCalls::take(fabric::Lane& lane) noexcept {
  engine::Requester& requester = *requester_;
  const fabric::LaneMessage message = lane.peek();
  const uint32_t length = message.length();
  if (length < kEmptyReply || length > longest_in_) [[unlikely]]
    return nullptr;
  const auto a = message.load<__m256i>(0);
  const auto word = static_cast<uint32_t>(_mm256_extract_epi32(a, 0));
  engine::OutgoingCall* const found = requester.match_plain(be(word));
  if (found == nullptr) [[unlikely]]
    return nullptr;
  auto& call = static_cast<Call::Impl&>(*found);
  const __m256i wrong = _mm256_and_si256(_mm256_xor_si256(a, load(kReply)), load(kSameStart));
  if (call.num_results != 0)
    return take_with_result(lane, message, a, call) ? &call : nullptr;
  const auto b = message.load<__m128i>(32);
  const auto accept_stat = message.load<uint32_t>(48);
  const __m128i unlike =
      _mm_xor_si128(b, _mm_load_si128(reinterpret_cast<const __m128i*>(kAccepted.data())));
  // The XID in the transport header must be that of the message (V1-HDR-16). If the peer was shown
  // a key, the reply must invalidate it.
  if (!_mm256_testz_si256(wrong, wrong) || !_mm_testz_si128(unlike, unlike) || accept_stat != 0 ||
      word != static_cast<uint32_t>(_mm256_extract_epi32(a, 7)) ||
      message.invalidated() != engine::Requester::key_shown(call)) [[unlikely]]
    return nullptr;
  const uint32_t bytes = length - kEmptyReply;
  if (bytes != 0) {
    if (!requester.make_room_for_plain(call)) [[unlikely]]
      return nullptr;
    message.copy(call.receive.data(), kEmptyReply, bytes);
  }
  call.whole = {bytes != 0 ? call.receive.data() : nullptr, bytes};
  lane.take(message);
  requester.take_plain_grant(be(static_cast<uint32_t>(_mm256_extract_epi32(a, 2))));
  if (call.num_offers != 0)
    requester.release_chunk(call);
  return &call;
}

// Takes a reply that names the memory of a result. Only our copy of the message is examined.
bool PlainCalls::take_with_result(fabric::Lane& lane, const fabric::LaneMessage& message, __m256i a,
                                  Call::Impl& call) noexcept {
  engine::Requester& requester = *requester_;
  const uint32_t length = message.length();
  if (length < kEmptyReply + proto::kOneSegmentBytes ||
      message.invalidated() != engine::Requester::key_shown(call) ||
      !requester.make_room_for_plain(call)) [[unlikely]]
    return false;
  std::byte* const bytes = call.receive.data();
  store(bytes, a);
  message.copy(bytes + sizeof a, sizeof a, length - static_cast<uint32_t>(sizeof a));
  const auto at = [bytes](uint32_t index) { return plain::word(bytes, index); };
  const bool one =
      at(1) == 1 && (at(3) | at(4)) == 0 && at(5) == 1 && at(6) == 1 && (at(11) | at(12)) == 0;
  const bool accepted = at(13) == at(0) && at(14) == 1 && (at(15) | at(16) | at(17) | at(18)) == 0;
  if (!one || !accepted ||
      !requester.take_result(call, {at(7), at(8), xdr::load_u64(bytes + 9 * 4)})) [[unlikely]]
    return false;
  constexpr uint32_t kBefore = kEmptyReply + proto::kOneSegmentBytes;
  call.whole = {bytes + kBefore, length - kBefore};
  lane.take(message);
  requester.take_plain_grant(at(2));
  requester.release_chunk(call);
  return true;
}

// Replies are also taken while calls of ours wait for credits, since the replies bring these.
void PlainCalls::on_burst(fabric::Lane& lane, uint32_t most) noexcept {
  engine::Requester& requester = link_.engine().requester();
  requester_ = &requester;
  if (!link_.lane_open() || !requester.takes_plain()) [[unlikely]]
    return;
  link_.note_replies();
  in_burst_ = true;
  longest_in_ = requester.receive_bytes();
  uint32_t taken = 0;
  // The callback may close the connection, or begin a capture.
  while (taken != most && link_.lane_open()) {
    Call::Impl* const next = take(lane);
    if (next == nullptr) [[unlikely]]
      break;
    ++taken;
    Call::Impl& call = *next;
    requester.end_plain(call);
    if (call.stages != nullptr) [[unlikely]]
      call.stages->stamp(Stage::kSeen);
    caller_.in_engine_.remove(call);
    call.decoder = Decoder(call.whole, kReplyHeader, call.placed);
    caller_.deliver(call);
    if (requester.waiting()) [[unlikely]] {
      requester.pump();
      link_.core().mark_dirty(link_);  // for what it has listed
    }
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

// Plain calls with one chunk of one segment (plain_calls.h): a Read chunk, whose data is read
// before the handler runs, or a Write chunk for the single result that does not come inline.
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "runtime/poll_core.h"
#include "service/plain_words.h"

namespace rrdk::service {

using proto::ChunkLists;

// Decides by words 0 to 7.
bool PlainCalls::may_show_chunk(__m256i a) const noexcept {
  constexpr int kOne = static_cast<int>(be(1));
  const bool reads = reads_ && _mm256_extract_epi32(a, 4) == kOne;
  const bool writes = writes_ && _mm256_extract_epi32(a, 4) == 0 &&
                      _mm256_extract_epi32(a, 5) == kOne && _mm256_extract_epi32(a, 6) == kOne;
  return _mm256_extract_epi32(a, 1) == kOne && _mm256_extract_epi32(a, 3) == 0 && (reads || writes);
}

// Only our copy of the message is examined.
PlainCalls::Outcome PlainCalls::serve_with_chunk(fabric::Lane& lane,
                                                 const fabric::LaneMessage& message, __m256i a,
                                                 Burst& burst) noexcept {
  engine::CallPool& pool = link_.core().call_pool();
  const uint32_t length = message.length();
  if (length < kShortest + proto::kOneSegmentBytes ||
      (burst.record == nullptr && (burst.record = take_record()) == nullptr) ||
      (burst.record->part == nullptr && !pool.add_part(*burst.record))) [[unlikely]]
    return Outcome::kUntouched;
  ServedCall& call = *burst.record;
  std::byte* const bytes = call.receive.data();
  store(bytes, a);
  message.copy(bytes + sizeof a, sizeof a, length - static_cast<uint32_t>(sizeof a));
  const std::byte* const rpc = bytes + kTransportOfOne;
  const auto b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rpc + 4));
  proto::Header& header = call.part->header;
  call.xid = word(bytes, 0);
  call.whole = {rpc, length - kTransportOfOne};
  // The XID in the transport header must be that of the message (V1-HDR-16).
  bool good = proto::decode_one_segment({bytes, kTransportOfOne}, link_.engine().options().limits,
                                        header.lists) &&
              matches(b) && call.xid == word(rpc, 0);
  const uint32_t body =
      credential_length(b, call.whole.length, [&]<typename Value>(Value value, uint32_t at) {
        std::memcpy(&value, rpc + at, sizeof value);
        return value;
      });
  const uint32_t number = word(rpc, 5);
  const bool reads = good && header.lists.num_reads != 0;
  good = good && may_serve(number, body) && found_.procedure != nullptr &&
         (reads ? found_.may_read : found_.may_write);
  if (good && reads) {
    const uint32_t position = header.lists.reads[0].position;
    good = position % 4 == 0 && position >= kCallHeader + body && position <= call.whole.length;
  }
  const bool sampled = pool.stages().samples(call.xid);
  const uint64_t received = sampled ? base::Tsc::ticks() : 0;
  if (!good || !responder().may_serve_chunk(call) || (reads && !responder().fetch_at_once(call)))
      [[unlikely]] {
    header.lists.clear();
    return Outcome::kUntouched;
  }
  lane.take(message);
  header.type = proto::MessageType::kMsg;
  header.direction = proto::Direction::kCall;
  header.wire = proto::Wire::kVersion1;
  header.version = 1;
  header.xid = call.xid;
  header.credits = call.credits;
  header.invalidate = 0;
  call.item_chunks = reads;
  const std::span<const Fragment> together = call.message;
  fill(call, call.xid, number, body);
  if (reads) {
    call.message = together;
    call.args = Decoder(call.message);
    call.args.skip_run(kCallHeader + body);
  }
  if (sampled) [[unlikely]]
    sample(call, call.xid, number, received);
  return run_or_hand_over(lane, call, burst);
}

// Returns false if the call must leave().
bool PlainCalls::reply_to_chunk(fabric::Lane& lane, ServedCall& call) noexcept {
  ChunkLists& lists = call.part->header.lists;
  const bool writes = lists.num_writes != 0;
  const bool sent = writes ? reply_with_result(lane, call)
                           : reply(lane, call, responder().key_to_invalidate(call));
  if (!sent) [[unlikely]]
    return false;
  responder().charge_moved(call, writes ? call.reply.pieces()[1].bytes.length : 0);
  call.part->release_sinks();
  lists.clear();
  call.item_chunks = 0;
  return true;
}

// Sends the reply to a call that offers memory for its result: the Write, and after it the rest of
// the reply. Returns false if the result is in memory of the reply itself or of the call, which
// would have to wait until the Write is done.
bool PlainCalls::reply_with_result(fabric::Lane& lane, ServedCall& call) noexcept {
  RRDK_ASSERT(call.write_chunks() == 1 && call.has_chunks());
  call.results->finish_here();
  const std::span<const Piece> pieces = call.reply.pieces();
  // Beside the reply's own buffer there may be that with the list of a scattered result.
  if (pieces.size() != 2 || pieces[0].item || !pieces[1].eligible ||
      call.reply.buffers().size() != (pieces[1].scattered() ? 2u : 1u)) [[unlikely]]
    return false;
  const proto::Segment& room = call.part->header.lists.segments[0];
  const MemorySpan& rest = pieces[0].bytes;
  const uint32_t result_bytes = pieces[1].bytes.length;
  const std::span<const MemorySpan> result = pieces[1].runs();
  const uint32_t length = kTransportOfOne + rest.length;
  const auto lies_in = [](const MemorySpan& run, const Buffer& buffer) {
    return run.data >= buffer.data() && run.data < buffer.data() + buffer.capacity();
  };
  // The next call will use these.
  const bool of_call = std::ranges::any_of(result, [&](const MemorySpan& run) {
    return lies_in(run, call.receive) || lies_in(run, call.reply.buffers()[0]);
  });
  if (of_call || result_bytes > room.length || length > fabric::Lane::kMostInSlot ||
      length > kTransport + call.inline_size() || !lane.write(result, room.handle, room.offset))
      [[unlikely]]
    return false;
  std::byte* const to = lane.begin(length);
  if (to == nullptr) [[unlikely]]
    return false;
  proto::encode_one_write(
      {proto::Wire::kVersion1, proto::Direction::kReply, call.xid, credits_, /*invalidate=*/0},
      {room.handle, result_bytes, room.offset}, to);
  std::memcpy(to + kTransportOfOne, rest.data, rest.length);
  if (call.stages != nullptr) [[unlikely]]
    end_sample(call);
  lane.send(length, responder().key_to_invalidate(call));
  return true;
}

}  // namespace rrdk::service

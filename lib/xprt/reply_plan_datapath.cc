// Where each part of a reply goes: eligible results into the Write list, in order; the rest inline
// if the Send fits, else into the Reply chunk, else the call ends in ERR_CHUNK.
#include <algorithm>

#include "proto/version1.h"
#include "xprt/responder.h"

namespace rrdk::xprt {

using proto::ChunkLists;
using proto::MessageType;
using proto::WriteChunk;

namespace {

struct Placement {
  MovedItems moved = 0;
  bool fits = true;
};

// The k-th eligible result belongs to the k-th Write chunk (V1-WL-09). A chunk of no segments
// takes its turn, and the result stays in the stream (V1-CHUNK-14).
Placement place(std::span<const Piece> pieces, const ChunkLists& lists) {
  Placement placement;
  uint32_t k = 0;
  for (const Piece& piece : pieces) {
    if (k == lists.num_writes)
      break;
    if (!piece.eligible)
      continue;
    const WriteChunk& chunk = lists.writes[k];
    if (chunk.count != 0) {
      placement.moved |= MovedItems{1} << k;
      placement.fits &= piece.bytes.length <= chunk.length;
    }
    ++k;
  }
  return placement;
}

// Rewrites the lengths of a chunk to what will be written: each segment filled before the next
// (V1-WL-04), unused ones zero, real lengths without pad (PAD-11).
void fill_chunk(ChunkLists& lists, WriteChunk& chunk, uint64_t length) {
  chunk.length = length;
  for (uint32_t i = chunk.first; i < uint32_t{chunk.first} + chunk.count; ++i) {
    proto::Segment& segment = lists.segments[i];
    segment.length = static_cast<uint32_t>(std::min<uint64_t>(segment.length, length));
    length -= segment.length;
  }
}

void fill_writes(ChunkLists& lists, std::span<const Piece> pieces, MovedItems moved) {
  uint32_t k = 0;
  for (const Piece& piece : pieces) {
    if (k == lists.num_writes)
      break;
    if (piece.eligible) {
      fill_chunk(lists, lists.writes[k], is_moved(moved, k) ? piece.bytes.length : 0);
      ++k;
    }
  }
  for (; k < lists.num_writes; ++k)
    fill_chunk(lists, lists.writes[k], 0);
}

// The key to invalidate by the reply's Send: only if the call shows exactly one (PD-33). 0: none.
uint32_t only_handle(const ChunkLists& lists) {
  if (lists.num_segments == 0)
    return 0;
  uint32_t handle = lists.segments[0].handle;
  for (uint32_t i = 1; i < lists.num_segments; ++i) {
    if (lists.segments[i].handle != handle)
      return 0;
  }
  return handle;
}

}  // namespace

// Changes nothing that a second try would need before it has all the memory it takes.
Responder::Plan Responder::plan_reply(Incoming& call) noexcept {
  std::span<const Piece> pieces = call.reply.pieces();
  proto::Header& header = call.header;
  ChunkLists& lists = header.lists;
  Placement placement = place(pieces, lists);
  if (!placement.fits)
    return Plan::kNoRoom;
  uint64_t reduced = reduced_length(pieces, call.reply.stream_length(), placement.moved);

  lists.num_reads = 0;  // the Read list of a reply is empty (V1-RL-14)
  header.type = MessageType::kMsg;
  uint32_t header_length = proto::version1::encoded_length(header);
  bool is_long = header_length + reduced > link_.send_threshold;
  if (is_long) {
    bool fits = lists.has_reply && reduced <= lists.reply.length;
    if (!fits || header_length > link_.send_threshold)
      return Plan::kNoRoom;
  }

  SendPlan& plan = call.plan;
  plan.clear();
  MemorySpan room = call.header_room();
  if (header_length > room.length) [[unlikely]] {
    plan.header = link_.memory.get(header_length);
    if (!plan.header)
      return Plan::kWait;
    room = plan.header.span();
  }
  plan.sges[plan.num_sges++] = {room.data, header_length, room.region};
  StreamCursor stream(pieces, placement.moved, call.zeros());
  if (is_long)
    call.long_reply = stream;
  else if (!gather(plan, stream, static_cast<uint32_t>(reduced), link_.options.max_sges,
                   link_.memory))
    return Plan::kWait;

  if (link_.invalidate)
    plan.invalidate_key = only_handle(lists);
  fill_writes(lists, pieces, placement.moved);
  if (lists.has_reply)
    fill_chunk(lists, lists.reply, is_long ? reduced : 0);
  if (is_long) {
    header.type = MessageType::kNoMsg;
    ++link_.counters.long_replies;
  }
  call.cursor = {};
  header.credits = grant.on_answer(link_.receives.posted());
  proto::version1::encode(header, {room.data, room.length});
  return Plan::kReady;
}

}  // namespace rrdk::xprt

// Posting a reply: the RDMA Writes, then the Send, as one chain, so that the Receive of the reply
// says that the data is placed (V1-WL-14).
#include <algorithm>

#include "xprt/responder.h"

namespace rrdk::xprt {

using fabric::Op;
using fabric::SendWr;
using proto::ChunkLists;
using proto::Segment;
using proto::WriteChunk;

namespace {

const WriteChunk* chunk_at(const Incoming& call, uint32_t index) {
  const ChunkLists& lists = call.header.lists;
  if (index < lists.num_writes)
    return &lists.writes[index];
  bool is_long = call.header.type == proto::MessageType::kNoMsg;
  return index == lists.num_writes && is_long ? &lists.reply : nullptr;
}

// Moves the cursor to the next segment that has bytes to be written. False: none is left.
bool seek_write(Incoming& call) {
  MoveCursor& c = call.cursor;
  const ChunkLists& lists = call.header.lists;
  for (;; ++c.chunk, c.segment = 0, c.local_offset = 0) {
    const WriteChunk* chunk = chunk_at(call, c.chunk);
    if (chunk == nullptr)
      return false;
    for (; c.segment < chunk->count; ++c.segment, c.segment_offset = 0) {
      if (c.segment_offset != lists.segments[chunk->first + c.segment].length)
        return true;
    }
  }
}

const Piece& eligible_piece(std::span<const Piece> pieces, uint32_t index) {
  for (const Piece& piece : pieces) {
    if (piece.eligible && index-- == 0)
      return piece;
  }
  return pieces.back();  // not reached: planning found the item
}

// Fills in one Write, of as much of the segment as the request can gather.
uint32_t fill_write(Incoming& call, SendWr& wr, uint32_t max_sges) {
  MoveCursor& c = call.cursor;
  const ChunkLists& lists = call.header.lists;
  const Segment& segment = lists.segments[chunk_at(call, c.chunk)->first + c.segment];
  uint32_t left = segment.length - c.segment_offset;
  wr.key = segment.handle;
  wr.remote_address = segment.offset + c.segment_offset;
  wr.num_sges = 0;
  if (c.chunk < lists.num_writes) {
    const MemorySpan& item = eligible_piece(call.reply.pieces(), c.chunk).bytes;
    wr.sges[wr.num_sges++] = {item.data + c.local_offset, left, item.region};
    c.local_offset += left;
    left = 0;
  }
  while (left != 0 && wr.num_sges < max_sges) {
    MemorySpan run = call.long_reply.next(left);
    wr.sges[wr.num_sges++] = run;
    left -= run.length;
  }
  uint32_t written = segment.length - left - c.segment_offset;
  c.segment_offset += written;
  return written;
}

}  // namespace

bool Responder::emit(Incoming& call) noexcept {
  if (call.exposure != nullptr) [[unlikely]] {
    bool all = emit_exposure(call);
    if (!all || call.state == CallState::kRevoking)
      return all;
  }
  bool has_writes = !call.is_error && call.header.lists.num_segments != 0;
  while (has_writes && seek_write(call)) {
    if (link_.sends.free_slots() == 0)
      return false;
    SendWr& wr = link_.sends.append(call.job, Op::kWrite, false);
    uint32_t written = fill_write(call, wr, link_.options.max_sges);
    link_.counters.bytes_written += written;
    turn.charge(written);
  }
  if (link_.sends.free_slots() == 0)
    return false;
  uint32_t key = call.plan.invalidate_key;
  Op op = key == 0 ? Op::kSend : Op::kSendInvalidate;
  // Not behind Writes: their memory is in use until the Send is reported.
  bool copied =
      !has_writes && call.exposure == nullptr && call.plan.length() <= link_.options.max_copied;
  SendWr& wr =
      copied ? link_.sends.append_copied(call.job, op) : link_.sends.append(call.job, op, true);
  wr.invalidate_key = key;
  call.plan.fill(wr);
  return true;
}

}  // namespace rrdk::xprt

// Where each part of a reply goes: eligible results go into the Write list, in order. The rest goes
// inline if the Send fits, otherwise into the Reply chunk; if that is impossible, the call ends
// with an error that says what was missing. Then the reply is posted, the RDMA Writes and the Send
// as one chain, so that the Receive of the reply shows that the data is placed (V1-WL-14).
#include <algorithm>

#include "base/assert.h"
#include "engine/responder.h"
#include "engine/rfc5666/read_read.h"
#include "engine/version2/properties.h"
#include "proto/codec.h"

namespace rrdk::engine {

using fabric::Op;
using fabric::SendWr;
using proto::ChunkLists;
using proto::MessageType;
using proto::Segment;
using proto::WriteChunk;

namespace {

struct Placement {
  MovedItems moved = 0;
  uint32_t short_chunk = 0;  // the first that is too short, counted from 1; 0: none
  uint32_t needed = 0;       // bytes that this chunk needs, without pad (V2D4-ERR-22)
};

// The k-th eligible result belongs to the k-th Write chunk (V1-WL-09). A chunk without segments
// counts too; its result stays in the stream (V1-CHUNK-14).
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
      if (piece.bytes.length > chunk.length && placement.short_chunk == 0) [[unlikely]] {
        placement.short_chunk = k + 1;
        placement.needed = piece.bytes.length;
      }
    }
    ++k;
  }
  return placement;
}

// Sets the lengths of a chunk to what will be written: each segment is filled before the next
// (V1-WL-04), unused ones are zero, and lengths do not include pads (PAD-11).
void fill_chunk(ChunkLists& lists, WriteChunk& chunk, uint64_t length) {
  chunk.length = length;
  for (uint32_t i = chunk.first; i < uint32_t{chunk.first} + chunk.count; ++i) {
    proto::Segment& segment = lists.segments[i];
    segment.length = static_cast<uint32_t>(std::min<uint64_t>(segment.length, length));
    length -= segment.length;
  }
  RRDK_ASSERT(length == 0, length);  // the chunk is large enough
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

// Returns the key that the reply's Send invalidates in version 1: only if the call shows exactly
// one (PD-33); otherwise 0.
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

bool has_handle(const ChunkLists& lists, uint32_t handle) {
  return std::any_of(lists.segments, lists.segments + lists.num_segments,
                     [handle](const proto::Segment& s) { return s.handle == handle; });
}

}  // namespace

// In version 2 the call names the key (draft-04 section 6.2.3). A key that the call does not show
// could belong to another call, and is ignored (V2D4-RINV-08).
uint32_t Responder::key_to_invalidate(const proto::Header& call) noexcept {
  if ((call.lists.num_segments | call.invalidate) == 0)
    return 0;
  if (call.wire == proto::Wire::kVersion1)
    return common_.invalidate ? only_handle(call.lists) : 0;
  if (call.invalidate == 0 || !common_.options.sends_invalidations)
    return 0;
  if (has_handle(call.lists, call.invalidate)) [[likely]]
    return call.invalidate;
  common_.refused(Refusal::kUnknownHandle);
  return 0;
}

// Handles most replies: few short pieces, to a call that offered neither a Write chunk nor a Reply
// chunk, while nothing else waits to be sent. Planned as in plan_reply(), and posted at once.
// Returns false for any other reply.
bool Responder::send_plain(ServedCall& call) noexcept {
  std::span<const Piece> pieces = call.reply.pieces();
  if (call.offers_room() || pieces.empty() || !common_.up() || !common_.sends.idle() ||
      common_.sends.free_slots() == 0 || !fits_sges(pieces, common_.options.max_sges))
    return false;
  const uint32_t header_length = proto::min_header(call.wire);
  const uint64_t length = header_length + call.reply.stream_length();
  if (length > send_threshold(call))
    return false;
  const uint32_t credits = grant_credits();
  proto::encode_plain({call.wire, proto::Direction::kReply, call.xid, credits, 0}, call.room.data);
  send_reply(call, {call.room.data, header_length, call.room.region}, pieces, length);
  return true;
}

// The same with one result, in a Write chunk of one segment. The result's memory is in use until
// the Write has completed. A Send that is not copied shows that; before a copied Send, the Write
// itself is signaled.
bool Responder::send_with_result(ServedCall& call) noexcept {
  if (call.part == nullptr)
    return false;
  std::span<const Piece> pieces = call.reply.pieces();
  const ChunkLists& lists = call.part->header.lists;
  if (lists.num_writes != 1 || lists.has_reply || pieces.size() != 2 || pieces[0].item ||
      !pieces[1].eligible || !common_.up() || !common_.sends.idle() ||
      common_.sends.free_slots() < 2)
    return false;
  const WriteChunk& chunk = lists.writes[0];
  const MemorySpan& result = pieces[1].bytes;
  const std::span<const MemorySpan> runs = pieces[1].runs();
  const uint32_t header_length = proto::min_header(call.wire) + proto::kOneSegmentBytes;
  const uint64_t length = uint64_t{header_length} + pieces[0].bytes.length;
  if (chunk.count != 1 || result.length == 0 || result.length > chunk.length ||
      length > send_threshold(call) || runs.size() > common_.options.max_sges)
    return false;
  const bool copied = length <= common_.options.max_copied;
  const proto::Segment& room = lists.segments[chunk.first];
  const uint32_t credits = grant_credits();
  // Only calls offer handles (V2D4-RINV-09).
  proto::encode_one_write(
      {call.wire, proto::Direction::kReply, call.xid, credits, /*invalidate=*/0},
      {room.handle, result.length, room.offset}, call.room.data);
  SendWr& wr = common_.sends.append(call.job, Op::kWrite, copied);
  wr.key = room.handle;
  wr.remote_address = room.offset;
  wr.num_sges = static_cast<uint8_t>(runs.size());
  std::ranges::copy(runs, wr.sges.begin());
  common_.counters.rdma_written_bytes += result.length;
  turn.charge(result.length);
  send_reply(call, {call.room.data, header_length, call.room.region}, pieces.first(1), length);
  return true;
}

// Requires a free slot in the send queue.
void Responder::send_reply(ServedCall& call, const MemorySpan& header,
                           std::span<const Piece> pieces, uint64_t length) noexcept {
  RRDK_ASSERT(common_.sends.idle() && common_.sends.free_slots() != 0);
  const bool copied = length <= common_.options.max_copied;
  const uint32_t key = call.part == nullptr ? 0 : key_to_invalidate(call.part->header);
  const Op op = key == 0 ? Op::kSend : Op::kSendInvalidate;
  ++common_.counters.replies_sent;
  // finish() would call on_ended, which may reply to other calls; these replies must not nest here.
  if (call.on_ended == nullptr && common_.may_send_now(length)) [[likely]] {
    const uint8_t num_runs = name_runs(header, pieces, call.zeros(), common_.pool.runs());
    if (common_.send_now(std::span(common_.pool.runs()).first(num_runs), key)) {
      if (call.wire == proto::Wire::kDraft04)
        common_.properties->announce();
      finish(call);
      return;
    }
  }
  SendWr& wr =
      copied ? common_.sends.append_copied(call.job, op) : common_.sends.append(call.job, op, true);
  wr.invalidate_key = key;
  wr.num_sges = name_runs(header, pieces, call.zeros(), wr.sges);
  call.state = CallState::kReplying;
  if (call.wire == proto::Wire::kDraft04)
    common_.properties->announce();
}

// Until it has all the memory that it needs, it changes nothing that a second attempt would need.
Responder::Plan Responder::plan_reply(ServedCall& call, proto::ErrorBody& error) noexcept {
  RRDK_ASSERT(call.state == CallState::kAbove || call.state == CallState::kWaitingRoom, call.state);
  if (call.part == nullptr && !common_.pool.add_part(call)) [[unlikely]]
    return Plan::kWait;
  ChunkPart& part = *call.part;
  std::span<const Piece> pieces = call.reply.pieces();
  proto::Header& header = part.header;
  ChunkLists& lists = header.lists;
  Placement placement = place(pieces, lists);
  if (placement.short_chunk != 0) [[unlikely]] {
    error = {.code = proto::ErrorCode::kWriteResource,
             .index = placement.short_chunk,
             .length = placement.needed};
    return Plan::kNoRoom;
  }
  uint64_t reduced = reduced_length(pieces, call.reply.stream_length(), placement.moved);

  lists.num_reads = 0;  // the Read list of a reply is empty (V1-RL-14)
  header.type = MessageType::kMsg;
  uint32_t threshold = send_threshold(call);
  uint32_t header_length = proto::encoded_length(header);
  bool is_long = header_length + reduced > threshold;
  MovedItems left_out = placement.moved;
  ReplyExposer* exposer = nullptr;  // for a reply that the peer will read
  if (is_long) {
    bool fits = lists.has_reply && reduced <= lists.reply.length;
    bool tells = reduced <= UINT32_MAX;
    error = {.code = proto::ErrorCode::kReplyResource,
             .length = tells ? static_cast<uint32_t>(reduced) : 0};
    if (!fits || header_length > threshold) {
      if (header.wire == proto::Wire::kDraft04 &&
          common_.properties->may_fit(header_length + reduced)) [[unlikely]]
        return Plan::kWait;
      exposer = common_.rfc5666.exposer;
      if (exposer == nullptr || !exposer->draft(call, placement.moved, threshold)) [[likely]]
        return Plan::kNoRoom;
      is_long = false;
      left_out = exposer->left_out();
      reduced = exposer->reduced();
      header_length = exposer->header_length();
    }
  }

  SendPlan& plan = part.plan;
  plan.clear();
  MemorySpan room = call.header_room();
  if (header_length > room.length) [[unlikely]] {
    plan.header = common_.memory.get(header_length);
    if (!plan.header)
      return Plan::kWait;
    room = plan.header.span();
  }
  plan.sges[plan.num_sges++] = {room.data, header_length, room.region};
  StreamCursor stream(pieces, left_out, call.zeros());
  if (is_long)
    part.long_reply = stream;
  else if (!gather(plan, stream, static_cast<uint32_t>(reduced), common_.options.max_sges,
                   common_.memory))
    return Plan::kWait;
  if (exposer != nullptr && !expose(call)) [[unlikely]]
    return Plan::kWait;

  plan.invalidate_key = key_to_invalidate(header);
  fill_writes(lists, pieces, placement.moved);
  if (lists.has_reply)
    fill_chunk(lists, lists.reply, is_long ? reduced : 0);
  if (is_long) {
    header.type = MessageType::kNoMsg;
    ++common_.counters.long_replies;
  }
  part.cursor = {};
  header.credits = grant_credits();
  header.direction = proto::Direction::kReply;
  header.invalidate = 0;  // only calls offer handles (V2D4-RINV-09)
  const uint32_t written = proto::encode(header, {room.data, room.length});
  RRDK_ASSERT(written == header_length, written, header_length);
  return Plan::kReady;
}

// Posting the reply.

namespace {

const WriteChunk* chunk_at(const ChunkPart& part, uint32_t index) {
  const ChunkLists& lists = part.header.lists;
  if (index < lists.num_writes)
    return &lists.writes[index];
  bool is_long = part.header.type == proto::MessageType::kNoMsg;
  return index == lists.num_writes && is_long ? &lists.reply : nullptr;
}

// Moves the cursor to the next segment that has bytes to be written. Returns false if there is
// none.
bool seek_write(ChunkPart& part) {
  MoveCursor& c = part.cursor;
  const ChunkLists& lists = part.header.lists;
  for (;; ++c.chunk, c.segment = 0, c.local = 0, c.local_offset = 0) {
    const WriteChunk* chunk = chunk_at(part, c.chunk);
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
  RRDK_ASSERT(false && "planning found the item");
  return pieces.back();
}

// Fills in one Write with as much of the segment as the request can gather.
uint32_t fill_write(ServedCall& call, SendWr& wr, uint32_t max_sges) {
  MoveCursor& c = call.part->cursor;
  const ChunkLists& lists = call.part->header.lists;
  const Segment& segment = lists.segments[chunk_at(*call.part, c.chunk)->first + c.segment];
  uint32_t left = segment.length - c.segment_offset;
  wr.key = segment.handle;
  wr.remote_address = segment.offset + c.segment_offset;
  wr.num_sges = 0;
  if (c.chunk < lists.num_writes) {
    const std::span<const MemorySpan> runs = eligible_piece(call.reply.pieces(), c.chunk).runs();
    while (left != 0 && wr.num_sges < max_sges) {
      const MemorySpan& run = runs[c.local];
      const uint32_t length = std::min(left, run.length - c.local_offset);
      wr.sges[wr.num_sges++] = {run.data + c.local_offset, length, run.region};
      left -= length;
      c.local_offset += length;
      if (c.local_offset == run.length && c.local + 1u != runs.size()) {
        ++c.local;
        c.local_offset = 0;
      }
    }
  }
  while (c.chunk >= lists.num_writes && left != 0 && wr.num_sges < max_sges) {
    MemorySpan run = call.part->long_reply.next(left);
    RRDK_ASSERT(run.length != 0);  // the lengths of the chunk match the stream's
    wr.sges[wr.num_sges++] = run;
    left -= run.length;
  }
  uint32_t written = segment.length - left - c.segment_offset;
  c.segment_offset += written;
  return written;
}

}  // namespace

bool Responder::emit(ServedCall& call) noexcept {
  if (call.exposure != nullptr) [[unlikely]] {
    bool all = emit_exposure(call);
    if (!all || call.state == CallState::kRevoking)
      return all;
  }
  if (call.is_error)
    return emit_error(call);
  const bool has_writes = call.has_chunks();
  while (has_writes && seek_write(*call.part)) {
    if (common_.sends.free_slots() == 0)
      return false;
    SendWr& wr = common_.sends.append(call.job, Op::kWrite, false);
    uint32_t written = fill_write(call, wr, common_.options.max_sges);
    common_.counters.rdma_written_bytes += written;
    turn.charge(written);
  }
  if (common_.sends.free_slots() == 0)
    return false;
  const SendPlan& plan = call.part->plan;
  uint32_t key = plan.invalidate_key;
  Op op = key == 0 ? Op::kSend : Op::kSendInvalidate;
  // Not after Writes, whose memory is in use until the Send is reported.
  bool copied =
      !has_writes && call.exposure == nullptr && plan.length() <= common_.options.max_copied;
  SendWr& wr =
      copied ? common_.sends.append_copied(call.job, op) : common_.sends.append(call.job, op, true);
  wr.invalidate_key = key;
  plan.fill(wr);
  return true;
}

bool Responder::emit_error(ServedCall& call) noexcept {
  if (common_.sends.free_slots() == 0)
    return false;
  const bool copied = call.error_length <= common_.options.max_copied;
  SendWr& wr = copied ? common_.sends.append_copied(call.job, Op::kSend)
                      : common_.sends.append(call.job, Op::kSend, true);
  wr.invalidate_key = 0;
  wr.num_sges = 1;
  wr.sges[0] = {call.room.data, call.error_length, call.room.region};
  return true;
}

}  // namespace rrdk::engine

// How a call is sent. First: what moves in Read chunks, whether the rest fits inline, and how much
// memory is offered for the reply. Then the memory and the keys for that, then the header.
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "engine/requester.h"
#include "engine/rfc5666/mode.h"
#include "proto/codec.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

using fabric::Op;
using fabric::Rights;
using fabric::SendWr;
using proto::MessageType;

namespace {

constexpr uint32_t kReadEntry = 24;  // bytes of one read segment in a header
constexpr uint32_t kWriteEntry = 8;  // a Write chunk, without its segments
constexpr uint32_t kReplyEntry = 4;  // a Reply chunk, beyond the word of an absent one
constexpr uint32_t kSegment = 16;
constexpr uint32_t kRpcStart = 8;
// The most segments of a Position-Zero chunk that is not a copy. Each segment has its own key, and
// several keys cost more than copying a few bytes.
constexpr uint32_t kMostRunsInPlace = 8;
constexpr uint32_t kBytesPerRunInPlace = 4096;

uint32_t pieces_of(uint64_t bytes, uint64_t largest) {
  return static_cast<uint32_t>(std::min<uint64_t>((bytes + largest - 1) / largest, UINT32_MAX));
}

uint32_t segments_of(const ResultRoom& room) {
  uint32_t count = 0;
  for (const MemorySpan& span : room.spans)
    count += span.length != 0;
  return count;
}

uint64_t length_of(const ResultRoom& room) {
  uint64_t length = 0;
  for (const MemorySpan& span : room.spans)
    length += span.length;
  return length;
}

uint64_t round_up4(uint64_t bytes) {
  return (bytes + 3) & ~uint64_t{3};
}

MemorySpan zeros_of(const MemorySpan& room) {
  return {room.data + room.length - kPadRoom, kPadRoom, room.region};
}

// Where responders may write pads, which are never read.
MemorySpan pads_of(const MemorySpan& room) {
  return {room.data + room.length - 2 * kPadRoom, kPadRoom, room.region};
}

// Returns how many runs of memory hold the part of the stream that does not move in chunks; 0 if it
// needs a pad, which lies in no chunk.
uint32_t runs_of(std::span<const Piece> pieces, MovedItems moved) {
  uint32_t runs = 0;
  uint32_t k = 0;
  for (const Piece& piece : pieces) {
    if (piece.eligible && is_moved(moved, k++))
      continue;
    if (piece.item && xdr_pad(piece.bytes.length) != 0)
      return 0;
    for (const MemorySpan& run : piece.runs())
      runs += run.length != 0;
  }
  return runs;
}

}  // namespace

// The decisions about a call, made before anything is taken.
struct Requester::Draft {
  MovedItems moved = 0;
  bool is_long = false;
  bool in_place = false;       // the Position-Zero chunk is the message itself, not a copy
  uint32_t read_items = 0;     // Read chunks of one item each
  uint32_t read_segments = 0;  // in these
  uint32_t lists = 0;          // of runs for which one key stands
  uint32_t call_segments = 0;  // in the Position-Zero chunk
  uint32_t write_segments = 0;
  uint32_t reply_segments = 0;
  uint32_t header_length = 0;
  uint32_t min_header = 0;  // in the version that is spoken
  uint32_t rooms = 0;       // results for which memory is offered
  uint64_t reduced = 0;     // bytes that are left in the stream
  uint64_t reply_bytes = 0;
  uint32_t write_list = 0;    // its bytes in a header
  uint64_t inline_reply = 0;  // for Slot::inline_reply
  Padding padding;            // RFC 5666's compatibility mode

  uint32_t offers() const noexcept {
    return read_segments + call_segments + write_segments + reply_segments;
  }
  void count_header() noexcept {
    header_length = min_header + kReadEntry * (read_segments + call_segments) + write_list;
    if (reply_segments != 0)
      header_length += kReplyEntry + kSegment * reply_segments;
  }
  bool fits(uint32_t threshold) const noexcept { return header_length + reduced <= threshold; }
  void move(const Piece& piece, uint32_t index, uint32_t segments) noexcept {
    moved |= MovedItems{1} << index;
    ++read_items;
    lists += piece.segments > segments;
    read_segments += segments;
    reduced -= uint64_t{piece.bytes.length} + xdr_pad(piece.bytes.length);
    header_length += kReadEntry * segments;
  }
};

Requester::Plan Requester::plan_call(OutgoingCall& call) noexcept {
  const Message& message = call.message;
  if (message.pieces().empty() || message.pieces()[0].item ||
      message.pieces()[0].bytes.length < kRpcStart)
    return call.option != nullptr ? plan_option(call) : Plan::kTooLarge;
  if (!call.take_chunks()) [[unlikely]]
    return Plan::kNoMemory;
  call.way = CallWay::kPlanned;
  xdr::store_u32(message.pieces()[0].bytes.data, call.xid);
  if (has_one_chunk(call)) [[likely]]
    return plan_one_chunk(call);
  Draft draft;
  if (!draft_call(call, draft))
    return Plan::kTooLarge;
  if (common_.rfc5666.align != 0 && !draft.is_long && draft.moved == 0) [[unlikely]]
    pad(call, draft);
  if (!take_memory(call, draft))
    return Plan::kWait;
  offer(call, draft);
  write_header(call, draft);
  slots_[call.slot].inline_reply = draft.inline_reply;
  common_.counters.long_calls += draft.is_long;
  return Plan::kReady;
}

// True for most calls: a short run of bytes, perhaps with items inline, and a reply that fits
// inline. Must decide as draft_call() does.
bool Requester::is_plain(const OutgoingCall& call) const noexcept {
  const uint32_t header = proto::min_header(common_.wire);
  std::span<const Piece> pieces = call.message.pieces();
  if (pieces.empty() || pieces[0].item || !call.results.empty() || call.force_long)
    return false;
  if (pieces.size() != 1 &&
      (common_.rfc5666.align != 0 || !fits_sges(pieces, common_.options.max_sges) ||
       std::ranges::any_of(pieces, &Piece::eligible)))
    return false;
  const uint64_t length = call.message.stream_length();
  return pieces[0].bytes.length >= kRpcStart && header + length <= common_.calls.send &&
         call.max_reply <= common_.calls.receive - header && length <= common_.options.max_call &&
         call.max_reply <= common_.options.max_reply && !call.mended;
}

// Writes the header of such a call, and posts it unless others wait to be sent.
void Requester::send_plain(OutgoingCall& call) noexcept {
  RRDK_ASSERT(call.way != CallWay::kPlanned && call.num_buffers == 0, call.way);
  Slot& slot = slots_[call.slot];
  call.way = CallWay::kPlain;
  xdr::store_u32(call.message.pieces()[0].bytes.data, call.xid);
  proto::encode_plain({common_.wire, proto::Direction::kCall, call.xid, asked, 0}, slot.room.data);
  call.num_offers = 0;
  call.num_results = 0;
  call.message_offers = 0;
  call.reply_first = 0;
  slot.inline_reply = proto::min_header(common_.wire) + call.max_reply;
  note_start(call);
  if (!common_.sends.idle() || !emit_plain(slot, call)) [[unlikely]] {
    ++common_.counters.waits_send_queue;
    common_.sends.push(slot.send_job);
  }
}

// Returns false if the send queue is full.
bool Requester::emit_plain(Slot& slot, OutgoingCall& call) noexcept {
  const MemorySpan& room = slot.room;
  const MemorySpan header{room.data, proto::min_header(call.wire), room.region};
  const std::span<const Piece> pieces = call.message.pieces();
  const uint64_t length = header.length + call.message.stream_length();
  if (common_.may_send_now(length)) [[likely]] {
    const uint8_t num_runs = name_runs(header, pieces, zeros_of(room), common_.pool.runs());
    if (common_.send_now(std::span(common_.pool.runs()).first(num_runs), 0)) [[likely]] {
      call.sent = true;
      return true;
    }
  }
  if (common_.sends.free_slots() == 0) [[unlikely]]
    return false;
  const bool copied = length <= common_.options.max_copied;
  SendWr& wr = copied ? common_.sends.append_copied(slot.send_job, Op::kSend)
                      : common_.sends.append(slot.send_job, Op::kSend, true);
  wr.num_sges = name_runs(header, pieces, zeros_of(room), wr.sges);
  call.sent = true;
  return true;
}

// True for most calls that are not plain: one item moves in a Read chunk, or memory is offered for
// one result, and the rest is inline in both directions. Must decide as draft_call() does.
bool Requester::has_one_chunk(const OutgoingCall& call) const noexcept {
  const ConnectionOptions& options = common_.options;
  std::span<const Piece> pieces = call.message.pieces();
  std::span<const ResultRoom> results = call.results;
  bool reads = pieces.size() == 2 && results.empty() && pieces[1].eligible &&
               !pieces[1].scattered() &&
               pieces[1].bytes.length >= std::max(options.chunk_threshold, 1u) &&
               common_.peer.read_chunks != 0;
  bool writes = pieces.size() == 1 && results.size() == 1 && results[0].spans.size() == 1 &&
                results[0].spans[0].length != 0 && common_.peer.write_chunks != 0;
  if (!(reads || writes) || call.force_long || call.no_ddp || call.mended ||
      common_.rfc5666.reads_replies || common_.rfc5666.align != 0 || options.pad_write_chunks ||
      common_.peer.segments == 0 || !common_.offers_chunks())
    return false;
  const uint64_t least = proto::min_header(common_.wire);
  const uint64_t reply = least + (writes ? proto::kOneSegmentBytes : 0);
  return least + proto::kOneSegmentBytes + pieces[0].bytes.length <= common_.calls.send &&
         reply + call.max_reply <= common_.calls.receive && call.max_reply <= options.max_reply &&
         call.message.stream_length() <= options.max_call;
}

// Fills in the only offer of such a call.
bool Requester::offer_chunk(OutgoingCall& call) noexcept {
  static_assert(proto::kMinHeader04 + proto::kOneSegmentBytes <= kCallHeaderRoom - 2 * kPadRoom);
  uint32_t key = 0;
  if (!common_.keys.reserve_keys({&key, 1})) [[unlikely]]
    return false;
  CallChunks& chunks = *call.chunks;
  std::span<const Piece> pieces = call.message.pieces();
  const bool writes = !call.results.empty();
  const Rights rights = writes ? Rights::kRemoteWrite : Rights::kRemoteRead;
  const MemorySpan& span = writes ? call.results[0].spans[0] : pieces[1].bytes;
  chunks.offers[0] = {span, common_.keys.name_key(key, span, rights), rights, false};
  call.num_offers = 1;
  call.message_offers = 0;
  call.num_results = writes;
  chunks.result_first[0] = !writes;
  chunks.result_first[1] = 1;
  call.reply_first = 1;
  if (!writes)
    common_.note_named(call.message.buffers().subspan(1));  // the first buffer holds the rest
  return true;
}

void Requester::encode_chunk(const OutgoingCall& call, std::byte* header) const noexcept {
  const proto::Start start = {common_.wire, proto::Direction::kCall, call.xid, asked,
                              key_to_offer(call)};
  if (call.num_results != 0)
    proto::encode_one_write(start, call.chunks->offers[0].segment(), header);
  else
    proto::encode_one_read(start, call.message.pieces()[0].bytes.length,
                           call.chunks->offers[0].segment(), header);
}

Requester::Plan Requester::plan_one_chunk(OutgoingCall& call) noexcept {
  if (!offer_chunk(call)) [[unlikely]]
    return Plan::kWait;
  Slot& slot = slots_[call.slot];
  const MemorySpan& room = slot.room;
  const uint32_t least = proto::min_header(common_.wire);
  SendPlan& plan = call.chunks->plan;
  plan.sges[0] = {room.data, least + proto::kOneSegmentBytes, room.region};
  plan.sges[1] = call.message.pieces()[0].bytes;
  plan.num_sges = 2;
  slot.inline_reply =
      least + (call.num_results != 0 ? proto::kOneSegmentBytes : 0) + call.max_reply;
  encode_chunk(call, room.data);
  return Plan::kReady;
}

bool Requester::bind_chunk(OutgoingCall& call) noexcept {
  RRDK_ASSERT(call.clean && call.num_offers == 0, call.num_offers);
  if (!call.take_chunks() || !offer_chunk(call)) [[unlikely]]
    return false;
  const Offer& offer = call.chunks->offers[0];
  if (common_.port->bind_now(offer.key, offer.span, offer.rights)) [[likely]] {
    call.bound = 1;
    return true;
  }
  release_chunk(call);
  return false;
}

// Returns the key of the call that the peer may invalidate: at most one, while we invalidate the
// others ourselves (V2D4-RINV-10). 0 if a Send cannot invalidate the device's keys (draft-04
// sections 3 and 6.2.3).
uint32_t Requester::key_to_offer(const OutgoingCall& call) const noexcept {
  return common_.options.takes_invalidations && call.num_offers != 0 ? call.chunks->offers[0].key
                                                                     : 0;
}

// Returns the size of the segment that a responder may want for the pad of what it writes
// (V1-PAD-13).
uint32_t Requester::pad_of(const ResultRoom& room) const noexcept {
  if (!common_.options.pad_write_chunks) [[likely]]
    return 0;
  return xdr_pad(length_of(room));
}

// Sends the call as RDMA_MSGP if something is to be padded and all fits then.
void Requester::pad(const OutgoingCall& call, Draft& draft) noexcept {
  uint32_t header_length = draft.header_length + kMsgpWords;
  Padding padding = plan_padding(call.message.pieces(), common_.rfc5666.align,
                                 common_.options.rfc5666.pad_threshold, header_length);
  if (padding.threshold == 0 || header_length + draft.reduced + padding.bytes > common_.calls.send)
    return;
  draft.padding = padding;
  draft.header_length = header_length;
  ++common_.counters.rfc5666_padded_calls;
}

// Whether each run of such an item can have a segment. Otherwise it stays in the stream, and that
// is copied if it does not fit inline.
bool Requester::may_move(const Draft& draft, const Piece& piece) const noexcept {
  const uint32_t segments = read_segments_of(piece);
  const uint32_t header = kReadEntry * segments;
  return segments <= common_.peer.segments && header < piece.bytes.length &&
         draft.header_length + header <= common_.calls.send &&
         draft.offers() + segments <= kMaxOffers;
}

// Returns false if the call needs more than the limits or the header's buffer allow.
bool Requester::draft_call(const OutgoingCall& call, Draft& draft) const noexcept {
  const ConnectionOptions& options = common_.options;
  uint64_t largest = common_.memory.largest_buffer();
  std::span<const Piece> pieces = call.message.pieces();
  draft.reduced = call.message.stream_length();
  draft.min_header = proto::min_header(common_.wire);
  if (draft.reduced > options.max_call || call.results.size() > kMaxResults)
    return false;
  bool inline_only = !common_.offers_chunks();
  std::span<const ResultRoom> results = call.results;
  if (common_.rfc5666.reads_replies) [[unlikely]]  // they come in the reply's Read list
    results = {};
  draft.rooms = inline_only ? 0 : static_cast<uint32_t>(results.size());
  draft.rooms = std::min({draft.rooms, uint32_t{call.most_results}, common_.peer.write_chunks});
  uint64_t max_reply = call.max_reply + call.reply_extra;
  for (const ResultRoom& room : results.subspan(draft.rooms))
    max_reply += length_of(room) + xdr_pad(length_of(room));
  if (max_reply > options.max_reply)
    return false;
  for (const ResultRoom& room : results.first(draft.rooms)) {
    uint32_t segments = segments_of(room) + (pad_of(room) != 0);
    if (segments > common_.peer.segments)
      return false;
    draft.write_segments += segments;
    draft.write_list += kWriteEntry + kSegment * segments;
  }
  // V1-RC-02, EXP-15: the responder uses the same threshold.
  uint32_t reply_header = draft.min_header + draft.write_list;
  if (reply_header + max_reply > common_.calls.receive && !inline_only) {
    draft.reply_bytes = round_up4(max_reply);
    draft.reply_segments = pieces_of(draft.reply_bytes, largest);
  } else {
    draft.inline_reply = reply_header + max_reply;
  }
  draft.count_header();

  // First items that are worth a chunk, then, if the call is still not inline, any that help.
  for (uint32_t smallest : {options.chunk_threshold, kReadEntry + 1}) {
    bool must_fit = smallest != options.chunk_threshold;
    uint32_t k = 0;
    for (const Piece& piece : pieces) {
      if (call.force_long || call.no_ddp || inline_only || k == kMaxMovedItems ||
          draft.read_items >= common_.peer.read_chunks ||
          (must_fit && draft.fits(common_.calls.send)))
        break;
      if (!piece.eligible)
        continue;
      if (piece.bytes.length >= std::max(smallest, 1u) && !is_moved(draft.moved, k) &&
          (!piece.scattered() || may_move(draft, piece)))
        draft.move(piece, k, read_segments_of(piece));
      ++k;
    }
  }
  draft.is_long = call.force_long || !draft.fits(common_.calls.send);
  if (draft.is_long) {
    draft.call_segments = pieces_of(draft.reduced, largest);
    uint32_t runs = runs_of(pieces, draft.moved);
    bool few = runs == 1 || draft.reduced >= uint64_t{runs} * kBytesPerRunInPlace;
    if (runs != 0 && few && runs <= std::min(kMostRunsInPlace, common_.peer.segments)) [[likely]] {
      draft.in_place = true;
      draft.call_segments = runs;
    }
    draft.count_header();
    if (call.only_short || inline_only || common_.rfc5666.we_serve_no_reads)
      return false;
  }
  if (std::max(draft.call_segments, draft.reply_segments) > common_.peer.segments)
    return false;
  return draft.header_length <= common_.calls.send && draft.offers() <= kMaxOffers &&
         draft.read_items + draft.is_long <= proto::kMaxReadChunks &&
         draft.call_segments <= kMaxMessageBuffers && draft.reply_segments <= kMaxMessageBuffers &&
         draft.call_segments + draft.reply_segments + draft.lists <= 2 * kMaxMessageBuffers;
}

// Returns false if there is not enough now. The caller gives back what was taken.
bool Requester::take_memory(OutgoingCall& call, const Draft& draft) noexcept {
  RRDK_ASSERT(call.num_buffers == 0 && draft.offers() <= kMaxOffers, draft.offers());
  SendPlan& plan = call.chunks->plan;
  MemorySpan room = slots_[call.slot].room;
  MemorySpan zeros = zeros_of(room);
  room.length -= 2 * kPadRoom;
  if (draft.header_length > room.length) {
    plan.header = common_.memory.get(draft.header_length);
    if (!plan.header)
      return false;
    room = plan.header.span();
  }
  plan.sges[0] = {room.data, draft.header_length, room.region};
  plan.num_sges = 1;
  StreamCursor stream(call.message.pieces(), draft.moved, zeros);
  if (draft.padding.threshold != 0) [[unlikely]] {
    if (!gather_padded(plan, call.message.pieces(), common_.rfc5666.align, draft.padding,
                       static_cast<uint32_t>(draft.reduced), common_.memory))
      return false;
  } else if (!draft.is_long) {
    if (!gather(plan, stream, static_cast<uint32_t>(draft.reduced), common_.options.max_sges,
                common_.memory))
      return false;
  }
  if (draft.offers() == 0) [[likely]]
    return true;

  uint64_t bytes = draft.is_long && !draft.in_place ? draft.reduced : 0;
  for (int part = 0; part != 2; ++part, bytes = draft.reply_bytes) {
    for (uint64_t size; bytes != 0; bytes -= size) {
      size = std::min<uint64_t>(bytes, common_.memory.largest_buffer());
      if (!take_buffer(call, static_cast<uint32_t>(size)))
        return false;
    }
  }
  if (draft.lists != 0 && !take_lists(call, draft)) [[unlikely]]
    return false;
  uint32_t keys[kMaxOffers];
  if (!common_.keys.reserve_keys({keys, draft.offers()}))
    return false;
  call.num_offers = static_cast<uint16_t>(draft.offers());
  for (uint32_t i = 0; i < call.num_offers; ++i)
    call.chunks->offers[i].key = keys[i];
  return true;
}

bool Requester::take_buffer(OutgoingCall& call, uint32_t size) noexcept {
  RRDK_ASSERT(call.num_buffers < call.chunks->buffers.size());
  Buffer& buffer = call.chunks->buffers[call.num_buffers];
  buffer = common_.memory.get(size);
  if (!buffer)
    return false;
  ++call.num_buffers;
  return true;
}

// The message's own lists stay as they are, since the driver may change what it is given, and the
// call may be sent again.
bool Requester::take_lists(OutgoingCall& call, const Draft& draft) noexcept {
  uint32_t k = 0;
  for (const Piece& piece : call.message.pieces()) {
    if (!piece.eligible || !is_moved(draft.moved, k++) || !piece.scattered())
      continue;
    const std::span<const MemorySpan> runs = piece.runs();
    if (!take_buffer(call, static_cast<uint32_t>(runs.size_bytes())))
      return false;
    std::memcpy(call.chunks->buffers[call.num_buffers - 1u].data(), runs.data(), runs.size_bytes());
  }
  return true;
}

// Fills in the offers in the order of the header's lists. Cannot fail.
void Requester::offer(OutgoingCall& call, const Draft& draft) noexcept {
  CallChunks& chunks = *call.chunks;
  uint32_t next = 0;
  uint32_t buffer = 0;
  uint32_t list = call.num_buffers - draft.lists;  // they are the last buffers
  auto add = [&](const MemorySpan& span, Rights rights) {
    RRDK_ASSERT(next < call.num_offers, next, call.num_offers);
    Offer& offer = chunks.offers[next++];
    offer.span = span;
    offer.rights = rights;
    offer.key = common_.keys.name_key(offer.key, span, rights);
    offer.revoked = false;
    offer.runs = 0;
  };
  auto add_buffers = [&](uint64_t bytes, Rights rights) {
    while (bytes != 0) {
      auto size = static_cast<uint32_t>(std::min<uint64_t>(bytes, common_.memory.largest_buffer()));
      add(chunks.buffers[buffer++].first(size), rights);
      bytes -= size;
    }
  };
  call.message_offers = static_cast<uint16_t>(draft.call_segments);
  if (draft.call_segments + draft.read_items != 0)
    common_.note_named(call.message.buffers());
  std::span<const Piece> pieces = call.message.pieces();
  uint32_t k = 0;
  if (draft.in_place) {
    for (const Piece& piece : pieces) {
      if (piece.eligible && is_moved(draft.moved, k++))
        continue;
      for (const MemorySpan& run : piece.runs()) {
        if (run.length != 0)
          add(run, Rights::kRemoteRead);
      }
    }
  } else if (draft.is_long) {
    add_buffers(draft.reduced, Rights::kRemoteRead);
  }
  k = 0;
  for (const Piece& piece : pieces) {
    if (!piece.eligible || !is_moved(draft.moved, k++))
      continue;
    if (piece.segments > read_segments_of(piece)) {
      add({chunks.buffers[list].data(), piece.bytes.length, chunks.buffers[list].region()},
          Rights::kRemoteRead);
      chunks.offers[next - 1].runs = piece.segments;
      ++list;
      continue;
    }
    for (const MemorySpan& run : piece.runs())
      add(run, Rights::kRemoteRead);
  }
  call.num_results = static_cast<uint8_t>(draft.rooms);
  chunks.result_first[0] = static_cast<uint16_t>(next);
  for (uint32_t i = 0; i < call.num_results; ++i) {
    for (const MemorySpan& span : call.results[i].spans) {
      if (span.length != 0)
        add(span, Rights::kRemoteWrite);
    }
    if (uint32_t pad = pad_of(call.results[i])) {
      MemorySpan pads = pads_of(slots_[call.slot].room);
      add({pads.data, pad, pads.region}, Rights::kRemoteWrite);
    }
    chunks.result_first[i + 1] = static_cast<uint16_t>(next);
  }
  call.reply_first = static_cast<uint16_t>(next);
  add_buffers(draft.reply_bytes, Rights::kRemoteWrite);
  RRDK_ASSERT(next == call.num_offers, next, call.num_offers);
}

void Requester::write_header(OutgoingCall& call, const Draft& draft) noexcept {
  const CallChunks& chunks = *call.chunks;
  proto::Header& header = common_.pool.scratch();
  proto::ChunkLists& lists = header.lists;
  header.xid = call.xid;
  header.wire = common_.wire;
  header.direction = proto::Direction::kCall;
  header.credits = asked;
  header.type = draft.is_long ? MessageType::kNoMsg : MessageType::kMsg;
  if (draft.padding.threshold != 0) [[unlikely]] {
    header.type = MessageType::kMsgp;
    header.msgp_align = common_.rfc5666.align;
    header.msgp_thresh = draft.padding.threshold;
  }
  lists.clear();
  for (uint32_t i = 0; i < call.num_offers; ++i)
    lists.segments[lists.num_segments++] = chunks.offers[i].segment();

  uint16_t next = 0;
  auto add_read = [&](uint64_t position, uint32_t count) {
    lists.reads[lists.num_reads++] = {static_cast<uint32_t>(position), next,
                                      static_cast<uint16_t>(count), 0};
    next = static_cast<uint16_t>(next + count);
  };
  if (draft.is_long) {
    add_read(0, draft.call_segments);
    if (!draft.in_place)
      copy_stream(call, draft);
  }
  uint64_t position = 0;
  uint32_t k = 0;
  for (const Piece& piece : call.message.pieces()) {
    if (draft.moved == 0)
      break;
    if (piece.eligible && is_moved(draft.moved, k++))
      add_read(position, read_segments_of(piece));
    position += piece.bytes.length + (piece.item ? xdr_pad(piece.bytes.length) : 0);
  }
  for (uint32_t i = 0; i < call.num_results; ++i) {
    auto count = static_cast<uint16_t>(chunks.result_first[i + 1] - chunks.result_first[i]);
    lists.writes[lists.num_writes++] = {chunks.result_first[i], count, 0};
  }
  lists.has_reply = draft.reply_segments != 0;
  if (lists.has_reply)
    lists.reply = {call.reply_first, static_cast<uint16_t>(draft.reply_segments), 0};
  header.invalidate = key_to_offer(call);
  const MemorySpan& room = chunks.plan.sges[0];
  const uint32_t written = proto::encode(header, {room.data, room.length});
  RRDK_ASSERT(written == draft.header_length, written, draft.header_length);
}

// The Position-Zero chunk is a copy if the message has pads between its pieces, or too many pieces.
// The copy is one run per buffer and contains the pads; a pad never has a segment of its own
// (V1-PAD-03).
void Requester::copy_stream(OutgoingCall& call, const Draft& draft) noexcept {
  MemorySpan zeros = zeros_of(slots_[call.slot].room);
  StreamCursor stream(call.message.pieces(), draft.moved, zeros);
  for (uint32_t i = 0; i < draft.call_segments; ++i) {
    const MemorySpan& to = call.chunks->offers[i].span;
    for (uint32_t done = 0; done != to.length;) {
      MemorySpan run = stream.next(to.length - done);
      if (run.length == 0)
        return;
      std::memcpy(to.data + done, run.data, run.length);
      done += run.length;
    }
  }
}

}  // namespace rrdk::engine

// The Read chunks of a call: the peer's data is read into pool buffers, at once or by posted RDMA
// Reads, and the call is assembled.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "engine/responder.h"
#include "proto/codec.h"

namespace rrdk::engine {

namespace {

constexpr uint32_t kSinkAlignment = 64;  // copies are fastest from cache line to cache line
// While others wait for buffers, at least one part in this many of the data that is being read must
// arrive in each ConnectionOptions::progress_wait_ns: the whole data in half a minute, by default.
constexpr uint64_t kSlowestParts = 32;

uint16_t read_segments(const proto::ChunkLists& lists) {
  RRDK_ASSERT(lists.num_reads != 0);
  const proto::ReadChunk& last = lists.reads[lists.num_reads - 1];
  return static_cast<uint16_t>(last.first + last.count);
}

// Moves the cursor to the next segment with bytes left. Read segments are in stream order, so one
// index runs through all chunks. Zero-length ones need no Read (V1-CHUNK-13).
bool seek_segment(ChunkPart& part) {
  const proto::ChunkLists& lists = part.header.lists;
  MoveCursor& c = part.cursor;
  uint16_t end = read_segments(lists);
  while (c.segment < end && c.segment_offset == lists.segments[c.segment].length) {
    ++c.segment;
    c.segment_offset = 0;
  }
  return c.segment < end;
}

// Returns the destination in one sink of the next Read, at most `most` bytes.
MemorySpan next_piece(const ChunkPart& part, uint32_t most) {
  const MoveCursor& c = part.cursor;
  RRDK_ASSERT(c.local < part.num_sinks, c.local, part.num_sinks);
  const MemorySpan& sink = part.sinks[c.local];
  return {sink.data + c.local_offset, std::min(most, sink.length - c.local_offset), sink.region};
}

void pass(ChunkPart& part, uint32_t length) {
  MoveCursor& c = part.cursor;
  c.segment_offset += length;
  c.local_offset += length;
  RRDK_ASSERT(c.local_offset <= part.sinks[c.local].length, c.local_offset);
  if (c.local_offset == part.sinks[c.local].length) {
    ++c.local;
    c.local_offset = 0;
  }
}

}  // namespace

bool Responder::fits_sinks(const ServedCall& call) const noexcept {
  uint64_t largest = common_.memory.largest_buffer();
  uint64_t sinks = 0;
  const proto::ChunkLists& lists = call.part->header.lists;
  for (uint32_t i = 0; i < lists.num_reads; ++i)
    sinks += (lists.reads[i].length + largest - 1) / largest;
  return sinks <= kMaxSinks;
}

void Responder::fetch(ServedCall& call) noexcept {
  if (wait_buffers_.empty() && take_sinks(call)) [[likely]] {
    start_reads(call);
    pump_reads();
    return;
  }
  ++(shortage_ == mem::Shortage::kShare ? common_.counters.waits_share
                                        : common_.counters.waits_buffer);
  call.state = CallState::kWaitingBuffers;
  wait_buffers_.push(call);
}

// Takes all memory for the call's chunks, or none: calls that each had a part could wait for each
// other for ever. A chunk begins in the rest of the last buffer if it fits there completely; an
// item is split only if it is larger than any buffer.
bool Responder::take_sinks(ServedCall& call) noexcept {
  ChunkPart& part = *call.part;
  RRDK_ASSERT(part.num_buffers == 0, part.num_buffers);
  const proto::ChunkLists& lists = part.header.lists;
  uint32_t largest = common_.memory.largest_buffer();
  MemorySpan rest;
  bool alone = common_.borrower.idle();
  auto shortage = mem::Shortage::kNone;
  part.num_sinks = 0;
  for (uint32_t i = 0; i < lists.num_reads; ++i) {
    for (uint64_t left = lists.reads[i].length; left != 0;) {
      if (left > rest.length) {
        auto size = static_cast<uint32_t>(std::min<uint64_t>(left, largest));
        RRDK_ASSERT(part.num_buffers < kMaxSinks);  // fits_sinks()
        Buffer& buffer = part.buffers[part.num_buffers];
        buffer = common_.borrower.get(size, alone, shortage);
        if (!buffer) [[unlikely]] {
          part.release_sinks();
          note_shortage(shortage);
          return false;
        }
        ++part.num_buffers;
        rest = buffer.span();
      }
      auto length = static_cast<uint32_t>(std::min<uint64_t>(left, rest.length));
      RRDK_ASSERT(part.num_sinks < kMaxSinks);
      part.sinks[part.num_sinks++] = {rest.data, length, rest.region};
      uint32_t used = std::min(rest.length, (length + kSinkAlignment - 1) & ~(kSinkAlignment - 1));
      rest = {rest.data + used, rest.length - used, rest.region};
      left -= length;
    }
  }
  note_shortage(mem::Shortage::kNone);
  return true;
}

void Responder::note_shortage(mem::Shortage shortage) noexcept {
  if (shortage == shortage_) [[likely]]
    return;
  common_.borrower.change_wait(shortage_, shortage);
  shortage_ = shortage;
}

void Responder::start_reads(ServedCall& call) noexcept {
  call.state = CallState::kReading;
  reading_bytes_ += call.read_length();
  call.part->cursor = {};
  call.reads_posted = 0;
  if (!seek_segment(*call.part) || read_now(call)) {
    on_fetched(call);
    return;
  }
  if (!common_.sends.read_slot())
    ++common_.counters.waits_read_depth;
  wait_reads_.push(call);
}

// Reads all that is left of the call's chunks, if the device reads at once: each call is read,
// answered and finished before the next one, so that its buffers are in the caches when the next
// one takes them. Listed replies must be posted first, since the peer could copy what they name
// meanwhile. Returns false if the Read at the cursor must be posted: it has failed, or the pass of
// the core has no time left for it.
bool Responder::read_now(ServedCall& call) noexcept {
  if (!common_.options.reads_at_once || common_.port == nullptr)
    return false;
  if (!common_.sends.list().empty())
    common_.post_listed();
  ChunkPart& part = *call.part;
  do {
    const MoveCursor& c = part.cursor;
    const proto::Segment& segment = part.header.lists.segments[c.segment];
    const MemorySpan piece = next_piece(
        part, std::min(segment.length - c.segment_offset, common_.options.max_read_bytes));
    if (!common_.port->read_now(piece, segment.handle, segment.offset + c.segment_offset))
      return false;
    common_.counters.rdma_read_bytes += piece.length;
    pass(part, piece.length);
  } while (seek_segment(part));
  return true;
}

// Not if a piece may have to wait for the next pass: what was read would be read again.
bool Responder::fetch_at_once(ServedCall& call) noexcept {
  RRDK_ASSERT(call.part->header.lists.num_reads == 1 && wait_buffers_.empty());
  if (call.part->header.lists.reads[0].length > common_.options.max_read_bytes) [[unlikely]]
    return false;
  call.inline_data = call.whole.data;
  call.inline_length = call.whole.length;
  if (!take_sinks(call)) [[unlikely]] {
    note_shortage(mem::Shortage::kNone);  // it will be fetched again, and wait then
    return false;
  }
  call.part->cursor = {};
  if (!read_now(call)) [[unlikely]] {
    call.part->release_sinks();
    return false;
  }
  assemble(call);
  return true;
}

// Posts one Read of each call in turn, so that a call with many segments does not delay the others.
void Responder::pump_reads() noexcept {
  while (!wait_reads_.empty() && common_.sends.read_slot()) {
    ServedCall& call = wait_reads_.pop();
    if (post_read(call))
      wait_reads_.push(call);
  }
}

// Posts the next Read of the call. Returns true if there are more.
bool Responder::post_read(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state == CallState::kReading && common_.up(), call.state, common_.phase);
  ChunkPart& part = *call.part;
  MoveCursor& c = part.cursor;
  const proto::Segment& segment = part.header.lists.segments[c.segment];
  fabric::SendWr& wr = common_.sends.append_read(call.read_tag);
  ++call.reads_posted;
  wr.key = segment.handle;
  wr.remote_address = segment.offset + c.segment_offset;
  wr.num_sges = 0;
  uint32_t left = std::min(segment.length - c.segment_offset, common_.options.max_read_bytes);
  while (left != 0 && wr.num_sges < common_.options.max_read_sges) {
    const MemorySpan piece = next_piece(part, left);
    left -= piece.length;
    wr.sges[wr.num_sges++] = piece;
    common_.counters.rdma_read_bytes += piece.length;
    pass(part, piece.length);
  }
  return seek_segment(part);
}

void Responder::on_read_completed(ServedCall& call, uint32_t bytes) noexcept {
  RRDK_ASSERT(call.state == CallState::kReading && call.reads_posted != 0, call.state);
  common_.sends.complete_read();
  completed_ += bytes;
  --call.reads_posted;
  if (call.reads_posted != 0)
    return;
  if (common_.phase == Phase::kDead)
    finish(call);
  else if (common_.up() && !seek_segment(*call.part))
    on_fetched(call);
}

// A peer must not hold buffers that others wait for, or that their results need, without sending
// data (RFC 5666 section 11).
//
// Progress is counted in bytes, so that an occasional tiny Read does not count as progress. If the
// device reports it, bytes count as they arrive, so a large, slow Read is progress; otherwise they
// count when a Read completes, and Reads are short then (Capabilities::max_read_bytes). Reads that
// we put off ourselves do not count against the peer.
void Responder::check_progress(uint64_t now_ns) noexcept {
  uint64_t last_ns = std::exchange(progress_tick_ns_, now_ns);
  bool was_away = now_ns - last_ns > common_.options.progress_wait_ns / 4 ||
                  common_.keys.puts_reads_off();  // our core was late, not the peer
  uint64_t arrived = common_.keys.read_bytes();
  uint64_t progress = arrived != 0 ? arrived - arrived_before_ : completed_;
  if (progress_since_ns_ == 0 || was_away || progress > reading_bytes_ / kSlowestParts) {
    completed_ = 0;
    arrived_before_ = arrived;
    missing_before_ = common_.borrower.missing();
    progress_since_ns_ = now_ns;
  } else if (now_ns - progress_since_ns_ >= common_.options.progress_wait_ns &&
             (common_.borrower.pressed(shortage_) ||
              common_.borrower.missing() != missing_before_) &&
             common_.running()) {
    common_.end(Refusal::kHeldBuffers,
                "it kept buffers that others waited for, and sent no data for them");
  }
}

void Responder::on_fetched(ServedCall& call) noexcept {
  RRDK_ASSERT(call.read_length() <= reading_bytes_, reading_bytes_);
  reading_bytes_ -= call.read_length();
  assemble(call);
  deliver(call);
}

// Assembles a call: the part of its stream that is inline or in the Position-Zero chunk, with the
// other Read chunks at their Positions (RFC 5666 section 3.4). Nothing is copied. The header's
// decoder has checked that the Positions lie within the stream (V1-RL-08). What the upper layer
// sees of the call is at the end.

namespace {

constexpr std::byte kPad[3] = {};

uint32_t first_item_chunk(const ServedCall& call) {
  return call.type == proto::MessageType::kNoMsg ? 1 : 0;
}

// Writes fragments, taking them from the rest of the reduced stream.
class Assembler {
 public:
  explicit Assembler(ServedCall& call) : part_(*call.part) {
    if (first_item_chunk(call) == 0)
      left_ = {call.inline_data, call.inline_length};
  }

  void add_stream(uint64_t length) {
    while (length != 0) {
      if (left_.length == 0)
        left_ = next_sink();
      auto n = static_cast<uint32_t>(std::min<uint64_t>(length, left_.length));
      add({left_.data, n});
      left_ = {left_.data + n, left_.length - n};
      length -= n;
    }
  }
  // The Position-Zero chunk's sinks come first, followed by those of the items.
  void skip_sinks(uint64_t length) {
    for (; length != 0; ++item_sink_) {
      RRDK_ASSERT(item_sink_ < part_.num_sinks, item_sink_);
      length -= part_.sinks[item_sink_].length;
    }
  }
  void add_item(uint64_t length) {
    for (uint64_t left = length; left != 0; ++item_sink_) {
      RRDK_ASSERT(item_sink_ < part_.num_sinks, item_sink_);
      add({part_.sinks[item_sink_].data, part_.sinks[item_sink_].length});
      left -= part_.sinks[item_sink_].length;
    }
    if (xdr_pad(length) != 0)
      add({kPad, xdr_pad(length)});
  }
  std::span<const Fragment> message() const { return {part_.fragments.data(), count_}; }

 private:
  Fragment next_sink() {
    RRDK_ASSERT(stream_sink_ < part_.num_sinks, stream_sink_);
    const MemorySpan& sink = part_.sinks[stream_sink_++];
    return {sink.data, sink.length};
  }
  void add(const Fragment& fragment) {
    RRDK_ASSERT(count_ < kMaxFragments);
    part_.fragments[count_++] = fragment;
  }

  ChunkPart& part_;
  Fragment left_{};
  uint32_t stream_sink_ = 0;
  uint32_t item_sink_ = 0;
  uint32_t count_ = 0;
};

uint64_t stream_bytes(const ServedCall& call) {
  return first_item_chunk(call) == 0 ? call.inline_length : call.part->header.lists.reads[0].length;
}

}  // namespace

void assemble(ServedCall& call) noexcept {
  const proto::ChunkLists& lists = call.part->header.lists;
  Assembler out(call);
  uint64_t left = stream_bytes(call);
  uint64_t position = 0;
  uint32_t first = first_item_chunk(call);
  if (first != 0)
    out.skip_sinks(left);
  for (uint32_t i = first; i < lists.num_reads; ++i) {
    const proto::ReadChunk& chunk = lists.reads[i];
    out.add_stream(chunk.position - position);
    left -= chunk.position - position;
    out.add_item(chunk.length);
    position = chunk.position + chunk.length + xdr_pad(chunk.length);
  }
  out.add_stream(left);
  call.message = out.message();
}

std::optional<uint32_t> first_word(std::span<const Fragment> message) noexcept {
  std::byte word[4];
  uint32_t have = 0;
  for (const Fragment& f : message) {
    uint32_t n = std::min<uint32_t>(f.length, 4 - have);
    std::memcpy(word + have, f.data, n);
    have += n;
    if (have == 4)
      return xdr::load_u32(word);
  }
  return std::nullopt;
}

// What the upper layer sees of a call.

uint32_t ServedCall::inline_size() const noexcept {
  return responder->send_threshold(*this) - proto::min_header(wire);
}
uint64_t ServedCall::max_reply() const noexcept {
  return responder->max_reply();
}
mem::Borrower& ServedCall::borrower() const noexcept {
  return responder->borrower();
}
bool ServedCall::is_padded() const noexcept {
  return type == proto::MessageType::kMsgp && responder->reads_padding();
}
OpaquePadding ServedCall::padding() const noexcept {
  return responder->padding(*this);
}
Connection& ServedCall::connection() const noexcept {
  return responder->connection();
}

}  // namespace rrdk::engine

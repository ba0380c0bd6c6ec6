#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/requester.h"
#include "engine/rfc5666/read_read.h"
#include "proto/codec.h"

namespace rrdk::engine {

using fabric::Op;
using fabric::SendWr;

namespace {

constexpr std::byte kZeros[3] = {};

// Writes the fragments of a reply: the inline part, with the items that were read at their
// Positions. The header's decoder has checked that these lie within the stream (V1-RL-08).
class ReplyAssembler {
 public:
  ReplyAssembler(ReplyReader::Reading& reading, OutgoingCall& call, uint32_t first)
      : reading_(reading),
        left_(call.whole),
        out_(std::span(call.chunks->fragments).subspan(first)) {}

  bool assemble() {
    uint64_t position = 0;
    for (uint32_t i = 0; i < reading_.num_chunks; ++i) {
      const proto::ReadChunk& chunk = reading_.chunks[i];
      add_inline(static_cast<uint32_t>(chunk.position - position));
      add_item(chunk.length);
      position = chunk.position + chunk.length + xdr_pad(chunk.length);
    }
    add_inline(left_.length);
    return !full_;
  }
  std::span<const Fragment> reply() const { return out_.first(count_); }

 private:
  void add_inline(uint32_t length) {
    add({left_.data, length});
    left_ = {left_.data + length, left_.length - length};
  }
  void add_item(uint64_t length) {
    for (uint64_t left = length; left != 0; ++buffer_) {
      add({reading_.buffers[buffer_].data(), reading_.lengths[buffer_]});
      left -= reading_.lengths[buffer_];
    }
    add({kZeros, xdr_pad(length)});
  }
  void add(const Fragment& fragment) {
    if (fragment.length == 0)
      return;
    full_ = full_ || count_ == out_.size();
    if (!full_)
      out_[count_++] = fragment;
  }

  ReplyReader::Reading& reading_;
  Fragment left_;
  std::span<Fragment> out_;
  size_t count_ = 0;
  uint32_t buffer_ = 0;
  bool full_ = false;
};

}  // namespace

CallStatus ReplyReader::begin(const OutgoingCall& call, const proto::ChunkLists& lists,
                              uint32_t inline_bytes) noexcept {
  const proto::ReadChunk& last = lists.reads[lists.num_reads - 1];
  uint32_t segments = uint32_t{last.first} + last.count;
  bool too_much = lists.num_reads > kMostChunks || segments > kMostSegments ||
                  lists.read_length + inline_bytes > common_.options.max_reply;
  if (too_much || common_.rfc5666.peer_serves_no_reads) {
    common_.refused(too_much ? Refusal::kTooManyBytes : Refusal::kReadListInReply);
    return CallStatus::kMalformedReply;
  }
  if (free_.empty())  // many calls were given up while their replies were read
    return CallStatus::kNoMemory;
  Reading& reading = free_.pop();
  reading.xid = call.xid;
  reading.stage = Stage::kWaiting;
  reading.reads_posted = 0;
  reading.num_chunks = lists.num_reads;
  reading.num_segments = static_cast<uint16_t>(segments);
  reading.segment = reading.buffer = 0;
  reading.segment_offset = reading.buffer_offset = 0;
  std::copy_n(lists.reads, lists.num_reads, reading.chunks.begin());
  std::copy_n(lists.segments, segments, reading.segments.begin());
  ++common_.counters.rfc5666_read_replies;
  hold(1);
  if (!take_buffers(reading)) {
    acknowledge(reading);
    return CallStatus::kNoMemory;
  }
  queued_.push(reading);
  return CallStatus::kOk;
}

// Takes a buffer for each chunk, and more for a chunk that is larger than any buffer.
bool ReplyReader::take_buffers(Reading& reading) noexcept {
  reading.num_buffers = 0;
  for (uint32_t i = 0; i < reading.num_chunks; ++i) {
    for (uint64_t left = reading.chunks[i].length; left != 0;) {
      if (reading.num_buffers == kMostBuffers)
        return false;
      auto length =
          static_cast<uint32_t>(std::min<uint64_t>(left, common_.memory.largest_buffer()));
      Buffer& buffer = reading.buffers[reading.num_buffers];
      buffer = common_.memory.get(length);
      if (!buffer)
        return false;
      reading.lengths[reading.num_buffers++] = length;
      left -= length;
    }
  }
  return true;
}

// Posts Reads in the order of the lists. A reading leaves the queue when all of its Reads have been
// posted.
void ReplyReader::pump() noexcept {
  while (!queued_.empty() && common_.up()) {
    Reading& reading = *queued_.front();
    if (reading.segment != reading.num_segments) {
      if (!common_.sends.read_slot())
        return;
      post_read(reading);
      continue;
    }
    queued_.pop();
    if (reading.reads_posted == 0)
      finish(reading);
  }
}

void ReplyReader::post_read(Reading& reading) noexcept {
  const proto::Segment& segment = reading.segments[reading.segment];
  if (segment.length != 0) {
    SendWr& wr = common_.sends.append_read(reading.read_tag);
    ++reading.reads_posted;
    wr.key = segment.handle;
    wr.remote_address = segment.offset + reading.segment_offset;
    wr.num_sges = 0;
    while (reading.segment_offset != segment.length &&
           wr.num_sges < common_.options.max_read_sges) {
      RRDK_ASSERT(reading.buffer < reading.num_buffers, reading.buffer, reading.num_buffers);
      Buffer& buffer = reading.buffers[reading.buffer];
      uint32_t left = reading.lengths[reading.buffer] - reading.buffer_offset;
      uint32_t length = std::min(segment.length - reading.segment_offset, left);
      wr.sges[wr.num_sges++] = {buffer.data() + reading.buffer_offset, length, buffer.region()};
      common_.counters.rdma_read_bytes += length;
      reading.segment_offset += length;
      reading.buffer_offset += length;
      if (length == left) {
        ++reading.buffer;
        reading.buffer_offset = 0;
      }
    }
  }
  if (reading.segment_offset == segment.length) {
    ++reading.segment;
    reading.segment_offset = 0;
  }
}

void ReplyReader::on_read_completed(Reading& reading) noexcept {
  RRDK_ASSERT(reading.reads_posted != 0);
  --reading.reads_posted;
  if (reading.reads_posted != 0)
    return;
  if (common_.phase == Phase::kDead)
    retire(reading);
  else if (common_.up() && reading.segment == reading.num_segments)
    finish(reading);
}

// RDMA_DONE comes first: it gives the responder its memory back.
void ReplyReader::finish(Reading& reading) noexcept {
  OutgoingCall* call = requester_.reading_call(reading.xid);
  CallStatus status = call != nullptr ? deliver(reading, *call) : CallStatus::kOk;
  acknowledge(reading);
  if (call != nullptr)
    requester_.conclude(*call, status);
}

CallStatus ReplyReader::deliver(Reading& reading, OutgoingCall& call) noexcept {
  if (!call.take_chunks())
    return CallStatus::kNoMemory;
  ReplyAssembler assembler(reading, call, call.num_offers);
  if (call.num_buffers + reading.num_buffers > call.chunks->buffers.size() || !assembler.assemble())
    return CallStatus::kNoMemory;
  for (uint32_t i = 0; i < reading.num_buffers; ++i)
    call.chunks->buffers[call.num_buffers++] = std::move(reading.buffers[i]);
  reading.num_buffers = 0;
  call.reply = assembler.reply();
  return CallStatus::kOk;
}

void ReplyReader::acknowledge(Reading& reading) noexcept {
  while (reading.num_buffers != 0)
    reading.buffers[--reading.num_buffers].reset();
  reading.stage = Stage::kDone;
  proto::Header& header = common_.pool.scratch();
  header.xid = reading.xid;
  header.wire = proto::Wire::kVersion1;
  header.type = proto::MessageType::kDone;
  header.credits = requester_.asked;
  proto::encode(header, {reading.room.data, reading.room.length});
  ++dones_sent_;
  ++common_.counters.rfc5666_dones;
  if (!common_.sends.idle() || !emit_done(reading))
    common_.sends.push(reading.done_job);
}

bool ReplyReader::emit_done(Reading& reading) noexcept {
  if (common_.sends.free_slots() == 0)
    return false;
  SendWr& wr = common_.sends.append(reading.done_job, Op::kSend, true);
  wr.num_sges = 1;
  wr.sges[0] = reading.room;
  return true;
}

void ReplyReader::on_done_completed(Reading& reading) noexcept {
  if (reading.done_job.settled())
    retire(reading);
}

void ReplyReader::retire(Reading& reading) noexcept {
  while (reading.num_buffers != 0)
    reading.buffers[--reading.num_buffers].reset();
  reading.stage = Stage::kFree;
  free_.push(reading);
}

void ReplyReader::on_dead() noexcept {
  queued_.clear();
  for (Reading& reading : readings_) {
    bool posted = reading.reads_posted != 0 || !reading.done_job.settled();
    if (reading.stage != Stage::kFree && !posted)
      retire(reading);
  }
}

void ReplyReader::hold(int32_t more) noexcept {
  held_ += static_cast<uint32_t>(more);
  requester_.window.set_held(held_);
}

// Returns the call that still waits for its reply to be read.
OutgoingCall* Requester::reading_call(uint32_t xid) noexcept {
  Slot& slot = slots_[xid & ((1u << slot_bits_) - 1)];
  bool waits = slot.xid == xid && slot.call != nullptr && !slot.unanswered &&
               slot.call->stage == CallStage::kInFlight;
  return waits ? slot.call : nullptr;
}

}  // namespace rrdk::engine

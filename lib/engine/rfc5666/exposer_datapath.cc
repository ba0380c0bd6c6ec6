#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/responder.h"
#include "engine/rfc5666/read_read.h"
#include "proto/codec.h"

namespace rrdk::engine {

using fabric::Op;
using fabric::SendWr;
using proto::MessageType;

namespace {

// Bytes of one read segment in a header: moving fewer gains nothing.
constexpr uint32_t kMovedEntry = 24;

}  // namespace

// Positions count in the stream as the peer assembles it, without the items that were written into
// its Write chunks.
bool ReplyExposer::draft(ServedCall& call, MovedItems placed, uint32_t threshold) noexcept {
  std::span<const Piece> pieces = call.reply.pieces();
  if (call.wire != proto::Wire::kVersion1 || common_.options.rfc5666.max_reads == 0)
    return false;
  left_out_ = placed;
  reduced_ = reduced_length(pieces, call.reply.stream_length(), placed);
  header_length_ = proto::encoded_length(call.part->header);
  item_bytes_ = num_runs_ = 0;
  uint32_t k = 0;
  uint64_t position = 0;
  for (const Piece& piece : pieces) {
    uint64_t padded = piece.bytes.length + (piece.item ? xdr_pad(piece.bytes.length) : 0);
    uint32_t index = piece.eligible ? k++ : kMaxMovedItems;
    if (is_moved(placed, index))
      continue;
    bool fits = header_length_ + reduced_ <= threshold;
    const std::span<const MemorySpan> runs = piece.runs();
    if (!fits && index < kMaxMovedItems && piece.bytes.length > kMovedEntry * runs.size() &&
        runs.size() <= kMaxExposedRuns - num_runs_) {
      for (const MemorySpan& run : runs)
        runs_[num_runs_++] = {run, position};
      left_out_ |= MovedItems{1} << index;
      reduced_ -= padded;
      header_length_ += kMovedEntry * static_cast<uint32_t>(runs.size());
      item_bytes_ += piece.bytes.length;
    }
    position += padded;
  }
  bool fits = header_length_ + reduced_ <= threshold;
  return fits && item_bytes_ <= common_.options.rfc5666.exposed_bytes &&
         call.part->header.lists.num_segments + num_runs_ <= proto::kMaxSegments;
}

Exposure* ReplyExposer::take(ServedCall& call) noexcept {
  uint32_t keys[kMaxExposedRuns];
  const Rfc5666Options& mode = common_.options.rfc5666;
  if (free_.empty() || bytes_ + item_bytes_ > mode.exposed_bytes ||
      !common_.borrower.expose(item_bytes_, mode.total_exposed_bytes))
    return nullptr;
  if (!common_.keys.reserve_keys({keys, num_runs_})) {
    common_.borrower.unexpose(item_bytes_);
    return nullptr;
  }
  Exposure& exposure = free_.pop();
  ++taken_;
  bytes_ += item_bytes_;
  exposure.call = &call;
  exposure.xid = call.xid;
  exposure.bytes = item_bytes_;
  exposure.since_ns = 0;
  exposure.acknowledged = false;
  exposure.num_runs = static_cast<uint16_t>(num_runs_);
  exposure.bound = exposure.revoked = 0;
  proto::ChunkLists& lists = call.part->header.lists;
  for (uint16_t i = 0; i < exposure.num_runs; ++i) {
    const MemorySpan& span = exposure.runs[i] = runs_[i].bytes;
    uint32_t key = exposure.keys[i] =
        common_.keys.name_key(keys[i], span, fabric::Rights::kRemoteRead);
    auto at = static_cast<uint16_t>(lists.num_segments + i);
    lists.segments[at] = {key, span.length, reinterpret_cast<uint64_t>(span.data)};
    if (i != 0 && runs_[i].position == runs_[i - 1].position) {  // of the same item
      ++lists.reads[lists.num_reads - 1].count;
      lists.reads[lists.num_reads - 1].length += span.length;
    } else {
      lists.reads[lists.num_reads++] = {static_cast<uint32_t>(runs_[i].position), at, 1,
                                        span.length};
    }
  }
  return &exposure;
}

void ReplyExposer::give(Exposure& exposure) noexcept {
  RRDK_ASSERT(taken_ != 0 && exposure.bytes <= bytes_, taken_, bytes_);
  for (uint32_t i = 0; i < exposure.num_runs; ++i)
    common_.keys.release_key(exposure.keys[i]);
  --taken_;
  bytes_ -= exposure.bytes;
  common_.borrower.unexpose(exposure.bytes);
  free_.push_front(exposure);
}

// Returns false if it must wait: the bounds are reached or keys are missing.
bool Responder::expose(ServedCall& call) noexcept {
  RRDK_ASSERT(call.exposure == nullptr);
  ReplyExposer& exposer = *common_.rfc5666.exposer;
  Exposure* exposure = exposer.take(call);
  if (exposure == nullptr)
    return false;
  call.exposure = exposure;
  exposed_.push_front(*exposure);
  grant.set_owed(exposer.taken());
  ++common_.counters.rfc5666_read_replies;
  return true;
}

void Responder::unexpose(ServedCall& call) noexcept {
  RRDK_ASSERT(call.exposure != nullptr && call.exposure->call == &call);
  Exposure& exposure = *std::exchange(call.exposure, nullptr);
  exposed_.remove(exposure);
  ReplyExposer& exposer = *common_.rfc5666.exposer;
  exposer.give(exposure);
  grant.set_owed(exposer.taken());
}

// Posts the binds before the reply, or the invalidations after it. Returns false if the send queue
// is full.
bool Responder::emit_exposure(ServedCall& call) noexcept {
  Exposure& exposure = *call.exposure;
  bool revokes = call.state == CallState::kRevoking;
  uint16_t& done = revokes ? exposure.revoked : exposure.bound;
  for (; done < exposure.num_runs; ++done) {
    if (common_.sends.free_slots() == 0)
      return false;
    bool last = revokes && done + 1 == exposure.num_runs;
    SendWr& wr = common_.sends.append(call.job, revokes ? Op::kInvalidateKey : Op::kBindKey, last);
    wr.key = exposure.keys[done];
    wr.rights = fabric::Rights::kRemoteRead;
    wr.runs = 0;
    wr.num_sges = revokes ? 0 : 1;
    if (!revokes)
      wr.sges[0] = exposure.runs[done];
  }
  return true;
}

// Called when all that was posted for the call has completed. Returns true if the call is over. On
// a failing connection it is not, since only the connection's end ends the peer's access
// (on_dead()).
bool Responder::on_exposed(ServedCall& call) noexcept {
  if (common_.phase == Phase::kDead)
    return true;
  if (call.state == CallState::kRevoking)
    return common_.up();
  call.state = CallState::kExposed;
  if (call.receive && !names_arguments(call))
    common_.receives.give(std::move(call.receive));
  if (call.exposure->acknowledged)
    revoke(call);
  return false;
}

void Responder::revoke(ServedCall& call) noexcept {
  RRDK_ASSERT(call.state == CallState::kExposed && call.job.settled(), call.state);
  call.state = CallState::kRevoking;
  if (!common_.up() || (common_.sends.idle() && emit_exposure(call)))
    return;
  common_.sends.push(call.job);
}

// Handles RDMA_DONE for a reply that waits for it; other messages, and any other RDMA_DONE, take
// the general path. It is handled at once, before anything that may have to wait, because it frees
// memory.
bool Responder::take_done(ReceiveSlot& slot, uint32_t length) noexcept {
  if (!common_.up())
    return false;
  std::optional<proto::FixedWords> words = proto::peek({slot.buffer.data(), length});
  if (!words || words->version != 1 || words->proc != static_cast<uint32_t>(MessageType::kDone))
    return false;
  Exposure* exposure = exposed_.front();
  while (exposure != nullptr && (exposure->xid != words->xid || exposure->acknowledged))
    exposure = exposure->links.next;
  if (exposure == nullptr)
    return false;
  exposure->acknowledged = true;
  ++common_.counters.rfc5666_dones;
  common_.receives.repost(slot);
  if (exposure->call->state == CallState::kExposed)
    revoke(*exposure->call);
  return true;
}

// RFC 5666 section 11: a peer that acknowledges nothing must not keep our memory.
void Responder::check_dones(uint64_t now_ns) noexcept {
  for (Exposure& exposure : exposed_) {
    if (exposure.call->state != CallState::kExposed)
      continue;
    if (exposure.since_ns == 0) {
      exposure.since_ns = now_ns;
    } else if (now_ns - exposure.since_ns >= common_.options.rfc5666.done_wait_ns &&
               common_.running()) {
      common_.end(Refusal::kNoDone,
                  "it has not acknowledged a reply that it was to read (RDMA_DONE)");
    }
  }
}

// The peer has said that it serves no RDMA Reads (RFC 5666 section 6.2).
void Responder::refuse_reads(ServedCall& call) noexcept {
  common_.refused(Refusal::kReadsForbidden);
  answer_error(call, proto::ErrorCode::kBadHeader);
}

}  // namespace rrdk::engine

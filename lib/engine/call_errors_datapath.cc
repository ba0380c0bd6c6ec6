// Errors in calls, and how they are answered: some messages get no answer, the others an
// RDMA_ERROR.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/common.h"
#include "engine/responder.h"
#include "proto/codec.h"

namespace rrdk::engine {

using proto::ErrorCode;
using proto::MessageType;
using proto::Verdict;

namespace {

// Returns the error for a bad header. Versions that have no specific code use their general one.
proto::ErrorBody error_of(Verdict verdict, const proto::Limits& limits) {
  switch (verdict) {
    case Verdict::kBadVersion:
      return {.code = ErrorCode::kVersion,
              .low = limits.versions.low(),
              .high = limits.versions.high()};
    case Verdict::kBadType:
      return {.code = ErrorCode::kBadProc};
    case Verdict::kTooManyReadChunks:
      return {.code = ErrorCode::kReadChunks, .maximum = limits.read_chunks};
    case Verdict::kTooManyWriteChunks:
      return {.code = ErrorCode::kWriteChunks, .maximum = limits.write_chunks};
    case Verdict::kTooManySegments:
      return {.code = ErrorCode::kSegments,
              .maximum = std::min({limits.chunk_segments, limits.read_segments, limits.segments})};
    case Verdict::kTooManyBytes:
      return {.code = ErrorCode::kSystem};
    default:
      return {.code = ErrorCode::kBadHeader};
  }
}

}  // namespace

void Responder::refuse_message(ReceiveSlot& slot, Refusal reason) noexcept {
  common_.refused(reason);
  common_.receives.repost(slot);
}

// Handles messages that get no answer: those too short to be answered, those that expect none, and
// replies, complete or not, since errors go to requesters only (V2D4-ERR-23).
bool Responder::ignore(const proto::Header& header, Verdict verdict, ReceiveSlot& slot) noexcept {
  bool whole = verdict == Verdict::kOk;
  if (verdict == Verdict::kTooShort) {
    refuse_message(slot, Refusal::kTooShort);
  } else if (whole && header.type == MessageType::kDone) {
    // Has no meaning without the Read-Read model (V1-DONE-03).
    refuse_message(slot, Refusal::kDone);
  } else if (header.direction == proto::Direction::kReply) {
    refuse_message(slot, Refusal::kReplyToServer);
  } else {
    return false;
  }
  return true;
}

// A complete message of version 2 that is not a call from a program (draft-04 sections 5.3 and
// 6.2.4).
void Responder::refuse_type(ServedCall& call) noexcept {
  common_.refused(Refusal::kUnknownOption);
  answer_error(call, ErrorCode::kBadOption);
}

void Responder::refuse(ServedCall& call, Verdict verdict) noexcept {
  common_.refused(refusal_of(verdict));
  answer_error(call, error_of(verdict, common_.options.limits));
}

// A backward call. This end may take no calls (V2D4-PROP-30; on wires other than draft-04's such a
// call does not get here, BIDIR-14), or no calls with chunks (BIDIR-11).
bool Responder::refuse_backward(ServedCall& call) noexcept {
  bool has_reads = false;
  bool has_chunks = false;
  if (call.part != nullptr) {
    const proto::ChunkLists& lists = call.part->header.lists;
    has_reads = lists.num_reads != 0;
    has_chunks = has_reads || lists.num_writes != 0 || lists.has_reply;
  }
  bool chunks_allowed = common_.options.backward_chunks && call.wire == proto::Wire::kDraft04;
  if (!common_.both_ways()) {
    common_.refused(Refusal::kBackwardCall);
    answer_error(call, ErrorCode::kSystem);
  } else if (has_chunks && !chunks_allowed) {
    common_.refused(Refusal::kBackwardChunks);
    answer_error(call, {.code = has_reads ? ErrorCode::kReadChunks : ErrorCode::kWriteChunks});
  } else {
    return false;
  }
  return true;
}

// Errors are plain Sends, use no chunk of the call and need only its header buffer, so they can
// always be sent (V1-ERR-26, PD-34).
void Responder::answer_error(ServedCall& call, const proto::ErrorBody& error) noexcept {
  RRDK_ASSERT(!call.is_error && call.job.settled() && call.reads_posted == 0, call.state);
  release_memory(call);
  if (call.receive)
    return_receive(call);
  proto::Header& header = common_.pool.scratch();
  header.xid = call.xid;
  header.version = call.version;
  // ERR_VERS is the same in all versions.
  header.wire = error.code == ErrorCode::kVersion ? proto::Wire::kVersion1 : call.wire;
  header.type = MessageType::kError;
  header.direction = proto::Direction::kReply;
  header.error = error;
  header.credits = grant_credits();
  MemorySpan room = call.header_room();
  call.error_length = proto::encode(header, {room.data, room.length});
  call.is_error = true;
  ++common_.counters.transport_errors_sent;
  post(call);
}

void Responder::answer_error(ServedCall& call, ErrorCode code) noexcept {
  answer_error(call, proto::ErrorBody{.code = code});
}

// The upper layer's binding does not allow the chunks of this call (EXP-24).
void Responder::refuse(ServedCall& call, uint32_t max_reads, uint32_t max_writes) noexcept {
  common_.refused(Refusal::kBindingChunks);
  if (common_.phase == Phase::kDead)
    finish(call);
  else if (call.item_chunks > max_reads)
    answer_error(call, {.code = ErrorCode::kReadChunks, .maximum = max_reads});
  else if (call.write_chunks() > max_writes)
    answer_error(call, {.code = ErrorCode::kWriteChunks, .maximum = max_writes});
  else
    answer_error(call, ErrorCode::kSystem);
}

}  // namespace rrdk::engine

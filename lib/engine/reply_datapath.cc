// How a requester matches a reply, checks it and takes it over. It accepts nothing in a reply that
// was not offered. An error in a reply ends only the reply's own call (V1-ERR-13).
#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "engine/common.h"
#include "engine/requester.h"
#include "engine/rfc5666/read_read.h"
#include "engine/version2/properties.h"
#include "proto/codec.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

using fabric::Completion;
using proto::ChunkLists;
using proto::MessageType;
using proto::Segment;
using proto::Verdict;

namespace {

constexpr uint32_t kRpcReply = 1;    // msg_type of an RPC message (RFC 5531 section 9)
constexpr uint32_t kReplyStart = 8;  // XID and msg_type

uint32_t message_type(const std::byte* rpc) {
  return xdr::load_u32(rpc + 4);
}

// Returns whether the returned segment is the offered one, with the length that was written. A
// length that was rounded up to four may exceed the segment (PAD-11).
bool same_segment(const Offer& offered, const Segment& returned) {
  Segment own = offered.segment();
  return returned.handle == own.handle && returned.offset == own.offset &&
         returned.length <= uint64_t{own.length} + xdr_pad(own.length);
}

// Copies one chunk's lengths to `fragments`. Returns the number of bytes that came, or -1.
int64_t read_chunk(std::span<const Offer> offers, std::span<const Segment> returned,
                   Fragment* fragments) {
  if (offers.size() != returned.size())
    return -1;
  int64_t total = 0;
  for (size_t i = 0; i < offers.size(); ++i) {
    if (!same_segment(offers[i], returned[i]))
      return -1;
    uint32_t length = std::min(returned[i].length, offers[i].span.length);
    fragments[i] = {offers[i].span.data, length};
    total += length;
  }
  return total <= UINT32_MAX ? total : -1;
}

}  // namespace

// A key that the peer's Send invalidated must belong to the call that it answers (PD-31). The keys
// of a call that was given up are forgotten: the peer's Send may have been first although our own
// invalidation was reported before it.
void Requester::note_invalidation(const Slot* slot, const Completion& completion) noexcept {
  if (!completion.has_invalidated)
    return;
  if (slot != nullptr && slot->call == nullptr)
    return;
  if (slot != nullptr) {
    OutgoingCall* call = slot->call;
    for (uint32_t i = 0; i < call->num_offers; ++i) {
      Offer& offer = call->chunks->offers[i];
      if (offer.key == completion.invalidated_key && !offer.revoked) {
        offer.revoked = true;
        return;
      }
    }
  }
  common_.end(Refusal::kForeignKey, "it invalidated a key that was not of its call");
}

// Returns the slot that the message answers. Returns null if it is not an answer, or answers no
// call that waits; nothing is changed then.
Requester::Slot* Requester::slot_of(const proto::Header& header, Verdict verdict) noexcept {
  bool whole = verdict == Verdict::kOk;
  Refusal reason = Refusal::kUnknownXid;
  if (verdict == Verdict::kTooShort) {
    common_.refused(Refusal::kTooShort);
    return nullptr;
  }
  if (whole && header.type == MessageType::kDone) {
    common_.refused(Refusal::kDone);
    return nullptr;
  }
  if (whole && header.type == MessageType::kOptional) {
    if (Slot* slot = slot_of_option(header, reason))
      return slot;
  } else if (header.direction == proto::Direction::kCall) {
    reason = Refusal::kBackwardCall;
  } else if (header.direction == proto::Direction::kUnknown) {  // V2D4-ERR-23
    reason = refusal_of(verdict);
  } else if (Slot* slot = match(header.xid)) {
    return slot;
  }
  common_.refused(reason);
  return nullptr;
}

// Determines the order: the grant is read, the Receive is posted again, and only then are queued
// calls released (RFC 5666 section 3.3).
bool Requester::on_receive(ReceiveSlot& receive, const Completion& completion) noexcept {
  std::span<const std::byte> bytes(receive.buffer.data(), completion.byte_length);
  const proto::Limits& limits = common_.options.limits;
  proto::Plain plain;
  const bool is_plain = proto::match_plain(bytes, limits.versions, plain);
  if (is_plain && take_plain(plain, receive, completion)) [[likely]]
    return true;
  proto::Header& header = common_.pool.scratch();
  proto::Decoded decoded{Verdict::kOk, 0};
  if (is_plain) {
    proto::fill_header(plain, header);
    decoded.header_length = plain.header_length();
  } else {
    decoded = proto::decode(bytes, proto::Direction::kReply, limits, header);
  }
  bool whole = decoded.verdict == Verdict::kOk;
  std::span<const std::byte> rpc;
  if (whole) {
    rpc = bytes.subspan(decoded.header_length);
    note_trailing(header.type, rpc);
  }
  if (whole && header.type >= MessageType::kError && is_property(header, bytes)) [[unlikely]] {
    note_invalidation(completion);
    common_.receives.repost(receive);
    pump();
    return true;
  }
  if (header.direction == proto::Direction::kCall && is_call(header)) [[unlikely]] {
    note_invalidation(completion);
    return false;
  }
  Slot* slot = slot_of(header, decoded.verdict);
  OutgoingCall* call = slot != nullptr ? slot->call : nullptr;
  note_invalidation(slot, completion);
  if (slot == nullptr) {
    common_.receives.repost(receive);
    return true;
  }
  // A reply has the version of its call (draft-04 section 7.3); an error may come from an end that
  // does not know that version.
  bool foreign =
      whole && header.type != MessageType::kError && call != nullptr && header.wire != call->wire;
  if (whole && !foreign)
    take_grant(header);
  answer(*slot);
  if (call != nullptr && call->stages != nullptr) [[unlikely]]
    call->stages->stamp(Stage::kSeen);
  if (call == nullptr || call->stage != CallStage::kInFlight) {
    ++common_.counters.calls_answered_late;
    common_.refused(Refusal::kLateReply);
    common_.receives.repost(receive);
    if (call != nullptr && call->stage == CallStage::kLent)
      conclude(*call, call->status);
  } else if (call->option != nullptr) [[unlikely]] {
    CallStatus status = end_option(*call, header, decoded, bytes);
    common_.receives.repost(receive);
    conclude(*call, status);
  } else {
    CallStatus status = CallStatus::kMalformedReply;
    if (!whole)
      common_.refused(refusal_of(decoded.verdict));
    else if (foreign) [[unlikely]]
      common_.refused(Refusal::kBadVersion);
    else if (header.type == MessageType::kError)
      status = read_error(*call, header);
    else
      status = read_reply(*call, header, rpc);
    take_receive(receive, *call, status == CallStatus::kOk && header.type != MessageType::kNoMsg);
    bool is_read = status == CallStatus::kOk && header.lists.num_reads != 0;
    if (is_read) [[unlikely]] {
      status = common_.rfc5666.reader->begin(*call, header.lists, call->whole.length);
      is_read = status == CallStatus::kOk;
    }
    if (!is_read) [[likely]]
      conclude(*call, status);
  }
  if (waiting()) [[unlikely]]
    pump();
  return true;
}

// Handles most replies: a plain one to a call without chunks that is in flight and whose Send has
// completed. Must decide as on_receive() would. Returns false for any other reply; nothing was done
// then.
bool Requester::take_plain(const proto::Plain& plain, ReceiveSlot& receive,
                           const Completion& completion) noexcept {
  if (plain.direction != proto::Direction::kReply || completion.has_invalidated || !common_.settled)
      [[unlikely]]
    return false;
  Slot* slot = match(plain.xid);
  OutgoingCall* call = slot != nullptr ? slot->call : nullptr;
  if (call == nullptr || call->stage != CallStage::kInFlight || call->num_offers != 0 ||
      call->wire != plain.wire || (call->way == CallWay::kPlanned && call->option != nullptr) ||
      !slot->send_job.settled()) [[unlikely]]
    return false;
  if (call->stages != nullptr) [[unlikely]]
    call->stages->stamp(Stage::kSeen);
  window.on_grant(plain.credits);
  answer(*slot);
  ++common_.counters.replies_received;
  call->whole = {receive.buffer.data() + plain.header_length(),
                 completion.byte_length - plain.header_length()};
  call->reply = {&call->whole, 1};
  take_receive(receive, *call, true);
  free_slot(*call);
  end(*call, CallStatus::kOk);
  if (waiting()) [[unlikely]]
    pump();
  return true;
}

// Whether the message is a call by the peer, for the responder half to answer. If this end takes no
// calls, a call of draft-04 is answered with an error (V2D4-PROP-30), and others are dropped
// (BIDIR-14).
bool Requester::is_call(const proto::Header& header) const noexcept {
  return header.type != MessageType::kOptional &&
         (common_.both_ways() || header.wire == proto::Wire::kDraft04);
}

// Notes bytes after a header that no message follows.
void Requester::note_trailing(MessageType type, std::span<const std::byte> rpc) noexcept {
  bool has_message =
      type == MessageType::kMsg || type == MessageType::kMsgp || type >= MessageType::kOptional;
  if (has_message || rpc.empty()) [[likely]]
    return;
  common_.refused(Refusal::kTrailingBytes);
}

// A version error says nothing about credits (V1-CREDIT-21); any message that is not an error shows
// that the peer knows the version (draft-04 section 7).
void Requester::take_grant(const proto::Header& header) noexcept {
  bool is_error = header.type == MessageType::kError;
  if (is_error && header.error.code == proto::ErrorCode::kVersion)
    return;
  window.on_grant(header.credits);
  if (!common_.settled) [[unlikely]]
    settle(is_error);
}

// An error does not settle the version, but the peer may send property messages after it.
void Requester::settle(bool is_error) noexcept {
  if (common_.wire == proto::Wire::kDraft04 && common_.share.lacks_spares())
    common_.share.add_spares();
  if (is_error)
    return;
  common_.settle();
  if (common_.wire == proto::Wire::kDraft04)
    common_.properties->announce();
}

// Transport properties, and errors about ours. They grant credits too, unless the word is zero, and
// show that the peer knows version 2 (V2D4-NEG-09, V2D4-POP-30).
bool Requester::is_property(const proto::Header& header,
                            std::span<const std::byte> message) noexcept {
  if (header.type == MessageType::kOptional)
    return false;
  if (header.type == MessageType::kError)
    return match(header.xid) == nullptr && common_.properties->on_error(header);
  if (header.credits != 0)
    take_grant(header);
  else if (!common_.settled)
    settle(false);
  common_.properties->on_message(header, message);
  return true;
}

// A call that keeps its reply keeps the Receive's buffer until the next reply.
void Requester::take_receive(ReceiveSlot& receive, OutgoingCall& call, bool keeps) noexcept {
  if (!keeps)
    common_.receives.repost(receive);
  else if (!common_.receives.exchange(receive, call.receive)) [[unlikely]]
    ++common_.counters.waits_buffer;
}

CallStatus Requester::malformed(Refusal reason) noexcept {
  common_.refused(reason);
  return CallStatus::kMalformedReply;
}

// Both drafts answer a message that they cannot read with code 2 or 3. Our first message was
// correct, so a peer that answers it with one of these speaks the other draft (V2X-03). Draft-00
// also uses one of these codes for an unknown type of RDMA_OPTIONAL.
bool Requester::is_foreign_draft(const OutgoingCall& call,
                                 const proto::ErrorBody& error) const noexcept {
  bool of_option = call.option != nullptr && error.code == proto::ErrorCode::kBadOption;
  return !common_.settled && (error.raw == 2 || error.raw == 3) && !of_option;
}

// The first message of version 2 was answered by an end that does not know it (draft-04 section
// 7.2), or by one that seems to know only the other draft.
bool Requester::falls_back(const OutgoingCall& call, const proto::ErrorBody& error) const noexcept {
  if (common_.options.speaks != Speaks::kAuto || common_.settled)
    return false;
  if (error.code == proto::ErrorCode::kVersion)
    return error.low <= 1 && error.high >= 1;
  return is_foreign_draft(call, error);
}

// Draft-00 also uses BAD_HEADER for a call that was run but had no memory for its reply.
bool Requester::was_not_run(const proto::ErrorBody& error) const noexcept {
  return common_.wire == proto::Wire::kDraft04 || error.code != proto::ErrorCode::kBadHeader;
}

// Whether the call shows more chunks or segments than the peer says that it takes. A call that is
// sent again shows no more, so a peer cannot have it sent again for ever.
bool Requester::exceeds(const OutgoingCall& call, const proto::ErrorBody& error) const noexcept {
  uint32_t of_reply = call.num_offers - call.reply_first;
  uint32_t of_message = call.message_offers;
  uint32_t reads = call.num_results != 0 ? call.chunks->result_first[0] : call.reply_first;
  switch (error.code) {
    case proto::ErrorCode::kReadChunks:
      return reads - of_message > error.maximum;
    case proto::ErrorCode::kWriteChunks:
      return call.num_results > error.maximum;
    case proto::ErrorCode::kSegments: {
      uint32_t most = std::max(of_reply, of_message);
      for (uint32_t k = 0; k < call.num_results; ++k)
        most = std::max<uint32_t>(most,
                                  call.chunks->result_first[k + 1] - call.chunks->result_first[k]);
      return most > error.maximum;
    }
    default:
      return false;
  }
}

// Adapts to the limits that the peer states. A call beyond them was not run, and is sent again. A
// call that offered too little memory for its reply was run: it is sent again only if it is
// repeatable, and only once (V2D4-ERR-16). It then leaves out the Write chunk that was too short
// and those after it, so that their results come in the reply.
bool Requester::mend(OutgoingCall& call, const proto::ErrorBody& error) noexcept {
  common_.peer.learn(error);
  if (exceeds(call, error))
    return true;
  if (!call.repeatable || call.mended || error.length == 0)
    return false;
  uint64_t expected = call.max_reply;
  if (error.code == proto::ErrorCode::kReplyResource && error.length > expected) {
    call.reply_extra += error.length - expected;
  } else if (error.code == proto::ErrorCode::kWriteResource && error.index != 0 &&
             error.index <= call.num_results) {
    call.most_results = static_cast<uint16_t>(error.index - 1);
    call.reply_extra += uint64_t{error.length} + xdr_pad(error.length);
  } else {
    return false;
  }
  call.mended = true;
  return true;
}

CallStatus Requester::read_error(OutgoingCall& call, const proto::Header& header) noexcept {
  ++common_.counters.transport_errors_received;
  call.error = header.error;
  call.error_version = header.version;
  if (falls_back(call, header.error)) [[unlikely]] {
    bool again = was_not_run(header.error) || call.repeatable || call.option != nullptr;
    common_.speak(proto::Wire::kVersion1);
    common_.upcalls.on_version_refused();
    if (again)
      send_again(call);
    return again ? CallStatus::kVersionError : CallStatus::kChunkError;
  }
  if (is_foreign_draft(call, header.error) && was_not_run(header.error)) [[unlikely]]
    return CallStatus::kVersionError;
  if (mend(call, header.error)) [[unlikely]]
    send_again(call);
  switch (header.error.code) {
    case proto::ErrorCode::kBadHeader:
    case proto::ErrorCode::kReadChunks:
    case proto::ErrorCode::kWriteChunks:
    case proto::ErrorCode::kSegments:
    case proto::ErrorCode::kWriteResource:
    case proto::ErrorCode::kReplyResource:
      return CallStatus::kChunkError;
    case proto::ErrorCode::kVersion: {
      uint32_t own = proto::version_of(common_.wire);
      // No common version: the connection is useless (V1-ERR-16), except for the peer's calls.
      bool common = header.error.low <= own && header.error.high >= own;
      if (!common && common_.options.role == Role::kRequester) {
        common_.end(Refusal::kNoCommonVersion,
                    "it speaks no version of RPC-over-RDMA that we speak");
      }
      return CallStatus::kVersionError;
    }
    case proto::ErrorCode::kBadProc:
    case proto::ErrorCode::kBadOption:
    case proto::ErrorCode::kSystem:
      break;
    case proto::ErrorCode::kOther:
      common_.refused(Refusal::kUnknownError);
      break;
  }
  return CallStatus::kRemoteError;
}

CallStatus Requester::read_reply(OutgoingCall& call, const proto::Header& header,
                                 std::span<const std::byte> rpc) noexcept {
  ++common_.counters.replies_received;
  const ChunkLists& lists = header.lists;
  bool may_read = common_.rfc5666.reader != nullptr && header.type != MessageType::kNoMsg;
  if (lists.num_reads != 0 && !may_read)  // V1-RL-13
    return malformed(Refusal::kReadListInReply);
  if (header.type == MessageType::kNoMsg) {
    if (!read_writes(call, lists) || !read_long(call, lists))
      return CallStatus::kMalformedReply;
    ++common_.counters.long_replies;
    return CallStatus::kOk;
  }
  bool begins_right = rpc.size() >= kReplyStart && xdr::load_u32(rpc.data()) == call.xid &&
                      message_type(rpc.data()) == kRpcReply;
  bool uses_reply_chunk = lists.has_reply && lists.reply.length != 0;  // V1-RC-11
  if (!begins_right)
    return malformed(Refusal::kNotTheReply);
  if (uses_reply_chunk)
    return malformed(Refusal::kMsgWithReplyChunk);
  if (!read_writes(call, lists))
    return CallStatus::kMalformedReply;
  call.whole = {rpc.data(), static_cast<uint32_t>(rpc.size())};
  call.reply = {&call.whole, 1};
  return CallStatus::kOk;
}

// Old responders return unused chunks emptied, zeroed or unchanged, or no list at all (V1-WL-08,
// EXP-11). The upper layer finds out which lengths are meaningful when it decodes the reply.
bool Requester::read_writes(OutgoingCall& call, const ChunkLists& lists) noexcept {
  if (lists.num_writes == 0)
    return true;
  if (lists.num_writes != call.num_results) {
    common_.refused(Refusal::kWriteListCount);
    return false;
  }
  CallChunks& chunks = *call.chunks;
  for (uint32_t k = 0; k < call.num_results; ++k) {
    uint32_t first = chunks.result_first[k];
    uint32_t count = chunks.result_first[k + 1] - first;
    chunks.placed[k] = ItemView();
    if (lists.writes[k].count == 0)
      continue;
    int64_t length = read_chunk({&chunks.offers[first], count}, lists.of(lists.writes[k]),
                                &chunks.fragments[first]);
    if (length < 0) {
      common_.refused(Refusal::kAlteredSegment);
      return false;
    }
    // The last segment is for the pad, not for the result (EXP-10: some responders write it, some
    // do not).
    if (pad_of(call.results[k]) != 0)
      length -= chunks.fragments[first + count - 1].length;
    chunks.placed[k] =
        ItemView({&chunks.fragments[first], count}, 0, static_cast<uint32_t>(length));
  }
  call.placed = {chunks.placed.data(), call.num_results};
  return true;
}

// For a call that was sent with one Write chunk of one segment. No call asks for a pad there.
bool Requester::take_result(OutgoingCall& call, const Segment& written) noexcept {
  RRDK_ASSERT(call.num_results == 1 && call.num_offers == 1, call.num_results);
  CallChunks& chunks = *call.chunks;
  const int64_t length =
      read_chunk({chunks.offers.data(), 1}, {&written, 1}, chunks.fragments.data());
  if (length < 0)
    return false;
  chunks.placed[0] = ItemView({chunks.fragments.data(), 1}, 0, static_cast<uint32_t>(length));
  call.placed = {chunks.placed.data(), 1};
  return true;
}

// The peer has invalidated its key, or was never told the key.
void Requester::release_chunk(OutgoingCall& call) noexcept {
  common_.keys.release_key(call.chunks->offers[0].key);
  call.num_offers = call.reply_first = call.bound = 0;
  call.num_results = 0;
}

bool Requester::read_long(OutgoingCall& call, const ChunkLists& lists) noexcept {
  uint32_t first = call.reply_first;
  RRDK_ASSERT(first <= call.num_offers, first, call.num_offers);
  uint32_t count = call.num_offers - first;
  if (count == 0) {  // the decoder has checked that the reply has one
    common_.refused(Refusal::kReplyChunkNotGiven);
    return false;
  }
  Fragment* fragments = &call.chunks->fragments[first];
  int64_t length =
      read_chunk({&call.chunks->offers[first], count}, lists.of(lists.reply), fragments);
  // Segments are filled in order, so the first one holds the beginning.
  if (length < 0) {
    common_.refused(Refusal::kAlteredSegment);
    return false;
  }
  if (fragments[0].length < kReplyStart || xdr::load_u32(fragments[0].data) != call.xid ||
      message_type(fragments[0].data) != kRpcReply) {
    common_.refused(Refusal::kNotTheReply);
    return false;
  }
  while (count != 0 && fragments[count - 1].length == 0)
    --count;
  call.reply = {fragments, count};
  return true;
}

}  // namespace rrdk::engine

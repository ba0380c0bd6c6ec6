#include "rrdk/refusals.h"

namespace rrdk {

namespace {

// In doubt, where a reason has several causes, it is none: no peer is accused of what a correct one
// may do.
bool is_breach(Refusal reason) noexcept {
  switch (reason) {
    // No version reads these otherwise.
    case Refusal::kTooShort:
    case Refusal::kBadType:
    case Refusal::kTruncated:
    case Refusal::kBadDiscriminator:
    case Refusal::kBadPosition:
    case Refusal::kPositionZeroInMsg:
    case Refusal::kNoMessage:
    case Refusal::kOverlap:
    case Refusal::kBeyondMessage:
    case Refusal::kBadDirection:
    case Refusal::kBadOption:
    case Refusal::kBadProperties:
    case Refusal::kUnknownError:
    // They have no place where they came.
    case Refusal::kUnsolicitedOption:
    case Refusal::kReplyToServer:
    case Refusal::kUnknownXid:
    // The header contradicts the message in it, or that is none that the transport carries.
    case Refusal::kXid:
    case Refusal::kNotACall:
    case Refusal::kNotTheReply:
    // More than was granted, agreed or offered, or something else; less than was needed.
    case Refusal::kCreditOverrun:
    case Refusal::kMessageTooLong:
    case Refusal::kNoReplyRoom:
    case Refusal::kBindingChunks:
    case Refusal::kUnknownHandle:
    case Refusal::kForeignKey:
    case Refusal::kReadListInReply:
    case Refusal::kMsgWithReplyChunk:
    case Refusal::kWriteListCount:
    case Refusal::kAlteredSegment:
    case Refusal::kReplyChunkNotGiven:
    // The peer has said otherwise itself, or says less than the version allows.
    case Refusal::kReadsForbidden:
    case Refusal::kFixedProperty:
    case Refusal::kSmallReceives:
      return true;

    // Other versions are tried until they are refused.
    case Refusal::kBadVersion:
    case Refusal::kNoCommonVersion:
    // So are types of messages, and properties (draft-04 sections 4.1 and 5.3).
    case Refusal::kUnknownOption:
    case Refusal::kOptionDirection:
    case Refusal::kOptionNotServed:
    case Refusal::kProperties:
    case Refusal::kManyRequests:
    // The limits are ours, and an error is the first that the peer hears of them.
    case Refusal::kTooManyReadChunks:
    case Refusal::kTooManyWriteChunks:
    case Refusal::kTooManySegments:
    case Refusal::kTooManyBytes:
    case Refusal::kLongOption:
    case Refusal::kLongProperty:
    case Refusal::kNoBuffers:
    // In draft-04 clients take calls unless they say otherwise, which may come too late; in version
    // 1 chunks in them are not forbidden.
    case Refusal::kBackwardCall:
    case Refusal::kBackwardChunks:
    // Errors for properties go to servers, too. RFC 5666 has RDMA_DONE, and errors with a tail.
    case Refusal::kError:
    case Refusal::kDone:
    case Refusal::kTrailingBytes:
    // RPC's own.
    case Refusal::kRpcVersion:
    case Refusal::kGarbageCall:
    case Refusal::kBadCredential:
    case Refusal::kBadVerifier:
    case Refusal::kBadReplyHeader:
    case Refusal::kNoProgram:
    case Refusal::kNoVersion:
    case Refusal::kNoProcedure:
    // By our clock.
    case Refusal::kLateReply:
    case Refusal::kNoAnswers:
    case Refusal::kNoDone:
    case Refusal::kHeldBuffers:
    case Refusal::kNotReceived:
    // Clients that give a call up may take its keys back while they are used.
    case Refusal::kAccessRefused:
    // Nobody knows whose fault it is.
    case Refusal::kWorkFailed:
      return false;
  }
  return false;
}

}  // namespace

uint64_t breaches(const Refusals& refusals) noexcept {
  uint64_t sum = 0;
  for (Refusal reason : all_refusals()) {
    if (is_breach(reason))
      sum += refusals[reason];
  }
  return sum;
}

const char* to_string(Refusal reason) noexcept {
  switch (reason) {
    case Refusal::kTooShort:
      return "message too short";
    case Refusal::kBadVersion:
      return "unknown transport version";
    case Refusal::kBadType:
      return "unknown message type";
    case Refusal::kTruncated:
      return "truncated header";
    case Refusal::kBadDiscriminator:
      return "bad list discriminator";
    case Refusal::kBadPosition:
      return "unaligned Position";
    case Refusal::kPositionZeroInMsg:
      return "Position-Zero chunk beside an inline message";
    case Refusal::kNoMessage:
      return "no message";
    case Refusal::kOverlap:
      return "overlapping Read chunks";
    case Refusal::kBeyondMessage:
      return "Position beyond the message";
    case Refusal::kBadDirection:
      return "bad direction";
    case Refusal::kTooManyReadChunks:
      return "too many Read chunks";
    case Refusal::kTooManyWriteChunks:
      return "too many Write chunks";
    case Refusal::kTooManySegments:
      return "too many segments";
    case Refusal::kTooManyBytes:
      return "too many bytes";
    case Refusal::kTrailingBytes:
      return "trailing bytes";
    case Refusal::kDone:
      return "RDMA_DONE";
    case Refusal::kUnknownOption:
      return "unknown RDMA_OPTIONAL";
    case Refusal::kBadOption:
      return "malformed RDMA_OPTIONAL";
    case Refusal::kLongOption:
      return "RDMA_OPTIONAL too long";
    case Refusal::kOptionDirection:
      return "RDMA_OPTIONAL in the wrong direction";
    case Refusal::kUnsolicitedOption:
      return "RDMA_OPTIONAL that answers nothing";
    case Refusal::kOptionNotServed:
      return "RDMA_OPTIONAL that could not be served";
    case Refusal::kLongProperty:
      return "transport property too long";
    case Refusal::kProperties:
      return "transport properties";
    case Refusal::kBadProperties:
      return "bad transport properties";
    case Refusal::kManyRequests:
      return "request for properties before the last one was answered";
    case Refusal::kFixedProperty:
      return "change of a fixed property";
    case Refusal::kSmallReceives:
      return "Receives too small for the version";
    case Refusal::kUnknownHandle:
      return "invalidation of an unknown handle";
    case Refusal::kError:
      return "RDMA_ERROR to a server";
    case Refusal::kReplyToServer:
      return "reply to a server";
    case Refusal::kCreditOverrun:
      return "call beyond the credits";
    case Refusal::kXid:
      return "XIDs differ";
    case Refusal::kNoReplyRoom:
      return "no room for the reply";
    case Refusal::kNoBuffers:
      return "no buffers";
    case Refusal::kBindingChunks:
      return "chunks that the binding does not allow";
    case Refusal::kNotACall:
      return "no RPC call";
    case Refusal::kRpcVersion:
      return "unknown RPC version";
    case Refusal::kGarbageCall:
      return "truncated RPC header";
    case Refusal::kBadCredential:
      return "credential too long";
    case Refusal::kBadVerifier:
      return "verifier too long";
    case Refusal::kNoProgram:
      return "unknown program";
    case Refusal::kNoVersion:
      return "unknown program version";
    case Refusal::kNoProcedure:
      return "unknown procedure";
    case Refusal::kReadsForbidden:
      return "Read chunks of a client that serves no RDMA Reads";
    case Refusal::kNoDone:
      return "no RDMA_DONE";
    case Refusal::kHeldBuffers:
      return "buffers held without sending data";
    case Refusal::kUnknownXid:
      return "unknown XID";
    case Refusal::kLateReply:
      return "late reply";
    case Refusal::kBackwardCall:
      return "call to a client";
    case Refusal::kBackwardChunks:
      return "chunks in a call to a client";
    case Refusal::kForeignKey:
      return "invalidation of a foreign key";
    case Refusal::kReadListInReply:
      return "Read list in a reply";
    case Refusal::kNotTheReply:
      return "message that is not the reply";
    case Refusal::kMsgWithReplyChunk:
      return "RDMA_MSG with a used Reply chunk";
    case Refusal::kWriteListCount:
      return "wrong number of Write chunks";
    case Refusal::kAlteredSegment:
      return "altered segment";
    case Refusal::kReplyChunkNotGiven:
      return "RDMA_NOMSG without an offered Reply chunk";
    case Refusal::kBadReplyHeader:
      return "bad RPC reply header";
    case Refusal::kUnknownError:
      return "unknown error code";
    case Refusal::kNoCommonVersion:
      return "no common version";
    case Refusal::kNoAnswers:
      return "no answers";
    case Refusal::kMessageTooLong:
      return "message longer than its Receive";
    case Refusal::kAccessRefused:
      return "remote access refused";
    case Refusal::kNotReceived:
      return "message not received";
    case Refusal::kWorkFailed:
      return "work request failed";
  }
  return "unknown refusal";
}

}  // namespace rrdk

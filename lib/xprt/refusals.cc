#include "rrdk/refusals.h"

namespace rrdk {

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

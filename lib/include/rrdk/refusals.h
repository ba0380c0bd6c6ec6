/**
 * What a peer sent that was refused, or ignored, by reason: one counter each, for whoever wants to
 * know what is wrong with a peer, or which peer is wrong. In ServerStats and ClientStats.
 *
 *   for (rrdk::Refusal reason : rrdk::all_refusals())
 *     if (uint64_t count = server->stats().refusals[reason])
 *       std::printf("%s: %lu\n", rrdk::to_string(reason), count);
 *
 * "Refused" is a call that was answered with an error, or a reply that ended its call with one;
 * "ignored" is a message that changed nothing; "ended" is the connection.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

enum class Refusal : uint8_t {
  // A message's transport header (RFC 8166 section 4), at either end.
  kTooShort,            ///< ignored: too few bytes for its type
  kBadVersion,          ///< refused: a version of RPC-over-RDMA that is not spoken here
  kBadType,             ///< refused: no such message type
  kTruncated,           ///< refused: a list runs past the end of the message
  kBadDiscriminator,    ///< refused: a list's "one more" word is neither 0 nor 1
  kBadPosition,         ///< refused: a Position that is no multiple of four
  kPositionZeroInMsg,   ///< refused: RDMA_MSG with a chunk at Position zero
  kNoMessage,           ///< refused: RDMA_NOMSG without a chunk that holds the message
  kOverlap,             ///< refused: Read chunks that overlap
  kBeyondMessage,       ///< refused: a Position behind the end of the message
  kBadDirection,        ///< refused (a call) or ignored: not what the RPC message is; version 2
  kTooManyReadChunks,   ///< refused: more Read chunks than the limit
  kTooManyWriteChunks,  ///< refused: more Write chunks than the limit
  kTooManySegments,     ///< refused: more segments than the limit
  kTooManyBytes,        ///< refused: chunks that are larger than the limit
  kTrailingBytes,       ///< ignored: bytes behind a header that no message follows
  kDone,                ///< ignored: RDMA_DONE
  kUnknownOption,  ///< refused by a server, ignored by a client: an RDMA_OPTIONAL of unknown type
  // Of messages of a registered type (rrdk/extensions.h).
  kBadOption,          ///< refused: data or RPC message that the type does not have
  kLongOption,         ///< refused: longer than is taken
  kOptionDirection,    ///< a request to a client: ignored; of a type that is an answer: refused
  kUnsolicitedOption,  ///< ignored: an answer to nothing that was asked
  kOptionNotServed,    ///< refused: the type's function has set no answer, or there is no buffer
  kLongProperty,       ///< ignored: a registered property's value that is longer than is taken

  kProperties,     ///< refused: transport properties, where they are switched off
  kBadProperties,  ///< refused: transport properties that can not be read
  kManyRequests,   ///< ignored: a request to change properties before the last one was answered
  kFixedProperty,  ///< ignored: a change of a property that was said to stay
  kSmallReceives,  ///< kept to: a Receive Buffer Size below version 2's 4096 bytes
  kUnknownHandle,  ///< ignored: asks to invalidate a handle that is none of the call's

  // Calls, at a server.
  kError,           ///< ignored: RDMA_ERROR, which only answers calls
  kReplyToServer,   ///< ignored: an RPC reply
  kCreditOverrun,   ///< served, up to a limit, then ended: a call beyond the credits granted
  kXid,             ///< refused: the message has another XID than its header
  kNoReplyRoom,     ///< refused: the reply, of a call that ran, has no room inline or in chunks
  kNoBuffers,       ///< refused: a call waited too long for buffers
  kBindingChunks,   ///< refused: chunks, or a long message, that the binding does not allow
  kNotACall,        ///< ended: an RPC message that is neither call nor reply, or has no type
  kRpcVersion,      ///< refused, RPC_MISMATCH: another version of ONC RPC
  kGarbageCall,     ///< refused, GARBAGE_ARGS: an RPC header that ends too early
  kBadCredential,   ///< refused, AUTH_BADCRED: longer than RFC 5531 allows
  kBadVerifier,     ///< refused, AUTH_BADVERF: longer than RFC 5531 allows
  kNoProgram,       ///< refused, PROG_UNAVAIL
  kNoVersion,       ///< refused, PROG_MISMATCH
  kNoProcedure,     ///< refused, PROC_UNAVAIL
  kReadsForbidden,  ///< refused: Read chunks of a client that said it serves no RDMA Reads
  kNoDone,          ///< ended: no RDMA_DONE came for a reply that it was to read
  kHeldBuffers,     ///< ended: sent no data of its calls while others waited for their buffers

  // Replies, at a client.
  kUnknownXid,          ///< ignored: answers no call that waits
  kLateReply,           ///< ignored: answers a call, or another request, that was given up on
  kBackwardCall,        ///< a call, which nobody here serves: ignored, in draft-04 refused
  kBackwardChunks,      ///< refused: a call with chunks, to a client that takes none
  kForeignKey,          ///< ended: invalidates a key that is not of the call that it answers
  kReadListInReply,     ///< refused: replies have none (RFC 8166 section 4.3.1)
  kNotTheReply,         ///< refused: the message inside has another XID, or is no reply
  kMsgWithReplyChunk,   ///< refused: RDMA_MSG that says it used the Reply chunk
  kWriteListCount,      ///< refused: another number of Write chunks than was offered
  kAlteredSegment,      ///< refused: segments that were not offered so, or longer than offered
  kReplyChunkNotGiven,  ///< refused: RDMA_NOMSG to a call that offered no Reply chunk
  kBadReplyHeader,      ///< refused: an RPC reply header that can not be decoded
  kUnknownError,        ///< refused: RDMA_ERROR with a code that the version does not define
  kNoCommonVersion,     ///< ended: ERR_VERS with a range that leaves us out
  kNoAnswers,           ///< ended: every credit is held by a call that was never answered

  // Work that failed by the peer's doing; each ends the connection.
  kMessageTooLong,  ///< longer than the Receive that it met
  kAccessRefused,   ///< a Read or Write of ours met a key that is not good for it
  kNotReceived,     ///< a Send of ours that the peer did not take
  kWorkFailed,      ///< in another way
};

/** How many reasons there are. */
constexpr size_t kRefusals = static_cast<size_t>(Refusal::kWorkFailed) + 1;

/** As in "unaligned Position". Never null. */
const char* to_string(Refusal reason) noexcept;

/** A count for each reason. */
struct Refusals {
  std::array<uint64_t, kRefusals> counts = {};

  constexpr uint64_t operator[](Refusal reason) const noexcept {
    return counts[static_cast<size_t>(reason)];
  }
  constexpr uint64_t& operator[](Refusal reason) noexcept {
    return counts[static_cast<size_t>(reason)];
  }
  constexpr Refusals& operator+=(const Refusals& other) noexcept {
    for (size_t i = 0; i < kRefusals; ++i)
      counts[i] += other.counts[i];
    return *this;
  }
};

/**
 * How often the peer broke the protocol of the transport: by messages that can not be read, that
 * answer nothing, or that contradict the call, the credits or the properties that they belong to.
 * A client's mistakes in using it are among them: no room for the reply (kNoReplyRoom), or chunks
 * that the binding does not allow (kBindingChunks).
 *
 * A peer that keeps to the protocol causes none. So much is refused or ignored and does not count:
 *
 * - what our own time-outs cause, as with kLateReply: the peer may only be slow;
 * - what we lack, or do not take: buffers, services, versions, types of RDMA_OPTIONAL, properties,
 *   requests that come too fast, chunks beyond our limits. The peer learns of our limits by trying;
 * - what is wrong in the RPC message alone, which the transport only carries, unless it is neither
 *   call nor reply (kNotACall);
 * - what receivers are to put up with, such as kDone;
 * - work that failed, but for kMessageTooLong: the peer may have withdrawn memory, or be gone.
 */
uint64_t breaches(const Refusals& refusals) noexcept;

/** Every reason, in order. */
constexpr std::array<Refusal, kRefusals> all_refusals() noexcept {
  std::array<Refusal, kRefusals> all = {};
  for (size_t i = 0; i < kRefusals; ++i)
    all[i] = static_cast<Refusal>(i);
  return all;
}

}  // namespace rrdk

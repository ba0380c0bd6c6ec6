/**
 * How a call ended, as its caller sees it. Every submitted call ends exactly once, with one of
 * these values other than kFull.
 *
 *   if (call.submit_and_wait() != rrdk::CallStatus::kOk) complain(rrdk::to_string(call.status()));
 *
 * Errors of set-up functions are Errc (rrdk/error.h). Programs with only one kind of error can
 * convert: errc_of() to an Errc, make_error_code() to a std::error_code.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <system_error>

#include "rrdk/error.h"

namespace rrdk {

enum class CallStatus : uint8_t {
  /** The server ran the procedure; the results can be decoded. */
  kOk,
  /**
   * No reply within the call's timeout. The server may have run it: repeat only what may be
   * repeated. The call keeps its credit, and perhaps memory, until it is answered: see
   * Call::cancel().
   */
  kTimeout,
  /**
   * The connection broke before the reply, and the call was not to be sent again on another one. As
   * with kTimeout, the server may have run it.
   */
  kConnectionLost,
  /** cancel() came before the reply. The server may still run it: see Call::cancel(). */
  kCancelled,
  /** This program closed the connection. The server may still run the call. */
  kShutdown,
  /** PROG_UNAVAIL: the server does not offer the program. Check address and program number. */
  kProgUnavail,
  /**
   * PROG_MISMATCH: the server lacks this version; mismatch_low() and mismatch_high() say which it
   * has.
   */
  kProgMismatch,
  /** PROC_UNAVAIL: the program has no such procedure. */
  kProcUnavail,
  /** GARBAGE_ARGS: the server cannot decode the arguments, or the binding forbids their form. */
  kGarbageArgs,
  /**
   * SYSTEM_ERR: the server failed (out of memory, say). It may have run the call. Trying again
   * later may help; a new submit() is a new call, which no duplicate request cache recognises.
   */
  kSystemErr,
  /** RPC_MISMATCH: the server speaks another version of ONC RPC itself. */
  kRpcMismatch,
  /**
   * AUTH_ERROR: the credential was refused; auth_stat() says why. The server has not run the call,
   * except with kInvalidResp and kFailed: this end has found its reply not to be authentic
   * (rrdk/gss_context.h).
   */
  kAuthError,
  /**
   * The server refused the call's chunks, or the reply did not fit: ERR_CHUNK, BAD_HEADER or, in
   * draft-04, BAD_XDR, READ_CHUNKS, WRITE_CHUNKS, SEGMENTS, WRITE_RESOURCE, REPLY_RESOURCE;
   * Call::transport_error() says which. If the reply did not fit, the server has run the call:
   * offer() more, or expect_reply() more. If there were more chunks or segments than it accepts, it
   * has not run the call: offer fewer. Version 1 and draft-00 do not tell these apart.
   */
  kChunkError,
  /**
   * The server does not support this version of RPC-over-RDMA (ERR_VERS), or means the other draft
   * of version 2. The call was not run. Without a common version the connection ends as well, and
   * so will each later one: use RpcRdmaVersion::kAuto, or kOne. A client of draft-00 cannot tell a
   * server of draft-04 from one that refuses its chunks: that is kChunkError.
   */
  kVersionError,
  /**
   * Another RDMA_ERROR: SYSTEM (the server has no memory for the call, or its chunks are larger
   * than the server accepts: in version 1 and draft-00 that is kChunkError), INVAL_PROC,
   * INVAL_OPTION, or a code that the version does not define.
   */
  kRemoteError,
  /** A reply came that breaks the protocol. The call is over; the server has probably run it. */
  kMalformedReply,
  /**
   * Not sent: the arguments, the offered memory or the reply exceed what limits or binding allow.
   */
  kTooLarge,
  /**
   * Not sent: a pool is exhausted. Use fewer calls in flight (ClientOptions::max_queued), or larger
   * pools.
   */
  kNoMemory,
  /**
   * Not sent: a MemorySpan given to offer() or put_item() is not inside registered memory of the
   * Runtime's Memory (Memory::contains()), or is in memory that the driver cannot use
   * (Memory::adopt() without a descriptor, over `shm:`; `iwarp:` and `verbs:` need none), or a
   * Buffer is shorter than the length given with it.
   */
  kInvalidMemory,
  /**
   * Not sent: a mistake of the program, which is logged: submit() without begin(), a binding that
   * check() refuses, args.fail(), or submit_and_wait() where it would wait for itself.
   */
  kInvalidCall,
  /**
   * Not submitted: submit() was refused because as many calls wait as ClientOptions::max_queued
   * allows. No callback comes. Submit it again when there is room: Caller::room(), on_room().
   */
  kFull,
};

/** A description such as "connection lost". Never null, even for values outside the enumeration. */
const char* to_string(CallStatus status) noexcept;

/**
 * The kind of error; empty for kOk. Several statuses are of one kind: only the status says whether
 * the server may have run the call.
 */
std::optional<Errc> errc_of(CallStatus status) noexcept;

/**
 * The status as a std::error_code: kOk is success, all others compare with std::errc as their kind
 * does (errno_of() in rrdk/error.h).
 *
 *   if (std::error_code code = call.status()) give_up(code.message());       // "timeout"
 */
std::error_code make_error_code(CallStatus status) noexcept;

}  // namespace rrdk

namespace std {

/** Lets a rrdk::CallStatus convert to std::error_code. */
template <>
struct is_error_code_enum<rrdk::CallStatus> : true_type {};

}  // namespace std

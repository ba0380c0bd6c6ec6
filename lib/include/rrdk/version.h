/**
 * The version of RPC-over-RDMA. A client chooses it; a server answers each call in the version in
 * which it came.
 *
 *   auto client = rrdk::Client::create(runtime, {.version = rrdk::RpcRdmaVersion::kAuto});
 *   auto server = rrdk::Server::create(runtime, {.versions = {.two = false}});
 *
 * Version 1 (RFC 8166) is what Linux and all storage systems use.
 *
 * Version 2 never left draft state: two drafts have its number and are not compatible, so both ends
 * must mean the same one. It adds messages of 4096 bytes inline from the first reply on, a
 * direction in every header, a separate error for each kind of mistake, and a handle that the
 * requester names for remote invalidation.
 */
#pragma once

#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

/** The draft that is meant by version 2. */
enum class RpcRdmaDraft : uint8_t {
  kDraft04,  ///< draft-cel-nfsv4-rpcrdma-version-two-04
  kDraft00,  ///< draft-cel-nfsv4-rpcrdma-version-two-00
};

/** The version that a client uses. */
enum class RpcRdmaVersion : uint8_t {
  kOne,
  kTwo,  ///< if the server does not know it, calls end with kVersionError, see there
  /**
   * Version 2, and version 1 with servers that do not know it (draft-04 section 7). The first call
   * of a connection is sent in version 2, in at most 1024 bytes and alone. A server that answers
   * ERR_VERS, or in a way that shows it means the other draft, gets it again in version 1, on the
   * same connection. (With draft-00, whose error can also mean that the reply did not fit, only
   * procedure 0 and calls that may be retransmitted are sent again; another call ends with
   * kChunkError.) If the connection is lost before any answer, or the first call times out, which
   * ends it, the next connection begins with version 1, whether made by ReconnectOptions or by
   * connect(). So the first call is best one of procedure 0 with a deadline. What was learned about
   * a server's URI is remembered for Version2ClientOptions::version_memory_ms.
   */
  kAuto,
};

/** The versions that a server answers; at least one. */
struct RpcRdmaVersions {
  bool one = true;
  bool two = true;
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;
};

}  // namespace rrdk

/**
 * Which version of RPC-over-RDMA is spoken.
 *
 * Version 1 (RFC 8166) is what Linux and all storage systems speak. Version 2 never left draft
 * state: two drafts of it have its number and are not compatible with each other, so that both ends
 * must mean the same one. What it brings: messages of 4096 bytes inline from the first reply on, a
 * direction in every header, an error for each thing that can be wrong, and a handle that the
 * requester names for remote invalidation.
 *
 * A client asks, a server answers each call in the version that it came in:
 *
 *   auto client = rrdk::Client::create(runtime, {.version = rrdk::RpcRdmaVersion::kAuto});
 *   auto server = rrdk::Server::create(runtime, {.versions = {.two = false}});
 */
#pragma once

#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

/** What is meant by version 2. */
enum class RpcRdmaDraft : uint8_t {
  kDraft04,  ///< draft-cel-nfsv4-rpcrdma-version-two-04
  kDraft00,  ///< draft-cel-nfsv4-rpcrdma-version-two-00
};

/** What a client speaks. */
enum class RpcRdmaVersion : uint8_t {
  kOne,
  kTwo,  ///< with servers that do not know it calls end with kVersionError, see there
  /**
   * Version 2, and 1 with servers that do not know that (draft-04 section 7): the first call of a
   * connection is sent in version 2, in at most 1024 bytes and alone; a server that answers
   * ERR_VERS, or as one that means the other draft, gets it again in version 1, on the same
   * connection. (With draft-00, whose error can mean a reply without room as well, only procedure 0
   * and calls that may be retransmitted; another ends with kChunkError.) If the connection is lost
   * before any answer, or the first call times out, which ends it, the next one begins with version
   * 1, be it by ReconnectOptions or by connect(). So the first call is best one of procedure 0 with
   * a deadline. What was learned of a server's URI is remembered for
   * Version2ClientOptions::version_memory_ms.
   */
  kAuto,
};

/** What a server answers. One of them at least. */
struct RpcRdmaVersions {
  bool one = true;
  bool two = true;
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;
};

}  // namespace rrdk

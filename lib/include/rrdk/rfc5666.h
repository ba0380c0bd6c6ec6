/**
 * RFC 5666's compatibility mode: what that document has and no later one keeps. Off by default, and
 * for both ends to be switched on: `ClientOptions::rfc5666` and `ServerOptions::rfc5666`. Without
 * it RDMA_MSGP is still taken like RDMA_MSG and RDMA_DONE ignored, as RFC 8166 wants. Version 1 of
 * RPC-over-RDMA only. doc/compat-rfc5666.md defines what RFC 5666 leaves open.
 *
 *   - The Connection Configuration Protocol (RFC 5666 section 6), program 100417: the client calls
 *     CONF_RDMA before anything else on each connection, and both ends keep to what was said.
 *   - Padding (section 3.9): calls whose data travels inline go as RDMA_MSGP, their data aligned as
 *     the server has asked for.
 *   - Read-Read (section 3.8): a reply that fits neither inline nor the room that the client
 *     offers is read by the client, which then says RDMA_DONE.
 *
 *   auto server = rrdk::Server::create(runtime, {.rfc5666 = {.enabled = true, .align = 64}});
 *   auto client = rrdk::Client::create(runtime, {.rfc5666 = {.enabled = true}});
 */
#pragma once

#include <cstdint>
#include <optional>

#include "rrdk/rpc.h"

namespace rrdk {

struct Rfc5666ClientOptions {
  bool enabled = false;
  /**
   * RDMA Reads of the server's that we can serve at once (maxrdmaread), at most what the device
   * can. 0: none, so that no call may have Read chunks: data goes inline, and a call that does not
   * fit ends with kTooLarge.
   */
  uint32_t max_reads = UINT32_MAX;
  /** Inline data of at least so many bytes is aligned for the server; 0 means 1. */
  uint32_t pad_threshold = 64;
  /**
   * Offer no room for eligible results, whatever Call::offer() names: what does not fit inline is
   * read from the server, if that has taken CONF_RDMA. Otherwise only replies without enough room
   * are.
   */
  bool read_replies = false;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/**
 * Replies that clients are to read are memory of the server's which others can read, until
 * RDMA_DONE: hence the bounds. A reply beyond them waits for earlier ones.
 */
struct Rfc5666ServerOptions {
  bool enabled = false;
  /** Bytes by which clients may align data inline: a power of two, 8 to 4096, or 0: no wish. */
  uint32_t align = 0;
  /** RDMA Reads of a client's that we can serve at once (maxrdmaread); 0: no reply is read. */
  uint32_t max_reads = UINT32_MAX;
  uint32_t exposed_replies = 32;  ///< of one connection at once; 1 to 4096, or `credits` if less
  uint64_t exposed_bytes = 32u << 20;  ///< of those together; a larger reply is refused
  /**
   * Of all connections (section 11: "one or many clients"). Of these a client may have as many as
   * are left for everybody else: half of them if it is alone. At least exposed_bytes.
   */
  uint64_t total_exposed_bytes = 64u << 20;
  uint32_t done_timeout_ms = 5000;  ///< without RDMA_DONE for so long it is closed; 1 at least
  /**
   * CONF_RDMA of another flavour is denied, AUTH_TOOWEAK (section 11). Our clients' has the
   * credential of their connection: at connect() that of Client::set_auth_sys() or set_auth().
   */
  std::optional<AuthFlavor> config_flavor = {};
  Reserved<8> reserved = {};  ///< for what later releases add
};

}  // namespace rrdk

/**
 * RFC 5666's compatibility mode: features of that document which later ones dropped. It is off by
 * default, needs version 1 of RPC-over-RDMA, and both ends must enable it.
 *
 *   auto server = rrdk::Server::create(runtime, {.rfc5666 = {.enabled = true, .align = 64}});
 *   auto client = rrdk::Client::create(runtime, {.rfc5666 = {.enabled = true}});
 *
 * Features:
 *
 *   - The Connection Configuration Protocol (RFC 5666 section 6), program 100417: the client calls
 *     CONF_RDMA before anything else on each connection, and both ends follow the result.
 *   - Padding (section 3.9): calls whose data travels inline are sent as RDMA_MSGP, with their
 *     data aligned as the server asked.
 *   - Read-Read (section 3.8): if a reply fits neither inline nor in the memory that the client
 *     offers, the client reads it, and then sends RDMA_DONE.
 *
 * Without it RDMA_MSGP is still handled like RDMA_MSG, and RDMA_DONE ignored, as RFC 8166 requires.
 * doc/compat-rfc5666.md defines what RFC 5666 leaves open.
 */
#pragma once

#include <cstdint>
#include <optional>

#include "rrdk/rpc.h"

namespace rrdk {

struct Rfc5666ClientOptions {
  bool enabled = false;
  /**
   * RDMA Reads of the server that we can serve at once (maxrdmaread), limited by what the device
   * can do. 0: no call may have Read chunks: data goes inline, and a call that does not fit ends
   * with kTooLarge.
   */
  uint32_t max_reads = UINT32_MAX;
  /** Inline data of at least this many bytes is aligned for the server; 0 means 1. */
  uint32_t pad_threshold = 64;
  /**
   * Offers no memory for eligible results, whatever Call::offer() names: results that do not fit
   * inline are read from the server, if it has accepted CONF_RDMA. If false, only replies that fit
   * nowhere are read.
   */
  bool read_replies = false;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/**
 * Replies that clients are to read are memory of the server that peers can read until RDMA_DONE,
 * which is why these limits exist. A reply beyond a limit waits for earlier ones.
 */
struct Rfc5666ServerOptions {
  bool enabled = false;
  /**
   * Bytes to which clients should align inline data: a power of two, 8 to 4096, or 0 for no
   * alignment.
   */
  uint32_t align = 0;
  /** RDMA Reads of a client that we can serve at once (maxrdmaread); 0: no reply is read. */
  uint32_t max_reads = UINT32_MAX;
  uint32_t exposed_replies = 32;       ///< per connection at once; 1 to 4096, or `credits` if less
  uint64_t exposed_bytes = 32u << 20;  ///< bytes of these together; a larger reply is refused
  /**
   * The limit for all connections (section 11: "one or many clients"). A client may have as many of
   * these bytes as it leaves for all others: half if it is alone. At least exposed_bytes.
   */
  uint64_t total_exposed_bytes = 64u << 20;
  uint32_t done_timeout_ms =
      5000;  ///< without RDMA_DONE for this long the connection is closed; at least 1
  /**
   * The flavour required of CONF_RDMA; others are denied with AUTH_TOOWEAK (section 11). Our
   * clients send it with the credential of their connection: at connect() that is the one of
   * Client::set_auth_sys() or set_auth().
   */
  std::optional<AuthFlavor> config_flavor = {};
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

}  // namespace rrdk

/**
 * rpcbind, the directory of RPC services of a host (RFC 1833): which port a program is served at.
 * Services over RDMA are listed under the netids "rdma" (IPv4) and "rdma6" (IPv6), with ports that
 * the RDMA transport maps (RFC 5666 sections 10 and 12).
 *
 * Programs with a port of their own need none of this: NFS over RDMA is at 20049 (RFC 8267 section
 * 7), which connect() takes when an address names no port.
 *
 *   // Server: after listen()
 *   if (auto done = rrdk::rpcbind_set({kProgram, kVersion}, "10.0.0.1", 7471); !done)
 *     complain(done.error().message);      // the service works nevertheless, by its port
 *   ...
 *   if (auto gone = rrdk::rpcbind_unset({kProgram, kVersion}, "10.0.0.1"); !gone)
 *     complain(gone.error().message);
 *
 *   // Client
 *   auto port = rrdk::rpcbind_lookup({kProgram, kVersion}, {.host = "10.0.0.1"});
 *   if (port) connection = client->connect("iwarp://10.0.0.1:" + std::to_string(*port));
 *
 * All functions block, for set-up only; never call them from a handler or callback, but on a thread
 * of your own, or on the Runtime's helper (Runtime::run_aside() in rrdk/runtime.h). Any thread.
 */
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk {

/** An RPC program, as rpcbind lists it. */
struct RpcService {
  uint32_t program;
  uint32_t version;  ///< of the program
};

/** "rdma6" for an IPv6 address, else "rdma" (RFC 5666 section 12). `host` is numeric. */
const char* rpcbind_netid(const std::string& host);

/**
 * The universal address of a port (RFC 5665 section 5.2.3): "10.0.0.1", 20049 is "10.0.0.1.78.81",
 * and "::1" gives "::1.78.81". `host` is numeric; kInvalidArgument when it is not.
 */
[[nodiscard]] Result<std::string> to_universal_address(const std::string& host, uint16_t port);

/** What a universal address says. */
struct HostAndPort {
  std::string host;  ///< numeric
  uint16_t port;
};

/** The reverse. kInvalidArgument: it is no universal address of these netids. */
[[nodiscard]] Result<HostAndPort> parse_universal_address(const std::string& address);

/**
 * Lists a service with this host's rpcbind, and takes the place of one that is listed there under
 * the same netid: an earlier process may have died without taking its entry back. `host` is the
 * numeric address that the service listens at; "0.0.0.0" and "::" stand for all of the host's, and
 * only for those of their family: a server that listens at "::" is entered twice if IPv4 clients
 * are to find it. Waits for at most 5 s.
 *
 * Errors: kInvalidArgument (host), kNotFound (no rpcbind runs here), kPermission (the entry is
 * another user's), kNotAPeer, kConnectionLost and kTimeout (of what runs in its place), kSystem.
 */
[[nodiscard]] Result<void> rpcbind_set(const RpcService& service, const std::string& host,
                                       uint16_t port);

/**
 * Takes the entry of that netid back, whoever of the same user made it. Errors as above; none when
 * there is no such entry.
 */
[[nodiscard]] Result<void> rpcbind_unset(const RpcService& service, const std::string& host);

struct RpcbindQuery {
  std::string host;     ///< name or numeric address of the server
  uint16_t port = 111;  ///< of its rpcbind
  /** For the whole lookup. Resolving a name counts, but is not cut short. */
  uint32_t timeout_ms = 5000;
};

/**
 * The port of a service. The netid is that of the address family over which the host's rpcbind was
 * reached (RFC 5666 section 12): name the host by its numeric address where it has both.
 *
 * Errors: kNotFound (no such host, or the service is not listed), kRefused (nothing listens there,
 * or it denies the question), kTimeout, kConnectionLost, kNotAPeer (what answers is no rpcbind),
 * kSystem.
 */
[[nodiscard]] Result<uint16_t> rpcbind_lookup(const RpcService& service, const RpcbindQuery& query);

}  // namespace rrdk

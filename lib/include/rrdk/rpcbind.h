/**
 * rpcbind, the directory of RPC services of a host (RFC 1833): which port a program is served at.
 * Services over RDMA are listed under the netids "rdma" (IPv4) and "rdma6" (IPv6), with ports that
 * the RDMA transport maps (RFC 5666 sections 10 and 12).
 *
 * Programs with a port of their own need none of this: NFS over RDMA is at 20049 (RFC 8267 section
 * 7), which connect() takes when an address names no port.
 *
 *   // Server: after listen()
 *   // `listing` must live as long as the service, which works by its port without it, too.
 *   auto listing = rrdk::RpcbindListing::enter({kProgram, kVersion}, "10.0.0.1", 7471);
 *   if (!listing) complain(listing.error().message);
 *
 *   // Client
 *   auto at = rrdk::rpcbind_locate({kProgram, kVersion}, {.host = "server.example"});
 *   if (at) connection = client->connect("iwarp://" + at->to_string());
 *
 * All functions block, for set-up only; never call them from a handler or callback, but on a thread
 * of your own, or on the Runtime's helper (Runtime::run_aside() in rrdk/runtime.h). Any thread.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rrdk/error.h"
#include "rrdk/language.h"

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
  /** "10.0.0.1:20049", "[::1]:20049": as addresses of the library have it. */
  std::string to_string() const;
};

/** The reverse. kInvalidArgument: it is no universal address of these netids. */
[[nodiscard]] Result<HostAndPort> parse_universal_address(const std::string& address);

/**
 * Lists a service with this host's rpcbind, and takes the place of one that is listed there under
 * the same netid: an earlier process may have died without taking its entry back. `host` is the
 * numeric address that the service listens at; "0.0.0.0" and "::" stand for all of the host's, and
 * only for those of their family: a server that listens at "::" is entered twice if IPv4 clients
 * are to find it. Waits for at most 5 s. RpcbindListing enters both by itself, and restores lost
 * entries.
 *
 * Errors: kInvalidArgument (host), kNotFound (no rpcbind runs here), kPermission (the entry is
 * another user's), kNotAPeer, kConnectionLost and kTimeout (of what runs in its place), kSystem.
 */
[[nodiscard]] Result<void> rpcbind_set(const RpcService& service, const std::string& host,
                                       uint16_t port);

/**
 * Removes the entry of that netid, also if another process of the same user made it. Errors as
 * above; none when there is no such entry.
 */
[[nodiscard]] Result<void> rpcbind_unset(const RpcService& service, const std::string& host);

struct RpcbindListingOptions {
  /** Between looks whether rpcbind still has the entries; 0: no looks, and no thread. */
  uint32_t look_again_ms = 10'000;
  /** Where this host's rpcbind listens for programs of the host. */
  std::string socket = "/run/rpcbind.sock";
  Reserved<4> reserved = {};  ///< for what later releases add
};

/**
 * A service's entries with this host's rpcbind, for as long as this object lives.
 *
 * A service at "::" is entered under both netids if IPv4 clients reach it there, too (Linux:
 * net.ipv6.bindv6only is 0), and so is one at a name that has addresses of both families. Each
 * entry takes the place of what is listed there. An entry that is lost, since rpcbind was
 * restarted, is made again; a thread of its own looks now and then, and writes a line to the log.
 * One that another server has taken, as a new process does while the old one still runs, is left
 * alone, now and at the end. Threads: end() and the destructor are for one thread at a time.
 */
class RpcbindListing {
 public:
  /**
   * Arguments, errors and the longest wait as those of rpcbind_set(); but `host` may be a name,
   * whose look-up may block, too. kNotFound is also a name without an address, and kSystem also
   * that no thread can be started.
   */
  [[nodiscard]] static Result<std::unique_ptr<RpcbindListing>> enter(
      const RpcService& service, const std::string& host, uint16_t port,
      const RpcbindListingOptions& options = {});
  /** As end(), which does nothing in a child of fork(). */
  ~RpcbindListing();
  RpcbindListing(const RpcbindListing&) = delete;
  RpcbindListing& operator=(const RpcbindListing&) = delete;

  /**
   * Removes the entries that are still its own. Waits for at most 5 s, or twice that during a look.
   * Without effect the second time. Errors as those of rpcbind_unset(); none without an rpcbind,
   * since then there are no entries.
   */
  [[nodiscard]] Result<void> end();

 private:
  class Impl;
  explicit RpcbindListing(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct RpcbindQuery {
  std::string host;     ///< name or numeric address of the server
  uint16_t port = 111;  ///< of its rpcbind
  /**
   * For the whole lookup. Resolving a name counts, but is not cut short. Of a name with several
   * addresses each has its share, so that one that accepts and says nothing does not take it all.
   */
  uint32_t timeout_ms = 5000;
};

/**
 * Where a service is to be reached. The netid (RFC 5666 section 12) of the address family over
 * which the host's rpcbind was reached goes first, then the other one, if the host has an address
 * of that family, or its rpcbind names one.
 *
 * Errors: kNotFound (no such host, or the service is not listed), kRefused (nothing listens there,
 * or it denies the question), kTimeout, kConnectionLost, kNotAPeer (what answers is no rpcbind),
 * kSystem.
 */
[[nodiscard]] Result<HostAndPort> rpcbind_locate(const RpcService& service,
                                                 const RpcbindQuery& query);

/** The port alone, for those who connect to all addresses of a name. Otherwise as above. */
[[nodiscard]] Result<uint16_t> rpcbind_lookup(const RpcService& service, const RpcbindQuery& query);

}  // namespace rrdk

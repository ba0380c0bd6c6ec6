/**
 * rpcbind, a host's directory of RPC services (RFC 1833), which says at which port a program is
 * served. Services over RDMA are listed under the netids "rdma" (IPv4) and "rdma6" (IPv6), with
 * ports that the RDMA transport maps (RFC 5666 sections 10 and 12).
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
 * Programs with a fixed port do not need rpcbind: NFS over RDMA is at 20049 (RFC 8267 section 7),
 * which connect() uses if an address names no port.
 *
 * Threads: any. All functions block, for set-up only. Never call them from a handler or callback;
 * use a thread of your own, or the Runtime's helper (Runtime::run_aside() in rrdk/runtime.h).
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

/** "rdma6" for an IPv6 address, otherwise "rdma" (RFC 5666 section 12). `host` is numeric. */
const char* rpcbind_netid(const std::string& host);

/**
 * The universal address of a port (RFC 5665 section 5.2.3): "10.0.0.1", 20049 gives
 * "10.0.0.1.78.81", and "::1" gives "::1.78.81". `host` must be numeric; otherwise
 * kInvalidArgument.
 */
[[nodiscard]] Result<std::string> to_universal_address(const std::string& host, uint16_t port);

/** The content of a universal address. */
struct HostAndPort {
  std::string host;  ///< numeric
  uint16_t port;
  /** "10.0.0.1:20049", "[::1]:20049": the form used in addresses of the library. */
  std::string to_string() const;
};

/** The reverse. kInvalidArgument if it is not a universal address of these netids. */
[[nodiscard]] Result<HostAndPort> parse_universal_address(const std::string& address);

/**
 * Lists a service with this host's rpcbind. Replaces an entry under the same netid, since an
 * earlier process may have died without removing it. `host` is the numeric address that the service
 * listens on. "0.0.0.0" and "::" stand for all of the host's addresses of their family only, so a
 * server that listens on "::" is entered twice if IPv4 clients are to find it. Waits at most 5 s.
 * RpcbindListing enters both by itself, and restores lost entries.
 *
 * Errors: kInvalidArgument (host), kNotFound (no rpcbind runs here), kPermission (the entry is
 * another user's), kNotAPeer, kConnectionLost and kTimeout (from what runs in its place), kSystem.
 */
[[nodiscard]] Result<void> rpcbind_set(const RpcService& service, const std::string& host,
                                       uint16_t port);

/**
 * Removes the entry of that netid, even if another process of the same user made it. Errors as
 * above, but no error if there is no such entry.
 */
[[nodiscard]] Result<void> rpcbind_unset(const RpcService& service, const std::string& host);

struct RpcbindListingOptions {
  /** Interval of the checks that rpcbind still has the entries; 0: no checks, and no thread. */
  uint32_t look_again_ms = 10'000;
  /** The socket on which this host's rpcbind listens for local programs. */
  std::string socket = "/run/rpcbind.sock";
  Reserved<4> reserved = {};  ///< spare bytes for later releases
};

/**
 * A service's entries with this host's rpcbind, for as long as this object lives.
 *
 * A service on "::" is entered under both netids if IPv4 clients reach it there too (Linux:
 * net.ipv6.bindv6only is 0), and so is one on a name with addresses of both families. Each entry
 * replaces what is listed there. If an entry is lost because rpcbind was restarted, it is made
 * again: a thread of its own checks periodically, and logs it. An entry that another server has
 * taken, as a new process does while the old one still runs, is left alone, now and at the end.
 *
 * Threads: end() and the destructor are for one thread at a time.
 */
class RpcbindListing {
 public:
  /**
   * Arguments, errors and the longest wait are those of rpcbind_set(), but `host` may be a name,
   * whose look-up may block, too. kNotFound is also returned for a name without an address, and
   * kSystem if no thread can be started.
   */
  [[nodiscard]] static Result<std::unique_ptr<RpcbindListing>> enter(
      const RpcService& service, const std::string& host, uint16_t port,
      const RpcbindListingOptions& options = {});
  /** As end(), but does nothing in a child of fork(). */
  ~RpcbindListing();
  RpcbindListing(const RpcbindListing&) = delete;
  RpcbindListing& operator=(const RpcbindListing&) = delete;

  /**
   * Removes the entries that are still its own. Waits at most 5 s, or twice that during a check.
   * Has no effect the second time. Errors as for rpcbind_unset(), but no error without an rpcbind,
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
  uint16_t port = 111;  ///< port of its rpcbind
  /**
   * For the whole look-up. Resolving a name counts, but is not cut short. Each address of a name
   * has its share, so that one that accepts and does not answer does not take all the time.
   */
  uint32_t timeout_ms = 5000;
};

/**
 * Finds where a service is reached. It first asks for the netid (RFC 5666 section 12) of the
 * address family over which the host's rpcbind was reached, then for the other one, if the host has
 * an address of that family, or its rpcbind names one.
 *
 * Errors: kNotFound (no such host, or the service is not listed), kRefused (no rpcbind listens
 * there, or it denies the question), kTimeout, kConnectionLost, kNotAPeer (the answer is not from
 * an rpcbind), kSystem.
 */
[[nodiscard]] Result<HostAndPort> rpcbind_locate(const RpcService& service,
                                                 const RpcbindQuery& query);

/** As above, but only the port, for a program that connects to all addresses of a name. */
[[nodiscard]] Result<uint16_t> rpcbind_lookup(const RpcService& service, const RpcbindQuery& query);

}  // namespace rrdk

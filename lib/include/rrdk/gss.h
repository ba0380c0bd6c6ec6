/**
 * RPCSEC_GSS (RFC 2203) with Kerberos version 5, at a server: callers prove who they are, and
 * arguments and results are protected. A GssAcceptor verifies such calls, and Service::accepts says
 * which calls a service takes. rrdk/gss_context.h has the caller's end.
 *
 *   rrdk::GssAcceptorOptions keys;
 *   keys.service = "nfs@server.example.org";
 *   auto acceptor = rrdk::must(rrdk::GssAcceptor::create(keys));
 *   auto server = rrdk::must(rrdk::Server::create(*runtime, {.gss = acceptor.get()}));
 *   rrdk::must(server->add_service({.binding = &kBinding, .procedures = kTable,
 *       .accepts = rrdk::kAcceptIntegrity | rrdk::kAcceptPrivacy}));       // krb5i or better
 *
 *   void read(rrdk::ServerCall call, void* site) {
 *     // Proven, as "alice@EXAMPLE.ORG"; whether alice may read is for the program to decide.
 *     if (!static_cast<Site*>(site)->may_read(call.security().principal))
 *       return std::move(call).deny(rrdk::AuthStat::kTooWeak);
 *     ...
 *   }
 *
 * Protection: the caller chooses one for each call (RFC 2203 sections 5.3.1 and 5.3.2). It decides
 * how data moves (RFC 8166 section 8.2.2):
 *
 *   kNone        the header of each call is signed, so the caller is who it says, and no call can
 *                be replayed. Data can be read and changed on its way. Items move by RDMA as usual.
 *   kIntegrity   arguments and results are signed too. They move as a whole: no item has a chunk of
 *                its own.
 *   kPrivacy     as kIntegrity, and they are encrypted.
 *
 * Demands: an acceptor alone refuses nothing; without Service::accepts, calls without Kerberos are
 * served as well. doc/security.md tells how to get keys.
 *
 * Handlers are the same in all cases. With kIntegrity and kPrivacy arguments and results are
 * copied, so put_item() saves nothing, and ciphers take time on the poll core in proportion to the
 * size.
 *
 * Errors: a reply grows by what the protection adds. If it does not fit the space that the caller
 * offers, or ServerOptions::max_reply, the answer is SYSTEM_ERR.
 *
 * Needs MIT Kerberos (Debian: libgssapi-krb5-2; tested with 1.20), which is loaded with the
 * first GssAcceptor or establish_context(); other programs do not need it.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rrdk/error.h"
#include "rrdk/language.h"
#include "rrdk/rpc.h"

namespace rrdk {

namespace gss {
class Contexts;
class TcpCalls;
}  // namespace gss

/** What RPCSEC_GSS protects in a call (RFC 2203 section 5, rpc_gss_service_t). */
enum class GssProtection : uint32_t {
  kNone = 1,       ///< rpc_gss_svc_none, "krb5" in NFS: the header only
  kIntegrity = 2,  ///< rpc_gss_svc_integrity; "krb5i" in NFS
  kPrivacy = 3,    ///< rpc_gss_svc_privacy; "krb5p" in NFS
};

/**
 * Which callers a service or one of its procedures takes (Service::accepts): the bits below,
 * combined by |. Only the protections named are taken: krb5i or better is kAcceptIntegrity |
 * kAcceptPrivacy. Another call is denied with AuthStat::kTooWeak (RFC 5531 section 9) before its
 * handler or an interceptor sees it, and counted (Refusal::kFlavor).
 *
 * Procedure 0 takes every flavour, also if it has a handler, since clients use it to find out what
 * is there; RPCSEC_GSS is verified there too. These bits do not say who: with kAcceptGss every
 * principal that Kerberos accepts is taken, those of other trusted realms included. Handlers or an
 * interceptor compare CallSecurity::principal, with its realm.
 */
using Acceptance = uint32_t;
/**
 * Any flavour, also unknown ones; of a procedure: what its service takes. To open one procedure of
 * a service that demands Kerberos: kAcceptNone | kAcceptSys | kAcceptGss.
 */
constexpr Acceptance kAcceptAny = 0;
constexpr Acceptance kAcceptNone = 1;       ///< AUTH_NONE
constexpr Acceptance kAcceptSys = 2;        ///< AUTH_SYS: who the client says its user is
constexpr Acceptance kAcceptAuthentic = 4;  ///< RPCSEC_GSS with GssProtection::kNone, "krb5"
constexpr Acceptance kAcceptIntegrity = 8;  ///< RPCSEC_GSS with kIntegrity, "krb5i"
constexpr Acceptance kAcceptPrivacy = 16;   ///< RPCSEC_GSS with kPrivacy, "krb5p"
/** RPCSEC_GSS, whatever the protection. */
constexpr Acceptance kAcceptGss = kAcceptAuthentic | kAcceptIntegrity | kAcceptPrivacy;

/**
 * What is known of a call's caller (ServerCall::security()). Only a `principal` that is not empty
 * was proven. AUTH_SYS is what the client says, and RPCSEC_GSS without an acceptor
 * (ServerOptions::gss) was not checked.
 */
struct CallSecurity {
  AuthFlavor flavor = AuthFlavor::kNone;
  GssProtection protection = GssProtection::kNone;  ///< kNone unless `principal` is set
  /**
   * The caller as Kerberos names it, with its realm: "alice@EXAMPLE.ORG",
   * "nfs/host.example.org@EXAMPLE.ORG"; a NUL follows the last character. Empty, and its data()
   * null, if the caller was not proven. Valid until the call has ended.
   */
  std::string_view principal;
};

struct GssAcceptorOptions {
  /**
   * The service whose key is used: "nfs@server.example.org", or "nfs" for that service on any host.
   * Empty: each service in the key table.
   */
  std::string service;
  /**
   * The path of the key table, which the process must be able to read. Empty: what KRB5_KTNAME
   * names when create() is called, or /etc/krb5.keytab.
   */
  std::string key_table;
  /**
   * The most established contexts, at least 1. A caller has one for each client program or host
   * that it uses. Those whose tickets have ended are forgotten. When all are taken, the principal
   * with the most loses the one that it has not used for longest. The next call in that context
   * gets kGssCredProblem, and the client makes another context. So a caller with a key displaces
   * only contexts of principals that have as many as itself, or more.
   */
  uint32_t max_contexts = 4096;
  /**
   * At least 1. It limits three things, each by itself, all from peers that have proven nothing: a
   * recorded token, sent again, makes a context, too.
   *
   *   - Tokens, of up to 64 KiB each, that wait for the acceptor's thread. When there are too many,
   *     the newest of the peer with the most is answered SYSTEM_ERR (Refusal::kGssBusy). So is a
   *     fifth token of one connection.
   *   - Contexts that wait for their next token.
   *   - Complete contexts whose callers have signed no call yet.
   *
   * When there are too many contexts of one of these kinds, the peer with the most loses its
   * oldest. Peers are told apart by origin (ReplayOptions: by default the hosts of an IPv4 /24 are
   * one), and within an origin by connection.
   */
  uint32_t max_unfinished = 64;
  /**
   * The largest body that is checked, decrypted or protected, in bytes: a poll core does nothing
   * else for that long. Larger arguments are answered GARBAGE_ARGS, larger results SYSTEM_ERR. At
   * least 1024; the default is a mebibyte of data and 64 KiB.
   */
  uint32_t max_protected_bytes = 1'114'112;
  /**
   * An address and a port at which contexts can be made by TCP, too, such as "0.0.0.0:2049" or
   * "[::]:2049"; port 0 is any that is free (GssAcceptor::tcp_port()). Empty: at none.
   *
   * Linux's NFS client needs it: its rpc.gssd makes the contexts of a mount over RDMA at TCP port
   * 2049 of the server, and the kernel then uses them over RDMA. Nothing else is served there:
   * NULL with a token, of any program and version, and NULL without RPCSEC_GSS, which does nothing.
   * Other procedures are answered PROC_UNAVAIL, and calls in a context AUTH_TOOWEAK, including the
   * call that ends it (RFC 2203 section 5.4): make that over RDMA.
   *
   * It has a thread of its own. It takes 64 connections, each for 10 s and with one call at a time;
   * for a further one, the oldest connection of the host with the most is closed, unless its token
   * is being checked. Tokens count towards max_unfinished. Every host that reaches the port may use
   * it: Server's limits and `on_open` do not apply.
   */
  std::string tcp = {};
  Reserved<4> reserved = {};  ///< spare bytes for later releases
};

/** What an acceptor has counted. */
struct GssAcceptorStats {
  /** Established ones that are kept; expired ones count until they are noticed. */
  uint64_t contexts = 0;
  uint64_t established = 0;  ///< since the acceptor was made
  uint64_t refused = 0;      ///< tokens that Kerberos refused, and those beyond max_unfinished
  uint64_t expired = 0;      ///< contexts whose tickets ended
  uint64_t evicted = 0;      ///< contexts that made space for others, used or not
  uint64_t destroyed = 0;    ///< contexts that their callers ended
  /**
   * By GssAcceptorOptions::tcp: calls that were refused before Kerberos saw a token, including
   * those beyond max_unfinished, which also count in `refused`; and connections closed because what
   * they sent is no call, their time was over, or another took their place.
   */
  uint64_t tcp_refused = 0;
  Reserved<7> reserved = {};  ///< spare bytes for later releases
};

/**
 * Accepts RPCSEC_GSS contexts (RFC 2203 section 5.2) and keeps them. A context belongs to its
 * caller, not to a connection: it survives reconnections, and its calls may come on several
 * connections and cores. One acceptor may serve several Servers.
 *
 * Threads: all functions may be called from any thread, but not in a child of fork(). New contexts
 * are checked on the acceptor's own thread, since that reads files; interceptors and handlers do
 * not see these calls. Checksums and ciphers are computed on the connection's poll core, even if a
 * worker answers, for one call of a context at a time.
 */
class GssAcceptor {
 public:
  /**
   * Finds the keys and starts the thread. `options` is copied. Reads files, so not in a handler.
   *
   * Errors: kNotFound (the key table does not exist or cannot be read, or has no key of that
   * service; the message has Kerberos' own words), kInvalidArgument (a limit that is too small,
   * or Kerberos cannot read the name of `service`), kUnsupported (no MIT Kerberos
   * here, or one that lacks a function), kSystem (no thread). With `tcp` also kInvalidArgument (it
   * is not a numeric address and a port), kAddressInUse, kPermission and kSystem.
   */
  [[nodiscard]] static Result<std::unique_ptr<GssAcceptor>> create(
      const GssAcceptorOptions& options);
  /**
   * Destroy it after the Servers that use it. Otherwise they keep its contexts until they have
   * ended, and the last of them waits until all tokens that have come are checked.
   */
  ~GssAcceptor();
  GssAcceptor(const GssAcceptor&) = delete;
  GssAcceptor& operator=(const GssAcceptor&) = delete;

  /** Any thread. */
  GssAcceptorStats stats() const;
  /** The port of GssAcceptorOptions::tcp; 0 if contexts are not made by TCP. Any thread. */
  uint16_t tcp_port() const noexcept;

 private:
  friend struct Internals;
  const std::shared_ptr<gss::Contexts>& impl() noexcept { return contexts_; }
  explicit GssAcceptor(std::shared_ptr<gss::Contexts> contexts);
  std::shared_ptr<gss::Contexts> contexts_;
  std::unique_ptr<gss::TcpCalls> tcp_;  // or null
};

}  // namespace rrdk

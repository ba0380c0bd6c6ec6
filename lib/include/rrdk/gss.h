/**
 * RPCSEC_GSS (RFC 2203) with Kerberos version 5: callers prove who they are, and arguments and
 * results are protected. A server gets a GssAcceptor, and says which callers a service takes:
 *
 *   rrdk::GssAcceptorOptions keys;
 *   keys.service = "nfs@server.example.org";
 *   auto acceptor = rrdk::must(rrdk::GssAcceptor::create(keys));
 *   auto server = rrdk::must(rrdk::Server::create(*runtime, {.gss = acceptor.get()}));
 *   server->add_service({.binding = &kBinding, .procedures = kTable,
 *                        .accepts = rrdk::kAcceptIntegrity | rrdk::kAcceptPrivacy});
 *
 *   void read(rrdk::ServerCall call, void*) {
 *     const rrdk::CallSecurity who = call.security();   // who.principal: "alice@EXAMPLE.ORG"
 *
 * What each protection gives (RFC 2203 section 5.3.1), and what it means for RDMA (RFC 8166 section
 * 8.2):
 *
 *   kNone        the header of each call is signed, so the caller is who it says, and no call can
 *                be replayed. Data can be read and changed on its way. Items move by RDMA as usual.
 *   kIntegrity   arguments and results are signed too. They move as a whole: no item has a chunk of
 *                its own.
 *   kPrivacy     as kIntegrity, and they are encrypted.
 *
 * The library needs MIT Kerberos (Debian: libgssapi-krb5-2), which it loads when the first
 * GssAcceptor is made; doc/security.md tells how to get keys.
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
}

/** RFC 2203 section 5.2.2, rpc_gss_service_t. */
enum class GssProtection : uint32_t {
  kNone = 1,       ///< of the header only
  kIntegrity = 2,  ///< rpc_gss_svc_integrity; "krb5i" in NFS
  kPrivacy = 3,    ///< rpc_gss_svc_privacy; "krb5p" in NFS
};

/**
 * Sets of the callers that a service, or one of its procedures, takes (Service::accepts). A call of
 * another flavour is denied with AuthStat::kTooWeak, whatever it asks for; NULL is answered always.
 */
using Acceptance = uint8_t;
constexpr Acceptance kAcceptAny = 0;        ///< each flavour, also unknown ones
constexpr Acceptance kAcceptNone = 1;       ///< AUTH_NONE
constexpr Acceptance kAcceptSys = 2;        ///< AUTH_SYS: who the client says its user is
constexpr Acceptance kAcceptAuthentic = 4;  ///< RPCSEC_GSS with GssProtection::kNone, "krb5"
constexpr Acceptance kAcceptIntegrity = 8;  ///< with kIntegrity, "krb5i"
constexpr Acceptance kAcceptPrivacy = 16;   ///< with kPrivacy, "krb5p"
/** RPCSEC_GSS, whatever the protection. */
constexpr Acceptance kAcceptGss = kAcceptAuthentic | kAcceptIntegrity | kAcceptPrivacy;

/** How a call was authenticated (ServerCall::security()). */
struct CallSecurity {
  AuthFlavor flavor = AuthFlavor::kNone;
  GssProtection protection = GssProtection::kNone;  ///< with kRpcsecGss
  /**
   * The caller as Kerberos names it, "alice@EXAMPLE.ORG", with kRpcsecGss; otherwise empty. Valid
   * until the call has ended.
   */
  std::string_view principal;
};

struct GssAcceptorOptions {
  /**
   * The service whose key is used: "nfs@server.example.org", or "nfs" for that service on any host.
   * Empty: each service in the key table.
   */
  std::string service;
  std::string key_table;  ///< a file; empty: the default one (KRB5_KTNAME, /etc/krb5.keytab)
  /**
   * Established contexts, one for each caller, and for each client that a caller has. Beyond it the
   * one that was not used for longest is forgotten; its caller makes another.
   */
  uint32_t max_contexts = 4096;
  /** Contexts of which only a part has come, and tokens that wait; beyond it they are refused. */
  uint32_t max_unfinished = 64;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** What an acceptor has counted. */
struct GssAcceptorStats {
  uint64_t contexts = 0;     ///< that exist
  uint64_t established = 0;  ///< since the acceptor was made
  uint64_t refused = 0;      ///< tokens that Kerberos refused, or for which there was no space
  uint64_t expired = 0;      ///< contexts whose tickets ended
  uint64_t evicted = 0;      ///< contexts that made space for others
  uint64_t destroyed = 0;    ///< contexts that their callers ended
  Reserved<8> reserved = {};
};

/**
 * Accepts RPCSEC_GSS contexts, and keeps them: they belong to callers, not to connections, so they
 * survive reconnections, and calls of one caller may come on several connections and cores. May
 * serve several Servers.
 *
 * Threads: any. It has a thread of its own, which checks the tokens of new contexts, since that
 * takes milliseconds and reads files. Checksums and ciphers of calls are computed on the poll core.
 */
class GssAcceptor {
 public:
  /**
   * Reads the keys. Errors: kNotFound (no such key table, or no key of that service in it),
   * kInvalidArgument (the name; limits of 0), kUnsupported (MIT Kerberos is not installed).
   */
  [[nodiscard]] static Result<std::unique_ptr<GssAcceptor>> create(
      const GssAcceptorOptions& options);
  /** All Servers that use it must have been destroyed before. */
  ~GssAcceptor();
  GssAcceptor(const GssAcceptor&) = delete;
  GssAcceptor& operator=(const GssAcceptor&) = delete;

  /** Any thread. */
  GssAcceptorStats stats() const;

 private:
  friend struct Internals;
  gss::Contexts& impl() noexcept { return *contexts_; }
  explicit GssAcceptor(std::unique_ptr<gss::Contexts> contexts);
  std::unique_ptr<gss::Contexts> contexts_;
};

}  // namespace rrdk

/**
 * Makes calls by RPCSEC_GSS (RFC 2203) with Kerberos version 5. A context is established once for a
 * caller and a server; it is then a credential like any other (rrdk/call.h), for any number of
 * calls, connections and threads.
 *
 *   rrdk::GssContextOptions options;
 *   options.target = "nfs@server.example.org";
 *   options.protection = rrdk::GssProtection::kPrivacy;
 *   auto alice = rrdk::must(rrdk::establish_context(*connection, kBinding, options));
 *   connection->set_credential(alice);                 // for all calls, or
 *   if (!call.set_credential(alice)) return;           // for those of one Call
 *
 * rrdk/gss.h says what each protection gives, and has the server's end.
 */
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/call.h"
#include "rrdk/gss.h"

namespace rrdk {

struct GssContextOptions {
  std::string target;  ///< the service as "service@host", for which the server has the key
  GssProtection protection = GssProtection::kIntegrity;  ///< of all calls of the context
  /** Whose ticket is used, "alice" or "alice@REALM"; empty: the default one. */
  std::string principal;
  Reserved<4> reserved = {};  ///< spare bytes for later releases
};

/**
 * Establishes a context by calls of the binding's NULL on that connection, and waits for it: it
 * asks the KDC for a ticket of the service, which may take seconds, and then the server. Tickets
 * come from the default cache or key table (KRB5CCNAME, KRB5_CLIENT_KTNAME).
 *
 * The calls of the context get numbers as they are sent, over all of its connections. The verifier
 * of each reply is checked: a wrong one, or results that are not protected as they should be, end
 * the call with kAuthError and AuthStat::kInvalidResp (kFailed: there was no memory to check them).
 * A call that is sent again has a number of its own. Once the server has forgotten the context, the
 * ticket has ended, or all 2^31 numbers are used up, calls end with kAuthError and kGssCredProblem
 * or kGssCtxProblem: establish another one then. It may have been established on a connection that
 * is gone. The server is not told when a context is no longer used: it forgets it in time.
 *
 * A server leaves calls unanswered whose numbers are too far behind the highest one. This library's
 * servers allow for 2048 calls in flight; others may allow for few, so keep the credits of all
 * connections of a context within their window.
 *
 * With kIntegrity and kPrivacy arguments and results are copied and move as a whole: what was
 * offered only counts towards the size of the reply. A call grows by about 100 bytes, and
 * ClientOptions::max_call is for what it is then; a server may have a limit of its own
 * (GssAcceptorOptions::max_protected_bytes). Checksums and ciphers are computed on the connection's
 * poll core, for one call of a context at a time, over all of its connections.
 *
 * The binding must outlive the call of this function. Errors: kInvalidArgument (no such protection,
 * or called in a callback or handler on a poll core), kNotFound (no ticket, or the KDC knows no
 * such service), kRefused (by the server), kNotAPeer (the server takes no RPCSEC_GSS), kUnsupported
 * (no MIT Kerberos here), and those of the calls (errc_of()).
 */
[[nodiscard]] Result<SharedCredential> establish_context(Caller& caller, const Binding& binding,
                                                         const GssContextOptions& options);

}  // namespace rrdk

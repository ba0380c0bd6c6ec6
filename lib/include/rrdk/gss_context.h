/**
 * Makes calls by RPCSEC_GSS (RFC 2203) with Kerberos version 5. A context is established once for a
 * caller and a server; it is then a credential like any other (rrdk/call.h), for any number of
 * calls, connections and threads, and for as long as Kerberos gives tickets.
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
  /**
   * The service, as "nfs@server.example.org". Its key is that of the Kerberos principal
   * nfs/server.example.org.
   */
  std::string target;
  GssProtection protection = GssProtection::kIntegrity;  ///< of all calls of the context
  /** Whose ticket is used, "alice" or "alice@REALM"; empty: the default one. */
  std::string principal;
  Reserved<4> reserved = {};  ///< spare bytes for later releases
};

/**
 * Establishes a context by calls of the binding's NULL on that connection, and waits for it: it
 * asks the KDC for a ticket of the service, which may take seconds, and then the server, by calls
 * with the deadline ClientOptions::call_timeout_ms. Tickets come from the default cache or key
 * table (KRB5CCNAME, KRB5_CLIENT_KTNAME). While the KDC is asked, no embedded core is polled.
 *
 * Calls are numbered as they are sent, in one sequence over all connections that use the context.
 * The verifier of each reply is checked: a wrong one, or results that are not protected as they
 * should be, end the call with kAuthError and AuthStat::kInvalidResp (kFailed: there was no memory
 * to check them). A call that is sent again has a number of its own.
 *
 * A server forgets contexts: when it is started again, when it needs the space, and when the ticket
 * has ended. It then denies calls with kGssCredProblem or kGssCtxProblem (RFC 2203 section
 * 5.3.3.3), and so does this end once all 2^31 numbers are used up. The library then establishes
 * another context for the same principal, by calls on the connection that was denied first; a
 * thread of the Runtime asks Kerberos. Calls that were denied wait for it, and are sent again
 * within their deadlines (Counter::kCallsForgotten). Later calls use it from the start.
 *
 * If the server or Kerberos refuses another context, a warning says why, and the calls end with
 * kAuthError; a call that is denied a second later tries it again. If the server forgets the new
 * context within about a second, too, the library waits before it establishes the next one: at
 * first 10 ms, then twice as long each time, up to 640 ms. A call that an earlier connection had
 * carried may end with kConnectionLost instead, since it may have been run. A context is not
 * renewed for a call that has been denied four times, for a connection that is draining, and for a
 * BackwardClient.
 *
 * A denial has no verifier. An attacker who can change messages can put one in place of a reply,
 * and so make the server run a call up to four times.
 *
 * A server has a window of numbers (RFC 2203 section 5.3.3.1): 2048 with this library's servers,
 * 128 with Linux. At most that many calls of a context are in flight at once, over all of its
 * connections. A further call waits as if for credits, and holds up the calls behind it on its
 * connection, those of other contexts too. Use several contexts if that is too few.
 *
 * A server does not answer a call whose number has fallen out of the window. So a call also waits
 * while its number would push out one that may still be on its way on another connection. If no
 * reply shows that the other call has arrived, the library makes a NULL call on that connection,
 * without a credential. After a second without an answer it no longer waits for that call.
 *
 * With kIntegrity and kPrivacy, arguments and results are copied and move as a whole, in pool
 * buffers: what was offered only counts towards the size of the reply. A call grows by about 100
 * bytes, and ClientOptions::max_call applies to the protected call; a server may have a limit of
 * its own (GssAcceptorOptions::max_protected_bytes). Checksums and ciphers are computed on the
 * connection's poll core. Kerberos' library allocates memory for each.
 *
 * Lifetime: `caller` and `binding` must live until this function returns. The context depends on
 * neither, nor on the Runtime: it outlives the connection on which it was established. It is in
 * use while there is a SharedCredential of the context, or a connection, Client or Call that has
 * it. After that the server is told to forget it (RFC 2203 section 5.4), on a connection that has
 * carried its calls and is up, or is just being closed by the program. Nothing waits for that. If
 * there is no such connection, the server forgets the context when its ticket ends, or when it
 * needs the space.
 *
 * Threads: any that may wait (rrdk/runtime.h); several at once. Calls of one context take turns at
 * it: cores that share one wait for each other for as long as a checksum or cipher takes.
 *
 * Errors: kInvalidArgument (no such protection, a target that is not "service@host", or called in a
 * callback or handler on a poll core), kNotFound (no valid ticket, no KDC answers, or it does not
 * know the service: the message has Kerberos' words), kRefused (by the server; or the server did
 * not prove that it has the key), kNotAPeer (the server takes no RPCSEC_GSS), kUnsupported (no MIT
 * Kerberos here), and those of the calls (errc_of()).
 */
[[nodiscard]] Result<SharedCredential> establish_context(Caller& caller, const Binding& binding,
                                                         const GssContextOptions& options);

}  // namespace rrdk

/**
 * Interceptors: one function that is called before every call and one that is called after it, so
 * that what concerns all calls (authorisation, rate limits, tracing, statistics) stands in one
 * place. A Server has one for the calls that it serves (ServerOptions::interceptor), a Client has
 * one for the calls that it makes (ClientOptions::interceptor); calls in the other direction have
 * theirs (service_interceptor, backward_interceptor).
 *
 *   rrdk::Admission admit(const rrdk::ServerCall& call, uint64_t& note, void* site) {
 *     note = rrdk::Runtime::now_ns();
 *     if (call.procedure() == 0)               // NULL, by which clients look for the server
 *       return {};
 *     const auto user = call.auth_sys();
 *     if (!user || !static_cast<Site*>(site)->may_call(user->uid, call.procedure()))
 *       return rrdk::Admission::deny(rrdk::AuthStat::kTooWeak);
 *     return {};
 *   }
 *   void trace(const rrdk::ServerCall& call, const rrdk::CallOutcome& outcome, uint64_t note,
 *              void* site) {
 *     static_cast<Site*>(site)->spans.add(call.xid(), note, rrdk::Runtime::now_ns(), outcome);
 *   }
 *   const rrdk::ServiceInterceptor both = {.before = admit, .after = trace, .context = &site};
 *   auto server = rrdk::must(rrdk::Server::create(*runtime, {.interceptor = &both}));
 *
 * Callers with Kerberos have no auth_sys(): compare call.security() there (rrdk/gss.h).
 *
 * Without interceptors calls cost what they cost: which way a call goes is decided when a service
 * is added, and when a connection is made. With several concerns, the one function calls the
 * others.
 *
 * Lifetime: Server::create() and Client::create() copy the structure. What `context` points to must
 * live as long as the Server, or the Client and its connections.
 *
 * Threads: calls of several poll cores and workers come at once, so the functions must guard what
 * they share. They have the limits of a handler, or of a call's callback: on a poll core they must
 * not block, and they must not throw.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rrdk/call_status.h"
#include "rrdk/rpc.h"

namespace rrdk {

class ServerCall;

/** What `before` decides about a call that came in. By default its handler is entered. */
class Admission {
 public:
  constexpr Admission() noexcept = default;
  /**
   * The call is answered with this accept status, as by ServerCall::reject(): kSystemErr for a
   * limit on rates, after which a client may try again.
   */
  static constexpr Admission reject(AcceptStat status) noexcept {
    return {Kind::kReject, static_cast<uint32_t>(status)};
  }
  /** The call is answered AUTH_ERROR with the reason, as by ServerCall::deny(). */
  static constexpr Admission deny(AuthStat reason) noexcept {
    return {Kind::kDeny, static_cast<uint32_t>(reason)};
  }
  /**
   * The call is not answered, and its connection is closed, as by ServerCall::drop(): a call over a
   * reliable connection cannot be dropped alone, since its client would wait for the answer.
   */
  static constexpr Admission drop() noexcept { return {Kind::kDrop, 0}; }

  enum class Kind : uint8_t { kEnter, kReject, kDeny, kDrop };
  constexpr Kind kind() const noexcept { return kind_; }
  constexpr uint32_t reason() const noexcept { return reason_; }  ///< its number; 0: it has none

 private:
  constexpr Admission(Kind kind, uint32_t reason) noexcept : kind_(kind), reason_(reason) {}
  Kind kind_ = Kind::kEnter;
  uint32_t reason_ = 0;
};

/** How a call ended. */
struct CallOutcome {
  /**
   * At a client what Call::status() will be; at a server what the client's will be if the answer
   * reaches it: kConnectionLost if the call was dropped.
   */
  CallStatus status = CallStatus::kOk;
  AuthStat auth_stat = AuthStat::kOk;  ///< the reason, with kAuthError
};

/**
 * The interceptor of the calls that come in. Either function may be null.
 *
 * It sees every call that has a handler, and the NULL procedure of programs that have none for it,
 * whatever way the call takes. It does not see what the library answers itself: calls that do not
 * parse, calls of unknown programs and procedures, calls whose chunks the binding forbids, calls
 * that RPCSEC_GSS or Service::accepts refuses, those that make and end contexts (rrdk/gss.h),
 * CONF_RDMA (rrdk/rfc5666.h), and repeated calls that the duplicate request cache answers (they
 * were seen when they ran, and the same caller gets the same answer). Counters and ProcedureStats
 * have these.
 */
struct ServiceInterceptor {
  /**
   * Called on the thread that enters the handler, right before it: a poll core, or a worker with
   * Dispatch::kWorker. Calls that wait for their turn or for their chunks have these by then. The
   * call's identity is there: program(), version(), procedure(), xid(), credential(), auth_sys(),
   * security(), and connection() with peer() and context(). The reference is valid until the
   * function returns. `note` is 0, and what is written to it is passed to `after`.
   */
  Admission (*before)(const ServerCall& call, uint64_t& note, void* context) = nullptr;
  /**
   * Called on the connection's poll core, once for each call for which `before` was called (or
   * would have been), refused ones included, when its answer is about to be sent; also if the
   * connection has gone and the answer cannot be sent any more, then perhaps behind on_close. A
   * reply_after() may still wait for its time. The reference is valid until the function returns.
   */
  void (*after)(const ServerCall& call, const CallOutcome& outcome, uint64_t note,
                void* context) = nullptr;
  void* context = nullptr;
};

/** A call that is made, as its interceptor sees it. Valid until the function returns. */
struct CallIdentity {
  const char* address = "";  ///< Caller::address() of the connection
  uint32_t core = 0;         ///< the poll core of the connection
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;
  /** As it was sent, the same that the server sees; 0 before that, and if the call was not sent. */
  uint32_t xid = 0;
  /** Of its credential: the call's own, or that of the connection. */
  AuthFlavor flavor = AuthFlavor::kNone;
  std::span<const std::byte> credential = {};  ///< the body; empty for a security context
};

/**
 * The interceptor of the calls that are made: by Calls, not by the library itself (keepalive).
 * Either function may be null.
 */
struct CallInterceptor {
  /**
   * Called in submit(), on its thread, when the call is taken (not when it is refused with kFull).
   * kOk lets it pass. Another status ends the call with that status, unsent, in its callback;
   * kFull, which says that none comes, becomes kCancelled. `note` is 0, and what is written to it
   * is passed to `after`. The function may begin and submit other calls.
   */
  CallStatus (*before)(const CallIdentity& call, uint64_t& note, void* context) = nullptr;
  /**
   * Called on the connection's poll core, once for each call that was taken, right before its
   * callback, or in its place if the Call was destroyed.
   */
  void (*after)(const CallIdentity& call, const CallOutcome& outcome, uint64_t note,
                void* context) = nullptr;
  void* context = nullptr;
};

}  // namespace rrdk

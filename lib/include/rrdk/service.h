/**
 * Defines RPC services: a Service is a table of a binding (program, version, what RDMA may move)
 * and a handler per procedure. A Server offers services to its clients (rrdk/server.h); a Client
 * can offer some to its servers, which then call it on the connections that it made
 * (rrdk/client.h).
 *
 *   void read(rrdk::ServerCall call, void*) {
 *     uint64_t offset = call.args().get_u64();
 *     uint32_t count = call.args().get_u32();
 *     if (!call.args().at_end()) return std::move(call).reject(rrdk::AcceptStat::kGarbageArgs);
 *     rrdk::Buffer data = call.result_buffer(count);
 *     if (!data) return std::move(call).reject(rrdk::AcceptStat::kSystemErr);
 *     call.results().put_u32(0);
 *     call.results().put_item(std::move(data), count, rrdk::Ddp::kEligible);   // zero-copy
 *     std::move(call).reply();
 *   }
 *
 * The library handles the transport, credits, chunks, errors and replies; a handler reads arguments
 * in place and writes results.
 *
 * Large results: a Buffer, and so an item made of one, has at most Memory::largest_buffer() bytes.
 * Larger items, and results in the application's own memory, are given as spans of
 * RegisteredMemory; ServerCall::on_released() tells when that memory may change again.
 *
 * Other procedures: the entry numbered kOtherProcedures receives the calls of all procedures
 * without an entry, for a handler such as a gateway's that knows only at run time which procedures
 * exist. It reads ServerCall::procedure(), and rejects what does not exist with
 * AcceptStat::kProcUnavail. Without this entry the library answers such calls PROC_UNAVAIL (RFC
 * 5531 section 9). If these procedures have eligible items, the service's Binding needs such an
 * entry too.
 *
 *   constexpr rrdk::Procedure kTable[] = {{kRead, read}, {rrdk::kOtherProcedures, forward}};
 *
 * Threads: handlers run on several threads at once with the same Service::context: on every poll
 * core that has connections and, for Dispatch::kWorker, on every worker. They must guard what they
 * share. A handler that throws ends the process (std::terminate).
 */
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "rrdk/binding.h"
#include "rrdk/connection.h"
#include "rrdk/error.h"
#include "rrdk/gss.h"
#include "rrdk/memory.h"
#include "rrdk/rpc.h"
#include "rrdk/xdr.h"

namespace rrdk {

namespace service {
class Dispatcher;
struct CallAccess;
}  // namespace service
namespace engine {
struct ServedCall;
}  // namespace engine
class BackwardClient;  // see rrdk/server.h

/**
 * A connection on which calls come in: at a Server, a client's; at a Client with services, the one
 * that it made. The library owns it; a program gets a reference from ServerOptions::on_open
 * (rrdk/server.h) and from each call.
 *
 *   void append(rrdk::ServerCall call, void*) {
 *     auto* session = static_cast<Session*>(call.connection().context());   // set in on_open
 *     ...
 *
 * Lifetime: a reference is valid from on_open to the end of on_close, and while a call that came on
 * the connection has not ended, which may be later. Other code should keep id(), and use
 * Server::close() or visit().
 *
 * Threads: all functions may be called from any thread.
 */
class ServerConnection {
 public:
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  /** Unique in this process, also among ClientConnections, and never reused; not 0. */
  uint64_t id() const noexcept;
  const Peer& peer() const noexcept;
  /** A snapshot. Takes no lock that a poll core needs to serve calls. */
  ConnectionInfo info() const;

  /**
   * A pointer for the program, which sets it in on_open, in a handler or later; null until then. A
   * thread that reads context() sees what was written before set_context(). What it points to may
   * be freed in on_close if handlers run on the poll core and answer before they return. If calls
   * are kept, or workers run them, some may still be in progress then: let each hold a reference.
   */
  void* context() const noexcept { return context_.load(std::memory_order_acquire); }
  void set_context(void* context) noexcept { context_.store(context, std::memory_order_release); }

 protected:
  ServerConnection() = default;
  ~ServerConnection() = default;

 private:
  std::atomic<void*> context_ = nullptr;
};

/**
 * The right, and the duty, to answer one call. Move-only. Exactly one of reply(), reply_after(),
 * reject(), reject_versions(), deny() and drop() ends it. Destroying or assigning to a ServerCall
 * that is not answered answers SYSTEM_ERR. A ServerCall is empty after it was ended or moved from,
 * and when default-constructed; it may then only be tested, destroyed or assigned to. Ending it
 * again only logs an error.
 *
 * Lifetime: args() and what was read from it stay valid until the call ends. A handler may keep the
 * ServerCall and answer later. If the connection is lost meanwhile, answering just ends the call.
 * All must be answered before their Server is destroyed; at a Client, before its ClientConnection.
 *
 * Threads: it may be answered from any thread, but each object is for one thread at a time.
 *
 * It can be stored where move-only types can: members, containers, std::optional, lambdas.
 * std::function copies what it holds, so use std::move_only_function (C++23), a lambda or struct of
 * your own, or a std::shared_ptr<ServerCall> instead.
 *
 *   struct Waiting { rrdk::ServerCall call; uint64_t offset; };
 *   std::deque<Waiting> waiting;                        // answered when the disk is done
 *   waiting.push_back({std::move(call), offset});
 */
class ServerCall {
 public:
  /** Empty. */
  ServerCall() = default;
  ServerCall(ServerCall&& other) noexcept : call_(other.call_) { other.call_ = nullptr; }
  ServerCall& operator=(ServerCall&& other) noexcept;
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;
  ~ServerCall();

  /** Returns false if empty. */
  explicit operator bool() const noexcept { return call_ != nullptr; }

  /**
   * Returns false once an answer cannot reach the caller any more, because the connection has ended
   * or is being closed: a handler with much left to do may stop, and end the call in any way. A
   * caller that has given up its call cannot be told from one that waits, since RPC over RDMA has
   * no message for that. One load; any thread.
   */
  bool wanted() const noexcept;

  uint32_t program() const noexcept;
  uint32_t version() const noexcept;  ///< of the program, not of RPC-over-RDMA
  uint32_t procedure() const noexcept;
  uint32_t xid() const noexcept;
  const Credential& credential() const noexcept;
  /** The AUTH_SYS fields, if the call came with that flavour and they are well formed. */
  std::optional<AuthSys> auth_sys() const;
  /**
   * What is known of the caller: flavour, protection, and the principal if one was proven
   * (rrdk/gss.h). Any thread.
   */
  CallSecurity security() const noexcept;
  /**
   * The connection on which the call came; its peer() is the caller. Valid until the call has
   * ended. Any thread.
   */
  ServerConnection& connection() const noexcept;
  Memory& memory() noexcept;
  /**
   * Returns a buffer of at least `size` bytes for this call's results, to be passed to
   * Encoder::put_item(). Empty if the pools are exhausted, as for Memory::get(). It counts as its
   * client's from now until it is back in its pool; a buffer from memory() counts only after the
   * call is answered. While a client holds more than its share (ServerOptions::max_chunk_bytes),
   * its further calls wait; handlers that run already may still take buffers. Any thread.
   */
  Buffer result_buffer(uint32_t size) noexcept;
  /**
   * Returns the caller as a client that can be called: programs that it offers
   * (Client::add_service()) are called on the connection on which this call came. Any thread, until
   * the call has ended. The result may be kept for longer, see BackwardClient in rrdk/server.h.
   * Each call of one connection gets the same object.
   *
   * Call a client only when it is ready, which only the program itself can say (RFC 8167 section
   * 4): for example, in the handler of a procedure that the client calls for this purpose.
   *
   * A client without services says so in draft-04 of version 2: calls to it end with kRemoteError.
   * In the other versions it does not answer, and they end with kTimeout.
   *
   * Errors: kUnsupported (ServerOptions::backward_credits is 0, or this call is itself one of a
   * server to its client), kConnectionLost.
   */
  [[nodiscard]] Result<std::shared_ptr<BackwardClient>> backward_client();

  /** The arguments, to be read in order, and the results, to be written in order. */
  Decoder& args() noexcept;
  Encoder& results() noexcept;

  /** See on_released(). */
  using Released = void (*)(void* argument);
  /**
   * Asks for a call of `released(argument)` when nothing refers to the memory of the results any
   * more: the reply's Send has completed (and with it every RDMA Write of its data), or the
   * connection has ended. Only then may memory that was given by reference, put_item(MemorySpan),
   * be changed or freed.
   *
   * The call itself ends earlier: after reply() the peer may still be reading that memory. A
   * program that does not use on_released() must keep it unchanged and registered until the
   * connection has ended (ServerOptions::on_close; at a Client, kClosed), or give the results in a
   * Buffer, which the library keeps for as long as needed. A call with on_released() takes the
   * general path, which costs more.
   *
   * It is called exactly once, however the call ends, on the thread of the connection's poll core,
   * possibly before reply() or another end returns. It may do what a handler may, such as ending
   * other calls, but must not block, poll, or destroy the Server. At the latest it is called in
   * ~Server() or ~ClientConnection(). There is one per call: a second on_released() replaces the
   * first, and null removes it.
   */
  void on_released(Released released, void* argument) noexcept;

  /** Sends the results, or SYSTEM_ERR if encoding failed. */
  void reply() &&;
  /** As reply(), but not earlier than `delay_ns` from now (at most 60 s). */
  void reply_after(uint64_t delay_ns) &&;
  /**
   * Answers with an accept status other than SUCCESS; what was written to results() is dropped.
   * PROG_MISMATCH carries the lowest and the highest version of the program that are offered here
   * (if all have been removed, the answer is PROG_UNAVAIL); reject_versions() sends others.
   */
  void reject(AcceptStat status) &&;
  /**
   * Answers PROG_MISMATCH (RFC 5531 section 9) with exactly these versions, for a handler that
   * knows them better than the service table, such as a gateway's. What was written to results() is
   * dropped. The client reads them by Call::mismatch_low() and mismatch_high().
   */
  void reject_versions(uint32_t low, uint32_t high) &&;
  /** Denies the call: AUTH_ERROR with the reason (RFC 5531 section 9). */
  void deny(AuthStat reason) &&;
  /** Does not answer, and closes the connection so that the peer notices. */
  void drop() &&;

 private:
  friend struct service::CallAccess;
  void end_unanswered() noexcept;
  explicit ServerCall(engine::ServedCall* call) noexcept : call_(call) {}
  engine::ServedCall* call_ = nullptr;
};

/** Where a handler runs. */
enum class Dispatch : uint8_t {
  kInline,  ///< on the poll core; must not block, and should take a few microseconds at most
  kWorker,  ///< on a worker; inline if the Runtime has no workers
};

/**
 * Called with the Service's context, by several threads at once (see above). Must not throw: that
 * ends the process.
 */
using Handler = void (*)(ServerCall call, void* context);

/**
 * One procedure of a program. Program (rrdk/program.h), which describes both ends, uses all fields;
 * a Service that has a Binding of its own ignores `name` to `no_long_calls`, which its Binding has.
 */
struct Procedure {
  /**
   * The procedure's number, or kOtherProcedures. All procedures of that entry share one row of
   * ProcedureStats, and each kind of handler mistake is logged once for all, so a peer that calls
   * many numbers does not make the server store more. `idempotent` applies to each. Repeated calls
   * are recognised by their own procedure numbers. Procedure 0 is not among these: the library
   * answers it.
   */
  uint32_t number;
  Handler handler = nullptr;  ///< null in a Program: this end only calls it
  Dispatch dispatch = Dispatch::kInline;
  /**
   * Set to false if running the procedure twice differs from running it once (an append, a rename,
   * a withdrawal). When a connection is lost, clients repeat the calls whose replies they did not
   * see; a repeated call of this procedure is then answered from the duplicate request cache, see
   * ReplayOptions.
   */
  bool idempotent = true;
  /**
   * If not null, passed to the handler instead of Service::context; must live as long as that must.
   */
  void* context = nullptr;

  const char* name = nullptr;  ///< these five as in ProcedureBinding (rrdk/binding.h)
  uint8_t eligible_args = 0;
  uint8_t eligible_results = 0;
  uint32_t fixed_results = 0;
  bool no_long_calls = false;
  /**
   * The callers that this procedure takes, instead of those of its service: it may demand more, or
   * less (rrdk/gss.h). kAcceptAny: those of its service. No effect on procedure 0.
   */
  Acceptance accepts = kAcceptAny;
};

struct Service {
  const Binding* binding;  ///< must outlive the Server, or the Client and its connections
  std::span<const Procedure> procedures;  ///< copied; procedure 0, NULL, may be omitted
  void* context = nullptr;  ///< passed to handlers, see also Procedure; must live as long, or until
                            ///< remove_service()
  /**
   * The callers that it takes (rrdk/gss.h): by default any, AUTH_NONE too, even if the Server has
   * an acceptor. RPCSEC_GSS needs ServerOptions::gss; a Client has no acceptor, so its services
   * cannot take it.
   */
  Acceptance accepts = kAcceptAny;
};

}  // namespace rrdk

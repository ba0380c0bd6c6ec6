/**
 * RPC programs as they are offered: services, their procedures, and the handlers that answer calls.
 * A Server offers them to its clients (rrdk/server.h); a Client can offer some to its servers,
 * which then call it on the connections that it made (rrdk/client.h).
 *
 * A Service is a table: a binding (program, version, what may be moved by RDMA) and a handler per
 * procedure. The transport, credits, chunks, errors and replies are the library's business; a
 * handler sees arguments in place and writes results.
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
 * An entry numbered kOtherProcedures gets the calls of all procedures that have no entry, for a
 * handler such as a gateway's that knows only at run time which procedures exist. It asks
 * ServerCall::procedure(), and refuses what does not exist by reject(AcceptStat::kProcUnavail). A
 * table without this entry answers such calls PROC_UNAVAIL (RFC 5531 section 9). If these
 * procedures have eligible items, the service's Binding needs such an entry, too.
 *
 *   constexpr rrdk::Procedure kTable[] = {{kRead, read}, {rrdk::kOtherProcedures, forward}};
 *
 * One Buffer holds at most Memory::largest_buffer() bytes, and so does one item made of it. Larger
 * items, and results that lie in memory of the application's own, are given as spans of
 * RegisteredMemory; ServerCall::on_released() tells when that memory may change again.
 *
 * Threads: handlers run on several threads at once, with the same Service::context: on every poll
 * core that has connections, and for Dispatch::kWorker on every worker. What they share they must
 * guard themselves. A handler that throws ends the process (std::terminate).
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
class BackwardClient;  // rrdk/server.h

/**
 * A connection on which calls come in: a client's, at a Server; at a Client with services, the one
 * that it made. The library's object: a program gets a reference to it from
 * ServerOptions::on_open (rrdk/server.h) and from each call.
 *
 *   void append(rrdk::ServerCall call, void*) {
 *     auto* session = static_cast<Session*>(call.connection().context());   // set in on_open
 *     ...
 *
 * Lifetime: a reference is good from on_open to the end of on_close, and while a call that came on
 * the connection has not ended, which may be later. Whoever comes from elsewhere keeps id(), and
 * asks Server::close() or visit(). Any thread, all of it.
 */
class ServerConnection {
 public:
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  /** Never used twice in this process, its ClientConnections' included; not 0. */
  uint64_t id() const noexcept;
  const Peer& peer() const noexcept;
  /** As it is now. It locks nothing that a poll core waits for to serve calls. */
  ConnectionInfo info() const;

  /**
   * For the program, which sets it in on_open, in a handler or later; null until then. Whatever was
   * written before set_context() is seen by who reads context() later. What it points to may go in
   * on_close where handlers run on the poll core and answer before they return. Where calls are
   * kept, or workers run them, some may still be in progress then.
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
 * reject(), reject_versions(), deny() and drop() ends it; a ServerCall destroyed or assigned to
 * unanswered answers SYSTEM_ERR. After an end, after being moved from, and when default-constructed
 * it is empty: it may only be tested, destroyed or assigned to; to end it again is an error in the
 * log, and nothing else.
 *
 * args() and what was read from it stay valid until the call ends. A handler may keep the
 * ServerCall and answer later, from any thread; the objects themselves are for one thread at a
 * time. If the connection is lost meanwhile, answering just ends the call. All are answered before
 * their Server is destroyed; a client's, before its ClientConnection.
 *
 * It goes where move-only types go: members, containers, std::optional, lambdas. Not into a
 * std::function, which copies what it holds: take std::move_only_function (C++23), a lambda or
 * struct of your own, or hold it by std::shared_ptr<ServerCall>.
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

  /** False when empty. */
  explicit operator bool() const noexcept { return call_ != nullptr; }

  uint32_t program() const noexcept;
  uint32_t version() const noexcept;  ///< of the program, not of RPC-over-RDMA
  uint32_t procedure() const noexcept;
  uint32_t xid() const noexcept;
  const Credential& credential() const noexcept;
  /** AUTH_SYS fields when the call came with that flavour and they are well formed. */
  std::optional<AuthSys> auth_sys() const;
  /** On which it came: who called is its peer(). While the call has not ended. Any thread. */
  ServerConnection& connection() const noexcept;
  Memory& memory() noexcept;
  /**
   * A buffer of at least `size` bytes for this call's results, to be handed over by
   * Encoder::put_item(). Empty when the pools have none, as Memory::get(). It counts as its
   * client's from now on until it is back in its pool; what memory() gives counts only once the
   * call is answered. While a client holds more than its share (ServerOptions::max_chunk_bytes),
   * its further calls wait; those that run, in workers or by you, may still take buffers. Any
   * thread.
   */
  Buffer result_buffer(uint32_t size) noexcept;
  /**
   * The way back: calls of programs that this caller offers (Client::add_service()), on the
   * connection on which this call came. Any thread, while the call has not ended; what it returns
   * may be kept for longer, see BackwardClient in rrdk/server.h. Each call of one connection gets
   * the same.
   *
   * A client is not called before it is ready for it, which only the program itself can say (RFC
   * 8167 section 4): let it be a procedure that the client calls, and ask here in its handler.
   *
   * A client that has no services says so in draft-04 of version 2: calls to it end with
   * kRemoteError. In the other versions it does not answer, and they end with kTimeout.
   *
   * Errors: kUnsupported (ServerOptions::backward_credits is 0; or this call is itself one of a
   * server's to its client), kConnectionLost.
   */
  [[nodiscard]] Result<std::shared_ptr<BackwardClient>> backward_client();

  /** What the client sent, to be read in order, and what it is sent, to be written in order. */
  Decoder& args() noexcept;
  Encoder& results() noexcept;

  /** See on_released(). */
  using Released = void (*)(void* argument);
  /**
   * Asks for `released(argument)` when nothing refers to the memory of the results any more: the
   * reply's Send has completed (and with it every RDMA Write of its data), or the connection has
   * ended. Only then may memory that was given by reference, put_item(MemorySpan), change or go.
   *
   * The call itself ends earlier: after reply() the peer may still be reading that memory. A
   * program that does not ask keeps it unchanged and registered until the connection has ended
   * (ServerOptions::on_close; at a Client, kClosed), or gives the results in a Buffer, which the
   * library keeps for as long as that takes. A call for which this was asked takes the general
   * path, which costs more than answering without it.
   *
   * Called exactly once, however the call ends, on the thread of the connection's poll core,
   * possibly before reply() or another end returns. It may do what a handler may, such as ending
   * other calls; not block, poll, or destroy the Server. At the latest it is called within
   * ~Server(), or ~ClientConnection(). One per call: a second on_released() replaces the first,
   * null takes it back.
   */
  void on_released(Released released, void* argument) noexcept;

  /** Sends the results. If encoding failed, SYSTEM_ERR goes out instead. */
  void reply() &&;
  /** The same, not earlier than `delay_ns` from now (at most 60 s). */
  void reply_after(uint64_t delay_ns) &&;
  /**
   * Answers with an accept status other than SUCCESS; what was written to results() is dropped. The
   * versions in a PROG_MISMATCH are the lowest and the highest of the program that are offered here
   * (the answer is PROG_UNAVAIL if all have been removed); reject_versions() sends others.
   */
  void reject(AcceptStat status) &&;
  /**
   * Answers PROG_MISMATCH (RFC 5531 section 9) with these versions, as they are: for a handler that
   * knows better than the service table, such as a gateway's. What was written to results() is
   * dropped. The client gets them from Call::mismatch_low() and mismatch_high().
   */
  void reject_versions(uint32_t low, uint32_t high) &&;
  /** Denies: AUTH_ERROR with the reason (RFC 5531 section 9). */
  void deny(AuthStat reason) &&;
  /** Does not answer; the connection is closed, so that the peer learns of it. */
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
  kWorker,  ///< on a worker core; inline when the Runtime has none
};

/**
 * Called with the Service's context, by several threads at once (see above). Does not throw: that
 * ends the process.
 */
using Handler = void (*)(ServerCall call, void* context);

/**
 * One procedure of a program. All of it is for Program (rrdk/program.h), of which both ends are
 * made; a Service that has a Binding of its own uses what is above `name`.
 */
struct Procedure {
  /**
   * Or kOtherProcedures. Those procedures share one row of ProcedureStats, and each kind of
   * mistake of the handler is logged once for all of them: a peer that calls many numbers makes the
   * server keep no more. `idempotent` holds for each. Repeated calls are recognised by their own
   * procedure numbers. Procedure 0 is not among them: the library answers it.
   */
  uint32_t number;
  Handler handler = nullptr;  ///< null in a Program: this end only calls it
  Dispatch dispatch = Dispatch::kInline;
  /**
   * false: to run it twice is not the same as to run it once (an append, a rename, a withdrawal).
   * When a connection is lost, clients repeat the calls whose replies they did not see; a repeated
   * call of this procedure is then answered from the duplicate request cache, see ReplayOptions.
   */
  bool idempotent = true;
  /** Passed to the handler instead of Service::context, unless null; outlives what that does. */
  void* context = nullptr;

  const char* name = nullptr;  ///< these five as in ProcedureBinding (rrdk/binding.h)
  uint8_t eligible_args = 0;
  uint8_t eligible_results = 0;
  uint32_t fixed_results = 0;
  bool no_long_calls = false;
};

struct Service {
  const Binding* binding;  ///< outlives the Server, or the Client and its connections
  std::span<const Procedure> procedures;  ///< copied; procedure 0 may be left out: NULL is answered
  void* context = nullptr;  ///< passed to handlers, see also Procedure; lives likewise, or until
                            ///< remove_service()
};

}  // namespace rrdk

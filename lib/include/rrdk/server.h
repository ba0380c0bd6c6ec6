/**
 * Serving RPC programs.
 *
 * A Service is a table: a binding (program, version, what may be moved by RDMA) and a handler per
 * procedure. The transport, credits, chunks, errors and replies are the Server's business; a
 * handler sees arguments in place and writes results.
 *
 *   void read(rrdk::ServerCall call, void*) {
 *     uint64_t offset = call.args().get_u64();
 *     uint32_t count = call.args().get_u32();
 *     if (!call.args().at_end()) return std::move(call).reject(rrdk::AcceptStat::kGarbageArgs);
 *     rrdk::Buffer data = call.memory().get(count);
 *     if (!data) return std::move(call).reject(rrdk::AcceptStat::kSystemErr);
 *     call.results().put_u32(0);
 *     call.results().put_item(std::move(data), count, rrdk::Ddp::kEligible);   // zero-copy
 *     std::move(call).reply();
 *   }
 */
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rrdk/binding.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/rpc.h"
#include "rrdk/runtime.h"
#include "rrdk/xdr.h"

namespace rrdk {

namespace server {
struct CallContext;
}

/**
 * The right, and the duty, to answer one call. Move-only. Exactly one of reply(), reply_after(),
 * reject() and drop() ends it; a ServerCall destroyed unanswered answers SYSTEM_ERR.
 *
 * args() and what was read from it stay valid until the call ends. A handler may keep the
 * ServerCall and answer later, from any thread; the objects themselves are for one thread at a
 * time. If the connection is lost meanwhile, answering just ends the call.
 */
class ServerCall {
 public:
  ServerCall(ServerCall&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  ServerCall& operator=(ServerCall&& other) noexcept;
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;
  ~ServerCall();

  uint32_t program() const noexcept;
  uint32_t version() const noexcept;
  uint32_t procedure() const noexcept;
  uint32_t xid() const noexcept;
  const Credential& credential() const noexcept;
  /** AUTH_SYS fields when the call came with that flavour and they are well formed. */
  std::optional<AuthSys> auth_sys() const;
  /** Who called, for messages. Stable per connection. */
  const std::string& peer() const noexcept;
  Memory& memory() noexcept;

  Decoder& args() noexcept;
  Encoder& results() noexcept;

  /** Sends the results. If encoding failed, SYSTEM_ERR goes out instead. */
  void reply() &&;
  /** The same, not earlier than `delay_ns` from now (at most 60 s). */
  void reply_after(uint64_t delay_ns) &&;
  /** Answers with an accept status other than SUCCESS; what was written to results() is dropped. */
  void reject(AcceptStat status) &&;
  /** Denies: AUTH_ERROR with the reason (RFC 5531 section 9). */
  void deny(AuthStat reason) &&;
  /** Does not answer; the connection is closed, so that the peer learns of it. */
  void drop() &&;

 private:
  friend struct server::CallContext;
  explicit ServerCall(server::CallContext* context) noexcept : context_(context) {}
  server::CallContext* context_;
};

/** Where a handler runs. */
enum class Dispatch : uint8_t {
  kInline,  ///< on the poll core; must not block, and should take a few microseconds at most
  kWorker,  ///< on a worker core; inline when the Runtime has none
};

/** Called with the Service's context. Does not throw. */
using Handler = void (*)(ServerCall call, void* context);

struct Procedure {
  uint32_t number;
  Handler handler;
  Dispatch dispatch = Dispatch::kInline;
};

struct Service {
  const Binding* binding;                 ///< static: outlives the Server
  std::span<const Procedure> procedures;  ///< static; procedure 0 may be left out: NULL is answered
  void* context = nullptr;                ///< passed to handlers
};

struct ServerOptions {
  uint32_t credits = 64;          ///< calls that one connection may have outstanding
  uint32_t inline_size = 4096;    ///< bytes of Send and Receive buffers, multiple of 1024
  uint64_t max_call = 8u << 20;   ///< bytes of one call, chunks included; more is refused
  uint64_t max_reply = 8u << 20;  ///< bytes of one reply, placed results included
  uint32_t max_connections = 1024;
};

/** Counters of a server since its start, summed over its connections, past ones included. */
struct ServerStats {
  uint64_t connections_accepted, connections_refused;
  uint64_t connections_ended;  ///< by the peer, by its death or for a breach; not by the Server
  uint64_t connections;        ///< now
  uint64_t calls, replies, rejected;
  uint64_t transport_errors;   ///< RDMA_ERROR answers
  uint64_t protocol_breaches;  ///< messages refused, all reasons
  uint64_t bytes_read, bytes_written;
};

class Server {
 public:
  /** `runtime` outlives the Server. Errors: kInvalidArgument, kNoMemory. */
  static Result<std::unique_ptr<Server>> create(Runtime& runtime,
                                                const ServerOptions& options = {});
  /** Closes all connections, waits until their calls have ended and every buffer is back. Embedded
      runtimes are polled for it. */
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /** Before listen(). Errors: kInvalidArgument (duplicate program, bad binding or table). */
  Result<void> add_service(const Service& service);
  /**
   * Listens; returns the URI with what the system chose. Connections are spread over poll cores.
   * Errors: kBadUri, kAddressInUse, kPermission, kUnsupported, kSystem.
   */
  Result<std::string> listen(const std::string& uri);
  /** Stops accepting. Connections live on. */
  void stop_listening();
  ServerStats stats() const;

  struct Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

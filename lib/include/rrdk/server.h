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

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rrdk/binding.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/refusals.h"
#include "rrdk/rpc.h"
#include "rrdk/runtime.h"
#include "rrdk/version.h"
#include "rrdk/xdr.h"

namespace rrdk {

namespace server {
struct CallContext;
}

/**
 * The right, and the duty, to answer one call. Move-only. Exactly one of reply(), reply_after(),
 * reject(), deny() and drop() ends it; a ServerCall destroyed or assigned to unanswered answers
 * SYSTEM_ERR. After an end, and after being moved from, it may only be destroyed or assigned to.
 *
 * args() and what was read from it stay valid until the call ends. A handler may keep the
 * ServerCall and answer later, from any thread; the objects themselves are for one thread at a
 * time. If the connection is lost meanwhile, answering just ends the call. All are answered before
 * their Server is destroyed.
 */
class ServerCall {
 public:
  ServerCall(ServerCall&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  ServerCall& operator=(ServerCall&& other) noexcept;
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;
  ~ServerCall();

  uint32_t program() const noexcept;
  uint32_t version() const noexcept;  ///< of the program, not of RPC-over-RDMA
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

  /** See on_released(). */
  using Released = void (*)(void* argument);
  /**
   * Asks for `released(argument)` when nothing refers to the memory of the results any more: the
   * reply's Send has completed (and with it every RDMA Write of its data), or the connection has
   * ended. Only then may memory that was given by reference, put_item(MemorySpan), change or go.
   *
   * Called exactly once, however the call ends, on the thread of the connection's poll core,
   * possibly before reply() or another end returns. It may do what a handler may, such as ending
   * other calls; not block, poll, or destroy the Server. At the latest it is called within
   * ~Server(). One per call: a second on_released() replaces the first, null takes it back.
   */
  void on_released(Released released, void* argument) noexcept;

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

/**
 * Called with the Service's context, by several threads at once (see above). Does not throw: that
 * ends the process.
 */
using Handler = void (*)(ServerCall call, void* context);

struct Procedure {
  uint32_t number;
  Handler handler;
  Dispatch dispatch = Dispatch::kInline;
  /**
   * false: to run it twice is not the same as to run it once (an append, a rename, a withdrawal).
   * When a connection is lost, clients repeat the calls whose replies they did not see; a repeated
   * call of this procedure is then answered from the duplicate request cache, see ReplayOptions.
   */
  bool idempotent = true;
};

struct Service {
  const Binding* binding;                 ///< static: outlives the Server
  std::span<const Procedure> procedures;  ///< static; procedure 0 may be left out: NULL is answered
  void* context = nullptr;                ///< passed to handlers; outlives the Server
};

/**
 * The duplicate request cache: replies to procedures that are not idempotent are kept, so that a
 * call that a client repeats with the same XID, on a new connection or, in version 2, on the same
 * one after an answer that named the room it needs, runs once. What is kept is the RPC message; a
 * repeated call may offer other chunks.
 *
 *   {.number = kAppend, .handler = append, .idempotent = false}
 *
 * Each client has a cache of its own, on whatever connections it comes: who it is tell the kernel
 * (shm: process, its start and its user) or the network (iwarp: the address without its port, so
 * that all behind one NAT are one client), not its messages. Within that a call is
 * recognised by XID, program, version, procedure, credential, and length and first 256 bytes of its
 * arguments: whatever makes calls different from each other belongs there. A repetition that comes
 * while the handler still has the first call waits for it.
 *
 * What it can not cover: it is in memory, so neither a server nor a client that starts anew; nor
 * repetitions after window_ms, so that deadlines of repeated calls should be shorter; nor calls
 * that drop() ended; nor a call that the client makes again by submit(), since that has a new XID.
 *
 * Memory: `entries` * 104 + `bytes` for each connection of at most `clients` clients, and for up to
 * 4 of each client's that have ended, whose calls may yet be repeated; taken when it connects. A
 * server without procedures that ask for it takes next to nothing. Calls that run without this
 * protection are counted (ReplayStats::unprotected).
 */
struct ReplayOptions {
  /**
   * Calls remembered per connection, 0 to 65536; 0: no cache. With fewer than
   * ServerOptions::credits some can be forgotten, and run twice.
   */
  uint32_t entries = 512;
  /** Of replies kept per connection, at least max_reply. Older ones make room; then their calls are
      still known, and answered SYSTEM_ERR instead of being run again. */
  uint32_t bytes = 256 << 10;
  uint32_t clients = 256;  ///< that have a cache; one that is away longest makes room
  /**
   * A longer reply is not kept, results given by reference included. A repetition of its call is
   * answered SYSTEM_ERR: to run it again would be worse.
   */
  uint32_t max_reply = 16 << 10;
  uint32_t window_ms = 120'000;  ///< how long a client may take to come back
};

struct ServerOptions {
  /**
   * Of RPC-over-RDMA, all on one port: calls in others are answered ERR_VERS, and those of the
   * other draft with its errors for what can not be read (doc/version-two.md). At least one.
   */
  RpcRdmaVersions versions = {};
  /**
   * Calls that one connection may have outstanding, 1 to 4096. Each connection takes as many
   * buffers of inline_size, idle or not, for its Receives: of the smallest class that is large
   * enough, and of no other. Size MemoryOptions::classes for it: a connection is refused if less
   * than a quarter of that class would be left for calls and replies. With the defaults (4096
   * buffers of 4096 bytes, 64 credits) that is the 49th; a Client on the same Memory takes buffers
   * too. The log names the class, and ServerStats::connections_refused counts.
   */
  uint32_t credits = 64;
  /**
   * Bytes of Send and Receive buffers: a multiple of 1024, at most 262144 and largest_buffer().
   * Where version 2 is answered, as it is by default, Receives have at least 4096 bytes; its
   * messages have at most 4096 bytes inline, whatever this is.
   */
  uint32_t inline_size = 4096;
  uint64_t max_call = 8u << 20;   ///< bytes of one call, chunks included; more is refused
  uint64_t max_reply = 8u << 20;  ///< bytes of one reply, placed results included
  /**
   * Bytes of chunks that one connection's calls in progress may have: of arguments fetched by RDMA
   * Read, and of results as far as they fit the room that the client offers, at most max_reply a
   * call. Calls beyond wait, in order, for earlier ones of their connection to end; so a client
   * can not take all the pool buffers for itself (RFC 5666 section 11). It also bounds max_call and
   * max_reply: a larger call is refused, a larger reply becomes SYSTEM_ERR. The default is less
   * than half of what MemoryOptions::classes has in large buffers by default. At least 1.
   */
  uint64_t max_chunk_bytes = 32u << 20;
  uint32_t max_connections = 1024;  ///< at once; see credits for what else bounds them
  /** At once, of one client (ReplayOptions says who that is); 0: no limit. */
  uint32_t max_connections_per_client = 0;
  /** A connection without calls for so long is closed; 0: never. */
  uint32_t idle_timeout_ms = 0;
  /**
   * A client that takes none of its replies for so long, nor lets our RDMA Reads and Writes
   * proceed, holds buffers of the server's: its connection is closed (RFC 5666 section 11). 0:
   * never. These times are looked at about every millisecond, and every second while cores sleep.
   */
  uint32_t send_timeout_ms = 60'000;
  ReplayOptions replay = {};
  /**
   * Whether to accept a client, asked before it is sent anything or given any memory; null: all.
   * `peer` is what ServerCall::peer() will be: of shm "pid 4711 (uid 1000)", as the kernel says; of
   * iwarp "10.0.0.1:52114" or "[::1]:52114".
   * On a poll core, one call at a time: it may not block, nor call into this library.
   */
  bool (*admit)(const std::string& peer, void* argument) = nullptr;
  void* admit_argument = nullptr;
};

/** Of the duplicate request cache, see ReplayOptions. */
struct ReplayStats {
  uint64_t hits;         ///< repeated calls answered with a kept reply
  uint64_t waits;        ///< those among them, mostly, that had to wait for the first one
  uint64_t stored;       ///< replies kept
  uint64_t evicted;      ///< forgotten: by age, or to make room
  uint64_t not_kept;     ///< calls that ran, without their replies: too large, or no room
  uint64_t lost;         ///< repeated calls answered SYSTEM_ERR, since the reply was not kept
  uint64_t unprotected;  ///< calls run without an entry: all were running, or too many clients
  /** Answered ERR_CHUNK: an RDMA Read or Write for the call cost an earlier connection. */
  uint64_t failed_again;
};

/** Counters of a server since its start, summed over its connections, past ones included. */
struct ServerStats {
  uint64_t connections_accepted;
  /** Too many of them, too few buffers, or not admitted; the log has the reason. */
  uint64_t connections_refused;
  uint64_t refused_per_client;  ///< of these: by ServerOptions::max_connections_per_client
  uint64_t closed_idle;         ///< by ServerOptions::idle_timeout_ms
  uint64_t closed_stalled;      ///< by ServerOptions::send_timeout_ms
  uint64_t connections_ended;   ///< by the peer, by its death or for a breach; not by the Server
  uint64_t connections;         ///< now
  uint64_t calls, replies, rejected;
  uint64_t transport_errors;   ///< RDMA_ERROR answers
  uint64_t protocol_breaches;  ///< messages refused, all reasons
  uint64_t bytes_read, bytes_written;
  uint64_t calls_not_run;  ///< messages that came while the server drained
  ReplayStats replay;
  uint64_t turn_waits;   ///< calls that waited for others' turns, when their connection had many
  uint64_t chunk_waits;  ///< times a connection's calls waited because of max_chunk_bytes
  Refusals refusals;     ///< what peers sent that was refused or ignored, by reason
};

class Server {
 public:
  /**
   * `runtime` outlives the Server. Errors: kInvalidArgument (an option out of its range, or an
   * inline_size for which the runtime's Memory has no buffers).
   */
  static Result<std::unique_ptr<Server>> create(Runtime& runtime,
                                                const ServerOptions& options = {});
  /**
   * Closes all connections and waits until their calls have ended. The buffers of connections,
   * calls and replies are back then; some that each poll core keeps for the headers of future
   * calls come back in ~Runtime().
   *
   * Kept ServerCalls must be answered first, else this never returns (after 5 s an error in the
   * log says so). It waits for the cores: see "Waiting" in rrdk/runtime.h. Not from a handler.
   */
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /** Before listen(). Errors: kInvalidArgument (duplicate program, bad binding or table). */
  Result<void> add_service(const Service& service);
  /**
   * Listens; returns the URI with what the system chose. Connections are spread over poll cores.
   *
   * shm:PATH is a UNIX socket in the file system: PATH has at most 107 bytes, its directory exists,
   * and a socket that a dead server left there is replaced. shm:@NAME is a name in Linux's abstract
   * name space, without a file; it is gone with its server, and has no permissions.
   *
   * iwarp://HOST[:PORT] is a TCP port of this host: 0.0.0.0 and [::] are all of its addresses; port
   * 20049 unless told, 0 for one that is free. iWARP neither encrypts nor authenticates: whoever
   * reaches the port, or can write into the connection, is a client (see ServerOptions::admit).
   *
   * Errors: kBadUri (unknown scheme too), kAddressInUse, kNotFound (the directory is not there),
   * kPermission, kSystem.
   */
  Result<std::string> listen(const std::string& uri);
  /** Stops accepting. Connections live on. */
  void stop_listening();
  /**
   * A graceful end: no connection is accepted any more, and no further call is run. Calls that
   * handlers have are answered, ServerCalls that you keep by you; each connection is closed when
   * its last reply has been sent. Further calls that come are not run, and not answered: to their
   * clients they end as any other call of a lost connection (ServerStats::calls_not_run).
   *
   * Returns when all connections are closed; at the latest after `timeout_ms`, when it closes the
   * rest at once. How many those were is the result: 0 is a clean end. What then remains is stats()
   * and ~Server(): it does not listen again. Waits as ~Server() does; not from a handler. If the
   * result is not 0, handlers may still have calls, which clients may repeat at another server.
   */
  uint32_t drain(uint32_t timeout_ms);
  ServerStats stats() const;

  struct Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

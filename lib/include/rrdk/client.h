/**
 * Makes RPC calls over RDMA, asynchronously or blocking. A Client holds the options, a
 * ClientConnection is one connection to a server, and a Call (rrdk/call.h) makes one call after
 * another on it.
 *
 *   auto client = rrdk::must(rrdk::Client::create(*runtime));
 *   auto connection = rrdk::must(client->connect("shm:/run/perf.sock"));
 *   rrdk::Call call(*connection);
 *   rrdk::Encoder& args = call.begin(kBinding, kRead);
 *   args.put_u64(offset); args.put_u32(count);
 *   call.offer(span);                        // a MemorySpan: the data is placed here, not copied
 *   if (call.submit_and_wait() == rrdk::CallStatus::kOk) {
 *     uint32_t status = call.results().get_u32();
 *     rrdk::ItemView data = call.results().get_item(count);
 *   }
 *
 * Order: begin(), then what describes the call, then submit(). begin() returns the encoder for the
 * arguments. It resets offer(), expect_reply(), forbid_ddp(), set_timeout_ms(), set_retransmit()
 * and on_released(), which have an effect only between begin() and submit(). A credential that
 * set_credential() has set stays. What is written to the encoder after submit() is dropped.
 *
 * Completion: every submitted call ends exactly once, in its callback, with a CallStatus. Its
 * deadline counts from submit(), across reconnections. cancel() works at any time. In the steady
 * state calls allocate and register nothing, except those of a security context
 * (rrdk/gss_context.h).
 *
 * Lifetime: destroy Calls and connections before the Runtime, and the Runtime before the Memory.
 * The Client may be destroyed before its connections. A Call that is not in flight may outlive its
 * connection, but not the Memory, to which the buffers of its last reply belong. It can then only
 * be destroyed or asked for status(); begin() and submit() are refused with a log line.
 *
 * Threads: any thread may use a Client or a ClientConnection, except that add_service() and
 * destructors are for one thread at a time. begin(), set_credential(), offer() and submit() of a
 * Call may be called from any thread, but by one at a time. On the connection's own poll core (in a
 * callback, or where an embedded Runtime is polled) submit() is a direct call; from other threads
 * it goes through a ring.
 *
 * Callbacks run on the connection's poll core, one at a time, and never within submit() or
 * cancel(). They may begin, submit, cancel or destroy any Call of that core, destroy a
 * ClientConnection of that core, and use every function that does not wait. They must not throw,
 * block, connect() or poll. The same holds for handlers that run on a poll core.
 *
 * Errors: when a connection breaks, it stays lost, and its calls end with kConnectionLost; calls
 * submitted later end in the same way after about a millisecond, so a program that submits again in
 * the callback does not spin. With ClientOptions::reconnect only calls end that were sent and must
 * not be sent again; all others wait for the next connection until their deadlines.
 * doc/guide-deadlines.md says what happens to each call when a connection breaks, and which calls
 * are sent again.
 *
 * Waiting: a program need not wait. connect_start() (which has an example), drain_start() and
 * close_start() return at once, and ConnectOptions::on_state reports progress. "Waiting" in
 * rrdk/runtime.h says what functions that wait need.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rrdk/binding.h"
#include "rrdk/call.h"
#include "rrdk/call_status.h"
#include "rrdk/connection.h"
#include "rrdk/counters.h"
#include "rrdk/error.h"
#include "rrdk/interceptor.h"
#include "rrdk/memory.h"
#include "rrdk/rfc5666.h"
#include "rrdk/rpc.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "rrdk/version.h"
#include "rrdk/version2.h"
#include "rrdk/xdr.h"

namespace rrdk {

/** What to do when an established connection is lost. */
struct ReconnectOptions {
  bool enabled = false;
  /**
   * The delay before the k-th attempt in a row is drawn evenly between a half and the whole of
   * first_delay_ms * 2^(k-1), and is at most max_delay_ms. 1 <= first_delay_ms <= max_delay_ms. k
   * starts again at 1 after a useful connection: one on which the server gave an answer other than
   * that it supports none of our versions (CallStatus::kVersionError).
   */
  uint32_t first_delay_ms = 10;
  uint32_t max_delay_ms = 5000;
  /**
   * Milliseconds since the loss of the last useful connection after which no attempt follows, and
   * the connection is lost for good. 0: never.
   */
  uint32_t give_up_ms = 0;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

struct ClientOptions {
  /** Version 1 by default, since version 2 never left draft state. */
  RpcRdmaVersion version = RpcRdmaVersion::kOne;
  /**
   * Calls in flight per connection, 1 to 4096; further calls are queued (see max_queued). The
   * connections of a poll core share Receives for the replies, which are buffers of inline_size:
   * one per connection, plus one for each further call that was ever in flight. Each connection has
   * `credits` Receives of its own, idle or not, over devices (`verbs:`), with `rfc5666`, and where
   * Receives may grow (version2.max_receive_size). With services, each connection has
   * backward_credits more.
   */
  uint32_t credits = 64;
  /**
   * Bytes of Send and Receive buffers: a multiple of 1024, at most 262144. In version 2 Receives
   * have at least 4096 bytes, and messages have at most 4096 bytes inline unless both ends exchange
   * transport properties.
   */
  uint32_t inline_size = 4096;
  uint64_t max_call = 8u << 20;   ///< bytes of one call, data included; 1024 to 1 GiB
  uint64_t max_reply = 8u << 20;  ///< bytes of one reply, data included; 1024 to 1 GiB
  /**
   * Limit for each attempt to connect, counted from the start of the name look-up; timeout=SECONDS
   * in the address replaces it. 0 fails at once. Some servers take seconds to accept (nfs-ganesha
   * registers its buffers then).
   */
  uint32_t connect_timeout_ms = 10000;
  uint32_t call_timeout_ms = 30000;  ///< default deadline of a call; 0: none
  /**
   * How long the memory of an abandoned call (cancelled, or past its deadline) stays lent to the
   * server, which may still use what the call offered until it answers. Call::cancel() says when
   * lending is allowed. After this time, to within a millisecond, the keys are revoked; if the
   * server uses them nevertheless, the connection ends. The connection also ends if the keys cannot
   * be revoked within four seconds because data that was sent still uses them and the server takes
   * none. Size pools for what can be lent: at most the memory of `credits` calls. 0: nothing is
   * lent, and keys are revoked at once. Counter::kCallsLent and kLendsExpired count.
   */
  uint32_t lend_ms = 30000;
  /**
   * No call can be sent while abandoned calls hold every credit. A slow server returns credits with
   * its late answers. If nothing at all is received for this time, the connection is ended, error()
   * says why, and `reconnect` applies. A new connection has one credit until its first reply, so a
   * first call that is abandoned makes the others wait, at most for this time. 0: they wait for an
   * answer or their deadlines.
   */
  uint32_t starved_ms = 5000;
  /**
   * DDP-eligible arguments of at least this many bytes move by RDMA Read even if they fit inline.
   */
  uint32_t chunk_threshold = 1024;
  /**
   * Work-arounds for servers that do not meet the specifications; at most one may be set.
   * pad_write_chunks is for servers that write the padding of a result after it and refuse a Write
   * chunk without space for it: the padding gets a segment of its own, of up to three unused bytes.
   * one_segment is for servers that cannot handle chunks of several segments: none are sent, and
   * calls that need them (an offer() of several segments; long calls and replies above
   * Memory::largest_buffer()) end with kTooLarge.
   */
  bool pad_write_chunks = false;
  bool one_segment = false;
  /** Applies to established connections; a first attempt that fails is not repeated. */
  ReconnectOptions reconnect = {};
  /**
   * The default of Call::set_retransmit(); needs `reconnect`. Set it only if each procedure called
   * is idempotent, or the server has a duplicate request cache for those that are not
   * (Procedure::idempotent in rrdk/service.h), because the server may have run a call that is sent
   * again. Use deadlines with it. Call::set_retransmit() also describes its effect in version 2,
   * which does not need `reconnect`.
   */
  bool retransmit = false;
  /**
   * Keepalive: after this many milliseconds in which nothing was received, with or without
   * outstanding calls, the client calls procedure 0 (NULL) without a credential. If nothing at all
   * arrives for keepalive_patience times as long, the connection is ended, error() says why, and
   * `reconnect` applies. 0: off. Accurate to a millisecond; an idle core wakes up for it.
   *
   * The probe needs a free credit. When slow calls hold all credits, silence is no evidence and the
   * connection is not ended: these calls have their deadlines, and when all are abandoned,
   * starved_ms applies. A new connection has one credit until the first reply.
   *
   * A server that is too busy to answer NULL in time is treated as dead, even if only a handler
   * blocks its poll core. Time in which this end was not polled does not count.
   */
  uint32_t keepalive_ms = 0;
  uint32_t keepalive_patience = 3;
  /**
   * The program whose NULL procedure is called. If null, it is the binding that calls have begun
   * with most recently; before the first call there is no probe. Must outlive the connections.
   */
  const Binding* keepalive_binding = nullptr;
  /**
   * With services (add_service()): calls from the server that one connection accepts at a time, 1
   * to 4096. Each connection, idle or not, takes this many further buffers of inline_size for their
   * Receives. Without services it takes nothing.
   */
  uint32_t backward_credits = 16;
  /** RFC 5666's compatibility mode; needs `version` kOne and no services. See rrdk/rfc5666.h. */
  Rfc5666ClientOptions rfc5666 = {};
  /** Options of version 2; see rrdk/version2.h. */
  Version2ClientOptions version2 = {};
  /**
   * How many calls of a connection may wait: for credits, memory, a connection, or a pass of their
   * poll core. Beyond that, submit() refuses calls with kFull instead of queueing them;
   * Caller::room() and on_room() say when it takes more. With 0, calls are taken only if they can
   * be sent at once.
   *
   * By default there is no bound: calls are queued as long as there is memory (each Call that has
   * begun holds a buffer of inline_size), and then end with kNoMemory. A program that makes calls
   * faster than its server answers them, such as a gateway, sets a bound. A connection with a bound
   * spends a few instructions more on each call.
   */
  uint32_t max_queued = UINT32_MAX;
  /**
   * Functions that are called before and after every call that is made; null: none. create() copies
   * what it points to. See rrdk/interceptor.h.
   */
  const CallInterceptor* interceptor = nullptr;
  /** The same for calls that servers make to services of this Client. */
  const ServiceInterceptor* service_interceptor = nullptr;
  Reserved<5> reserved = {};  ///< spare bytes for later releases
};

class ClientConnection;

/**
 * State of a connection. Transitions: kConnecting to kUp or kClosed; kUp to kLost or kClosed; kLost
 * to kReconnecting or kClosed; kReconnecting to kUp or kClosed, and to itself for each attempt that
 * fails.
 */
enum class ConnectionState : uint8_t {
  kConnecting,    ///< first attempt: the name is being looked up, or the server is being contacted
  kUp,            ///< established: calls are sent
  kLost,          ///< the connection broke; calls end or wait, see ClientOptions::retransmit
  kReconnecting,  ///< waiting for the next attempt, or making it
  kClosed,        ///< closed for good: lost, closed by this program, or never established
};

/**
 * The name of a state, such as "reconnecting". Never null, even for values outside the enumeration.
 */
const char* to_string(ConnectionState state) noexcept;

/** Options of one connection. */
struct ConnectOptions {
  /** The poll core that serves the connection; negative: the least loaded one. */
  int core = -1;
  /**
   * Called for each state in order, from kConnecting to kClosed, which comes last and exactly once.
   * May be null. `reason` is null for kConnecting and kUp. Otherwise it says why the connection
   * broke, why the last attempt failed, or why it is closed:
   *
   *   kShutdown   by close_start() or the destructor, or by drain_start() with all calls ended
   *   kTimeout    by drain_start() with calls left, or by connect_timeout_ms, keepalive_ms or
   *               give_up_ms
   *   another     as for Client::connect()
   *
   * When kClosed is reported, all calls have ended in their callbacks. Calls submitted later end
   * with kConnectionLost or kShutdown, as before.
   *
   * Threads: runs on the connection's poll core, during a pass, with the limits of a call's
   * callback. If another thread polls that core, it may run before connect_start() has returned. In
   * kClosed `connection` may be destroyed. It is not called after the destructor has returned.
   */
  void (*on_state)(ClientConnection& connection, ConnectionState state, const Error* reason,
                   void* argument) = nullptr;
  void* argument = nullptr;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/**
 * A connection to one server, on one poll core, through which Calls are made (rrdk/call.h). With
 * ClientOptions::reconnect it outlives each transport connection.
 */
class ClientConnection : public Caller {
 public:
  /**
   * Closes as close_start() does. Returns at once after kClosed with no call in flight, and always
   * at once in a callback or in a handler on a poll core. Otherwise it waits for the callbacks of
   * all calls and for kClosed, at most 5 seconds.
   *
   * If it has not waited until the end, the rest happens later on the poll core: calls end in their
   * callbacks with kShutdown, but on_state is not called. The Runtime must live until then, and be
   * polled. Outside of callbacks this is logged as an error: either handlers have kept calls of the
   * server (ServerCall), which must be answered first, or no thread polls the core. In a callback,
   * only a connection of the same core may be destroyed; in a worker, only one whose callbacks do
   * not use it.
   */
  ~ClientConnection();

  /**
   * Ends all calls with kShutdown, in their callbacks, and closes. Returns at once. on_state
   * reports kClosed; if handlers have kept calls of the server, only after these are answered. A
   * name look-up in progress does not delay it. Further calls change nothing. Any thread.
   */
  void close_start();
  /**
   * Closes gracefully. Calls submitted from now on end with kShutdown; those in flight or queued
   * may finish, and then the connection closes. After `timeout_ms` it closes in any case, as
   * close_start() does. on_state reports kClosed with kShutdown if all calls had ended, else with
   * kTimeout and how many had not. Meanwhile alive() is false, messages of send_option() end with
   * kShutdown too, and the server's calls to this client are served until it closes. Returns at
   * once; a further call may shorten the time, and close_start() ends it. Any thread.
   */
  void drain_start(uint32_t timeout_ms);
  /**
   * As drain_start(), and waits for kClosed, at most 5 seconds longer than `timeout_ms`. Returns
   * the number of calls that had not ended; 0 means a clean end. On an embedded runtime it polls
   * the core meanwhile. In a callback or a handler on a poll core it would wait for itself, so
   * there it only starts, and returns how many calls there are.
   */
  uint32_t drain(uint32_t timeout_ms);

  /**
   * The state that on_state was given last, or would have been; kConnecting before that. Any
   * thread.
   */
  ConnectionState state() const noexcept;
  /**
   * Returns true if the connection is lost but not for good: calls are accepted, and wait. Any
   * thread.
   */
  bool reconnecting() const noexcept;
  /**
   * Why the connection broke, or why the last attempt to connect failed; empty while it is up or is
   * being established for the first time. A broken connection is also logged as information. The
   * code is mostly kConnectionLost; kTimeout if the peer did not answer keepalive or accept in
   * time, and after give_up_ms; otherwise as for Client::connect(). The message names the peer and
   * the reason. Any thread.
   */
  std::optional<Error> error() const;
  /** Counts since this object was created, over all reconnections (rrdk/counters.h). */
  Stats stats() const;
  /**
   * The version of RPC-over-RDMA in which calls are sent. With RpcRdmaVersion::kAuto, 2 is certain
   * only after a call has ended successfully. 0: not known yet. Any thread.
   */
  uint32_t version() const noexcept;
  /**
   * A snapshot of the current transport connection. Numbers and `id` are this connection's alone,
   * and start again with the next one. While there is no connection all are 0, and `ending` holds
   * what error() says. Any thread.
   */
  ConnectionInfo info() const;
  struct Impl;

 private:
  friend class Client;
  friend struct Internals;
  explicit ClientConnection(std::shared_ptr<Impl> impl);
  Impl& impl() noexcept;
  const Impl& impl() const noexcept;
};

/**
 * Connects to servers, with one set of options for all its connections. It can also offer services
 * to these servers (add_service()).
 */
class Client {
 public:
  /**
   * `runtime` must outlive the Client.
   *
   * Errors: kInvalidArgument, if
   *   - credits or backward_credits is not 1 to 4096;
   *   - inline_size is not a multiple of 1024 from 1024 to 262144;
   *   - max_call or max_reply is not from 1024 to 1 GiB;
   *   - both pad_write_chunks and one_segment are set;
   *   - the delays of `reconnect` are not in order, or retransmit is set without `reconnect`;
   *   - keepalive_patience is 0, or check() refuses keepalive_binding;
   *   - rfc5666 is set with a version other than kOne;
   *   - version2.max_receive_size is out of range, or version2.max_backward_chunk_bytes is 0;
   *   - version2.max_receive_size, version2.backward_chunks, or version2.extensions with
   *     properties are set without version2.properties.
   */
  [[nodiscard]] static Result<std::unique_ptr<Client>> create(Runtime& runtime,
                                                              const ClientOptions& options = {});
  /** Does not wait. Its connections may outlive it. */
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /**
   * Offers a program to the servers that this client connects to: they may call it on each of its
   * connections, in the opposite direction (RFC 8167; doc/both-directions.md). Must precede the
   * first connect(). Handlers run as those of a Server do, on the connection's poll core or on
   * workers. They may make calls on the ClientConnection themselves, but submit_and_wait() only on
   * workers. While a handler keeps a ServerCall, its ClientConnection cannot be destroyed, and a
   * lost one does not reconnect. Calls from the server are never repeated, so Procedure::idempotent
   * makes no difference here.
   *
   * Without services, a server's calls go unanswered in version 1 and draft-00, and are refused in
   * draft-04.
   *
   * Errors: kInvalidArgument (that version has already been added, bad binding or table, rfc5666,
   * or too late).
   */
  [[nodiscard]] Result<void> add_service(const Service& service);
  /**
   * Sets the credential that later connections begin with, as if Caller::set_auth_sys(),
   * set_credential() or set_auth() were called on each (rrdk/call.h). Only this sets the credential
   * of CONF_RDMA, which connect() calls (rrdk/rfc5666.h) and which RFC 5666 section 11 wants
   * protected, although a context of RPCSEC_GSS is not used for that. Any thread. Errors:
   * kInvalidArgument (more than kMaxAuthBody bytes).
   */
  void set_auth_sys(const AuthSys& identity);
  void set_credential(const SharedCredential& credential);
  [[nodiscard]] Result<void> set_auth(AuthFlavor flavor, std::span<const std::byte> body);
  /**
   * Starts to connect to an address, and returns at once. The connection can be used immediately:
   * calls wait for it, at most until their deadlines, and end with kConnectionLost if it cannot be
   * established. state() and ConnectOptions::on_state report progress. The destructor or
   * close_start() cancels the attempt at any time. In a reactor with one thread:
   *
   *   void on_state(rrdk::ClientConnection& connection, rrdk::ConnectionState state,
   *                 const rrdk::Error* reason, void* site) {
   *     if (state == rrdk::ConnectionState::kClosed)
   *       static_cast<Site*>(site)->forget(connection, *reason);      // may destroy it
   *   }
   *   auto connection = rrdk::must(client->connect_start(uri, {.on_state = on_state,
   *                                                            .argument = &site}));
   *   first_call.submit(...);                        // waits until the connection is up
   *   while (!stop)
   *     if (runtime->poll() == 0) other_work();
   *
   * An address is a URI whose scheme names a driver (Server::listen() returns the address for its
   * own host):
   *
   *   shm:/run/rrdk.sock         the path of a UNIX socket
   *   shm:@name                  an abstract socket (unix(7))
   *   shm:...?peer_memory=SIZE   how much of the peer's registered memory a connection may map,
   *                              in bytes, or with K, M or G. Default: 4G of a client's memory,
   *                              1024G of a server's
   *   iwarp://HOST[:PORT][?...]  iWARP over TCP. HOST is an IPv4 address, an IPv6 address in
   *                              brackets, or a name, looked up for each attempt. Port 20049 by
   *                              default
   *     crc=1                    asks for checksums
   *     mpa=1                    for servers of RFC 5044 without RFC 6581
   *     silence=S                3 to 3600, default 30: the connection ends after S seconds in
   *                              which nothing came from the peer's host, not even a TCP
   *                              acknowledgement. A host whose program is stopped is not silent
   *     congestion=NAME          TCP's congestion control for what this end sends (the server's
   *                              address decides for what the server sends): one of those in
   *                              net.ipv4.tcp_allowed_congestion_control or, with CAP_NET_ADMIN,
   *                              in tcp_available_congestion_control. Default: the system's. If
   *                              that is BBR and both ends are on one host: cubic, or reno if
   *                              there is no cubic
   *   verbs://HOST[:PORT][?...]  the RDMA device (InfiniBand, RoCE, iWARP, Linux's rxe and siw)
   *                              on the route to HOST. Port 20049 by default. The first address
   *                              decides for the process
   *     device=NAME              selects the device
   *     windows=no               does not use its memory windows
   *
   * Each may have timeout=S, 1 to 3600 seconds, which replaces connect_timeout_ms. Join options
   * with "&".
   *
   * All addresses of a name are tried (RFC 8305): the next one after 250 ms without an answer, or
   * when the previous one fails. An address that accepts TCP but does not answer the handshake is
   * abandoned after its share of the time. With verbs: addresses are tried one at a time, each for
   * its share. A reconnection begins with the address that worked last.
   *
   * Operations that may block run on threads of the Runtime (doc/guide-cores-and-memory.md): name
   * look-ups, and opening a driver for its first address. Eight names are looked up at a time,
   * besides those that need no name server; a further one waits, and its time begins with its
   * look-up. A name that several connections want is looked up once, and the answer is kept for
   * three seconds.
   *
   * Any thread, callbacks and handlers included. Errors without a call of on_state:
   * kInvalidArgument (no such core), kBadUri (unknown scheme too). All others are reported by
   * on_state and error().
   */
  [[nodiscard]] Result<std::unique_ptr<ClientConnection>> connect_start(
      const std::string& uri, const ConnectOptions& options = {});
  /**
   * As connect_start(), and waits until the connection is established; an embedded runtime is
   * polled.
   *
   * connect_timeout_ms also applies if no thread polls that core. If a core stops being polled
   * after it has begun to connect, the wait lasts up to 5 seconds longer.
   *
   * Errors: kInvalidArgument (no such core; called in a callback or handler on a poll core),
   * kBadUri, kNotFound, kRefused, kNotAPeer, kPermission, kTimeout, kConnectionLost (the peer
   * closed during the handshake), kNoMemory, kLimit (the poll core has 16,384 connections of that
   * scheme; a full server is kRefused), kUnsupported, kShutdown (closed meanwhile, in on_state),
   * kSystem.
   */
  [[nodiscard]] Result<std::unique_ptr<ClientConnection>> connect(const std::string& uri,
                                                                  int core = -1);
  [[nodiscard]] Result<std::unique_ptr<ClientConnection>> connect(const std::string& uri,
                                                                  const ConnectOptions& options);

  struct Impl;

 private:
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rrdk

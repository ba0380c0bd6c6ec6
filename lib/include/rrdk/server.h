/**
 * Serves RPC programs. A Server has services (rrdk/service.h), listens on addresses, and answers
 * the calls of the clients that connect.
 *
 *   auto server = rrdk::must(rrdk::Server::create(*runtime));
 *   rrdk::must(server->add_service({.binding = &kBinding, .procedures = kTable}));
 *   std::string uri = rrdk::must(server->listen("shm:/run/perf.sock"));
 *
 * ServerOptions limits what clients may use. ReplayOptions is about calls that must not run twice,
 * and BackwardClient about calls from the server to its clients.
 *
 * Order: create(), add_service(), listen(). While calls are served, services can be added and
 * removed, and limits changed; poll cores and workers do not stop for it. At the end drain() lets
 * the calls in progress finish, and ~Server() or close_start() closes what remains.
 *
 * Lifetime: destroy the Server before its Runtime. Before that, answer the ServerCalls that
 * handlers have kept, and release the BackwardClients.
 *
 * Threads: stats(), procedures(), limits(), visit(), close(), drain_start() and close_start() may
 * be called from any thread; all other functions and the destructor from one thread at a time.
 * Handlers and callbacks must not call functions that wait (see "Waiting" in rrdk/runtime.h).
 *
 * Errors: a peer that breaks the protocol is refused and counted (rrdk/counters.h); the program
 * never has to deal with it. ServerOptions::on_close says why a connection ended.
 *
 * Security: the link is neither encrypted nor authenticated. There is no IPsec, and there are no
 * channel bindings, which RFC 5666 section 11 wants. Kerberos can prove who calls, and protect
 * arguments and results (ServerOptions::gss, Service::accepts, rrdk/gss.h). doc/security.md says
 * how to protect the network below.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rrdk/call.h"
#include "rrdk/connection.h"
#include "rrdk/counters.h"
#include "rrdk/error.h"
#include "rrdk/interceptor.h"
#include "rrdk/memory.h"
#include "rrdk/procedure_stats.h"
#include "rrdk/rfc5666.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "rrdk/version.h"
#include "rrdk/version2.h"

namespace rrdk {

/**
 * The duplicate request cache keeps the replies of procedures that are not idempotent, so that a
 * call which a client repeats under the same XID runs once. The procedure's entry asks for it:
 *
 *   {.number = kAppend, .handler = append, .idempotent = false}
 *
 * Promise: for window_ms after a client lost a connection, a call that it repeats is answered from
 * the cache, or with SYSTEM_ERR if the reply could not be kept (Counter::kReplayLost). It never
 * runs twice, however many of the client's connections broke together. With more clients than
 * places, the promise holds for min_window_ms only. In version 2 a client also repeats calls on the
 * same connection, after an answer that named the space that the reply needs.
 *
 * Errors: memory is bounded, so a call whose repetition could not be recognised is refused before
 * it runs. It is answered SYSTEM_ERR and counted (Counter::kReplayRefused), and a log line names
 * the option to change.
 *
 * Identity: each client has one cache for all of its connections. The kernel or the network
 * identifies the client, never its messages: over shm the process, its start time and its user;
 * over iwarp and verbs the address without its port. Calls of a client that cannot be identified
 * are refused. Within a client a call is recognised by XID, program, version, procedure, principal,
 * and the length and first 256 bytes of its arguments, so these bytes must contain whatever
 * distinguishes calls.
 *
 * Limits: the cache is in memory, so it does not cover a restart of the server or the client. It
 * does not cover repetitions after window_ms, so deadlines of repeated calls should be shorter.
 * doc/guide-deadlines.md lists what else it does not cover, and says what a principal is.
 */
struct ReplayOptions {
  /**
   * The minimum number of calls remembered per connection, 0 to 65536. 0: no cache; calls run as
   * they come (Counter::kReplayUnprotected). At least as many are remembered as the client may have
   * outstanding: the most that the connection was granted (ServerOptions::first_credits, credits),
   * in version 2 twice that, and 16 more. These stay when the connection has ended.
   */
  uint32_t entries = 16;
  /**
   * Bytes of replies kept per connection, at least max_reply. When they are full, older replies are
   * dropped; their calls are still known, and are answered SYSTEM_ERR instead of being run again.
   */
  uint32_t bytes = 256 << 10;
  /**
   * Clients that are remembered, at least 1: those that have made a call that must not run twice,
   * whether or not they have connections. A client without connections is forgotten after
   * window_ms. Set more places than the number of clients that come in that time.
   *
   * When no place is free, processes that have exited are forgotten, since they cannot come back;
   * then the client that has been away longest, if that is longer than min_window_ms
   * (Counter::kReplayMadeWay). Otherwise calls of further clients are refused, or run
   * (run_unprotected).
   *
   * Clients of one origin have at most half of the places, and a quarter if others have the rest.
   * An origin is a source that can easily appear as many clients one after the other: the processes
   * of a user (shm), all addresses of this host, an IPv6 /64, or IPv4 addresses with the same first
   * `ipv4_prefix` bits.
   */
  uint32_t clients = 4096;
  /**
   * The longest reply that is kept, results given by reference included. If the reply was longer, a
   * repetition of its call is answered SYSTEM_ERR, since running it again would be worse.
   */
  uint32_t max_reply = 16 << 10;
  uint32_t window_ms = 120'000;  ///< how long a client may take to come back
  /**
   * Remembers calls from listen() on even if no service needs it yet, so that a service with
   * procedures that are not idempotent can be added later. Not needed if some service has such
   * procedures at listen().
   */
  bool always = false;
  /**
   * Limit for all connections together, including ended ones whose last calls are kept for
   * window_ms. When it is used up, replies of ended connections are dropped first, and then further
   * calls are refused. One client, and all hosts of an IPv6 /64 together, may have up to half of
   * the limit, and less the more others have (by the rule for buffers, see
   * ServerOptions::max_chunk_bytes). It is heap memory that counts as part of the Memory's budget
   * (but pages that buffers have once used stay with them). It is taken as calls need it, except
   * for some 2 MiB that Server::create() reserves. doc/guide-deadlines.md says what connections and
   * calls take.
   *
   * 0: half of the budget (MemoryOptions::bytes); 128 MiB if no class is elastic.
   */
  uint64_t total_bytes = 0;
  /**
   * Milliseconds for which a client without connections is remembered even if all places are taken.
   * Make it longer than clients take to reconnect and repeat their calls. 0: window_ms.
   */
  uint32_t min_window_ms = 15'000;
  /**
   * IPv4 addresses with the same first `ipv4_prefix` bits (at most 32) are one origin. 0: each
   * address is an origin of its own.
   */
  uint8_t ipv4_prefix = 24;
  /**
   * What to do as a last resort when a client cannot be remembered for lack of places or memory. If
   * false, its calls that must not run twice are refused. If true, they run and are counted
   * (Counter::kReplayUnprotected); such a call runs again if it is repeated. Clients that the
   * fabric cannot identify, and calls beyond what was granted, are refused in either case.
   */
  bool run_unprotected = false;
  Reserved<7> reserved = {};  ///< spare bytes for later releases
};

struct ServerOptions {
  /**
   * The versions of RPC-over-RDMA that are served, all on one port; at least one. Calls in other
   * versions are answered ERR_VERS, and those of the other draft with its errors for what cannot be
   * read (doc/version-two.md).
   */
  RpcRdmaVersions versions = {};
  /**
   * Calls that one connection may have outstanding, 1 to 4096. A connection is granted
   * `first_credits` at first. While it makes a substantial part of its poll core's calls, its grant
   * doubles each time that a quarter of the grant has been answered; a connection that is alone has
   * all 64 within four round trips. One that makes few calls while others make many is granted few
   * again. No connection gets more than half of what memory leaves (RFC 5666 section 3.3).
   *
   * Credits are backed by Receives, buffers of inline_size that the connections of a poll core
   * share. They come only from the smallest class that is large enough. A connection, idle or not,
   * takes `first_credits` of these buffers, and one more for each credit granted beyond that. When
   * it is granted fewer, it keeps the Receives until it has made as many calls, since version 1 has
   * no earlier moment to take them back.
   *
   * If a new connection would leave less than a quarter of that class for calls and replies, it
   * takes the place of a connection that never made a call, or is refused. The log names the class,
   * and Counter::kClosedForRoom and kConnectionsRefused count them. doc/guide-cores-and-memory.md
   * says which connection is closed.
   */
  uint32_t credits = 64;
  /**
   * The minimum number of calls that a connection may have outstanding, from its first answer on:
   * at least 1; more than `credits` counts as `credits`. Only an answer can grant more, so set this
   * high enough if handlers keep calls until others have come.
   */
  uint32_t first_credits = 4;
  /**
   * Gives each connection `credits` Receives of its own, idle or not, and all credits from its
   * first call on. This is always so over devices, which do not hold back what exceeds a peer's
   * part (`verbs:`), with `rfc5666`, and where Receives may grow (version2.max_receive_size).
   */
  bool private_receives = false;
  /**
   * Bytes of Send and Receive buffers: a multiple of 1024, at most 262144 and largest_buffer().
   * Where version 2 is served, as it is by default, Receives have at least 4096 bytes; its messages
   * have at most 4096 bytes inline unless both ends exchange transport properties.
   */
  uint32_t inline_size = 4096;
  /**
   * Bytes of one call, chunks included, 1024 to 1 GiB; a larger call is refused. Chunks are fetched
   * into at most 128 buffers, so more than 8 MiB are possible only up to 128 times
   * Memory::largest_buffer(): 128 MiB with the default classes, if max_chunk_bytes is raised as
   * well.
   */
  uint64_t max_call = 8u << 20;
  /**
   * Bytes of one reply, placed results included, 1024 to 1 GiB. A call that offers more than 1 GiB
   * of memory for results is refused, whatever its reply contains.
   */
  uint64_t max_reply = 8u << 20;
  /**
   * Bytes of chunks that one connection's calls in progress may have: arguments fetched by RDMA
   * Read, and results as far as they fit the memory that the client offers, at most max_reply per
   * call. Further calls wait, in order, for earlier ones of their connection to end. It also bounds
   * max_call and max_reply: a larger call is refused, and a larger reply becomes SYSTEM_ERR. At
   * least 1024.
   *
   * In addition, no client can take all pool buffers, however many connections it has (RFC 5666
   * section 11): calls beyond its share wait (Counter::kWaitsShare). The first call of its queue is
   * refused once it has waited for buffers for two seconds: its client gets the transport's error
   * (RFC 8166 section 4.5.2), and Refusal::kNoBuffers counts. A client that holds buffers but sends
   * almost no data for them, while others wait, loses its connection (Refusal::kHeldBuffers).
   * doc/guide-cores-and-memory.md has the shares.
   */
  uint64_t max_chunk_bytes = 32u << 20;
  /**
   * Calls that this server may have outstanding to one client, 0 to 4096; further calls are queued
   * (see backward_max_queued), and the client grants as many as it likes. 0: the server calls no
   * client (ServerCall::backward_client()). Each connection, idle or not, takes this many further
   * buffers for Receives, under the rule of `credits`.
   */
  uint32_t backward_credits = 0;
  uint32_t backward_timeout_ms = 30000;  ///< default deadline of calls to clients; 0: none
  /** As ClientOptions::lend_ms, for abandoned calls to clients. */
  uint32_t backward_lend_ms = 30000;
  /**
   * Connections at once, at least 1; `credits` says what else bounds the number. At this limit, on
   * a full poll core, and when descriptors have run out, a new connection takes the place of one
   * that never made a call. A connection that has ended counts until the calls that handlers keep
   * are answered.
   *
   * A poll core has at most 16,384 connections of each scheme, a client's and a server's together;
   * further ones are refused. doc/guide-cores-and-memory.md says what descriptors and memory a
   * connection takes.
   */
  uint32_t max_connections = 65536;
  /**
   * Connections at once of one client, as ReplayOptions identifies it; all hosts of an IPv6 /64
   * count as one, since each can use any of its addresses. 0: half of the connections that there
   * are buffers for (`credits`).
   */
  uint32_t max_connections_per_client = 0;
  /**
   * Closes a connection that has not made its first call within this time after it was accepted,
   * independently of idle_timeout_ms. 0: never.
   */
  uint32_t first_call_timeout_ms = 30'000;
  /** Closes a connection that for this time has no call in progress and makes none. 0: never. */
  uint32_t idle_timeout_ms = 0;
  /**
   * Closes a connection whose client, for this time, takes none of its replies and lets none of our
   * RDMA Reads and Writes proceed, since it holds buffers of the server (RFC 5666 section 11). 0:
   * never. Replies that the fabric holds do not count: over shm, those of up to 4096 bytes while
   * its ring has space; over iWARP, what TCP has accepted. These times are checked four times
   * as often as the shortest of them says, between every millisecond and every second.
   */
  uint32_t send_timeout_ms = 60'000;
  ReplayOptions replay = {};
  /**
   * Decides whether a client that asks for a connection gets one. If null, all are accepted. It is
   * called after the limits above were checked, and before the client is sent anything, has
   * buffers, or takes the place of a silent connection; so only id(), peer() and the context of
   * `connection` are meaningful yet.
   *
   * An error refuses the connection. Its message is sent to the client, in whose error it appears:
   * up to 48 characters of printable ASCII (longer ones are cut, other bytes become '?'). Its code
   * is only logged here. A client that does not use this library learns only that it was refused.
   *
   *   rrdk::Result<void> admit(rrdk::ServerConnection& connection, void* site) {
   *     if (!static_cast<Site*>(site)->may_come(connection.peer()))
   *       return rrdk::fail(rrdk::Errc::kPermission, "not on the list of this site");
   *     connection.set_context(new Session(connection.id()));
   *     return {};
   *   }
   *
   * Threads: runs on the connection's poll core, during a pass, so for several connections on
   * several threads at once. It must not block or poll, and of the Server's functions it may call
   * only stats(), procedures(), limits(), visit(), close(), drain_start() and close_start().
   *
   * Order, for one connection: on_open; then its handlers, on that core or on workers; then
   * on_close.
   */
  Result<void> (*on_open)(ServerConnection& connection, void* argument) = nullptr;
  /**
   * Called when a connection has ended, exactly once for each that on_open accepted (or would have
   * accepted, if it is null). This includes connections that were not established after all,
   * because the handshake failed or buffers were missing. No handler of its calls is entered after
   * that. Calls that handlers have kept, and those whose handlers still run in workers, may be in
   * progress, and end when they are answered; `connection` remains valid for them. At the latest it
   * is called in ~Server().
   *
   * `ending` says what ended the connection, and why, for programs and for people. Its code:
   *
   *   kConnectionLost   it broke: `ending.by` says whether by the client, by the network or the
   *                     device, by a limit of this end, or by a mistake of this program
   *   kShutdown         by this server: close(), drain(), ~Server(), or because a call was dropped;
   *                     or by its limits: idle and first-call timeouts, space for another one
   *   kTimeout          by send_timeout_ms
   *   kNoMemory         there were no buffers for it, after all
   *   kLimit            its poll core is full (max_connections)
   *   kSystem           there were no descriptors for it, or the system refused something else
   *   another           that of the handshake's failure
   *
   * Threads: as for on_open, on the same core. It may also answer calls.
   */
  void (*on_close)(ServerConnection& connection, const Ending& ending, void* argument) = nullptr;
  /** Passed to both callbacks; what it points to must outlive the Server. */
  void* connection_argument = nullptr;
  /** RFC 5666's compatibility mode; needs `versions.one`. See rrdk/rfc5666.h. */
  Rfc5666ServerOptions rfc5666 = {};
  /** Options of version 2; see rrdk/version2.h. */
  Version2ServerOptions version2 = {};
  /**
   * As ClientOptions::max_queued, for the calls to one client; Caller::room() and on_room() of the
   * BackwardClient belong to it. A client that is slow to answer then holds up its own calls only.
   */
  uint32_t backward_max_queued = UINT32_MAX;
  /**
   * Functions that are called before and after the handlers of all services; null: none. create()
   * copies what it points to. See rrdk/interceptor.h.
   */
  const ServiceInterceptor* interceptor = nullptr;
  /** The same for the calls that this server makes to its clients. */
  const CallInterceptor* backward_interceptor = nullptr;
  /**
   * Verifies the calls that come with RPCSEC_GSS (RFC 2203; rrdk/gss.h). It alone demands nothing:
   * Service::accepts says which callers are refused. Null: calls of this flavour are not verified;
   * a service that takes any caller gets them as they came, and must not believe their credentials.
   */
  GssAcceptor* gss = nullptr;
  Reserved<4> reserved = {};  ///< spare bytes for later releases
};

/** The ServerOptions that Server::set_limits() can change while calls are served. */
struct ServerLimits {
  uint32_t max_connections = 65536;         ///< existing connections beyond it stay
  uint32_t max_connections_per_client = 0;  ///< likewise
  uint32_t first_call_timeout_ms = 30'000;  ///< counted from when the connection was accepted
  uint32_t idle_timeout_ms = 0;             ///< counted from the answer to the last call
  uint32_t send_timeout_ms = 60'000;        ///< counted from the last reply that the client took
  Reserved<8> reserved = {};                ///< spare bytes for later releases
};

/**
 * A client as its server calls it, on the connection on which the client called.
 * ServerCall::backward_client() returns it. The server can call the services that the client added
 * to its Client. Both directions have credits and XIDs of their own, so neither waits for the other
 * (RFC 8167; doc/both-directions.md).
 *
 *   void subscribe(rrdk::ServerCall call, void* context) {
 *     auto client = call.backward_client();
 *     if (!client) return std::move(call).reject(rrdk::AcceptStat::kSystemErr);
 *     static_cast<Site*>(context)->subscribers.add(*client);     // a std::shared_ptr
 *     std::move(call).reply();
 *   }
 *   ...
 *   auto* news = new rrdk::Call(*subscriber);                    // anywhere, at any time
 *   news->begin(kNewsBinding, kChanged).put_u32(what);
 *   news->submit(on_told, news);                                 // on_told deletes it
 *
 * Threads: any, as for a ClientConnection (rrdk/client.h). Callbacks run on its connection's poll
 * core, and handlers there may make calls; only submit_and_wait() needs another thread or a worker.
 *
 * Errors: when the connection ends, its calls end with kConnectionLost, since a server cannot
 * connect again. The client may reconnect, and its next call then gives another BackwardClient. If
 * this server ended the connection (~Server(), drain(), idle_timeout_ms), calls end with kShutdown.
 * Calls submitted later end in the same way, in the core's next pass or a millisecond later.
 *
 * Lifetime: keep it while making, cancelling or waiting for calls on it, or destroying one in
 * flight; callbacks come without it, too. Releasing it does not wait, and is allowed anywhere, also
 * in handlers. Release all before their Server is destroyed, which logs an error otherwise, and in
 * any case before the Runtime.
 *
 * Sizes: arguments must fit inline with their headers, otherwise the call ends with kTooLarge,
 * unsent; so must results, otherwise the call ends with kChunkError after the client has run it.
 * doc/both-directions.md says how much fits. Memory that is offer()ed only counts towards the size
 * of the reply. To a client that takes_chunks(), larger calls can be made, as by a
 * ClientConnection.
 */
class BackwardClient : public Caller {
 public:
  ~BackwardClient();
  /**
   * Returns true if calls that do not fit inline can be made: the connection uses draft-04 of
   * version 2, the client has said that it takes chunks (Version2ClientOptions::backward_chunks),
   * and this server uses them (Version2ServerOptions::backward_chunks). Any thread. Once true, it
   * stays true.
   *
   * A client says so after the first reply that it gets. So this is still false in the handler of
   * its first call, and final in the handler of a call that it made after a reply.
   */
  bool takes_chunks() const noexcept;

  struct Impl;

 private:
  explicit BackwardClient(std::shared_ptr<Impl> impl);
};

/**
 * Listens for clients, on one address or several, and serves their calls. Order, lifetime and
 * threads: see the top of this header.
 */
class Server {
 public:
  /**
   * `runtime` must outlive the Server. Errors: kInvalidArgument (an option out of its range; an
   * inline_size or version2.max_receive_size for which the runtime's Memory has too few buffers or
   * none; a max_call for which no buffers are large enough).
   */
  [[nodiscard]] static Result<std::unique_ptr<Server>> create(Runtime& runtime,
                                                              const ServerOptions& options = {});
  /**
   * Closes as close_start() does, and waits until it has closed, at most 5 seconds (see "Waiting"
   * in rrdk/runtime.h); returns at once if it was closed before. The buffers of connections, calls
   * and replies have then been returned, except some that each poll core keeps for the headers of
   * future calls until ~Runtime(). Must not be called from a handler or a callback, except the
   * callback of close_start().
   *
   * Kept ServerCalls must be answered first, and cores be polled. If that does not happen within
   * these 5 seconds, an error is logged, and the rest is destroyed when it does. No handler is
   * entered any more, and neither on_close nor the callbacks of drain_start(), close_start() and
   * listen_start() are called; but kept calls may still be answered, and the Runtime must live
   * until then.
   */
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /**
   * Adds a program. When it returns, calls of the program are served, also on existing connections;
   * until then they may get PROG_UNAVAIL. Does not wait, and may be called from handlers and
   * callbacks. Errors: kInvalidArgument (program and version added twice, bad binding or table;
   * after listen(): a procedure that is not idempotent while connections have no part of a
   * duplicate request cache, see ReplayOptions::always).
   */
  [[nodiscard]] Result<void> add_service(const Service& service);
  /**
   * Removes a program. When it returns, no handler of this service runs or will be entered, so what
   * they use may be destroyed. Calls that handlers have kept remain in progress, and are answered
   * as before. Further calls get PROG_UNAVAIL, or PROG_MISMATCH if other versions of the program
   * are left; so do those that wait for a worker. The program's entries in procedures() are gone.
   * It may be added again, with other handlers.
   *
   *   rrdk::must(server->remove_service(kBlkBinding.program, kBlkBinding.version));
   *   disk.reset();  // no handler uses it any more
   *
   * Memory that a reply refers to, and what was given to ServerCall::on_released(), remain in use
   * until that callback, which may come later.
   *
   * It waits for the passes in progress on all cores and for the service's handlers on workers, but
   * not for the network or other services: a handler that takes a second in a worker makes it wait
   * for a second (after 5 s this is logged). On a thread that polls embedded cores it polls them
   * meanwhile. Errors: kNotFound, kInvalidArgument (from a handler, a callback, or a read section
   * of liburcu, see doc/guide-cores-and-memory.md).
   */
  [[nodiscard]] Result<void> remove_service(uint32_t program, uint32_t version);
  using Done = void (*)(void* argument);
  /**
   * As remove_service(), without waiting; may be called from anywhere. `removed` is called once,
   * when remove_service() would have returned, on poll core 0, during a pass. Errors, with no
   * callback: kNotFound.
   */
  [[nodiscard]] Result<void> remove_service_start(uint32_t program, uint32_t version, Done removed,
                                                  void* argument);
  /** The current limits: at first those of ServerOptions. */
  ServerLimits limits() const;
  /**
   * Changes the limits. No connection is closed because there are too many; time-outs apply to all
   * connections, from their next check on.
   *
   *   rrdk::ServerLimits limits = server->limits();
   *   limits.idle_timeout_ms = 60'000;
   *   rrdk::must(server->set_limits(limits));
   *
   * Errors: kInvalidArgument (as for Server::create()); then no limit has changed.
   */
  [[nodiscard]] Result<void> set_limits(const ServerLimits& limits);
  /**
   * Listens on an address, and returns its URI with what the system chose. Connections are spread
   * over the poll cores. timeout=S limits a peer's handshake: by default 3 seconds over shm:, 10
   * over iwarp:; verbs: accepts it without effect.
   *
   *   shm:PATH                   a UNIX socket: PATH has at most 107 bytes and its directory
   *                              exists. A socket that a dead server left there is replaced
   *   shm:@NAME                  an abstract socket of Linux: it is not a file, has no
   *                              permissions, and disappears with its server
   *   shm:...?peer_memory=SIZE   as for Client::connect(), for clients with more than 4 GiB of
   *                              registered memory
   *   iwarp://HOST[:PORT][?...]  a TCP port of this host, 20049 by default; 0 chooses a free one.
   *                              0.0.0.0 and [::] are all addresses. A name stands for all of
   *                              its addresses that this host has, with one port; if there are
   *                              several, the returned URI has the name. silence=S and
   *                              congestion=NAME are as for Client::connect()
   *   verbs://HOST[:PORT][?...]  the RDMA device with this address; options and port as for
   *                              Client::connect()
   *
   * iWARP neither encrypts nor authenticates: anything that reaches the port, or can write into the
   * connection, is a client (see ServerOptions::on_open).
   *
   * Errors: kBadUri (unknown scheme too), kAddressInUse, kNotFound (the directory or the address
   * does not exist), kPermission (the system forbids it, such as congestion=NAME without
   * CAP_NET_ADMIN), kNoMemory (verbs: locked memory), kUnsupported (no RDMA device, or another one
   * than before; congestion=NAME that this kernel lacks), kShutdown (after drain()), kSystem.
   */
  [[nodiscard]] Result<std::string> listen(const std::string& uri);
  using Listening = void (*)(Result<std::string>&& uri, void* argument);
  /**
   * As listen(), without waiting; may be called from anywhere. The driver is opened, and the host's
   * name looked up, on threads of the Runtime. `listening` is called once, on poll core 0, during a
   * pass. Until then it counts as a function in progress, for functions that are for one thread at
   * a time.
   */
  void listen_start(const std::string& uri, Listening listening, void* argument);
  /** Stops accepting. Existing connections stay. */
  void stop_listening();
  /**
   * Ends gracefully: no connection is accepted any more, and no further call is run. Calls that
   * handlers have, kept ServerCalls included, are answered; each connection is closed when its last
   * reply has been sent. Further calls that arrive are neither run nor answered: to their clients
   * they end as any call of a lost connection (Counter::kCallsNotRun). The server's own calls to
   * these clients end with kShutdown at once.
   *
   * Returns when all connections are closed, at the latest after `timeout_ms`, when it closes the
   * rest at once. Returns how many those were; 0 means a clean end. If the result is not 0,
   * handlers may still have calls, which clients may repeat at another server. After it only
   * stats() and ~Server() are useful: listen() fails with kShutdown. It waits for the cores
   * (rrdk/runtime.h). In a handler or a callback it would wait for itself, so there it only starts,
   * and returns how many connections there are.
   */
  uint32_t drain(uint32_t timeout_ms);
  using Drained = void (*)(uint32_t rest, void* argument);
  /**
   * As drain(), without waiting; may be called from anywhere. `drained` is called once, when
   * drain() would have returned and with its result, on poll core 0, during a pass. `drained` may
   * be null.
   */
  void drain_start(uint32_t timeout_ms, Drained drained, void* argument);
  /**
   * Stops accepting and closes all connections, whatever they have in progress; to their clients
   * they are lost. Returns at once, from anywhere. `closed` is called once, on poll core 0, during
   * a pass, when all calls have ended, including those that handlers kept: no handler runs or will
   * be entered, on_close has been called for all connections, and callbacks of calls to clients
   * (kShutdown) have run. BackwardClients must be released by then; otherwise it is logged. In the
   * callback or later the Server may be destroyed, which then does not wait; stats() and
   * procedures() remain available until that. A second close_start() has a callback of its own,
   * unless it is null. The callback of drain_start(), if any, comes first.
   *
   *   server->drain_start(5000, [](uint32_t, void* site) {
   *     static_cast<Site*>(site)->server->close_start(on_closed, site);
   *   }, &site);
   */
  void close_start(Done closed, void* argument);
  /**
   * What the server has counted (rrdk/counters.h): for its connections, past ones included, and for
   * the calls that it made to its clients. The more connections, the longer it takes, but it stops
   * none. Any thread.
   *
   *   uint64_t calls = server->stats()[rrdk::Counter::kCallsReceived];
   */
  Stats stats() const;
  /**
   * Counts and times for each procedure, ordered by program, version and number; NULL is included,
   * without times since it has no handler. Any thread. Empty before listen().
   */
  std::vector<ProcedureStats> procedures() const;
  /**
   * Ends one connection, whatever it has in progress: to its client it is lost, and on_close gets
   * kProgram, kShutdown and `reason`, which the client does not see. Does not wait: on_close
   * reports the end. Has no effect on a connection that is being closed. Errors: kNotFound (no
   * connection has that id, or no longer).
   */
  [[nodiscard]] Result<void> close(uint64_t id, const std::string& reason);
  /**
   * Calls `visitor` with a snapshot of each connection, in the order of their ids, which is roughly
   * that of their arrival. Connections that exist throughout are visited once; those that come or
   * go meanwhile, at most once. `visitor` runs in the calling thread with nothing locked, so it may
   * take its time and do anything, including close(). Poll cores are not stopped: each number is
   * whole, and the numbers of one connection are from nearly the same moment.
   *
   *   server->visit([&](const rrdk::ConnectionInfo& seen) {
   *     if (seen.idle_ns > kHour)
   *       (void)server->close(seen.id, "idle for an hour");
   *   });
   */
  void visit(const std::function<void(const ConnectionInfo&)>& visitor) const;

  struct Impl;

 private:
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rrdk

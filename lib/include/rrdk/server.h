/**
 * Serving RPC programs: what is offered, and how it is written, is in rrdk/service.h. Here is who
 * offers it: a Server has services, listens, and answers the calls of all who connect.
 *
 *   auto server = rrdk::must(rrdk::Server::create(runtime));
 *   rrdk::must(server->add_service({.binding = &kBinding, .procedures = kProcedures}));
 *   std::string uri = rrdk::must(server->listen("shm:/run/perf.sock"));
 *
 * Security: nothing here encrypts or authenticates the link. There is no IPsec, and there are no
 * channel bindings (RFC 5056) for a security service, which RFC 5666 section 11 wants where both
 * protection and efficiency are needed; on InfiniBand and RoCE there is no IPsec at all (RFC 8797
 * section 7). doc/security.md says what to do: protect the network below, or the calls above.
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
#include "rrdk/memory.h"
#include "rrdk/procedure_stats.h"
#include "rrdk/rfc5666.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "rrdk/version.h"
#include "rrdk/version2.h"

namespace rrdk {

/**
 * The duplicate request cache: replies to procedures that are not idempotent are kept, so that a
 * call that a client repeats with the same XID, on a new connection or, in version 2, on the same
 * one after an answer that named the room it needs, runs once. What is kept is the RPC message; a
 * repeated call may offer other chunks.
 *
 *   {.number = kAppend, .handler = append, .idempotent = false}
 *
 * The promise: for window_ms after a client lost a connection, a call that it repeats is answered
 * from the cache; or with SYSTEM_ERR, when the reply had no room (Counter::kReplayLost). It is
 * never run twice, however many of the client's connections broke together. If there are more
 * clients than places, the promise holds for min_window_ms only. Memory is bounded, and what the
 * bound leaves no room for is refused before it runs: a call whose repetition the server could not
 * recognise is answered SYSTEM_ERR, counted (Counter::kReplayRefused), and a line in the log says
 * which option to change.
 *
 * Each client has a cache of its own, for all of its connections. Who a client is does not come
 * from its messages: the kernel tells (shm: the process, its start and its user), or the network
 * (iwarp: the address without its port, so that all processes of a host, and all behind one NAT,
 * are one client). A process in a PID namespace that the server cannot see is not known: its calls
 * are refused.
 * Within a client a call is recognised by XID, program, version, procedure, principal, and length
 * and first 256 bytes of its arguments: whatever makes calls different from each other belongs
 * there. The principal is what the credential says of the caller. Of AUTH_SYS that is machine name,
 * user, group and groups, but not the stamp, which a client may write anew when it repeats a call;
 * of other flavours, and where the body cannot be read, it is the whole body. So two users behind
 * one address never see each other's replies. A repetition that comes while the handler still has
 * the first call waits for it.
 *
 * It is in memory, so it does not cover a server or a client that starts anew. Nor does it cover
 *  - repetitions after window_ms: deadlines of repeated calls should be shorter;
 *  - a client that comes back from another address, as IPv6 hosts with temporary addresses may;
 *  - calls that drop() ended, and those of a service that has been removed since: PROG_UNAVAIL;
 *  - a call that the client makes again by submit(), since that has a new XID;
 *  - a client that has more calls outstanding than it was granted, or that makes as many other
 * calls on a new connection before it repeats what it lost on the old one;
 *  - a call whose reply is read, in RFC 5666's mode, while as many others are made and answered;
 *  - a call with chunks that version 2 sends again, and that as many others overtake.
 * With `entries` 0 there is no cache: calls run as they come (Counter::kReplayUnprotected).
 *
 * Memory is taken as calls need it, `total_bytes` at most. 2 MiB or a little more of the budget are
 * reserved from Server::create() on; beside that, a server without procedures that ask for it takes
 * next to nothing.
 */
struct ReplayOptions {
  /**
   * Calls remembered per connection while it lives, at least, 0 to 65536; 0: no cache. There are
   * never fewer than its client may have outstanding: what the connection was granted at most
   * (ServerOptions::first_credits, credits), in version 2 twice that, and 16 more; these stay when
   * it has ended.
   */
  uint32_t entries = 16;
  /** Of replies kept per connection, at least max_reply. Older ones make room; then their calls are
      still known, and answered SYSTEM_ERR instead of being run again. */
  uint32_t bytes = 256 << 10;
  /**
   * Clients that are remembered, at least 1: those that have made a call that must not run twice,
   * with connections and without. One without connections is forgotten after window_ms. Have more
   * places than clients come by in that time.
   *
   * When places lack, processes that have exited are forgotten, since they cannot come back; then
   * the client that has been away for longest, if that is longer than min_window_ms
   * (Counter::kReplayMadeWay). Else calls of further clients are refused, or run (run_unprotected).
   *
   * Clients of one origin have at most half of the places, and a quarter where others have the
   * rest. An origin is what can easily come as many clients, one after the other: the processes of
   * a user (shm), all addresses of this host, an IPv6 /64, IPv4 addresses with the same first
   * `ipv4_prefix` bits.
   */
  uint32_t clients = 4096;
  /**
   * A longer reply is not kept, results given by reference included. A repetition of its call is
   * answered SYSTEM_ERR: to run it again would be worse.
   */
  uint32_t max_reply = 16 << 10;
  uint32_t window_ms = 120'000;  ///< how long a client may take to come back
  /**
   * Calls are remembered from listen() on although no service needs it yet: one with procedures
   * that are not idempotent may then be added later. Where some service has them at
   * listen() that is so anyway.
   */
  bool always = false;
  /**
   * For all connections together, those included that have ended and whose last calls are kept for
   * window_ms. Heap memory that counts as part of the Memory's budget (pages that buffers have once
   * used stay with them, all the same). A connection takes 4 KiB when it comes, and more as its
   * calls need it, before they run; what it leaves behind takes 160 bytes for a call, and the
   * reply. A client, and all hosts of an IPv6 /64 together, may have up to half of it, and less
   * the more others have (as of buffers, see ServerOptions::max_chunk_bytes).
   * When that is used up, replies of its connections that have ended make room, and then further
   * calls are refused. A thousand connections that were granted few credits take 4 MiB, and 1 to 4
   * MiB more each time that all of them break within window_ms.
   *
   * 0: half of the budget (MemoryOptions::bytes); 128 MiB where no class is elastic.
   */
  uint64_t total_bytes = 0;
  /**
   * Milliseconds for which a client without connections is remembered even when all places are
   * taken. Make it longer than clients take to reconnect and repeat their calls. 0: window_ms.
   */
  uint32_t min_window_ms = 15'000;
  /**
   * IPv4 addresses with the same first `ipv4_prefix` bits (at most 32) are one origin; 0: each is
   * its own.
   */
  uint8_t ipv4_prefix = 24;
  /**
   * The last resort when a client cannot be remembered, for want of places or of memory. False:
   * its calls that must not run twice are refused. True: they are run, and counted
   * (Counter::kReplayUnprotected); such a call runs again if it is repeated. Clients that the
   * fabric does not know, and calls beyond what was granted, are refused all the same.
   */
  bool run_unprotected = false;
  Reserved<7> reserved = {};  ///< for what later releases add
};

struct ServerOptions {
  /**
   * Of RPC-over-RDMA, all on one port: calls in others are answered ERR_VERS, and those of the
   * other draft with its errors for what cannot be read (doc/version-two.md). At least one.
   */
  RpcRdmaVersions versions = {};
  /**
   * Calls that one connection may have outstanding, 1 to 4096. A connection is granted
   * `first_credits` at first. If it makes a good part of its poll core's calls, its grant doubles
   * each time that a quarter of the grant has been answered; a connection that is alone has all 64
   * within four round trips. One that makes few calls while others make many is granted few again.
   * No connection gets more than half of what memory leaves (RFC 5666 section 3.3).
   *
   * Credits are backed by Receives, buffers of inline_size that the connections of a poll core
   * share: of the smallest class that is large enough, and of no other. A connection takes
   * `first_credits` of them, idle or not, and those for credits granted beyond that. When it is
   * granted fewer, it keeps the Receives until it has made as many calls: version 1 has no other
   * moment to take them back.
   * When less than a quarter of that class would be left for calls and replies, a new connection
   * takes the place of one that never made a call and whose end frees buffers for this poll core:
   * of the origin with most such connections, and within it of the client with most, the oldest
   * (ReplayOptions says what an origin is). A newcomer has at most eight closed; if that does not
   * help, or there is no such connection, it is refused. The log names the class, and
   * Counter::kClosedForRoom and kConnectionsRefused count them.
   */
  uint32_t credits = 64;
  /**
   * Least calls that a connection may have outstanding, from its first answer on: at least 1, at
   * most `credits` count. Only an answer can grant more, so handlers that keep calls until others
   * have come need as many here.
   */
  uint32_t first_credits = 4;
  /**
   * Each connection has `credits` Receives of its own, idle or not, and all credits from its first
   * call on. So it is in any case over devices, which do not hold back what is beyond a peer's
   * part (`verbs:`), with `rfc5666`, and where Receives may grow (version2.max_receive_size).
   */
  bool private_receives = false;
  /**
   * Bytes of Send and Receive buffers: a multiple of 1024, at most 262144 and largest_buffer().
   * Where version 2 is answered, as it is by default, Receives have at least 4096 bytes; its
   * messages have at most 4096 bytes inline unless both ends tell their transport properties.
   */
  uint32_t inline_size = 4096;
  /**
   * Bytes of one call, chunks included, 1024 to 1 GiB; a larger one is refused. What travels in
   * chunks is fetched into at most 128 buffers, so more than 8 MiB are possible only up to 128
   * times Memory::largest_buffer(): 128 MiB with the default classes, if max_chunk_bytes is raised
   * as well.
   */
  uint64_t max_call = 8u << 20;
  /**
   * Bytes of one reply, placed results included, 1024 to 1 GiB. A call that offers more than 1 GiB
   * of room is refused, whatever its reply has.
   */
  uint64_t max_reply = 8u << 20;
  /**
   * Bytes of chunks that one connection's calls in progress may have: of arguments fetched by RDMA
   * Read, and of results as far as they fit the room that the client offers, at most max_reply a
   * call. Calls beyond wait, in order, for earlier ones of their connection to end. It also bounds
   * max_call and max_reply: a larger call is refused, a larger reply becomes SYSTEM_ERR. At least
   * 1024.
   *
   * Besides, and however many connections it has, no client can take all pool buffers (RFC 5666
   * section 11): of each size class it may hold, for chunks and for results that handlers made in
   * buffers, while at least half of the class is free, as many as remain free; after that 1/(n+1)
   * of the class, where n clients have connections. The last eighth is kept for results and for
   * clients that hold next to nothing, so that a newcomer finds buffers whatever others hold. Its
   * calls beyond wait (Counter::kWaitsShare). A call that is the first of its queue to have
   * waited for buffers for two seconds is refused: its client gets the transport's error (RFC 8166
   * section 4.5.2), and Refusal::kNoBuffers counts. While others wait for buffers, or handlers find
   * none for their results, a client that sends next to none of the data for which it has some
   * (less than a 32nd of it) loses its connection after a second (Refusal::kHeldBuffers). Data
   * counts as it comes; over `verbs:`, where the device does not tell, with its whole RDMA Read.
   */
  uint64_t max_chunk_bytes = 32u << 20;
  /**
   * Calls that this server may have outstanding to one client, 0 to 4096; further ones queue, and a
   * client grants what it likes. 0: it calls nobody (ServerCall::backward_client()). Each
   * connection takes so many buffers more for Receives, idle or not, under the rule of `credits`.
   */
  uint32_t backward_credits = 0;
  uint32_t backward_timeout_ms = 30000;  ///< of calls to clients, by default; 0: none
  /** As ClientOptions::lend_ms, of calls to clients that are given up. */
  uint32_t backward_lend_ms = 30000;
  /**
   * At once, at least 1; `credits` has what else bounds it. Beyond, on a poll core that is full,
   * and where descriptors have run out, one that never made a call makes room, too. One that has
   * ended counts until the calls that handlers keep of it are answered.
   *
   * Beside its Receives (`credits`), a connection takes of this process: over iwarp a descriptor
   * and about 14 KiB of heap; over shm three descriptors, a fourth while it is made, and 350 KiB,
   * most of it two rings, one of each end, which both ends map, outside MemoryOptions::bytes; the
   * same at its client. When descriptors run out (RLIMIT_NOFILE), connections wait to be accepted;
   * over shm, one that was accepted may be refused instead, or wait as long as its handshake may
   * take. The log says which.
   *
   * A poll core has at most 16,384 connections of each scheme, a client's and a server's together.
   * Further ones are refused.
   */
  uint32_t max_connections = 65536;
  /**
   * At once, of one client (ReplayOptions says who that is); all hosts of an IPv6 /64 count as one,
   * since each of them can have any of its addresses. 0: half of those that there are buffers for
   * (`credits`).
   */
  uint32_t max_connections_per_client = 0;
  /**
   * A connection that has not made its first call for so long after it was accepted is closed,
   * whatever idle_timeout_ms says; 0: never.
   */
  uint32_t first_call_timeout_ms = 30'000;
  /** A connection without calls for so long is closed; 0: never. */
  uint32_t idle_timeout_ms = 0;
  /**
   * A client that takes none of its replies for so long, nor lets our RDMA Reads and Writes
   * proceed, holds buffers of the server's: its connection is closed (RFC 5666 section 11). 0:
   * never. Replies that the fabric holds for it do not count: over shm, while its ring has room,
   * those of up to 4096 bytes; over iWARP what TCP has taken. These times are looked at about
   * every millisecond, and every second while cores sleep.
   */
  uint32_t send_timeout_ms = 60'000;
  ReplayOptions replay = {};
  /**
   * A client asks for a connection: whether it gets one. It is asked behind the limits above, and
   * before the client is sent anything, has buffers, or takes the place of a silent connection; so
   * only id(), peer() and the context of `connection` say something yet. Null: all are accepted.
   *
   * An error is the refusal: its message is told to the client, in whose own error it appears, up
   * to 48 characters of printable ASCII (what is longer is cut, other bytes become '?'); its code
   * is for the log here. A client that is not of this library learns that it was refused.
   *
   *   rrdk::Result<void> admit(rrdk::ServerConnection& connection, void* site) {
   *     if (!static_cast<Site*>(site)->may_come(connection.peer()))
   *       return rrdk::fail(rrdk::Errc::kPermission, "not on the list of this site");
   *     connection.set_context(new Session(connection.id()));
   *     return {};
   *   }
   *
   * Threads: on the connection's poll core, in a pass of it, so for several connections on several
   * threads at once. It may not block or poll, and of the Server it may call stats(), visit() and
   * close(), drain_start() and close_start() only. Order, for one connection: on_open; then its
   * handlers are entered, on that core or on workers; then on_close.
   */
  Result<void> (*on_open)(ServerConnection& connection, void* argument) = nullptr;
  /**
   * The connection is over, exactly once for each that on_open accepted, or would have if there was
   * one: also for those that were not established after all, in the handshake or for want of
   * buffers. No handler of a call of it is entered any more. Calls that handlers have kept, and
   * those whose handlers still run in workers, may be in progress, and end when they are answered;
   * `connection` lives on for them. At the latest ~Server() brings it.
   *
   * `ending` says who ended it, and why, for programs and for people. Its code:
   *
   *   kConnectionLost   it broke: `ending.by` says whether by the client, by the network or the
   *                     device, by a limit of this end, or by a mistake of this program
   *   kShutdown         by this server: close(), drain(), ~Server(), or since a call was dropped;
   *                     or by its limits: idle and first-call timeouts, room for another
   *   kTimeout          by send_timeout_ms
   *   kNoMemory         there were no buffers for it, after all
   *   kLimit            its poll core is full (max_connections)
   *   kSystem           there were no descriptors for it, or the system refused something else
   *   another           that of the handshake's failure
   *
   * Threads: as on_open, on the same core; it may answer calls, too.
   */
  void (*on_close)(ServerConnection& connection, const Ending& ending, void* argument) = nullptr;
  /** Of both; what it points to outlives the Server. */
  void* connection_argument = nullptr;
  /** RFC 5666's compatibility mode, with `versions.one`; see rrdk/rfc5666.h. */
  Rfc5666ServerOptions rfc5666 = {};
  /** What version 2 has beside calls; see rrdk/version2.h. */
  Version2ServerOptions version2 = {};
  Reserved<8> reserved = {};  ///< for what later releases add
};

/** What of ServerOptions can be changed while calls come, by Server::set_limits(). */
struct ServerLimits {
  uint32_t max_connections = 65536;         ///< those beyond stay, and no further one comes
  uint32_t max_connections_per_client = 0;  ///< likewise
  uint32_t first_call_timeout_ms = 30'000;  ///< counted from when the connection was accepted
  uint32_t idle_timeout_ms = 0;             ///< from the last call
  uint32_t send_timeout_ms = 60'000;        ///< from the last reply that was taken
  Reserved<8> reserved = {};                ///< for what later releases add
};

/**
 * A client, as its server calls it: on the connection on which it called, which ServerCall::
 * backward_client() gives. What is offered there are the services that it added to its Client. Both
 * directions have credits and XIDs of their own, so neither waits for the other (RFC 8167;
 * doc/both-directions.md).
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
 * Keep it as long as you like, and use it from any thread as a ClientConnection (rrdk/client.h):
 * callbacks run on its connection's poll core, calls may be made in handlers there, and only
 * submit_and_wait() is for other threads and for workers. When the connection ends, its calls end
 * with kConnectionLost: a server cannot connect again. The client may, and its next call then
 * leads to another BackwardClient. If it was us who ended it (~Server(), drain(), idle_timeout_ms),
 * that is kShutdown. Calls submitted later end in the same way: with kShutdown in the core's next
 * pass, with kConnectionLost a millisecond later, so that a program which submits again in its
 * callbacks does not keep the core busy.
 *
 * Lifetime: hold it while you make, cancel or wait for calls on it, or destroy one in flight. Who
 * only has callbacks to come need not: they come while the connection lives, or when it ends.
 * Releasing it waits for nothing, and may be done anywhere, in handlers too. All are released
 * before their Server is destroyed, which the log says if not, and before the Runtime at last.
 *
 * Arguments fit inline with their headers, else the call ends with kTooLarge, unsent; so do
 * results, else it ends with kChunkError when the client has run it. doc/both-directions.md says
 * how much that is. Room that is offer()ed then only counts for the reply's. To a client that
 * takes_chunks() more can be sent, as by a ClientConnection.
 */
class BackwardClient : public Caller {
 public:
  ~BackwardClient();
  /**
   * Whether calls that do not fit inline can be made: draft-04 of version 2 is spoken, the client
   * has said that it takes chunks (Version2ClientOptions::backward_chunks), and this server makes
   * use of it (Version2ServerOptions::backward_chunks). Any thread; stays true once it is.
   *
   * A client says it behind the first reply that it gets. So in the handler of its first call it
   * cannot be true yet, and in that of a call which it made after a reply it is what it will be.
   */
  bool takes_chunks() const noexcept;

  struct Impl;

 private:
  explicit BackwardClient(std::shared_ptr<Impl> impl);
};

/**
 * Threads: stats(), procedures(), limits(), visit(), close(), drain_start() and close_start() from
 * any; all else, destruction included, from one at a time. What waits (see "Waiting" in
 * rrdk/runtime.h) not from handlers or callbacks. listen() may be called several times, for several
 * addresses. Services come and go, and limits change, while calls are served: poll cores and
 * workers neither stop nor wait for that.
 */
class Server {
 public:
  /**
   * `runtime` outlives the Server. Errors: kInvalidArgument (an option out of its range, or an
   * inline_size or a version2.max_receive_size for which the runtime's Memory has no buffers, or
   * too few, or a max_call for which there are no buffers large enough).
   */
  [[nodiscard]] static Result<std::unique_ptr<Server>> create(Runtime& runtime,
                                                              const ServerOptions& options = {});
  /**
   * Closes as close_start() does, and waits until it has closed; at once after that, and never for
   * longer than 5 seconds (see "Waiting" in rrdk/runtime.h). The buffers of connections, calls and
   * replies are back then; some that each poll core keeps for the headers of future calls come back
   * in ~Runtime(). Not from a handler or a callback, but for the one of close_start().
   *
   * Kept ServerCalls must be answered first, and cores be polled. If they are not in these 5
   * seconds, an error in the log says so, and the rest goes when they are: no handler is entered
   * any more, and neither on_close nor the callback of drain_start(), close_start() or
   * listen_start() comes; but calls that were kept may still be answered, and the Runtime must live
   * until then.
   */
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /**
   * From its return on calls of the program are served, also on connections that are there; until
   * then they may get PROG_UNAVAIL. Waits for nothing, and may be called from handlers and
   * callbacks. Errors: kInvalidArgument (program and version twice, bad binding or table; after
   * listen(): a procedure that is not idempotent while connections have no part of a duplicate
   * request cache, see ReplayOptions::always).
   */
  [[nodiscard]] Result<void> add_service(const Service& service);
  /**
   * When it returns, no handler of this service runs, and none is entered any more: what they use
   * may go. Calls that handlers have kept are in progress as before, and are answered as before.
   * Further ones get PROG_UNAVAIL, or PROG_MISMATCH where other versions of the program are left;
   * so do those that wait for a worker. What procedures() had of it is gone. It may be added again,
   * with other handlers.
   *
   *   rrdk::must(server->remove_service(kBlkBinding.program, kBlkBinding.version));
   *   disk.reset();  // no handler uses it any more
   *
   * Memory that a reply refers to, and what ServerCall::on_released() was given, are in use until
   * that is called, which may be later.
   *
   * Waits for the passes of cores that go on just now, and for the service's handlers that workers
   * run, not for the network or for other services: a handler that takes a second in a worker makes
   * it wait for a second (after 5 s a line in the log says so). On a thread that polls embedded
   * cores it polls them meanwhile. Errors: kNotFound, kInvalidArgument (from a handler, a callback,
   * or a read section of liburcu's, see rrdk/runtime.h).
   */
  [[nodiscard]] Result<void> remove_service(uint32_t program, uint32_t version);
  using Done = void (*)(void* argument);
  /**
   * The same without waiting, from anywhere: `removed` is called when remove_service() would have
   * returned, once, on poll core 0, in a pass of it. Errors, with no callback: kNotFound.
   */
  [[nodiscard]] Result<void> remove_service_start(uint32_t program, uint32_t version, Done removed,
                                                  void* argument);
  /** As they are now: those of ServerOptions at first. */
  ServerLimits limits() const;
  /**
   * From now on. No connection is closed since there are more of them than before; time-outs hold
   * for all connections, from their next look on.
   *
   *   rrdk::ServerLimits limits = server->limits();
   *   limits.idle_timeout_ms = 60'000;
   *   rrdk::must(server->set_limits(limits));
   *
   * Errors: kInvalidArgument (as of Server::create()); then none has changed.
   */
  [[nodiscard]] Result<void> set_limits(const ServerLimits& limits);
  /**
   * Listens; returns the URI with what the system chose. Connections are spread over poll cores.
   *
   * shm:PATH is a UNIX socket in the file system: PATH has at most 107 bytes, its directory exists,
   * and a socket that a dead server left there is replaced. shm:@NAME is a name in Linux's abstract
   * name space, without a file; it is gone with its server, and has no permissions.
   * ?peer_memory=SIZE as for Client::connect(): for clients that have more than 4 GiB registered.
   * In each address of shm: and iwarp:, timeout=S is how long a peer's handshake may take: 3
   * seconds over shm:, 10 over iwarp: unless told. Over verbs: it is accepted, and has no effect at
   * a server. In those of iwarp:, silence=S and congestion=NAME are as for Client::connect().
   *
   * iwarp://HOST[:PORT] is a TCP port of this host: 0.0.0.0 and [::] are all of its addresses; port
   * 20049 unless told, 0 for one that is free. A name is every address of it that this host has,
   * with one port; if there are several, the URI that is returned has the name. iWARP neither
   * encrypts nor authenticates: whoever reaches the port, or can write into the connection, is a
   * client (see ServerOptions::on_open).
   *
   * verbs://HOST[:PORT][?...] is the RDMA device that has this address; options and port as for
   * Client::connect().
   *
   * Errors: kBadUri (unknown scheme too), kAddressInUse, kNotFound (the directory, or the address,
   * is not there), kPermission (the system forbids it, such as congestion=NAME without
   * CAP_NET_ADMIN), kNoMemory (verbs: locked memory), kUnsupported (no RDMA device, or another one
   * than before; congestion=NAME that this kernel lacks), kShutdown (after drain()), kSystem.
   */
  [[nodiscard]] Result<std::string> listen(const std::string& uri);
  using Listening = void (*)(Result<std::string>&& uri, void* argument);
  /**
   * The same without waiting, from anywhere: the driver is opened, and the name of a host looked
   * up, on threads of the Runtime (rrdk/runtime.h). `listening` is called once, on poll core 0, in
   * a pass of it. Until then it counts as a function that is being called.
   */
  void listen_start(const std::string& uri, Listening listening, void* argument);
  /** Stops accepting. Connections live on. */
  void stop_listening();
  /**
   * A graceful end: no connection is accepted any more, and no further call is run. Calls that
   * handlers have are answered, ServerCalls that you keep by you; each connection is closed when
   * its last reply has been sent. Further calls that come are not run, and not answered: to their
   * clients they end as any other call of a lost connection (Counter::kCallsNotRun). The
   * server's own calls to these clients end with kShutdown, at once.
   *
   * Returns when all connections are closed; at the latest after `timeout_ms`, when it closes the
   * rest at once. How many those were is the result: 0 is a clean end. What then remains is stats()
   * and ~Server(): listen() fails with kShutdown. Waits for the cores (rrdk/runtime.h); not from a
   * handler or a callback, where it would wait for itself: it only starts then, and returns how
   * many there are. If the result is not 0, handlers may still have calls, which clients may repeat
   * at another server.
   */
  uint32_t drain(uint32_t timeout_ms);
  using Drained = void (*)(uint32_t rest, void* argument);
  /**
   * The same without waiting, from anywhere: `drained` is called when drain() would have returned,
   * with what it would have, once, on poll core 0, in a pass of it. Null: nobody is told.
   */
  void drain_start(uint32_t timeout_ms, Drained drained, void* argument);
  /**
   * The end: no connection is accepted any more, and all are closed, whatever they have in
   * progress; to their clients they are lost. Returns at once, from anywhere. `closed` is called
   * once, on poll core 0, in a pass of it, when all calls have ended, those that handlers kept
   * included: no handler runs, and none is entered any more, on_close has been told of all
   * connections, and callbacks of calls to clients (kShutdown) have come. BackwardClients are
   * released by then, which the log says if not. In the callback, or later, the Server may be
   * destroyed, which does not wait then; stats() and procedures() are good until that. A second
   * close_start() has a callback of its own, if it is not null. drain_start()'s callback comes
   * first, if there is one.
   *
   *   server->drain_start(5000, [](uint32_t, void* site) {
   *     static_cast<Site*>(site)->server->close_start(on_closed, site);
   *   }, &site);
   */
  void close_start(Done closed, void* argument);
  /**
   * What the server has counted (rrdk/counters.h): of its connections, past ones included, and of
   * the calls that it made of its clients. It takes the longer the more connections there are, and
   * stops none of them. Any thread.
   *
   *   uint64_t calls = server->stats()[rrdk::Counter::kCallsReceived];
   */
  Stats stats() const;
  /**
   * What has been done for each procedure, in the order of program, version and number; NULL too,
   * which has no handler and no times. Any thread; nothing before listen().
   */
  std::vector<ProcedureStats> procedures() const;
  /**
   * Ends one connection, whatever it has in progress: to its client it is lost, and on_close gets
   * kProgram, kShutdown and `reason`, which is not told to the client. Does not wait: on_close
   * tells of the end. Closing one that is being closed changes nothing. Errors: kNotFound (no
   * connection has that id, or not any more).
   */
  [[nodiscard]] Result<void> close(uint64_t id, const std::string& reason);
  /**
   * Every connection as it is now, in the order of their ids, which is about that of their coming.
   * Those that are there all the time are seen once; those that come or go meanwhile, at most once.
   * `visitor` runs in the calling thread, between copies of a few connections each, with nothing
   * locked: it may take its time and do anything, close() what it sees included. Poll cores are not
   * stopped: each number is whole, and one connection's are of nearly one moment.
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

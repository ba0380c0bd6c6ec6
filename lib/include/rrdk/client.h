/**
 * Calling RPC programs: asynchronous calls with a completion callback, and a blocking convenience.
 *
 * A Call is an object of the caller's that is used again and again: begin() starts a new call and
 * returns the encoder for its arguments, offer() names memory in which a DDP-eligible result may be
 * placed by RDMA, submit() sends it. Every submitted call ends exactly once, in its callback, with
 * a CallStatus. In the steady state nothing is allocated or registered.
 *
 * Order: begin() is needed before every submit(); it resets offers, expect_reply(), forbid_ddp(),
 * set_timeout_ms(), set_retransmit() and on_released(), which come between begin() and submit() and
 * do nothing elsewhere. The Encoder is valid until submit(): what is written to it later is
 * dropped.
 *
 * Lifetime: Memory > Runtime > ClientConnection; destroy in the opposite order. The Client may be
 * destroyed before its connections. A Call is used only while its connection exists, and destroyed
 * before its Memory, which the last reply's buffers belong to. Once its connection is gone it can
 * only be destroyed, or asked for status(): begin() and submit() are refused, which the log says.
 *
 * A lost connection: by default it stays lost, and its calls end with kConnectionLost, those that
 * are submitted later within a millisecond or so (a program that submits again in the callback does
 * not spin): connect() again, and make new Calls on the new connection. With
 * ClientOptions::reconnect the ClientConnection lives on: it connects again and again, and
 * meanwhile takes calls, which wait. What becomes of a call when its connection breaks:
 *
 *   - it was not sent (it waited for a credit, say): it is carried over to the next connection;
 *   - it was sent, and may be sent again (ClientOptions::retransmit, Call::set_retransmit()): it is
 *     sent again under its old XID, on the next connection, before all others. The server may have
 *     run it: unless repeating it is harmless, the server must know calls by their XIDs and answer
 *     a repeated one without running it (a duplicate request cache);
 *   - it was sent, and may not: it ends with kConnectionLost.
 *
 * Deadlines count from submit(), through all of this. cancel() works at any time.
 * On a connection that lives no call is repeated that was not answered: RPC over RDMA has one
 * credit per call on its way (RFC 5666 and RFC 8166 section 3.3), and its fabric loses nothing
 * while it is up. What is sent again there, under its XID, was answered with an error: the first
 * call of kAuto, in version 1, and in version 2 a call refused for its chunks or for too little
 * room, see set_retransmit().
 *
 * Nothing waits that need not: connect_start(), drain_start() and close_start() return at once, and
 * ConnectOptions::on_state tells how the connection fares. A reactor of one thread uses these, and
 * destroys a ClientConnection when it is kClosed:
 *
 *   void on_state(rrdk::ClientConnection& connection, rrdk::ConnectionState state,
 *                 const rrdk::Error* reason, void* site) {
 *     if (state == rrdk::ConnectionState::kClosed)
 *       static_cast<Site*>(site)->forget(connection, *reason);      // destroys it, if it likes
 *   }
 *   auto connection = rrdk::must(client->connect_start(uri, {.on_state = on_state,
 *                                                            .argument = &site}));
 *   first_call.submit(...);                        // calls may be made at once: they wait for it
 *   while (!stop)
 *     if (runtime->poll() == 0) other_work();
 *
 * Threads: Client::connect(), connect_start(), close_start(), drain_start(), state(), error(),
 * reconnecting() and stats() from any thread; add_service() and destruction from one at a time.
 * begin(), offer() and submit() from any thread, one at a time per Call; on the connection's own
 * poll core (in a callback, or where an embedded Runtime is polled) submit() is a direct call, from
 * elsewhere it goes through a ring. Callbacks run on the connection's poll core, in a pass of it,
 * one at a time: never within submit() or cancel(). They may begin and submit again, cancel or
 * destroy any Call of the same poll core, use all that does not wait, and destroy a
 * ClientConnection of the same poll core; they must not throw, block, connect() or poll. Handlers
 * that run on a poll core have the same limits.
 *
 * Waiting: whoever waits for a poll core that nobody polls waits until somebody does, and a line in
 * the log says so after five seconds.
 *
 *   auto connection = rrdk::must(client->connect("shm:/run/perf.sock"));
 *   rrdk::Call call(*connection);
 *   rrdk::Encoder& args = call.begin(kBinding, kRead);
 *   args.put_u64(offset); args.put_u32(count);
 *   call.offer(room);                        // the data lands here, not copied
 *   if (call.submit_and_wait() == rrdk::CallStatus::kOk) {
 *     uint32_t status = call.results().get_u32();
 *     rrdk::ItemView data = call.results().get_item(count);
 *   }
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
   * Before the k-th attempt in a row the delay is drawn evenly between a half and the whole of
   * first_delay_ms * 2^(k-1), at most max_delay_ms. 1 <= first_delay_ms <= max_delay_ms. It begins
   * anew after a connection of use: one on which the server answered, with more than that it speaks
   * none of our versions (CallStatus::kVersionError).
   */
  uint32_t first_delay_ms = 10;
  uint32_t max_delay_ms = 5000;
  /** So long after the loss of the last such connection it is lost for good; 0: never. */
  uint32_t give_up_ms = 0;
  Reserved<8> reserved = {};  ///< for what later releases add
};

struct ClientOptions {
  /** 1 unless told, since version 2 never left draft state. */
  RpcRdmaVersion version = RpcRdmaVersion::kOne;
  /**
   * Calls in flight per connection, 1 to 4096; further ones queue. The connections of a poll core
   * share Receives for the replies, buffers of inline_size: one for each connection, and for each
   * call that was ever in flight beside it. Over devices (`verbs:`), with `rfc5666`, and where
   * Receives may grow (version2.max_receive_size), each connection has `credits` Receives of its
   * own, idle or not. If there are services, each has one more for each of backward_credits.
   */
  uint32_t credits = 64;
  /**
   * Bytes of Send and Receive buffers: a multiple of 1024, at most 262144. In version 2 Receives
   * have at least 4096, and no more go inline unless both ends tell their transport properties.
   */
  uint32_t inline_size = 4096;
  uint64_t max_call = 8u << 20;   ///< bytes of one call, data included; 1024 to 1 GiB
  uint64_t max_reply = 8u << 20;  ///< of one reply, likewise
  /**
   * For each attempt to connect, counted from when the look-up of its name begins.
   * timeout=SECONDS in the address replaces it. 0: no time at all. Some servers take seconds to
   * accept (nfs-ganesha registers its buffers then).
   */
  uint32_t connect_timeout_ms = 10000;
  uint32_t call_timeout_ms = 30000;  ///< default; 0: none
  /**
   * What a call that is given up (cancelled, or past its deadline) had offered to the server stays
   * lent to it until the answer comes, where that is allowed (Call::cancel() says when). After so
   * long, to within a millisecond, it is taken back: the keys are revoked, and if the server comes
   * to use them nevertheless, the connection ends. It also ends when they cannot be revoked within
   * four seconds, because the server takes no data and what was sent to it is still using them.
   * Pools are to be sized for what can be lent: at most the memory of `credits` calls. 0: nothing
   * is lent, keys are revoked at once. Counter::kCallsLent and kLendsExpired count.
   */
  uint32_t lend_ms = 30000;
  /**
   * When every credit is held by a call that was given up, no call can be sent. A slow server gives
   * credits back with its late answers; but if nothing at all is received for so long, the
   * connection is ended, by error(), and `reconnect` applies. On a new connection there is one
   * credit until the first reply: a first call that is given up makes the others wait, for so long
   * at most. 0: they wait until there is an answer, or until their deadlines.
   */
  uint32_t starved_ms = 5000;
  /** Eligible arguments of at least so many bytes move by RDMA Read even if they fit inline. */
  uint32_t chunk_threshold = 1024;
  /**
   * For servers that fall short of the specifications; not both. Some write the pad of a result
   * behind it, and refuse a Write chunk without room for that: give the pad a segment of its own,
   * of up to three bytes that nobody reads. Others cannot handle chunks of several segments: send
   * none, so that calls which need them (offer() of several; long calls and replies above
   * Memory::largest_buffer()) end with kTooLarge.
   */
  bool pad_write_chunks = false;
  bool one_segment = false;
  /** Of established connections; the first attempt is the only one, if it fails. */
  ReconnectOptions reconnect = {};
  /**
   * Call::set_retransmit() of every call; needs `reconnect`. Only if each procedure called is
   * idempotent, or the server has a duplicate request cache for those that are not
   * (Procedure::idempotent in rrdk/service.h): what was sent may have been run. Have deadlines.
   * What it means in version 2 besides is in Call::set_retransmit(), which needs no `reconnect` for
   * that.
   */
  bool retransmit = false;
  /**
   * Keepalive: when nothing has been received for so long, calls outstanding or not, the peer is
   * asked: a call of procedure 0 (NULL) is made, without a credential. If nothing at all comes
   * for keepalive_patience times as long, the connection is ended, by error(), and `reconnect`
   * applies. 0: off. Accurate to a millisecond, in which an idle core wakes up then.
   *
   * Only a free credit can be used to ask. When slow calls hold all of them, silence is no evidence
   * and nothing is ended: these calls have their deadlines, and when all of them have been given
   * up, starved_ms applies. On a new connection there is one credit until the first reply.
   *
   * A server that is too busy to answer NULL for that long is taken for dead, be it only that a
   * handler blocks its poll core. Time in which nobody polled here does not count.
   */
  uint32_t keepalive_ms = 0;
  uint32_t keepalive_patience = 3;
  /**
   * Of the NULL procedure that is called. Null: the last of the bindings that calls have begun
   * with; nobody is asked before there is one. It outlives the connections.
   */
  const Binding* keepalive_binding = nullptr;
  /**
   * Of clients with services (add_service()): calls of the server that one connection takes at a
   * time, 1 to 4096. So many buffers of inline_size more per connection, idle or not, for their
   * Receives. Without services nothing is taken.
   */
  uint32_t backward_credits = 16;
  /** RFC 5666's compatibility mode, with `version` kOne and no services; see rrdk/rfc5666.h. */
  Rfc5666ClientOptions rfc5666 = {};
  /** What version 2 has beside calls; see rrdk/version2.h. */
  Version2ClientOptions version2 = {};
  Reserved<8> reserved = {};  ///< for what later releases add
};

class ClientConnection;

/**
 * How a connection fares. From kConnecting it becomes kUp or kClosed, from kUp kLost or kClosed,
 * from kLost kReconnecting or kClosed; a further attempt that fails is kReconnecting again.
 */
enum class ConnectionState : uint8_t {
  kConnecting,    ///< for the first time: its name is looked up, or the server is asked
  kUp,            ///< calls are sent
  kLost,          ///< what was up has broken; calls are given back, as `retransmit` says
  kReconnecting,  ///< the next attempt is waited for, or is being made
  kClosed,        ///< for good: lost, closed here, or never made
};

/** As in "reconnecting". Never null, also for values that are none of the above. */
const char* to_string(ConnectionState state) noexcept;

/** Of one connection. */
struct ConnectOptions {
  /** The poll core that it lives on; negative: the one with the least load. */
  int core = -1;
  /**
   * Told of each state, in order, from kConnecting to kClosed, which is the last one and comes
   * exactly once. Null: nobody is. `reason` is null for kConnecting and kUp. Else it is why the
   * connection broke, why the last attempt failed, or why it is closed:
   *
   *   kShutdown   by close_start(), its destructor, or drain_start() when all calls had ended
   *   kTimeout    by drain_start() when some had not; by connect_timeout_ms, keepalive_ms or
   *               give_up_ms
   *   another     as Client::connect() says
   *
   * When kClosed is told all calls have ended, in their callbacks. Calls submitted later end with
   * kConnectionLost or kShutdown, as before.
   *
   * Threads: on the connection's poll core, in a pass of it, as a call's callback, and with the
   * same limits; where another thread polls that core it may come before connect_start() has
   * returned. In kClosed `connection` may be destroyed. It comes no more once the destructor has
   * returned.
   */
  void (*on_state)(ClientConnection& connection, ConnectionState state, const Error* reason,
                   void* argument) = nullptr;
  void* argument = nullptr;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/** One connection to one server, or one after the other, on one poll core. */
class ClientConnection : public Caller {
 public:
  /**
   * Closes as close_start() does. After kClosed, with no call in flight, it returns at once. Else
   * it waits, but never for longer than 5 seconds, for the callbacks of all calls and for kClosed;
   * and in a callback or a handler on a poll core not at all.
   *
   * Where it has not waited until the end, the rest happens on the poll core later: callbacks of
   * calls (with kShutdown) come, on_state does not; the Runtime must live until then, and be
   * polled. Outside of callbacks that is an error in the log: handlers have kept calls of the
   * server (ServerCall), which are to be answered first, or nobody polls the core. In a callback it
   * may only be a connection of the same core; in a worker, none whose callbacks use it.
   */
  ~ClientConnection();

  /**
   * Ends all calls with kShutdown, in their callbacks, and closes. Returns at once; on_state tells
   * of kClosed, also if handlers have kept calls of the server, when these are answered. A name
   * that is being looked up does not delay it. A second one changes nothing. Any thread.
   */
  void close_start();
  /**
   * A graceful end: calls submitted from now on end with kShutdown, those in flight and those that
   * wait may end, and then it closes. After `timeout_ms` it closes in any case, as close_start()
   * does. on_state tells of kClosed: kShutdown if all calls had ended, kTimeout with their number
   * if not. alive() is false meanwhile; messages of send_option() end with kShutdown as well, and
   * the server's calls to us are served until it closes. Returns at once; a second one may shorten
   * the time, and close_start() ends it. Any thread.
   */
  void drain_start(uint32_t timeout_ms);
  /**
   * The same, and waits for kClosed; at most 5 seconds longer than `timeout_ms`. How many calls had
   * not ended: 0 is a clean end. On an embedded runtime it polls the core meanwhile. Not in a
   * callback or a handler on a poll core, where it would wait for itself: it only starts then,
   * and returns how many there are.
   */
  uint32_t drain(uint32_t timeout_ms);

  /** As on_state was, or would have been, told last; kConnecting before that. Any thread. */
  ConnectionState state() const noexcept;
  /** Lost, and not for good: calls are taken, and wait. Any thread. */
  bool reconnecting() const noexcept;
  /**
   * Why the connection broke, or why the last attempt to connect failed; none while it is alive, or
   * is being made for the first time.
   * The log has the former too, as information. kConnectionLost mostly; kTimeout when the peer did
   * not answer keepalive or accept in time, and after give_up_ms; else as Client::connect() says.
   * The message names the peer and the reason. Any thread.
   */
  std::optional<Error> error() const;
  /** What has been counted since it was made, over all reconnections (rrdk/counters.h). */
  Stats stats() const;
  /**
   * The version of RPC-over-RDMA in which calls are sent; with RpcRdmaVersion::kAuto 2 is certain
   * once a call has ended well. 0: not known yet. Any thread.
   */
  uint32_t version() const noexcept;
  /**
   * The connection as it is now: numbers are of this one alone, and begin anew with the next one,
   * as `id` does. While there is none, all is 0, and `ending` says what error() says. Any thread.
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

class Client {
 public:
  /**
   * `runtime` outlives the Client. Errors: kInvalidArgument (credits or backward_credits not 1 to
   * 4096; inline_size not a multiple of 1024 from 1024 to 262144; version2.max_receive_size out of
   * range; max_call or max_reply not from 1024 to 1 GiB; pad_write_chunks with one_segment;
   * reconnect's delays not in order; retransmit without reconnect; keepalive_patience 0;
   * keepalive_binding refused by check(); rfc5666 without kOne; of version2: max_receive_size,
   * backward_chunks, or extensions with properties, without `properties`, and
   * max_backward_chunk_bytes 0).
   */
  [[nodiscard]] static Result<std::unique_ptr<Client>> create(Runtime& runtime,
                                                              const ClientOptions& options = {});
  /** Its connections may live on. Waits for nothing. */
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /**
   * Offers a program to the servers that this client connects to: they may call it on each of its
   * connections, in the other direction (RFC 8167; doc/both-directions.md). Before the first
   * connect(). Handlers run as a Server's do, on the connection's poll core or on workers, and may
   * make calls on the ClientConnection themselves; submit_and_wait() only on workers. A
   * ServerCall that is kept keeps its ClientConnection from being destroyed, and a lost one from
   * connecting again, until it is answered. A call that the server makes is never repeated, so
   * Procedure::idempotent makes no difference here.
   *
   * Without services a server's calls go unanswered in version 1 and draft-00; draft-04 refuses.
   *
   * Errors: kInvalidArgument (that version is there, bad binding or table, rfc5666, too late).
   */
  [[nodiscard]] Result<void> add_service(const Service& service);
  /**
   * The credential that later connections begin with, as if Caller::set_auth_sys() or set_auth()
   * were called on each of them (rrdk/call.h). It is the only way to have one in CONF_RDMA, which
   * connect() calls (rrdk/rfc5666.h) and RFC 5666 section 11 wants protected. Any thread. Errors:
   * kInvalidArgument (more than kMaxAuthBody bytes).
   */
  void set_auth_sys(const AuthSys& identity);
  [[nodiscard]] Result<void> set_auth(AuthFlavor flavor, std::span<const std::byte> body);
  /**
   * Begins to connect to an address, and returns at once. What it returns can be used as if the
   * connection was there: calls wait for it, at most until their deadlines, and end with
   * kConnectionLost when it cannot be made. state() and ConnectOptions::on_state tell how it
   * fares. Its destructor, or close_start(), calls it off at any time. An address is a URI whose
   * scheme names a driver:
   *
   *   shm:/run/rrdk.sock         a UNIX socket's path
   *   shm:@name                  an abstract socket (unix(7))
   *   shm:...?peer_memory=SIZE   how much of the peer's registered memory a connection may map; in
   *                              bytes, or with K, M or G: 4G of a client's and 1024G of a server's
   *                              unless told
   *   iwarp://HOST[:PORT][?...]  iWARP over TCP: an IPv4 address, an IPv6 address in brackets, or a
   *                              name, looked up for each attempt; port 20049 unless told. crc=1
   *                              asks for checksums, mpa=1 for servers of RFC 5044 without RFC
   *                              6581. silence=S, 3 to 3600: the connection ends when nothing, no
   *                              acknowledgement of TCP either, has come from the peer's host for
   *                              that many seconds, 30 unless told. A host whose program is stopped
   *                              is not silent. congestion=NAME: TCP's congestion control for what
   *                              this end sends (the server's address decides for what it sends),
   *                              one of those in net.ipv4.tcp_allowed_congestion_control, or, with
   *                              CAP_NET_ADMIN, in tcp_available_congestion_control. Unless told it
   *                              is the system's; where both ends are on one host and that is BBR,
   *                              it is cubic, or reno if there is no cubic
   *   verbs://HOST[:PORT][?...]  an RDMA device (InfiniBand, RoCE, iWARP, Linux's rxe and siw) on
   *                              the way to HOST; port 20049 unless told. device=NAME says which,
   *                              windows=no does without its memory windows. The first address
   *                              decides for the process
   *
   * Each may have timeout=S, 1 to 3600: seconds in place of connect_timeout_ms. Options are joined
   * by "&". A name may have several addresses, and all of them are tried (RFC 8305): the next one
   * after 250 ms without an answer, or when the one before it fails. An address that accepts TCP
   * but answers no handshake is given up after its share of the time. Over verbs: addresses are
   * tried one at a time, each for its share. A connection that is made again begins with the
   * address that served last.
   *
   * Server::listen() returns what to connect to, on its own host.
   *
   * Everything that may block is done on threads of the Runtime (rrdk/runtime.h): looking names up,
   * and opening a driver, for its first address. Eight names are looked up at a time, beside those
   * that need no name server; a further one waits, and its time begins when its look-up does. A
   * name that several connections want is looked up once, and the answer is kept for three seconds.
   *
   * Any thread, callbacks and handlers included. Errors, with no on_state: kInvalidArgument (no
   * such core), kBadUri (unknown scheme too). All others are told by on_state, and error().
   */
  [[nodiscard]] Result<std::unique_ptr<ClientConnection>> connect_start(
      const std::string& uri, const ConnectOptions& options = {});
  /**
   * The same, and waits until it is established: an embedded runtime is polled.
   *
   * connect_timeout_ms also holds when nobody polls that core; but a core that has begun to connect
   * and then is polled no more is waited for, up to 5 seconds longer.
   * Errors: kInvalidArgument (no such core; called in a callback or handler on a poll core),
   * kBadUri, kNotFound, kRefused, kNotAPeer, kPermission, kTimeout, kConnectionLost (the peer
   * closed during the handshake), kNoMemory, kLimit (the poll core has 16,384 connections of that
   * scheme; a server that is full is kRefused), kUnsupported, kShutdown (closed meanwhile, in
   * on_state), kSystem.
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

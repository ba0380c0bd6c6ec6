/**
 * Calling RPC programs: asynchronous calls with a completion callback, and a blocking convenience.
 *
 * A Call is an object of the caller's that is used again and again: begin() starts a new call and
 * returns the encoder for its arguments, offer() names memory in which a DDP-eligible result may be
 * placed by RDMA, submit() sends it. Every submitted call ends exactly once, in its callback, with
 * a CallStatus. In the steady state nothing is allocated or registered.
 *
 * Order: begin() is needed before every submit(); it resets offers, expect_reply(),
 * set_timeout_ms() and set_retransmit(), which come between begin() and submit() and do nothing
 * elsewhere. The Encoder is valid until submit(): what is written to it later is dropped.
 *
 * Lifetime: Memory > Runtime > Client > ClientConnection; destroy in the opposite order. A Call is
 * used only while its connection exists, and destroyed before its Memory, which the last reply's
 * buffers belong to. Once its connection is gone it can only be destroyed, or asked for status().
 *
 * A lost connection: by default it stays lost, and its calls end with kConnectionLost: connect()
 * again, and make new Calls on the new connection. With ClientOptions::reconnect the
 * ClientConnection lives on: it connects again and again, and meanwhile takes calls, which wait.
 * What becomes of a call when its connection breaks:
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
 * Threads: begin(), offer() and submit() from any thread, one at a time per Call; on the
 * connection's own poll core (in a callback, or where an embedded Runtime is polled) submit() is a
 * direct call, from elsewhere it goes through a ring. Callbacks run on the connection's poll core,
 * in a pass of it, one at a time: never within submit() or cancel(). They may begin and submit
 * again and cancel or destroy any Call of the same poll core, and must not throw, block, destroy
 * the ClientConnection, connect() or poll. Handlers that run on a poll core have the same limits.
 *
 * Waiting: whoever waits for a poll core that nobody polls waits until somebody does, and a line in
 * the log says so after five seconds.
 *
 *   auto connection = client->connect("shm:/run/perf.sock").value();
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
#include "rrdk/call_status.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/refusals.h"
#include "rrdk/rpc.h"
#include "rrdk/runtime.h"
#include "rrdk/version.h"
#include "rrdk/xdr.h"

namespace rrdk {

/** What to do when an established connection is lost. */
struct ReconnectOptions {
  bool enabled = false;
  /**
   * Before the k-th attempt in a row the delay is drawn evenly between a half and the whole of
   * first_delay_ms * 2^(k-1), at most max_delay_ms. 1 <= first_delay_ms <= max_delay_ms. It begins
   * anew after a connection on which something was received.
   */
  uint32_t first_delay_ms = 10;
  uint32_t max_delay_ms = 5000;
  /** So long after the loss of the last such connection it is lost for good; 0: never. */
  uint32_t give_up_ms = 0;
};

struct ClientOptions {
  /** 1 unless told, since version 2 never left draft state. */
  RpcRdmaVersion version = RpcRdmaVersion::kOne;
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;  ///< the version 2 that is meant
  /**
   * With kAuto: for how many seconds this Client begins connections to a URI with version 1, after
   * a server there did not know version 2, or its connection was lost before the first answer. 0:
   * that is not remembered, and a server that never answers version 2 can not be reached.
   */
  uint32_t version_memory_s = 600;
  uint32_t credits = 64;  ///< calls in flight per connection, 1 to 4096; further ones queue
  /**
   * Bytes of Send and Receive buffers: a multiple of 1024, at most 262144. In version 2 at most
   * 4096 bytes go inline, and Receives have at least that.
   */
  uint32_t inline_size = 4096;
  uint64_t max_call = 8u << 20;  ///< bytes of one call, data included
  uint64_t max_reply = 8u << 20;
  uint32_t connect_timeout_ms = 5000;  ///< looking a name up included
  uint32_t call_timeout_ms = 30000;    ///< default; 0: none
  /** Eligible arguments of at least so many bytes move by RDMA Read even if they fit inline. */
  uint32_t chunk_threshold = 1024;
  /**
   * For servers that fall short of the specifications; not both. Some write the pad of a result
   * behind it, and refuse a Write chunk without room for that: give the pad a segment of its own,
   * of up to three bytes that nobody reads. Others can not handle chunks of several segments: send
   * none, so that calls which need them (offer() of several; long calls and replies above
   * Memory::largest_buffer()) end with kTooLarge.
   */
  bool pad_write_chunks = false;
  bool one_segment = false;
  /** Of established connections; Client::connect() itself tries once. */
  ReconnectOptions reconnect = {};
  /**
   * Call::set_retransmit() of every call; needs `reconnect`. Only if each procedure called is
   * idempotent, or the server has a duplicate request cache for those that are not
   * (Procedure::idempotent in rrdk/server.h): what was sent may have been run. Have deadlines. What
   * it means in version 2 besides is in Call::set_retransmit(), which needs no `reconnect` for
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
   * and nothing is ended: these calls have their deadlines, and a connection whose credits are all
   * held by calls that have ended is ended, too. On a new connection there is one credit until the
   * first reply.
   *
   * A server that is too busy to answer NULL for that long is taken for dead, be it only that a
   * handler blocks its poll core. Time in which nobody polled here does not count.
   */
  uint32_t keepalive_ms = 0;
  uint32_t keepalive_patience = 3;
  /**
   * Of the NULL procedure that is called. Null: the last of the bindings that calls have begun
   * with; nobody is asked before there is one.
   */
  const Binding* keepalive_binding = nullptr;
};

class Call;

/**
 * An RDMA_ERROR, as the server sent it (RFC 8166 section 4.5; draft-04 of version 2,
 * section 6.2.4). Fields that the code does not have are 0. The codes:
 *
 *   version 1   1 ERR_VERS, 2 ERR_CHUNK
 *   draft-00    1 ERR_VERS, 2 BAD_HEADER, 3 INVAL_OPTION
 *   draft-04    1 VERS, 2 BAD_XDR, 3 INVAL_PROC, 4 READ_CHUNKS, 5 WRITE_CHUNKS, 6 SEGMENTS,
 *               7 WRITE_RESOURCE, 8 REPLY_RESOURCE, 9 INVAL_OPTION, 10 SYSTEM
 */
struct TransportError {
  uint32_t version;      ///< of the answer: 1 or 2
  uint32_t code;         ///< rdma_err; 0: there was none
  uint32_t low, high;    ///< ERR_VERS: the versions that the server speaks
  uint32_t maximum;      ///< READ_CHUNKS, WRITE_CHUNKS; SEGMENTS, of one chunk: how many are taken
  uint32_t write_chunk;  ///< WRITE_RESOURCE: which offer() was too short, from 1; 0: unknown
  uint32_t length;       ///< WRITE_RESOURCE, REPLY_RESOURCE: bytes that are needed; 0: unknown
};

/** Counters of one ClientConnection since it was made, over all its reconnections. */
struct ClientStats {
  uint64_t calls, ended_ok, ended_error, timeouts;
  uint64_t long_calls, long_replies;
  uint64_t credit_waits;       ///< calls that had to wait for the peer's grant
  uint64_t protocol_breaches;  ///< messages of the peer that were refused or unmatched
  uint32_t granted;            ///< the peer's last grant; 0 while there is no connection
  uint32_t in_flight;          ///< waiting for a connection included
  uint64_t reconnects;         ///< connections established after the first
  uint64_t failed_attempts;    ///< attempts at one that came to nothing
  uint64_t carried_over;       ///< calls that had waited for a connection when one was there
  uint64_t retransmissions;    ///< calls sent again under their XIDs, on whatever connection
  uint64_t keepalives;         ///< NULL calls made to ask a silent peer
  uint64_t keepalive_ends;     ///< connections ended because it did not answer
  /**
   * Of RPC-over-RDMA: in which calls are sent. With kAuto 2 is certain once a call has ended well.
   */
  uint32_t version;
  /** To version 1, by kAuto: on a connection, or for the next one; not what was remembered. */
  uint64_t fallbacks;
  Refusals refusals;  ///< what the peer sent that was refused or ignored, by reason
};

/** One connection to one server, or one after the other, on one poll core. */
class ClientConnection {
 public:
  /**
   * Ends all calls with kShutdown, in their callbacks, then closes, and waits for that. Not from a
   * callback or a handler on a poll core: it would wait for ever, which the log says.
   */
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  /** Established: calls are sent. False while it is being established again. Any thread. */
  bool alive() const noexcept;
  /** Lost, and not for good: calls are taken, and wait. Any thread. */
  bool reconnecting() const noexcept;
  /**
   * Why the connection broke, or why the last attempt to reconnect failed; none while it is alive.
   * The log has the former too, as information. kConnectionLost mostly; kTimeout when the peer did
   * not answer keepalive or accept in time, and after give_up_ms; else as Client::connect() says.
   * The message names the peer and the reason. Any thread.
   */
  std::optional<Error> error() const;
  const std::string& peer() const noexcept;
  uint32_t core() const noexcept;
  ClientStats stats() const;
  /**
   * The credential of calls begun from now on: AUTH_NONE by default. Any thread. A Call keeps the
   * last one that it used; others are freed.
   */
  void set_auth_sys(const AuthSys& identity);
  /**
   * The same, of any flavour: `body` as the flavour defines it. The verifier of calls stays
   * AUTH_NONE. Errors: kInvalidArgument (more than kMaxAuthBody bytes).
   */
  Result<void> set_auth(AuthFlavor flavor, std::span<const std::byte> body);

  struct Impl;
  Impl& impl() noexcept { return *impl_; }

 private:
  friend class Client;
  explicit ClientConnection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/**
 * Called when a call has ended, on its connection's poll core; `call` may be begun again at once,
 * or destroyed. Does not throw.
 */
using Completion = void (*)(Call& call, void* argument);

/** One call at a time, again and again. Outlives what it submitted; cancel() ends that early. */
class Call {
 public:
  explicit Call(ClientConnection& connection);
  /**
   * Not in flight: cancel() and wait for the callback first. Destroying one in flight is a mistake,
   * which the log names; the call is then cancelled and its callback does not come (or has returned
   * before the destructor does, if it was running). The destructor waits until the call has ended.
   *
   * In a callback or handler on the connection's poll core it can not wait: what is ours lives on
   * until the call has ended, but memory that was offered, and items that were put by reference,
   * are the peer's to access until then, so keep them until the connection has been destroyed. A
   * Call may be destroyed in its own callback as a matter of course: it is not in flight any more.
   */
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /**
   * Starts a new call of `procedure` of the binding's program and version; what was read from the
   * last reply is gone. Write the arguments, in order, into the encoder returned, which is valid
   * until submit(). The binding is static, or outlives the Call unchanged; one that check() refuses
   * is logged, and its calls end with kInvalidCall.
   *
   * While the call is in flight begin() is refused, which the log says: the call goes on, and the
   * encoder returned takes nothing.
   */
  Encoder& begin(const Binding& binding, uint32_t procedure) noexcept;
  /**
   * Room for the next DDP-eligible result, in stream order: a Write chunk of one segment, or of
   * several. Until the call has ended the memory is the peer's to write. At most as many as the
   * binding allows and kMaxOffers in all; more makes submit() end with kTooLarge. Memory that
   * Memory::contains() does not know makes it end with kInvalidMemory.
   */
  void offer(MemorySpan room) noexcept;
  void offer(std::span<const MemorySpan> segments) noexcept;
  static constexpr uint32_t kMaxOffers = 16;
  static constexpr uint32_t kMaxOfferSegments = 64;
  /** Bound on the reply's variable part in bytes, beyond what the binding states. */
  void expect_reply(uint64_t bytes) noexcept;
  /**
   * For a body that a security service transforms as a whole, arguments and results, such as
   * RPCSEC_GSS with integrity or privacy: no item of it moves in a chunk of its own. Long calls and
   * replies remain; what was offered only counts for the room of the reply, to which `growth` bytes
   * are added for what the service adds (RFC 5666 section 11).
   */
  void forbid_ddp(uint32_t growth) noexcept;
  /** For this call only, after begin(); 0: none. */
  void set_timeout_ms(uint32_t timeout) noexcept;
  /**
   * For this call only, after begin(): whether it is sent again, under the same XID, when its
   * connection breaks before the reply. Without ClientOptions::reconnect it makes no difference to
   * that.
   *
   * A call that makes the server close the connection each time is repeated until its deadline.
   *
   * In draft-04 of version 2 it also says whether a call whose reply had too little room is sent
   * again, once, with the room that the server names (transport_error()), with or without
   * `reconnect`. The result of an offer() that was too short, and those behind it, then come in the
   * reply: look at results(), not at the memory. Procedure 0 always is. What was refused before it
   * was run, because of more chunks or segments than the server takes, is sent again with fewer in
   * any case; later calls of the connection keep to that, and offers beyond it are not used.
   */
  void set_retransmit(bool retransmit) noexcept;

  /**
   * Sends; the end comes as `completion(call, argument)`: on the core's thread not before this has
   * returned, on another thread at any time. Null: in_flight() alone tells of the end.
   *
   * Without begin() before it the call ends with kInvalidCall. While the call is in flight submit()
   * is refused: nothing happens, and the new completion is not called. Both are logged.
   */
  void submit(Completion completion, void* argument) noexcept;
  /**
   * Sends and waits for the end. On an embedded runtime it polls the core meanwhile. In a callback
   * or a handler on a poll core it is refused, with kInvalidCall and a line in the log: it would
   * wait for itself. A handler on a worker may wait.
   */
  CallStatus submit_and_wait();
  /**
   * Ends the call with kCancelled, if it has not ended: the callback still comes, once, after this
   * has returned if it is called on the core's thread. Offered memory is the peer's until then.
   *
   * Any thread. But from a thread that does not know whether the call has ended and was submitted
   * again meanwhile (in its callback, say) it may hit the next call.
   */
  void cancel() noexcept;

  /**
   * From submit() until the callback has returned; so true in the callback, too. Any thread. False:
   * no other thread is at it, and it may be begun or destroyed anywhere.
   */
  bool in_flight() const noexcept;
  /** How the last call ended. In its callback and afterwards, until submit(). */
  CallStatus status() const noexcept;
  /** After kOk: the results. Valid until begin() or destruction. */
  Decoder& results() noexcept;
  /** After kProgMismatch or kRpcMismatch: what the server speaks. */
  uint32_t mismatch_low() const noexcept;
  uint32_t mismatch_high() const noexcept;
  /** After kAuthError. */
  AuthStat auth_stat() const noexcept;
  /** After kChunkError, kVersionError and kRemoteError: what the server said. */
  TransportError transport_error() const noexcept;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class Client {
 public:
  /**
   * `runtime` outlives the Client. Errors: kInvalidArgument (credits not 1 to 4096; inline_size not
   * a multiple of 1024 from 1024 to 262144; pad_write_chunks together with one_segment; reconnect's
   * delays not in order; retransmit without reconnect; keepalive_patience 0; a keepalive_binding
   * that check() refuses).
   */
  static Result<std::unique_ptr<Client>> create(Runtime& runtime,
                                                const ClientOptions& options = {});
  /** Connections are gone by now. */
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /**
   * Connects to an address, and waits for it: an embedded runtime is polled. An address is a URI
   * whose scheme names a driver:
   *
   *   shm:/run/rrdk.sock         a UNIX socket's path
   *   shm:@name                  an abstract socket (unix(7))
   *   iwarp://HOST[:PORT][?...]  iWARP over TCP: an IPv4 address, an IPv6 address in brackets, or a
   *                              name, which is looked up beside the poll core each time; port
   * 20049 unless told. crc=1 asks for checksums, mpa=1 for servers of RFC 5044 without RFC 6581,
   * timeout=S bounds the driver's own wait
   *
   * Server::listen() returns what to connect to, on its own host. The connection lives on poll core
   * `core`; negative: on the one with the fewest.
   *
   * connect_timeout_ms also holds when nobody polls that core; but a core that has begun to connect
   * and then is polled no more is waited for until it is polled again.
   * Errors: kInvalidArgument (no such core; called in a callback or handler on a poll core),
   * kBadUri, kNotFound, kRefused, kNotAPeer, kPermission, kTimeout, kNoMemory, kUnsupported,
   * kSystem.
   */
  Result<std::unique_ptr<ClientConnection>> connect(const std::string& uri, int core = -1);

  struct Impl;

 private:
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

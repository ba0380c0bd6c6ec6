/**
 * A Call makes RPC calls, one after another, through a Caller: a client's ClientConnection
 * (rrdk/client.h, which has the rules on order, lifetime and threads), or a server's
 * BackwardClient, with which it calls its client (rrdk/server.h). In every call the arguments are
 * encoded, submit() sends it, and its callback gets the results.
 *
 *   rrdk::Call call(*connection);
 *   call.begin(kBinding, kGetSize).put_u64(file);
 *   call.submit([](rrdk::Call& ended, void*) {
 *     if (ended.status() == rrdk::CallStatus::kOk) show(ended.results().get_u64());
 *   }, nullptr);
 */
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "rrdk/binding.h"
#include "rrdk/call_status.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/rpc.h"
#include "rrdk/stages.h"
#include "rrdk/xdr.h"

namespace rrdk {

class Call;
class Submitted;  // rrdk/coroutine.h
namespace rpc {
class PreparedAuth;
}

/**
 * A credential that calls carry, made once and shared by any number of calls, connections and
 * threads: a gateway makes one per user, and gives it to the calls that it makes for that user
 * (Call::set_credential()). establish_context() in rrdk/gss_context.h makes those of Kerberos.
 *
 *   const rrdk::SharedCredential alice(identity);
 *   if (!call.set_credential(alice))
 *     return;                                  // do not begin a call for her
 *
 * Copies share one object, which is freed with the last of them; the last may be a Call's, which
 * frees it where another one is set. A moved-from object is AUTH_NONE.
 *
 * Threads: any, also at the same time. Making one allocates; copying does not.
 */
class SharedCredential {
 public:
  SharedCredential() = default;  ///< AUTH_NONE
  /** AUTH_SYS. */
  explicit SharedCredential(const AuthSys& identity);
  /**
   * Any flavour; `body` is defined by the flavour. The verifier of calls stays AUTH_NONE. Errors:
   * kInvalidArgument (more than kMaxAuthBody bytes).
   */
  [[nodiscard]] static Result<SharedCredential> make(AuthFlavor flavor,
                                                     std::span<const std::byte> body);
  /**
   * The credential with which a call came (ServerCall::credential()), for calls that are made on
   * its caller's behalf. The called server must accept it from this host. A credential of
   * RPCSEC_GSS cannot be passed on: it names a context of this server, and each call needs a
   * verifier (rrdk/gss.h). This function does not refuse it, but a server that verifies it does;
   * make an AuthSys out of ServerCall::security() for such callers. Errors: as above.
   */
  [[nodiscard]] static Result<SharedCredential> make(const Credential& credential);

 private:
  friend struct Internals;
  explicit SharedCredential(std::shared_ptr<const rpc::PreparedAuth> prepared) noexcept
      : prepared_(std::move(prepared)) {}
  const std::shared_ptr<const rpc::PreparedAuth>& impl() const noexcept { return prepared_; }
  std::shared_ptr<const rpc::PreparedAuth> prepared_;
};

/** The end of a connection through which Calls are made. */
class Caller {
 public:
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /**
   * Returns true if the connection is established and calls are sent; false while it is being
   * established again, and after it is lost. Any thread.
   */
  bool alive() const noexcept;
  /**
   * The name of the other end for messages: the URI given to a ClientConnection, or
   * Peer::to_string() of a BackwardClient's client. Any thread.
   */
  const std::string& address() const noexcept;
  /** The poll core on which callbacks run. Any thread. */
  uint32_t core() const noexcept;
  /**
   * Sets the credential of calls begun from now on; AUTH_NONE by default. Any thread. A Call keeps
   * the last one that it used; others are freed. Cannot fail, since an AuthSys is within its
   * limits.
   */
  void set_auth_sys(const AuthSys& identity);
  /** As set_auth_sys(), with a credential that others use too. Any thread. */
  void set_credential(const SharedCredential& credential);
  /**
   * As set_auth_sys(), for any flavour; `body` is defined by the flavour. The verifier of calls
   * stays AUTH_NONE. Errors: kInvalidArgument (more than kMaxAuthBody bytes).
   */
  [[nodiscard]] Result<void> set_auth(AuthFlavor flavor, std::span<const std::byte> body);

  /**
   * Returns how many more calls submit() takes at this moment, one after another: as many as
   * credits are free, and ClientOptions::max_queued further ones, less those that wait already.
   * UINT32_MAX if max_queued sets no bound, as by default. Precisely, it is C + max_queued - U, and
   * at least 0:
   *
   *   U   the calls that were submitted and whose callbacks have not begun; calls of other threads
   *       count from their submit() on
   *   C   while alive(): the credits that the server grants, without those that abandoned calls
   *       hold; a new connection has one until the first reply
   *       while it connects or reconnects: 0, since calls can only wait
   *       once calls no longer wait for a connection (it is lost for good, closed or drains):
   *       ClientOptions::credits, so that calls end with the reason instead of being refused
   *
   * So with max_queued 0 a call is taken only if it can be sent at once. What was taken stays
   * taken: when a connection is lost, calls that wait for the next one may be more than the bound.
   *
   * Any thread. Other threads may use up the room before this one does; only submit() decides.
   * Asking costs a few loads. A return value of 0 asks for on_room().
   *
   *   while (!requests.empty() && connection.room() != 0) forward(requests.pop());
   */
  uint32_t room() const noexcept;

  /** See on_room(). */
  using RoomCallback = void (*)(void* argument);
  /**
   * Sets a callback that says when calls can be submitted again: the low-water mark of the calls
   * that wait. After a submit() that was refused with kFull or kNoMemory, or a room() of 0,
   * `callback(argument)` is called once, as soon as room() is at least `mark` (or no call is left
   * that could end), and not again until the next refusal or 0. So a program that stops then, and
   * goes on in the callback, never waits in vain, and is not called while there is room. With
   * several threads, one call may stand for the refusals of all.
   *
   * 1 as the mark makes it go on as soon as one call is taken; half of max_queued spares calls of
   * the callback. 0 is taken as 1. A null callback ends it. There is one per Caller; without
   * max_queued it is not called.
   *
   * Threads: any may set it, best before the first call. It runs on the connection's poll core,
   * during a pass, on its own and never within submit(), with the limits of a call's callback: it
   * may begin and submit calls (until one is refused again), read room(), set another callback, and
   * destroy a ClientConnection of the same core. It may come once more after a connection is
   * closed, since calls are taken again then, in order to end. It is not called after the
   * destructor of a ClientConnection has returned; that of a BackwardClient does not wait for one
   * that is running.
   */
  void on_room(uint32_t mark, RoomCallback callback, void* argument) noexcept;

  struct Impl;

 protected:
  explicit Caller(std::shared_ptr<Impl> impl);
  ~Caller();
  Impl& impl() noexcept { return *impl_; }
  const Impl& impl() const noexcept { return *impl_; }
  std::shared_ptr<Impl> take_impl() noexcept;  // in a destructor

 private:
  friend class Call;  // a Call may be destroyed later
  std::shared_ptr<Impl> impl_;
};

/**
 * An RDMA_ERROR as the server sent it (RFC 8166 section 4.5; draft-04 of version 2, section 6.2.4).
 * Fields that the code does not have are 0. The codes:
 *
 *   version 1   1 ERR_VERS, 2 ERR_CHUNK
 *   draft-00    1 ERR_VERS, 2 BAD_HEADER, 3 INVAL_OPTION
 *   draft-04    1 VERS, 2 BAD_XDR, 3 INVAL_PROC, 4 READ_CHUNKS, 5 WRITE_CHUNKS, 6 SEGMENTS,
 *               7 WRITE_RESOURCE, 8 REPLY_RESOURCE, 9 INVAL_OPTION, 10 SYSTEM
 */
struct TransportError {
  uint32_t version = 0;        ///< of the answer: 1 or 2
  uint32_t code = 0;           ///< rdma_err; 0: no error
  uint32_t low = 0, high = 0;  ///< ERR_VERS: the versions that the server speaks
  uint32_t maximum = 0;  ///< READ_CHUNKS, WRITE_CHUNKS, SEGMENTS (per chunk): the number accepted
  uint32_t write_chunk = 0;  ///< WRITE_RESOURCE: which offer() was too short, from 1; 0: unknown
  uint32_t length = 0;       ///< WRITE_RESOURCE, REPLY_RESOURCE: bytes that are needed; 0: unknown
};

/**
 * Called when a call has ended, on its connection's poll core. `call` may be begun again at once,
 * or destroyed. Must not throw.
 */
using Completion = void (*)(Call& call, void* argument);

/**
 * One call at a time; reusable. A Call must outlive what it submitted; cancel() ends that early. An
 * idle Call keeps pool buffers: those of its arguments, its offers and its last reply.
 */
class Call {
 public:
  explicit Call(Caller& caller);
  /**
   * The Call should not be in flight: cancel() and wait for the callback first. Destroying one in
   * flight is a mistake, which is logged once per connection. The call is then cancelled, and its
   * callback is not called (if it was running, it has returned before the destructor does). The
   * destructor waits until the call has ended, at most 5 seconds; if no thread polls the core, what
   * the library holds for the call lives on, as below.
   *
   * In a callback or handler on the connection's poll core the destructor cannot wait. What the
   * library holds lives on until the call has ended, and until then the peer may access memory that
   * was offered, and items that were put by reference. on_released() tells when that ends; without
   * it, keep them until the connection has been destroyed. A Call may be begun, submitted or
   * destroyed in its own callback: it has ended, although in_flight() is true until the callback
   * returns.
   */
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /**
   * Starts a new call of `procedure` of the binding's program and version; what was read from the
   * last reply becomes invalid. Write the arguments in order into the returned encoder, which is
   * valid until submit(). The binding must not change, and must outlive the Calls begun with it (if
   * one is destroyed in flight, until it has ended); one used in ClientOptions::keepalive_binding
   * must outlive the connections. A binding that check() refuses is logged, and its calls end with
   * kInvalidCall.
   *
   * begin() is refused with a log line while the call is in flight, when the connection that the
   * Call was made with has been destroyed, and in a child of fork(). A call in flight goes on, and
   * the returned encoder accepts nothing.
   */
  Encoder& begin(const Binding& binding, uint32_t procedure) noexcept;
  /**
   * Sets the credential of this Call's calls, in place of the connection's
   * (Caller::set_auth_sys()), until it is set again: begin() does not reset it. Best before
   * begin(). Between begin() and the first argument it holds for that call already, whose header is
   * written a second time; after an argument it makes that call end with kInvalidCall. A Call that
   * changes users writes its header anew, so a Call per user is cheapest; where Calls are shared by
   * users, set it for every call. Nothing is allocated, except for a security context's first call,
   * and no lock is taken; reset_credential() may take the connection's.
   *
   * Returns false, and changes nothing, while the call is in flight, when its connection has been
   * destroyed, and in a child of fork(), with a log line: do not begin a call for another user
   * then.
   */
  [[nodiscard]] bool set_credential(const SharedCredential& credential) noexcept;
  /**
   * Ends set_credential(): the connection's credential, as of each begin(), holds again. Refused,
   * and too late after an argument, likewise.
   */
  [[nodiscard]] bool reset_credential() noexcept;
  /**
   * Offers memory for the next DDP-eligible result, in stream order: a Write chunk of one segment,
   * or of several. The peer may write there until the call has ended, or, with on_released(), until
   * that callback. The number of offers is limited by the binding and kMaxOffers; with more,
   * submit() ends with kTooLarge. Memory that Memory::contains() does not know makes it end with
   * kInvalidMemory.
   *
   * A server may leave it unused and send the result inline. Only the view that get_item() returns
   * says where the bytes are: compare its runs with this memory, or with what take_offered()
   * returns, before you use that, and copy if they lie elsewhere.
   */
  void offer(MemorySpan room) noexcept;
  void offer(std::span<const MemorySpan> segments) noexcept;
  /**
   * As above, with a pool buffer of at least `length` bytes, which the call takes over. The placed
   * result is read through results() until begin(); take_offered() returns the buffer. Abandoning
   * such a call never costs the connection, see cancel(). submit() ends with kNoMemory if the
   * Buffer is empty, and with kInvalidMemory if it is too short or of another Memory than the
   * Runtime's.
   */
  void offer(Buffer room, uint32_t length) noexcept;
  static constexpr uint32_t kMaxOffers = 16;
  static constexpr uint32_t kMaxOfferSegments = 64;
  /**
   * Bounds the reply's variable part in bytes, beyond what the binding states. If the reply may not
   * fit inline, it gets a Reply chunk: from when the call is sent until begin(), or until it ends
   * without kOk, it holds pool buffers of this size, one of the smallest class that fits or several
   * of the largest. Configure a class for it in MemoryOptions::classes, with as many buffers as
   * such calls are in flight. A call that finds no buffer waits for those of others, or ends with
   * kNoMemory if its connection has no other call in flight.
   */
  void expect_reply(uint64_t bytes) noexcept;
  /**
   * Moves no item in a chunk of its own: for a body, arguments and results, that a security service
   * transforms as a whole. Calls of a security context (rrdk/gss_context.h) do not need it. Long
   * calls and replies remain. Offered memory only counts towards the size of the reply, to which
   * `growth` bytes are added for what the service adds (RFC 5666 section 11).
   */
  void forbid_ddp(uint32_t growth) noexcept;
  /**
   * Sets the deadline for this call only, after begin(); 0: none. A call that reaches its deadline
   * is cancelled as by cancel(), but ends with kTimeout: what cancel() says about memory, credits
   * and the connection applies here too.
   */
  void set_timeout_ms(uint32_t timeout) noexcept;
  /**
   * Sets for this call only, after begin(), whether it is sent again under the same XID if its
   * connection breaks before the reply. For that it needs ClientOptions::reconnect.
   *
   * A call that makes the server close the connection each time is repeated until its deadline.
   *
   * In draft-04 of version 2 it also says whether a call whose reply did not fit is sent again,
   * once, with the space that the server names (transport_error()), with or without `reconnect`.
   * The result of an offer() that was too short, and the results after it, then come in the reply:
   * read results(), not the offered memory. Procedure 0 is always sent again. A call that was
   * refused before it ran, because it had more chunks or segments than the server accepts, is sent
   * again with fewer in any case; later calls of the connection keep to that limit, and offers
   * beyond it are not used.
   */
  void set_retransmit(bool retransmit) noexcept;

  /** See on_released(). */
  using Released = void (*)(void* argument);
  /**
   * For this call only, after begin(): lets memory that is offer()ed, and put_item()ed by
   * reference, stay with the peer after the call is abandoned (cancel(), set_timeout_ms()).
   * `released(argument)` is called when the peer can no longer access it: when the answer has come
   * after all, when ClientOptions::lend_ms have passed, or when the connection has ended. Only then
   * may that memory be read, changed, used otherwise or freed.
   *
   * It is called exactly once for each submit(), however the call ends, on the connection's poll
   * core, and may do what a callback may. Normally the peer holds nothing when the call ends, and
   * it is called right before the completion. Otherwise it comes after the completion, when the
   * Call may be in use again or destroyed, so let `argument` refer to the memory and not to the
   * Call. At the latest it is called in ~ClientConnection().
   *
   *   args.put_u64(offset);
   *   call.offer(block->span());
   *   call.on_released([](void* block) { static_cast<Block*>(block)->unpin(); }, block);
   *   call.set_timeout_ms(5);
   */
  void on_released(Released released, void* argument) noexcept;

  /**
   * Sends the call. `completion(call, argument)` is called when it ends: on the core's own thread
   * only after submit() has returned, otherwise at any time. If `completion` is null, only
   * in_flight() shows that the call has ended. Without begin() the call ends with kInvalidCall.
   *
   * Returns false if submit() is refused; `completion` is then not called. It is refused
   *
   *   - when ClientOptions::max_queued is reached (Caller::room() is 0): status() is kFull. The
   *     call is still begun; submit() it again later, for example in Caller::on_room();
   *   - with max_queued, when memory was short for its arguments or an offer() while other calls of
   *     the connection are in flight: status() is kNoMemory. begin() it again later, for example in
   *     Caller::on_room(). If no other call is in flight, it ends with kNoMemory instead;
   *   - while the call is in flight, which changes nothing and is logged;
   *   - when the connection has been destroyed, and in a child of fork(): status() is kInvalidCall,
   *     and it is logged.
   *
   * After a refusal with kNoMemory the call cannot be completed, since its Encoder has failed, and
   * what came after the failure is lost. Until begin() or its destructor it keeps the buffers that
   * it has taken and those of its offers, which others may be waiting for. It uses nothing of the
   * memory that it refers to, and does not call on_released(). Another submit() without begin() is
   * refused in the same way, or ends the call with kNoMemory.
   */
  bool submit(Completion completion, void* argument) noexcept;
  /**
   * Sends the call and waits until it ends; if submit() refuses it, returns the reason at once, for
   * example kFull. On an embedded runtime it polls the core meanwhile. In a callback or a handler
   * on a poll core of any Runtime it would wait for itself, so it is refused with kInvalidCall and
   * a log line. A handler on a worker may wait.
   *
   * With a deadline it does not wait forever for a core that no thread polls: 5 seconds after the
   * deadline it returns kTimeout. The call is then cancelled, and in_flight() until the core is
   * polled; until then the peer may access what was offered to it or put by reference. When the
   * call has ended, status() is kCancelled or its own result, since only the return value is
   * kTimeout.
   */
  CallStatus submit_and_wait();
  /**
   * Ends the call with kCancelled, if it has not ended. The callback still comes, once; on the
   * core's own thread, after cancel() has returned.
   *
   * RPC over RDMA cannot recall a call: the server continues it, and may use the memory that it was
   * offered. What happens to memory depends on its owner:
   *
   *   - inline calls use none: the callback comes at once;
   *   - memory of the library (Reply chunks, copies of arguments, Buffers that put_item() or
   *     offer() took over): the callback comes at once; the memory stays lent to the server until
   *     it answers, for at most ClientOptions::lend_ms;
   *   - your memory, with on_released(): the callback comes at once; on_released() says when the
   *     memory is yours again;
   *   - your memory, without on_released(): its keys are revoked before the callback comes. If the
   *     server was still to read or write there, its access fails and ends the connection, with
   *     all other calls on it.
   *
   * After lend_ms keys are revoked in any case, with the same consequence if the server answers
   * even later. An abandoned call keeps its credit until it is answered; while abandoned calls hold
   * all credits, no call can be sent, see ClientOptions::starved_ms.
   *
   * Any thread. If another thread may have ended the call and submitted it again meanwhile (in its
   * callback, say), cancel() may hit the next call.
   */
  void cancel() noexcept;

  /**
   * As cancel(), for a caller that is about to destroy what the callback uses: once this has
   * returned, the callback is not called any more. On the connection's core it does not wait;
   * elsewhere it waits for the core, as ~Call() does. The Call may be in_flight() for another pass
   * or two before it can be begun again; it may be destroyed at once. Does nothing if it is not in
   * flight.
   */
  void abandon() noexcept;

  /**
   * Returns true from submit() until the callback has returned, so also in the callback (which may
   * begin or destroy the Call nevertheless). When it returns false, no other thread uses the Call,
   * and it may be begun or destroyed anywhere. Any thread.
   */
  bool in_flight() const noexcept;
  /**
   * How the last call ended, or why submit() refused it. Valid in its callback and afterwards,
   * until the next submit().
   */
  CallStatus status() const noexcept;
  /**
   * Returns true if the last call was handed to a connection: then the server may have run it,
   * unless status() says otherwise. Returns false if it still waits or ended without being handed
   * over: then the server has not run it, and it may be made again whatever it does. Valid when the
   * call has ended, in its callback or afterwards; on the connection's poll core also before that.
   */
  bool sent() const noexcept;
  /** The results, after kOk. Valid until begin() or destruction. */
  Decoder& results() noexcept;
  /**
   * Returns the Buffer that the k-th offer(), from 0, took over. Empty if that was a MemorySpan, if
   * it was taken already, or if the call was abandoned and the peer still has it. What results()
   * shows in it is valid as long as the Buffer, until begin() at most. Must not be called in
   * flight.
   */
  Buffer take_offered(uint32_t k) noexcept;
  /** The versions that the server speaks, after kProgMismatch or kRpcMismatch. */
  uint32_t mismatch_low() const noexcept;
  uint32_t mismatch_high() const noexcept;
  /** The reason, after kAuthError. */
  AuthStat auth_stat() const noexcept;
  /** The server's error, after kChunkError, kVersionError and kRemoteError. */
  TransportError transport_error() const noexcept;
  /**
   * In its callback only: when the call passed its stages, if it was sampled (rrdk/stages.h).
   * Without kEnded, which is when the callback has returned.
   */
  std::optional<StampedCall> stamps() const noexcept;

  struct Impl;

 private:
  friend struct Internals;
  friend class Submitted;
  // After a submit() that was refused: kFull, kNoMemory or kInvalidCall.
  CallStatus why_refused() const noexcept;
  Impl& impl() noexcept { return *impl_; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

/**
 * Calls of RPC programs, whoever makes them: a client on its ClientConnection (rrdk/client.h),
 * which has their rules in full, or a server that calls its client (BackwardClient in
 * rrdk/server.h).
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
#include "rrdk/rpc.h"
#include "rrdk/stages.h"
#include "rrdk/xdr.h"

namespace rrdk {

class Call;

/** One end of a connection, as far as it makes calls: what a Call is made with. */
class Caller {
 public:
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /**
   * Established: calls are sent. False while it is being established again, and when it is lost.
   * Any thread.
   */
  bool alive() const noexcept;
  /**
   * Of the other end, for messages: of a ClientConnection the URI that it was given, of a
   * BackwardClient what Peer::to_string() says of its client. Any thread.
   */
  const std::string& address() const noexcept;
  /** The poll core on which callbacks run. Any thread. */
  uint32_t core() const noexcept;
  /**
   * The credential of calls begun from now on: AUTH_NONE by default. Any thread. A Call keeps the
   * last one that it used; others are freed. Cannot fail, since an AuthSys is within its limits.
   */
  void set_auth_sys(const AuthSys& identity);
  /**
   * The same, of any flavour: `body` as the flavour defines it. The verifier of calls stays
   * AUTH_NONE. Errors: kInvalidArgument (more than kMaxAuthBody bytes).
   */
  [[nodiscard]] Result<void> set_auth(AuthFlavor flavor, std::span<const std::byte> body);

  struct Impl;

 protected:
  explicit Caller(std::shared_ptr<Impl> impl);
  ~Caller();
  Impl& impl() noexcept { return *impl_; }
  const Impl& impl() const noexcept { return *impl_; }
  std::shared_ptr<Impl> take_impl() noexcept;  // in a destructor

 private:
  friend class Call;  // which may be destroyed later
  std::shared_ptr<Impl> impl_;
};

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
  uint32_t version = 0;        ///< of the answer: 1 or 2
  uint32_t code = 0;           ///< rdma_err; 0: there was none
  uint32_t low = 0, high = 0;  ///< ERR_VERS: the versions that the server speaks
  uint32_t maximum = 0;  ///< READ_CHUNKS, WRITE_CHUNKS; SEGMENTS, of one chunk: how many are taken
  uint32_t write_chunk = 0;  ///< WRITE_RESOURCE: which offer() was too short, from 1; 0: unknown
  uint32_t length = 0;       ///< WRITE_RESOURCE, REPLY_RESOURCE: bytes that are needed; 0: unknown
};

/**
 * Called when a call has ended, on its connection's poll core; `call` may be begun again at once,
 * or destroyed. Does not throw.
 */
using Completion = void (*)(Call& call, void* argument);

/**
 * One call at a time, again and again. Outlives what it submitted; cancel() ends that early. An
 * idle Call keeps buffers of the pools: of its arguments, its offers and its last reply.
 */
class Call {
 public:
  explicit Call(Caller& caller);
  /**
   * Not in flight: cancel() and wait for the callback first. Destroying one in flight is a mistake,
   * which the log names once per connection; the call is then cancelled and its callback does not
   * come (or has returned before the destructor does, if it was running). The destructor waits
   * until the call has ended, but never for longer than 5 seconds: where nobody polls the core,
   * what is ours lives on, as below.
   *
   * In a callback or handler on the connection's poll core it cannot wait: what is ours lives on
   * until the call has ended, but memory that was offered, and items that were put by reference,
   * are the peer's to access until then. on_released() tells when; without it, keep them until the
   * connection has been destroyed. A Call may be begun, submitted or destroyed in its own callback:
   * it has ended, although in_flight() is true until the callback returns.
   */
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /**
   * Starts a new call of `procedure` of the binding's program and version; what was read from the
   * last reply is gone. Write the arguments, in order, into the encoder returned, which is valid
   * until submit(). The binding does not change, and outlives the Calls that were begun with it
   * (one that is destroyed in flight, until it has ended); one in ClientOptions::keepalive_binding
   * outlives the connections. One that check() refuses is logged, and its calls end with
   * kInvalidCall.
   *
   * While the call is in flight begin() is refused, which the log says: the call goes on, and the
   * encoder returned takes nothing. The same when the connection that the Call was made with has
   * been destroyed, and in a child of fork().
   */
  Encoder& begin(const Binding& binding, uint32_t procedure) noexcept;
  /**
   * Room for the next DDP-eligible result, in stream order: a Write chunk of one segment, or of
   * several. Until the call has ended, and if on_released() is used until that is called, the
   * memory is the peer's to write. At most as many as the binding allows and kMaxOffers in all;
   * more makes submit() end with kTooLarge. Memory that Memory::contains() does not know makes it
   * end with kInvalidMemory.
   */
  void offer(MemorySpan room) noexcept;
  void offer(std::span<const MemorySpan> segments) noexcept;
  /**
   * The same with a pool buffer of at least `length` bytes, which becomes the call's: where the
   * result was placed is seen through results(), until begin(). take_offered() gets the buffer
   * back. Giving up such a call never costs the connection, see cancel(). An empty Buffer makes
   * submit() end with kNoMemory, one that is too short, or of another Memory than the Runtime's,
   * with kInvalidMemory.
   */
  void offer(Buffer room, uint32_t length) noexcept;
  static constexpr uint32_t kMaxOffers = 16;
  static constexpr uint32_t kMaxOfferSegments = 64;
  /**
   * Bound on the reply's variable part in bytes, beyond what the binding states. A reply that may
   * be larger than what goes inline has a Reply chunk, for which the call holds pool buffers of
   * this bound from when it is sent until begin() or its end without kOk: one of the smallest class
   * that fits, or several of the largest. Have a class for it in MemoryOptions::classes, of as many
   * buffers as such calls are in flight; a call that finds none waits for those of others, or ends
   * with kNoMemory where there are none to wait for.
   */
  void expect_reply(uint64_t bytes) noexcept;
  /**
   * For a body that a security service transforms as a whole, arguments and results, such as
   * RPCSEC_GSS with integrity or privacy: no item of it moves in a chunk of its own. Long calls and
   * replies remain; what was offered only counts for the room of the reply, to which `growth` bytes
   * are added for what the service adds (RFC 5666 section 11).
   */
  void forbid_ddp(uint32_t growth) noexcept;
  /**
   * For this call only, after begin(); 0: none. A deadline is a cancel() that comes by itself, with
   * kTimeout: what is said there of memory, credits and the connection holds here as well.
   */
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

  /** See on_released(). */
  using Released = void (*)(void* argument);
  /**
   * For this call only, after begin(): the memory that is offer()ed and put_item()ed by reference
   * may stay with the peer after the call has been given up (cancel(), set_timeout_ms()), and
   * `released(argument)` is called when the peer cannot access it any more: when the answer has
   * come after all, when ClientOptions::lend_ms have passed, or when the connection has ended. Only
   * then may that memory be read, changed, used otherwise or freed.
   *
   * It is called exactly once for each submit(), however the call ends, on the connection's poll
   * core, and may do what a callback may. Where nothing is left to the peer, which is the rule, it
   * is called right before the completion. Otherwise it comes after that, and the Call may be in
   * use again, or gone: let `argument` be of the memory, not of the Call. At the latest it comes
   * within ~ClientConnection().
   *
   *   args.put_u64(offset);
   *   call.offer(block->span());
   *   call.on_released([](void* block) { static_cast<Block*>(block)->unpin(); }, block);
   *   call.set_timeout_ms(5);
   */
  void on_released(Released released, void* argument) noexcept;

  /**
   * Sends; the end comes as `completion(call, argument)`: on the core's thread not before this has
   * returned, on another thread at any time. Null: in_flight() alone tells of the end.
   *
   * Without begin() before it the call ends with kInvalidCall. While the call is in flight submit()
   * is refused: nothing happens, and the new completion is not called. When its connection has been
   * destroyed submit() is refused too, and in a child of fork(); status() is kInvalidCall then. All
   * are logged. False: it was refused.
   */
  bool submit(Completion completion, void* argument) noexcept;
  /**
   * Sends and waits for the end. On an embedded runtime it polls the core meanwhile. In a callback
   * or a handler on a poll core, of whichever Runtime, it is refused, with kInvalidCall and a line
   * in the log: it would wait for itself. A handler on a worker may wait.
   *
   * With a deadline it does not wait for ever where nobody polls the core: 5 seconds after it
   * kTimeout is returned all the same. The call is then cancelled, and in_flight() until the core
   * is polled: what was offered to it, or put by reference, stays the peer's to access until then.
   * Once it has ended, status() is kCancelled or what the call came to, because only the return
   * value is kTimeout.
   */
  CallStatus submit_and_wait();
  /**
   * Ends the call with kCancelled, if it has not ended: the callback still comes, once, after this
   * has returned if it is called on the core's thread.
   *
   * RPC over RDMA cannot take a call back: the server goes on with it, and with the memory that it
   * was offered. What that means depends on whose memory it is:
   *
   *   - nobody's, of inline calls: the callback comes at once;
   *   - the library's (Reply chunks, copies of arguments, Buffers that put_item() or offer() took
   *     over): the callback comes at once; it stays lent to the server until that answers, for at
   *     most ClientOptions::lend_ms;
   *   - yours, with on_released(): the callback comes at once; on_released() says when it is yours;
   *   - yours, without: its keys are revoked before the callback comes. If the server is still to
   *     read or write there, its access fails and ends the connection, with all other calls on it.
   *
   * After lend_ms keys are revoked in any case, with the same consequence if the server answers
   * even later. A call that was given up keeps its credit until it is answered: when all credits
   * are held so, no call can be sent, and ClientOptions::starved_ms says for how long.
   *
   * Any thread. But from a thread that does not know whether the call has ended and was submitted
   * again meanwhile (in its callback, say) it may hit the next call.
   */
  void cancel() noexcept;

  /**
   * cancel() for whoever is about to go with all that the callback uses: once this has returned the
   * callback does not come any more. On the connection's core it does not wait; elsewhere it waits
   * for the core, as ~Call() does. The Call may be in_flight() for a pass or two, and then be begun
   * again, or be destroyed at once. Nothing happens if it is not in flight.
   */
  void abandon() noexcept;

  /**
   * From submit() until the callback has returned, so also in the callback (which may begin or
   * destroy the Call all the same). Any thread. False: no other thread is at it, and it may be
   * begun or destroyed anywhere.
   */
  bool in_flight() const noexcept;
  /** How the last call ended. In its callback and afterwards, until submit(). */
  CallStatus status() const noexcept;
  /**
   * Whether the last call was handed to a connection. False: it still waits, or it has ended
   * without that, and the server has not run it, so that it may be made again whatever it does.
   * True: the server may have run it, unless status() says otherwise. When the call has ended, in
   * its callback or afterwards; on the connection's poll core also before that.
   */
  bool sent() const noexcept;
  /** After kOk: the results. Valid until begin() or destruction. */
  Decoder& results() noexcept;
  /**
   * The Buffer that the k-th offer(), from 0, took over; empty if that was of a MemorySpan, if it
   * was taken already, or if the call was given up and the peer still has it. What results() shows
   * of it lives as long as the Buffer, until begin() at most. Not in flight.
   */
  Buffer take_offered(uint32_t k) noexcept;
  /** After kProgMismatch or kRpcMismatch: what the server speaks. */
  uint32_t mismatch_low() const noexcept;
  uint32_t mismatch_high() const noexcept;
  /** After kAuthError. */
  AuthStat auth_stat() const noexcept;
  /** After kChunkError, kVersionError and kRemoteError: what the server said. */
  TransportError transport_error() const noexcept;
  /**
   * In its callback only: when it passed its stages, if it was sampled (rrdk/stages.h). All but
   * kEnded, which is when the callback has returned.
   */
  std::optional<StampedCall> stamps() const noexcept;

  struct Impl;

 private:
  friend struct Internals;
  Impl& impl() noexcept { return *impl_; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

/**
 * Calls of RPC programs, whoever makes them: a client on its ClientConnection (rrdk/client.h),
 * which has their rules in full, or a server that calls its client (BackwardClient in
 * rrdk/server.h).
 */
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "rrdk/binding.h"
#include "rrdk/call_status.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/rpc.h"
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
  /** The other end, for messages. Any thread. */
  const std::string& peer() const noexcept;
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
  Impl& impl() noexcept { return *impl_; }
  const Impl& impl() const noexcept { return *impl_; }

 protected:
  explicit Caller(std::shared_ptr<Impl> impl);
  ~Caller();
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

/** One call at a time, again and again. Outlives what it submitted; cancel() ends that early. */
class Call {
 public:
  explicit Call(Caller& caller);
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
   * encoder returned takes nothing. The same when the connection that the Call was made with has
   * been destroyed.
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
   * is refused: nothing happens, and the new completion is not called. When its connection has been
   * destroyed submit() is refused too, and status() is kInvalidCall. All are logged.
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

}  // namespace rrdk

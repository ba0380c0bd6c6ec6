/**
 * Calling RPC programs: asynchronous calls with a completion callback, and a blocking convenience.
 *
 * A Call is an object of the caller's that is used again and again: begin() starts a new call and
 * returns the encoder for its arguments, offer() names memory in which a DDP-eligible result may be
 * placed by RDMA, submit() sends it. Every submitted call ends exactly once, in its callback, with
 * a CallStatus. In the steady state nothing is allocated or registered.
 *
 * Threads: begin(), offer() and submit() from any thread, one at a time per Call; on the
 * connection's own poll core (in a callback, or where an embedded Runtime is polled) submit() is a
 * direct call, from elsewhere it goes through a ring. Callbacks run on the connection's poll core;
 * they may begin and submit again, and must not block, destroy the ClientConnection or poll.
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
#include <span>
#include <string>

#include "rrdk/binding.h"
#include "rrdk/call_status.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/rpc.h"
#include "rrdk/runtime.h"
#include "rrdk/xdr.h"

namespace rrdk {

struct ClientOptions {
  uint32_t credits = 64;         ///< calls in flight per connection; further ones queue
  uint32_t inline_size = 4096;   ///< bytes of Send and Receive buffers, multiple of 1024
  uint64_t max_call = 8u << 20;  ///< bytes of one call, data included
  uint64_t max_reply = 8u << 20;
  uint32_t connect_timeout_ms = 5000;
  uint32_t call_timeout_ms = 30000;  ///< default; 0: none
  /** Eligible arguments of at least so many bytes move by RDMA Read even if they fit inline. */
  uint32_t chunk_threshold = 1024;
};

class Call;

/** Counters of one connection since it was made. */
struct ClientStats {
  uint64_t calls, ended_ok, ended_error, timeouts;
  uint64_t long_calls, long_replies;
  uint64_t credit_waits;       ///< calls that had to wait for the peer's grant
  uint64_t protocol_breaches;  ///< messages of the peer that were refused or unmatched
  uint32_t granted;            ///< the peer's last grant
  uint32_t in_flight;
};

/** One connection to one server, on one poll core. */
class ClientConnection {
 public:
  /** Ends all calls with kShutdown, then closes. Not from a callback. */
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  bool alive() const noexcept;
  const std::string& peer() const noexcept;
  uint32_t core() const noexcept;
  ClientStats stats() const;
  /** The credential of following calls: AUTH_NONE by default. */
  void set_auth_sys(const AuthSys& identity);

  struct Impl;
  Impl& impl() noexcept { return *impl_; }

 private:
  friend class Client;
  explicit ClientConnection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/** Called when a call has ended; `call` may be begun again at once. */
using Completion = void (*)(Call& call, void* argument);

/** One call at a time, again and again. Outlives what it submitted; cancel() ends that early. */
class Call {
 public:
  explicit Call(ClientConnection& connection);
  /** Not in flight. */
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /**
   * Starts a new call of `procedure` of the binding's program and version; what was read from the
   * last reply is gone. Write the arguments, in order, into the encoder returned.
   */
  Encoder& begin(const Binding& binding, uint32_t procedure) noexcept;
  /**
   * Room for the next DDP-eligible result, in stream order: a Write chunk of one segment, or of
   * several. Until the call has ended the memory is the peer's to write. At most as many as the
   * binding allows and kMaxOffers in all; more makes submit() end with kTooLarge.
   */
  void offer(MemorySpan room) noexcept;
  void offer(std::span<const MemorySpan> segments) noexcept;
  static constexpr uint32_t kMaxOffers = 16;
  static constexpr uint32_t kMaxOfferSegments = 64;
  /** Bound on the reply's variable part in bytes, beyond what the binding states. */
  void expect_reply(uint64_t bytes) noexcept;
  /** For this call only; 0: none. */
  void set_timeout_ms(uint32_t timeout) noexcept;

  /** Sends; the end comes as `completion(call, argument)`, possibly before this returns. */
  void submit(Completion completion, void* argument) noexcept;
  /**
   * Sends and waits for the end. On an embedded runtime it polls the core meanwhile. Not from a
   * callback.
   */
  CallStatus submit_and_wait();
  /** Ends the call with kCancelled, if it has not ended: the callback still comes, once. */
  void cancel() noexcept;

  bool in_flight() const noexcept;
  CallStatus status() const noexcept;
  /** After kOk: the results. Valid until begin() or destruction. */
  Decoder& results() noexcept;
  /** After kProgMismatch or kRpcMismatch: what the server speaks. */
  uint32_t mismatch_low() const noexcept;
  uint32_t mismatch_high() const noexcept;
  /** After kAuthError. */
  AuthStat auth_stat() const noexcept;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class Client {
 public:
  /** `runtime` outlives the Client. */
  static Result<std::unique_ptr<Client>> create(Runtime& runtime,
                                                const ClientOptions& options = {});
  /** Connections are gone by now. */
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /**
   * Connects, and waits for it (an embedded runtime is polled). The connection lives on `core`, or
   * on the core with the fewest (-1).
   * Errors: kBadUri, kNotFound, kRefused, kNotAPeer, kPermission, kTimeout, kNoMemory.
   */
  Result<std::unique_ptr<ClientConnection>> connect(const std::string& uri, int core = -1);

  struct Impl;

 private:
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

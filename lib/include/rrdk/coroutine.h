/**
 * Coroutines: a call can be awaited, and a handler can be a coroutine. All support is in this
 * header; programs that do not include it pay nothing.
 *
 *   // A handler that calls another server before it answers.
 *   rrdk::Served copy(rrdk::ServerCall call, void* context) {
 *     auto& site = *static_cast<Site*>(context);
 *     rrdk::Call read(*site.store);
 *     read.begin(kStoreBinding, kStoreRead).put_u64(call.args().get_u64());
 *     read.expect_reply(kBlock);
 *     auto done = co_await rrdk::submit(read);
 *     if (!done.ok())
 *       co_return std::move(call).reject(rrdk::AcceptStat::kSystemErr);
 *     call.results().put_opaque(done.results().get_opaque(kBlock));
 *     std::move(call).reply();
 *   }
 *   constexpr rrdk::Procedure kTable[] = {{kCopy, rrdk::by_coroutine<copy>}};
 *
 *   // A sequence of calls that has an owner, and may be cancelled.
 *   rrdk::Coroutine mount(rrdk::ClientConnection& connection, Site& site) {
 *     rrdk::Call call(connection);
 *     call.begin(kMountBinding, kMnt).put_string(site.path);
 *     site.status = co_await rrdk::submit(call);
 *     ...
 *   }
 *   rrdk::Coroutine mounting = mount(*connection, site);   // runs until its first co_await
 *   mounting = {};                                         // cancels it, unless it has ended
 *
 * Compilers: await in a statement of its own, as above, and not as a part of a condition. GCC 12
 * compiles
 *
 *   if (co_await rrdk::submit(read) == rrdk::CallStatus::kOk && read.results().get_u32() == 7 &&
 *       read.results().get_item(4).size() == 4)
 *
 * so that the right side of the first && is evaluated first, while the call is in flight: a
 * successful call then looks like a failed one. Clang 14 and 19 compile it correctly.
 *
 * Threads: a coroutine starts in its caller's thread and continues, after each co_await, on the
 * poll core of the connection that the call was made on, during a pass. There it has the limits of
 * a callback (rrdk/client.h). A coroutine that calls on connections of several cores moves between
 * these, and what it uses must allow that; a ServerCall does.
 *
 * Lifetime: destroying a coroutine that waits for a call, as ~Coroutine() does, abandons the call
 * as Call::abandon() does. The coroutine is not resumed any more, and its Call may be in its frame.
 * Destroy it on the core where it would continue. On another thread ~Coroutine() waits for the
 * core, like ~Call(), and the coroutine must be waiting, not running. In any case the peer may
 * access memory that was offered to the call, or put by reference, until Call::on_released() says
 * otherwise.
 *
 * Errors: exceptions never leave a coroutine: as in other handlers and callbacks, they end the
 * process (std::terminate). A handler that ends without an answer makes the same mistake as any
 * handler that forgets its ServerCall: SYSTEM_ERR is sent, and Counter::kMistakeUnanswered counts
 * it.
 *
 * Cost: each coroutine has a frame on the heap, one allocation when it begins (which its promise
 * may change, as usual). co_await allocates nothing. submit() may be awaited in coroutines of any
 * type.
 */
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "rrdk/call.h"
#include "rrdk/call_status.h"
#include "rrdk/service.h"

namespace rrdk {

/**
 * A call that was awaited: its status and results. Valid as long as the Call, until that is begun
 * again.
 *
 *   auto done = co_await rrdk::submit(call);
 *   if (done.ok() && done.results().get_u32() == 7) ...
 */
class [[nodiscard]] Awaited {
 public:
  Awaited(Call& call, CallStatus status) noexcept : call_(&call), status_(status) {}

  bool ok() const noexcept { return status_ == CallStatus::kOk; }
  CallStatus status() const noexcept { return status_; }
  /** After ok(). */
  Decoder& results() const noexcept { return call_->results(); }
  /** Allows comparing with a status, assigning to one, and to_string(). */
  operator CallStatus() const noexcept { return status_; }  // NOLINT(google-explicit-constructor)

 private:
  Call* call_;
  CallStatus status_;
};

/** The awaitable that submit() returns. */
class [[nodiscard]] Submitted {
 public:
  explicit Submitted(Call& call) noexcept : call_(call) {}
  ~Submitted() {
    if (waiting_)
      call_.abandon();
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  bool await_ready() const noexcept { return false; }
  // If the core belongs to another thread, the coroutine may have continued, and this object be
  // destroyed, before Call::submit() has returned.
  bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
    coroutine_ = coroutine;
    waiting_ = true;
    if (call_.submit(&Submitted::ended, this))
      return true;
    waiting_ = false;
    refused_ = true;
    why_ = call_.why_refused();
    return false;
  }
  Awaited await_resume() const noexcept { return {call_, refused_ ? why_ : call_.status()}; }

 private:
  static void ended(Call&, void* self) noexcept {
    auto& submitted = *static_cast<Submitted*>(self);
    submitted.waiting_ = false;
    submitted.coroutine_.resume();
  }

  Call& call_;
  std::coroutine_handle<> coroutine_;
  bool waiting_ = false;
  bool refused_ = false;
  CallStatus why_ = CallStatus::kInvalidCall;
};

/**
 * Call::submit() whose end is awaited; co_await returns the call's status and results. The Call
 * must have been begun, and must live as long as it is awaited. If Call::submit() refuses it, the
 * coroutine goes on at once, with the reason as its status: kFull or kNoMemory (Call::submit() says
 * what may be tried again), otherwise kInvalidCall.
 *
 *   auto done = co_await rrdk::submit(call);
 */
inline Submitted submit(Call& call) noexcept {
  return Submitted(call);
}

/**
 * A coroutine without a result that has an owner: it starts at once, and is destroyed with this
 * object, wherever it waits then. Move-only. The coroutine must not destroy, assign or move this
 * object itself.
 */
class [[nodiscard]] Coroutine {
 public:
  struct promise_type {
    Coroutine get_return_object() noexcept {
      return Coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };

  /** No coroutine: done() returns true. */
  Coroutine() = default;
  Coroutine(Coroutine&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
  Coroutine& operator=(Coroutine&& other) noexcept {
    if (this != &other) {
      destroy();
      frame_ = std::exchange(other.frame_, {});
    }
    return *this;
  }
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;
  ~Coroutine() { destroy(); }

  /**
   * Returns true if the coroutine has ended, or there is no coroutine. Call it on the thread where
   * it runs.
   */
  bool done() const noexcept { return !frame_ || frame_.done(); }

 private:
  explicit Coroutine(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
  void destroy() noexcept {
    if (frame_)
      frame_.destroy();
  }

  std::coroutine_handle<promise_type> frame_;
};

/**
 * The return type of a handler that is a coroutine. It has no owner and runs to its end. What it
 * waits for ends at the latest when the connection that it calls on is closed. Until its ServerCall
 * is answered, the Server or ClientConnection cannot be destroyed.
 */
struct Served {
  struct promise_type {
    Served get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
};

/**
 * The Handler for the coroutine `handler`, for a Procedure. `handler` takes its parameters by
 * value, as every coroutine that outlives its caller should: they move into its frame.
 */
template <Served (*handler)(ServerCall call, void* context)>
void by_coroutine(ServerCall call, void* context) {
  handler(std::move(call), context);
}

}  // namespace rrdk

/**
 * Coroutines: a call can be awaited, and a handler can be a coroutine. This header is all there is
 * of it: the library knows nothing of coroutines, and who does not include it pays nothing.
 *
 *   // A handler that asks another server before it answers.
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
 *   // A sequence of calls that somebody owns, and may call off.
 *   rrdk::Coroutine mount(rrdk::ClientConnection& connection, Site& site) {
 *     rrdk::Call call(connection);
 *     call.begin(kMountBinding, kMnt).put_string(site.path);
 *     site.status = co_await rrdk::submit(call);
 *     ...
 *   }
 *   rrdk::Coroutine mounting = mount(*connection, site);   // runs until its first co_await
 *   mounting = {};                                         // called off, or over
 *
 * Await in a statement of its own, as above, and not as a part of a condition. GCC 12 compiles
 *
 *   if (co_await rrdk::submit(read) == rrdk::CallStatus::kOk && read.results().get_u32() == 7 &&
 *       read.results().get_item(4).size() == 4)
 *
 * so that the right side of the first && is evaluated first, while the call is on its way: a good
 * call then looks like a failed one. Clang 14 and 19 do it right.
 *
 * Threads: a coroutine begins in its caller's thread, and goes on, after each co_await, on the poll
 * core of the connection that the call was made on, in a pass of it: there it has the limits of a
 * callback (rrdk/client.h). So one that calls on connections of several cores moves between them,
 * and what it uses must allow that; a ServerCall does.
 *
 * Destroying a coroutine that waits for a call, as ~Coroutine() does, calls that call off as
 * Call::abandon() does: it is not resumed any more, and its Call may be in its frame. Do that on
 * the core where it would go on. On another thread ~Coroutine() waits for the core, like ~Call(),
 * and the coroutine must be waiting, not running. Memory that was offered to the call, or put by
 * reference, is the peer's until Call::on_released() says that it is back, in any case.
 *
 * Exceptions never leave a coroutine: as in a handler or a callback that is none, they end the
 * process (std::terminate). A handler that ends without an answer has made the mistake of every
 * handler that forgets its ServerCall: SYSTEM_ERR goes out, and Counter::kMistakeUnanswered counts
 * it.
 *
 * Each coroutine has a frame on the heap, of one allocation when it begins (its promise may say
 * how, as usual). co_await allocates nothing. submit() may be awaited in coroutines of any type.
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
 * A call that was awaited: how it ended, and what came. Good for as long as the Call, until that is
 * begun again.
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
  /** So that it can be compared with a status, be assigned to one, or be named by to_string(). */
  operator CallStatus() const noexcept { return status_; }  // NOLINT(google-explicit-constructor)

 private:
  Call* call_;
  CallStatus status_;
};

/** What submit() gives to co_await. */
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
  // Where the core is another thread's, the coroutine may have gone on, and this object be gone,
  // before Call::submit() has returned.
  bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
    coroutine_ = coroutine;
    waiting_ = true;
    if (call_.submit(&Submitted::ended, this))
      return true;
    waiting_ = false;
    refused_ = true;
    return false;
  }
  Awaited await_resume() const noexcept {
    return {call_, refused_ ? CallStatus::kInvalidCall : call_.status()};
  }

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
};

/**
 * Call::submit(), whose end is awaited: the status of the call, and its results. The Call lives as
 * long as that is awaited, and is begun. kInvalidCall also where Call::submit() would be refused.
 *
 *   auto done = co_await rrdk::submit(call);
 */
inline Submitted submit(Call& call) noexcept {
  return Submitted(call);
}

/**
 * A coroutine without a result that somebody owns: it begins at once, and is destroyed with this,
 * wherever it waits then. Move-only. Not destroyed, assigned to or moved by the coroutine itself.
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

  /** None: done(). */
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

  /** It has come to its end, or there is none. On the thread where it runs. */
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
 * What a handler returns that is a coroutine. Nobody owns it: it runs to its end. What it waits for
 * ends at the latest when the connection is closed that it calls on; its ServerCall, until it is
 * answered, keeps the Server, or the ClientConnection, from being destroyed.
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
 * The Handler that is the coroutine `handler`, for a Procedure. It takes its parameters by value,
 * as every coroutine should that outlives its caller: they move into its frame.
 */
template <Served (*handler)(ServerCall call, void* context)>
void by_coroutine(ServerCall call, void* context) {
  handler(std::move(call), context);
}

}  // namespace rrdk

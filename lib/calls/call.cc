// A Call's end, waiting for a call's end, and what a program does wrong.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <thread>
#include <utility>

#include "base/lifetime.h"
#include "base/log.h"
#include "calls/call_impl.h"
#include "calls/caller_impl.h"
#include "runtime/poll_core.h"

namespace rrdk {

namespace {

// What submit_and_wait() sleeps on, a second at a time: std::atomic::wait() has no limit. The
// kernel is entered only for a waiter that sleeps.
class End {
 public:
  bool is_here() const noexcept { return state_.load(std::memory_order_acquire) == kEnded; }
  void tell() noexcept {
    if (state_.exchange(kEnded, std::memory_order_acq_rel) == kAsleep)
      // It may have woken and gone by now: the address is all that the kernel is told.
      syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  // False: not within a second.
  bool wait() noexcept {
    constexpr int kPauses = 12;
    constexpr int kYields = 4;
    for (int i = 0; i < kPauses + kYields && !is_here(); ++i)
      i < kPauses ? __builtin_ia32_pause() : std::this_thread::yield();
    uint32_t awake = kAwake;
    state_.compare_exchange_strong(awake, kAsleep, std::memory_order_acq_rel);
    timespec second = {.tv_sec = 1, .tv_nsec = 0};
    if (!is_here())
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kAsleep, &second, nullptr, 0);
    return is_here();
  }

 private:
  static constexpr uint32_t kAwake = 0;
  static constexpr uint32_t kAsleep = 1;
  static constexpr uint32_t kEnded = 2;
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> state_ = kAwake;
};

const char* name_of(const Binding* binding, uint32_t procedure) {
  const ProcedureBinding* entry = binding != nullptr ? binding->find(procedure) : nullptr;
  return entry != nullptr && entry->name != nullptr ? entry->name : "unnamed";
}

}  // namespace

Call::Call(Caller& caller) : impl_(std::make_unique<Impl>(*this, caller.impl_)) {}

// A call that is not busy may have outlived its connection.
Call::~Call() {
  Impl& c = *impl_;
  if (base::forked) {
    base::keep_for_good(std::move(impl_));
    return;
  }
  if (!c.busy())
    return;
  Caller::Impl& caller = c.caller;
  c.abandon();
  c.abandon();
  // Again each time: a callback that was running may have submitted it once more.
  auto has_ended = [&] {
    c.abandon();
    return !c.busy();
  };
  const bool must_not_wait =
      caller.core().passing() || (caller.core().here() && c.let_go.load(std::memory_order_relaxed));
  if (must_not_wait || !caller.runtime.wait_patiently(has_ended, "~Call() waits for a poll core"))
    caller.keep_until_ended(std::move(impl_));
}

void Call::abandon() noexcept {
  Impl& c = *impl_;
  if (!c.in_flight.load(std::memory_order_acquire))
    return;
  c.let_go.store(true, std::memory_order_relaxed);
  c.cancel_quietly();
  if (!c.caller.core().here())
    c.caller.runtime.wait_patiently([&] { return !c.busy(); },
                                    "Call::abandon() waits for a poll core");
}

CallStatus Call::submit_and_wait() {
  Impl& c = *impl_;
  if (c.caller.retired()) {
    c.refuse_retired();
    return CallStatus::kInvalidCall;
  }
  Runtime::Impl& runtime = c.caller.runtime;
  if (c.in_flight.load(std::memory_order_acquire)) {
    c.refuse_submit();
    return CallStatus::kInvalidCall;
  }
  if (runtime.in_pass()) {
    c.caller.complain(Caller::Impl::kWaitInPass,
                      "submit_and_wait() in a callback or handler on a poll core would wait for "
                      "itself: use submit()");
    c.begun = false;
    return c.status = CallStatus::kInvalidCall;
  }
  End end;
  submit([](Call&, void* argument) { static_cast<End*>(argument)->tell(); }, &end);
  runtime::StallWatch watch(c.caller.core(), "submit_and_wait() on", c.caller.address());
  bool polling = runtime.embedded_here();
  while (!end.is_here()) {
    if (!polling) {
      if (end.wait())
        break;
      watch.look();
      polling = runtime.embedded_here();  // the thread that polled may have ended
    } else if (runtime.poll_here() == 0 && runtime.options.idle != IdlePolicy::kBusy) {
      watch.look();
      std::this_thread::yield();
    }
  }
  return status();
}

// Cancels what is in flight; its callback does not come any more. A callback that is running on the
// core may be using the call meanwhile.
void Call::Impl::cancel_quietly() noexcept {
  completion.store(no_callback, std::memory_order_relaxed);
  caller.cancel(*this);
}

void Call::Impl::abandon() noexcept {
  if (!in_flight.load(std::memory_order_acquire))
    return;
  if (!abandoned.exchange(true, std::memory_order_acq_rel) &&
      !let_go.load(std::memory_order_relaxed)) {
    uint32_t number = procedure.load(std::memory_order_relaxed);
    base::log_error(
        "%s: a Call of procedure %u (%s) is destroyed in flight: it is cancelled without a "
        "callback",
        caller.address().c_str(), number, name_of(binding.load(std::memory_order_relaxed), number));
  }
  cancel_quietly();
}

Encoder& Call::Impl::refuse_begin() noexcept {
  if (caller.retired())
    refuse_retired();
  else
    caller.complain(Caller::Impl::kBeginInFlight, "begin() of a Call that is in flight is refused");
  if (!refused)
    refused = std::make_unique<Refused>(caller.memory);
  return refused->encoder;
}

void Call::Impl::refuse_retired() noexcept {
  caller.complain(Caller::Impl::kNoConnection,
                  "the connection of a Call has been destroyed: the Call is refused; destroy it "
                  "too, and make another one on another connection");
  begun = false;
  status = CallStatus::kInvalidCall;
}

// False: nothing can be submitted, not even in order to end at once.
bool Call::Impl::refuse_submit() noexcept {
  if (caller.retired()) {
    refuse_retired();
    return false;
  }
  if (in_flight.load(std::memory_order_acquire)) {
    caller.complain(Caller::Impl::kSubmitInFlight,
                    "submit() of a Call that is in flight is refused");
    return false;
  }
  caller.complain(Caller::Impl::kNotBegun,
                  "submit() without begin() before it ends with kInvalidCall");
  return true;
}

}  // namespace rrdk

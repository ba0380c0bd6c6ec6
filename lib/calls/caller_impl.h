// What is behind a rrdk::Caller: the calls of one end of a connection, from their submit() to their
// callbacks, and what they have in common.
//
//   up_       carrier_   what becomes of a call
//   a link    the same   submit() gives it to that link's engine
//   null      a link     that engine gives back the calls that it has; new ones do without
//   null      null       they do without: who derives from this knows whether they may wait
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "calls/call_impl.h"
#include "rpc/call_datapath.h"
#include "rrdk/call.h"
#include "runtime/link.h"
#include "runtime/open_device.h"
#include "runtime/poll_core.h"
#include "runtime/runtime_impl.h"
#include "runtime/timers.h"
#include "xprt/connection.h"

namespace rrdk {

namespace calls {

// A counter that one thread writes.
inline void count(std::atomic<uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Of each call, unless it says otherwise.
struct Defaults {
  uint32_t timeout_ms;
  bool retransmit;
  uint32_t inline_size;
  uint64_t max_call;
};

struct Ended {
  uint64_t calls = 0;  // begun
  uint64_t ok = 0;
  uint64_t error = 0;
  uint64_t timeouts = 0;
};

}  // namespace calls

struct Caller::Impl {
  // `device` may be told later.
  Impl(Runtime::Impl& runtime_in, runtime::PollCore& core, const runtime::OpenDevice* device,
       std::string address, const calls::Defaults& defaults_in)
      : runtime(runtime_in),
        memory(runtime_in.memory),
        defaults(defaults_in),
        runtime_use_(std::in_place, runtime_in),
        core_(core),
        device_(device),
        address_(std::move(address)) {
    failing_timer_.caller = this;
  }
  virtual ~Impl() = default;

  // Its connection has been destroyed: nothing of the runtime may be touched. Calls hold it, so
  // that those made too late find this. Any thread.
  bool retired() const noexcept { return retired_.load(std::memory_order_relaxed); }

  // Calls can be made. Any thread.
  virtual bool alive() const noexcept = 0;
  runtime::PollCore& core() const noexcept { return core_; }
  const std::string& address() const noexcept { return address_; }

  void set_credential(const rpc::PreparedAuth& prepared);
  uint64_t credential_version() const noexcept {
    return credential_version_.load(std::memory_order_acquire);
  }
  void take_credential(Call::Impl& call);  // the present one
  std::shared_ptr<const rpc::PreparedAuth> credential();
  // What check() says of the binding, asked at its first use.
  bool accepts(const Binding& binding);
  // The program's mistakes; each is logged once per connection.
  enum Mistake : uint32_t {
    kBeginInFlight = 1,
    kSubmitInFlight = 2,
    kNotBegun = 4,
    kWaitInPass = 8,
    kNoConnection = 16,
    kOutOfReach = 32,
  };
  void complain(Mistake mistake, const char* what);
  // Whether the device can use the memory of items and offers; true while that is not known.
  bool reaches(const Call::Impl& call);
  // Owns a call whose Call is gone until nobody comes to it any more.
  void keep_until_ended(std::unique_ptr<Call::Impl> call) noexcept;

  // Any thread. caller_datapath.cc
  void submit(Call::Impl& call) noexcept;
  void cancel(Call::Impl& call) noexcept;
  calls::Ended counts() const noexcept;

  // A submitted call has no deadline yet. The core's thread.
  bool has_untimed() const noexcept {
    return in_engine_.front() != nullptr && !in_engine_.front()->timed;
  }

  // The core's thread: what its Link is told of.
  void ended(xprt::OutgoingCall& outgoing) noexcept;
  // Calls that have not got one have their deadlines from here on.
  void set_deadlines(uint64_t now_ns) noexcept;

  Runtime::Impl& runtime;
  Memory& memory;
  const calls::Defaults defaults;

 protected:
  // The last that its owner does with it, when nothing of it is on its core any more.
  void retire() noexcept {
    retired_.store(true, std::memory_order_relaxed);
    runtime_use_.reset();
  }
  // The core's thread.
  void set_device(const runtime::OpenDevice& device) noexcept {
    device_.store(&device, std::memory_order_release);
  }
  void use(runtime::Link& link) noexcept { up_ = carrier_ = &link; }
  // No further calls go to it, and those that it has end. False: there was none.
  bool lose() noexcept { return std::exchange(up_, nullptr) != nullptr; }
  void forget() noexcept { carrier_ = nullptr; }  // its engine has given back all it had
  bool is_up() const noexcept { return up_ != nullptr; }
  runtime::Link* up() const noexcept { return up_; }  // that carries new calls; null: none
  void to_engine(Call::Impl& call) noexcept;
  void end_later(Call::Impl& call, CallStatus status) noexcept;
  // There is no connection, and none will be: ends it in a millisecond, so that a program which
  // submits again from its callbacks does not keep the core busy with that.
  void end_unconnected(Call::Impl& call) noexcept;
  void stop_all() noexcept;  // cancels what the engine has
  // No items of ours are in the core's inbox or among its deferred ones. Any thread.
  bool unused() const noexcept { return queued_.load(std::memory_order_acquire) == 0; }
  // The binding that was first used last, of those that check() likes; null: there is none.
  const Binding* last_binding() const noexcept;

  bool shutting_down = false;  // calls that end by us, or for want of a connection: kShutdown

 private:
  // There is no link for a new call.
  virtual void start_without_link(Call::Impl& call) noexcept;
  // Whether it keeps a call that has lost its connection, for the next one.
  virtual bool take_back(Call::Impl&) noexcept { return false; }
  // It is not to be kept any longer.
  virtual void let_go(Call::Impl&) noexcept {}

  void start(Call::Impl& call) noexcept;
  void stop(Call::Impl& call) noexcept;
  void deliver(Call::Impl& call) noexcept;
  void note_called(xprt::StageRecord& stages, const Call::Impl& call) const noexcept;
  void end_failing() noexcept;
  CallStatus ended_status(Call::Impl& call) noexcept;

  struct FailingTimer : runtime::Timer {
    Impl* caller = nullptr;
  };

  std::atomic<bool> retired_ = false;
  std::optional<runtime::RuntimeUse> runtime_use_;
  runtime::PollCore& core_;
  std::atomic<const runtime::OpenDevice*> device_;
  const std::string address_;
  // A call takes its share of the credential when the version has changed, and so the past ones go.
  std::atomic<uint64_t> credential_version_ = 0;
  std::mutex credential_mutex_;
  std::shared_ptr<const rpc::PreparedAuth> credential_;
  // Bindings in use, a list that only grows: readers need no lock.
  struct Checked {
    Checked(const Binding* binding_in, bool ok_in, std::unique_ptr<Checked> following_in)
        : binding(binding_in), ok(ok_in), following(std::move(following_in)) {}
    const Binding* const binding;
    const bool ok;
    const std::unique_ptr<Checked> following;
  };
  const Checked* find(const Binding& binding) const noexcept;
  std::atomic<const Checked*> checked_ = nullptr;
  std::mutex checked_mutex_;
  std::unique_ptr<Checked> first_checked_;
  std::atomic<uint32_t> complained_ = 0;

  // Of the core's thread.
  runtime::Link* up_ = nullptr;
  runtime::Link* carrier_ = nullptr;  // whose engine has the calls in in_engine_
  CallList in_engine_;
  CallList failing_;  // have ended, for want of a connection; their callbacks come with the timer
  FailingTimer failing_timer_;
  // An end that comes now came from within submit() or cancel(): it is put off to the next pass, so
  // that callbacks do not nest.
  bool deferring_ = false;

  // Items of ours in the core's inbox or among its deferred ones.
  std::atomic<uint32_t> queued_ = 0;
  // Written by the core alone.
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<uint64_t> ended_ok_ = 0;
  std::atomic<uint64_t> ended_error_ = 0;
  std::atomic<uint64_t> timeouts_ = 0;
};

}  // namespace rrdk

// The rare parts in the life of a Call and of its Caller: a Call's destruction, waiting for a
// call's end, a program's mistakes, credentials, and calls that no connection takes.
#include "calls/calls.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/internals.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "rrdk/call.h"
#include "runtime/poll_core.h"

namespace rrdk {

using runtime::WorkItem;

namespace {

constexpr uint64_t kFailingNs = 1'000'000;

const char* name_of(const Binding* binding, uint32_t procedure) {
  const ProcedureBinding* entry = binding != nullptr ? binding->find(procedure) : nullptr;
  return entry != nullptr && entry->name != nullptr ? entry->name : "unnamed";
}

}  // namespace

void CallEnd::tell() noexcept {
  if (state_.exchange(kEnded, std::memory_order_acq_rel) == kAsleep)
    // The waiter may have woken and gone by now: the kernel gets only the address.
    syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool CallEnd::wait() noexcept {
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
  // Checked again each time: a callback that was running may have submitted the call once more.
  auto has_ended = [&] {
    c.abandon();
    return !c.busy();
  };
  const bool must_not_wait = caller.core().passing() ||
                             (caller.core().here() && c.given_up.load(std::memory_order_relaxed));
  if (must_not_wait || !caller.runtime.wait_patiently(has_ended, "~Call() waits for a poll core"))
    caller.keep_until_ended(std::move(impl_));
}

void Call::abandon() noexcept {
  Impl& c = *impl_;
  if (!c.in_flight.load(std::memory_order_acquire) || base::forked)
    return;
  c.given_up.store(true, std::memory_order_relaxed);
  c.cancel_quietly();
  if (!c.caller.core().here())
    c.caller.runtime.wait_patiently([&] { return !c.busy(); },
                                    "Call::abandon() waits for a poll core");
}

CallStatus Call::submit_and_wait() {
  Impl& c = *impl_;
  if (c.caller.retired() || base::forked || c.in_flight.load(std::memory_order_acquire)) {
    c.refuse_submit();
    return CallStatus::kInvalidCall;
  }
  if (Runtime::Impl::in_any_pass()) {
    c.caller.complain(Caller::Impl::kWaitInPass,
                      "submit_and_wait() in a callback or handler on a poll core would wait for "
                      "itself: use submit()");
    c.begun = false;
    return c.status = CallStatus::kInvalidCall;
  }
  c.end().expect();
  if (!submit([](Call&, void* end) { static_cast<CallEnd*>(end)->tell(); }, &c.end()))
    return c.status;
  return c.wait_for_end();
}

// The core ends the call at its deadline. A core that is not polled does not; then the call is
// detached, since a caller that sets a deadline does not want to wait for ever.
CallStatus Call::Impl::wait_for_end() {
  Runtime::Impl& runtime = caller.runtime;
  runtime::StallWatch watch(caller.core(), "submit_and_wait() on", caller.address());
  const uint64_t last_ns =
      timeout_ms == 0
          ? UINT64_MAX
          : base::Tsc::now_ns() + uint64_t{timeout_ms} * 1'000'000 + runtime.patience_ns;
  bool polling = runtime.embedded_here();
  while (!end().is_here()) {
    if (!polling) {
      if (end().wait())
        break;
      watch.look();
      polling = runtime.embedded_here();  // the thread that polled may have ended
    } else if (runtime.poll_here() != 0) {
      continue;
    } else if (runtime.options.idle != IdlePolicy::kBusy) {
      watch.look();
      std::this_thread::yield();
    }
    // Once it is not in flight, its callback is about to signal the end.
    if (base::Tsc::now_ns() > last_ns && in_flight.load(std::memory_order_acquire)) {
      given_up.store(true, std::memory_order_relaxed);
      cancel_quietly();
      ++waits_given_up;
      return CallStatus::kTimeout;
    }
  }
  return status;
}

// Cancels what is in flight, and no callback follows. A callback that is running on the core may
// still use the call.
void Call::Impl::cancel_quietly() noexcept {
  completion.store(no_callback, std::memory_order_relaxed);
  caller.cancel(*this);
}

void Call::Impl::abandon() noexcept {
  if (!in_flight.load(std::memory_order_acquire))
    return;
  if (!abandoned.exchange(true, std::memory_order_acq_rel) &&
      !given_up.load(std::memory_order_relaxed) &&
      caller.is_first(Caller::Impl::kDestroyedInFlight)) {
    uint32_t number = procedure.load(std::memory_order_relaxed);
    base::log_error(
        "%s: a Call of procedure %u (%s) is destroyed in flight: it is cancelled without a "
        "callback (logged once per connection)",
        caller.address().c_str(), number, name_of(binding.load(std::memory_order_relaxed), number));
  }
  cancel_quietly();
}

Encoder& Call::Impl::refuse_begin() noexcept {
  if (base::forked)
    refuse_in_child();
  else if (caller.retired())
    refuse_retired();
  else
    caller.complain(Caller::Impl::kBeginInFlight, "begin() of a Call that is in flight is refused");
  if (!refused)
    refused = std::make_unique<Refused>(caller.memory);
  return refused->encoder;
}

bool Call::Impl::refuse_credential() noexcept {
  if (base::forked)
    refuse_in_child();
  else if (caller.retired())
    refuse_retired();
  else
    caller.complain(Caller::Impl::kCredentialInFlight,
                    "set_credential() of a Call that is in flight is refused");
  return false;
}

void Call::Impl::refuse_retired() noexcept {
  caller.complain(Caller::Impl::kNoConnection,
                  "the connection of a Call has been destroyed: the Call is refused; destroy it "
                  "too, and make another one on another connection");
  begun = false;
  status = CallStatus::kInvalidCall;
}

void Call::Impl::refuse_in_child() noexcept {
  const std::string what = std::string("calls are refused: the connection ") + base::kOfParent;
  caller.complain(Caller::Impl::kOfParent, what.c_str());
  begun = false;
  status = CallStatus::kInvalidCall;
}

// Returns false if nothing can be submitted, not even in order to end at once.
bool Call::Impl::refuse_submit() noexcept {
  if (base::forked) {
    refuse_in_child();
    return false;
  }
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

void Caller::Impl::set_credential(std::shared_ptr<const rpc::PreparedAuth> credential) {
  std::lock_guard lock(credential_mutex_);
  credential_ = std::move(credential);
  credential_version_.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<const rpc::PreparedAuth> Caller::Impl::credential() {
  std::lock_guard lock(credential_mutex_);
  return credential_;
}

void Caller::Impl::take_credential(Call::Impl& call) {
  std::lock_guard lock(credential_mutex_);
  call.credential = credential_;
  call.credential_version = credential_version_.load(std::memory_order_relaxed);
}

calls::NullCall calls::null_call_of(const Binding& binding) noexcept {
  constexpr uint32_t kNullProcedure = 0;
  return {binding.program, binding.version, binding.max_reply(kNullProcedure, 0)};
}

bool Caller::Impl::Checked::is(const Binding& other) const noexcept {
  return binding == &other && procedures.data() == other.procedures.data() &&
         procedures.size() == other.procedures.size() && null_call.program == other.program &&
         null_call.version == other.version;
}

const Caller::Impl::Checked* Caller::Impl::find(const Binding& binding) const noexcept {
  const CheckedOnes* ones = checked_.load(std::memory_order_acquire);
  if (ones == nullptr)
    return nullptr;
  auto found = std::ranges::find_if(ones->all, [&](const Checked& one) { return one.is(binding); });
  return found != ones->all.end() ? &*found : nullptr;
}

bool Caller::Impl::accepts(const Binding& binding, runtime::CalledProgram*& called) {
  const base::ReadSection reading;
  const auto look_up = [&] {
    const Checked* const checked = find(binding);
    called = checked != nullptr ? checked->called : nullptr;
    return checked;
  };
  if (const Checked* checked = look_up())
    return checked->ok;
  std::lock_guard lock(checked_mutex_);
  if (const Checked* checked = look_up())
    return checked->ok;
  Result<void> verdict = check(binding);
  if (!verdict)
    base::log_error("%s: %s; its calls end with kInvalidCall", address().c_str(),
                    verdict.error().message.c_str());
  auto ones = std::make_unique<CheckedOnes>();
  called = verdict ? runtime.called.of(core_.index(), target(), binding) : nullptr;
  ones->all.push_back(
      {&binding, binding.procedures, calls::null_call_of(binding), called, verdict.has_value()});
  if (checked_ones_ != nullptr) {
    for (const Checked& older : checked_ones_->all) {
      if (older.binding != &binding && ones->all.size() < kMostChecked)
        ones->all.push_back(older);
    }
  }
  checked_.store(ones.get(), std::memory_order_release);
  base::retire(std::exchange(checked_ones_, std::move(ones)));
  return verdict.has_value();
}

std::optional<calls::NullCall> Caller::Impl::last_null_call() const noexcept {
  const base::ReadSection reading;
  const CheckedOnes* ones = checked_.load(std::memory_order_acquire);
  if (ones == nullptr)
    return std::nullopt;
  auto found = std::ranges::find_if(ones->all, &Checked::ok);
  return found != ones->all.end() ? std::optional(found->null_call) : std::nullopt;
}

bool Caller::Impl::is_first(Mistake mistake) noexcept {
  return (complained_.fetch_or(mistake, std::memory_order_relaxed) & mistake) == 0;
}

void Caller::Impl::complain(Mistake mistake, const char* what) {
  if (is_first(mistake))
    base::log_error("%s: %s (logged once per connection)", address().c_str(), what);
}

bool Caller::Impl::reaches(const Call::Impl& call) {
  const runtime::OpenDevice* device = device_.load(std::memory_order_acquire);
  if (device == nullptr)
    return true;
  RegionId region = device->out_of_reach(memory, call.message);
  if (region == kNoRegion && call.num_spans != 0)
    region = device->out_of_reach(memory, call.offered());
  if (region == kNoRegion) [[likely]]
    return true;
  uint32_t number = call.procedure.load(std::memory_order_relaxed);
  std::string what = "a call of procedure " + std::to_string(number) +
                     " ends with kInvalidMemory: it has " + device->why_out_of_reach(region);
  complain(kOutOfReach, what.c_str());
  return false;
}

void Caller::Impl::end_unconnected(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  if (shutting_down)
    return end_later(call, CallStatus::kShutdown);
  call.status = CallStatus::kConnectionLost;
  call.phase = Call::Impl::Phase::kEnded;
  queued_.fetch_add(1, std::memory_order_relaxed);
  failing_.push(call);
  if (failing_timer_.running())
    return;
  failing_timer_.fire = [](runtime::Timer& timer) {
    static_cast<FailingTimer&>(timer).caller->end_failing();
  };
  core_.start_timer(failing_timer_, base::Tsc::now_ns() + kFailingNs);
}

void Caller::Impl::end_failing() noexcept {
  CallList ending = failing_.take();  // what callbacks submit waits for the next time
  while (!ending.empty()) {
    deliver(ending.pop());
    queued_.fetch_sub(1, std::memory_order_release);
  }
}

void Caller::Impl::keep_until_ended(std::unique_ptr<Call::Impl> call) noexcept {
  Call::Impl::DestroyRequest& request = call.release()->destroy_request;
  request.run = [](WorkItem& item) {
    Call::Impl* left = static_cast<Call::Impl::DestroyRequest&>(item).call;
    Impl& caller = left->caller;
    if (left->busy())
      return caller.core().defer(item);
    delete left;
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().here() ? core().defer(request) : core().submit(request);
}

Caller::Caller(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Caller::~Caller() = default;

std::shared_ptr<Caller::Impl> Caller::take_impl() noexcept {
  return std::move(impl_);
}

bool Caller::alive() const noexcept {
  return impl_->alive();
}

const std::string& Caller::address() const noexcept {
  return impl_->address();
}

uint32_t Caller::room() const noexcept {
  return impl_->room();
}

void Caller::on_room(uint32_t mark, RoomCallback callback, void* argument) noexcept {
  impl_->on_room(mark, callback, argument);
}

uint32_t Caller::core() const noexcept {
  return impl_->core().index();
}

SharedCredential::SharedCredential(const AuthSys& identity)
    : prepared_(std::make_shared<const rpc::PreparedAuth>(identity)) {}

Result<SharedCredential> SharedCredential::make(AuthFlavor flavor,
                                                std::span<const std::byte> body) {
  const auto prepared = rpc::PreparedAuth::opaque(flavor, body);
  if (!prepared)
    return fail(Errc::kInvalidArgument, "a credential of " + std::to_string(body.size()) +
                                            " bytes is longer than " +
                                            std::to_string(kMaxAuthBody));
  SharedCredential made;
  made.prepared_ = std::make_shared<const rpc::PreparedAuth>(*prepared);
  return made;
}

Result<SharedCredential> SharedCredential::make(const Credential& credential) {
  std::array<std::byte, kMaxAuthBody> body;
  const uint32_t length = credential.body.size();
  if (length <= body.size())
    credential.body.copy_to(body.data());
  return make(credential.flavor, {body.data(), length});
}

// The header of a call that has begun is written anew, as long as there is nothing behind it.
bool Call::Impl::use_credential(std::shared_ptr<const rpc::PreparedAuth> wanted,
                                bool own) noexcept {
  if (in_flight.load(std::memory_order_acquire) || caller.retired() || base::forked) [[unlikely]]
    return refuse_credential();
  if (own ? has_own_credential && wanted == credential : !has_own_credential)
    return true;
  const bool has_arguments = begun && args->position() != header_bytes();
  has_own_credential = own;
  credential = std::move(wanted);
  credential_version = 0;
  head = 0;
  secured = false;  // until there is a header again
  if (!begun || !args->ok())
    return true;
  if (has_arguments) {
    args->fail();
    bad_room = CallStatus::kInvalidCall;  // also if the Encoder is rewound
    has_extras = true;
    reply_planned = false;
  } else {
    begin_anew(*binding.load(std::memory_order_relaxed), procedure.load(std::memory_order_relaxed));
  }
  return true;
}

bool Call::set_credential(const SharedCredential& credential) noexcept {
  return impl_->use_credential(Internals::of(credential), true);
}

bool Call::reset_credential() noexcept {
  return impl_->use_credential(nullptr, false);
}

void Caller::set_auth_sys(const AuthSys& identity) {
  const SharedCredential made(identity);
  impl_->set_credential(Internals::of(made));
}

void Caller::set_credential(const SharedCredential& credential) {
  impl_->set_credential(Internals::of(credential));
}

Result<void> Caller::set_auth(AuthFlavor flavor, std::span<const std::byte> body) {
  Result<SharedCredential> made = SharedCredential::make(flavor, body);
  if (!made)
    return fail(made.error().code, address() + ": " + made.error().message);
  impl_->set_credential(Internals::of(*made));
  return {};
}

}  // namespace rrdk

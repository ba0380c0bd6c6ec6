#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "calls/caller_impl.h"
#include "rrdk/call.h"

namespace rrdk {

using runtime::WorkItem;

namespace {

constexpr uint64_t kFailingNs = 1'000'000;

}  // namespace

void Caller::Impl::set_credential(const rpc::PreparedAuth& prepared) {
  auto credential = std::make_shared<const rpc::PreparedAuth>(prepared);
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

const Caller::Impl::Checked* Caller::Impl::find(const Binding& binding) const noexcept {
  const Checked* checked = checked_.load(std::memory_order_acquire);
  while (checked != nullptr && checked->binding != &binding)
    checked = checked->following.get();
  return checked;
}

bool Caller::Impl::accepts(const Binding& binding) {
  if (const Checked* checked = find(binding))
    return checked->ok;
  std::lock_guard lock(checked_mutex_);
  if (const Checked* checked = find(binding))
    return checked->ok;
  Result<void> verdict = check(binding);
  if (!verdict)
    base::log_error("%s: %s; its calls end with kInvalidCall", address().c_str(),
                    verdict.error().message.c_str());
  first_checked_ =
      std::make_unique<Checked>(&binding, verdict.has_value(), std::move(first_checked_));
  checked_.store(first_checked_.get(), std::memory_order_release);
  return verdict.has_value();
}

const Binding* Caller::Impl::last_binding() const noexcept {
  const Checked* checked = checked_.load(std::memory_order_acquire);
  while (checked != nullptr && !checked->ok)
    checked = checked->following.get();
  return checked != nullptr ? checked->binding : nullptr;
}

void Caller::Impl::complain(Mistake mistake, const char* what) {
  if ((complained_.fetch_or(mistake, std::memory_order_relaxed) & mistake) == 0)
    base::log_error("%s: %s (said once per connection)", address().c_str(), what);
}

bool Caller::Impl::reaches(const Call::Impl& call) {
  const runtime::OpenDevice* device = device_.load(std::memory_order_acquire);
  if (device == nullptr)
    return true;
  RegionId region = device->out_of_reach(memory, call.outgoing.message);
  if (region == kNoRegion)
    region = device->out_of_reach(memory, std::span(call.spans).first(call.num_spans));
  if (region == kNoRegion) [[likely]]
    return true;
  uint32_t number = call.procedure.load(std::memory_order_relaxed);
  std::string what = "a call of procedure " + std::to_string(number) +
                     " ends with kInvalidMemory: it has " + device->why_out_of_reach(region);
  complain(kOutOfReach, what.c_str());
  return false;
}

void Caller::Impl::end_unconnected(Call::Impl& call) noexcept {
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
  CallList ending = failing_.take();  // what callbacks submit is for the next time
  while (!ending.empty()) {
    deliver(ending.pop());
    queued_.fetch_sub(1, std::memory_order_release);
  }
}

void Caller::Impl::keep_until_ended(std::unique_ptr<Call::Impl> call) noexcept {
  Call::Impl::Farewell& farewell = call.release()->farewell;
  farewell.run = [](WorkItem& item) {
    Call::Impl* left = static_cast<Call::Impl::Farewell&>(item).call;
    Impl& caller = left->caller;
    if (left->busy())
      return caller.core().defer(item);
    delete left;
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().here() ? core().defer(farewell) : core().submit(farewell);
}

calls::Ended Caller::Impl::counts() const noexcept {
  return {.calls = calls_.load(std::memory_order_relaxed),
          .ok = ended_ok_.load(std::memory_order_relaxed),
          .error = ended_error_.load(std::memory_order_relaxed),
          .timeouts = timeouts_.load(std::memory_order_relaxed)};
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

uint32_t Caller::core() const noexcept {
  return impl_->core().index();
}

void Caller::set_auth_sys(const AuthSys& identity) {
  impl_->set_credential(rpc::PreparedAuth(identity));
}

Result<void> Caller::set_auth(AuthFlavor flavor, std::span<const std::byte> body) {
  auto prepared = rpc::PreparedAuth::opaque(flavor, body);
  if (!prepared)
    return fail(Errc::kInvalidArgument, address() + ": a credential of " +
                                            std::to_string(body.size()) + " bytes is longer than " +
                                            std::to_string(kMaxAuthBody));
  impl_->set_credential(*prepared);
  return {};
}

}  // namespace rrdk

#include "gss/initiator.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace rrdk::gss {

std::shared_ptr<Session> Initiator::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

Renewal Initiator::renew(const Session& forgotten, Waiter& waiter) {
  const std::lock_guard lock(mutex_);
  if (session_.get() != &forgotten)
    return Renewal::kHere;
  if (!renewing_ && base::Tsc::now_ns() < failed_until_ns_)
    return Renewal::kFailed;
  if (std::ranges::find(waiters_, &waiter) == waiters_.end())
    waiters_.push_back(&waiter);
  return std::exchange(renewing_, true) ? Renewal::kWait : Renewal::kBegin;
}

void Initiator::renewed(std::shared_ptr<Session> made) {
  const std::lock_guard lock(mutex_);
  session_.swap(made);  // the last one may go after the lock
  const uint64_t now_ns = base::Tsc::now_ns();
  const bool is_soon = begins_at_ns_ != 0 && now_ns < begins_at_ns_ + kPauseNs;
  doublings_ = is_soon ? std::min(doublings_ + 1, kMostDoublings) : 0;
  begins_at_ns_ = now_ns + (kFirstDelayNs << doublings_);
  tell();
}

uint64_t Initiator::begins_at_ns() const {
  const std::lock_guard lock(mutex_);
  return begins_at_ns_;
}

void Initiator::refused() {
  const std::lock_guard lock(mutex_);
  failed_until_ns_ = base::Tsc::now_ns() + kPauseNs;
  tell();
}

void Initiator::given_up() {
  const std::lock_guard lock(mutex_);
  tell();
}

void Initiator::tell() {
  renewing_ = false;
  for (Waiter* waiter : std::exchange(waiters_, {}))
    waiter->on_renewed();
}

void Initiator::withdraw(Waiter& waiter) {
  const std::lock_guard lock(mutex_);
  std::erase(waiters_, &waiter);
}

}  // namespace rrdk::gss

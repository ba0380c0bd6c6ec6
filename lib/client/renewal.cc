// Calls whose security context the server has forgotten, because it was started again or has no
// place for it any more (RFC 2203 section 5.3.3.3). It has not looked at them: they wait until
// another context is established, and are sent again.
//
// The connection whose call was first to be denied makes the calls that this takes; those on other
// connections wait for the same context. Kerberos may ask a KDC, so a thread of the Runtime asks
// Kerberos, and the core does the rest.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/internals.h"
#include "base/log.h"
#include "calls/new_context.h"
#include "client/client_impl.h"

namespace rrdk {

namespace {

// A server that forgets each context at once must not be asked for ever.
constexpr uint32_t kMostTimesForgotten = 3;
// For a call with a token. If it is not answered, others may ask on their own connections.
constexpr uint32_t kTokenTimeoutMs = 10'000;

// The end of a connection whose handle may be gone.
struct Carrier final : Caller {
  explicit Carrier(std::shared_ptr<Caller::Impl> impl) : Caller(std::move(impl)) {}
};

}  // namespace

struct ClientConnection::Impl::Renewing : std::enable_shared_from_this<Renewing> {
  struct Delay : runtime::Timer {
    Renewing* renewing = nullptr;
  };

  Renewing(Impl& its, std::shared_ptr<gss::Initiator> initiator_in)
      : asker(&its), initiator(std::move(initiator_in)) {
    delay.renewing = this;
  }

  // As shared_from_this(), which could throw.
  std::shared_ptr<Renewing> held() noexcept { return weak_from_this().lock(); }

  Impl* asker;  // used by the core's thread; null: gone
  const std::shared_ptr<gss::Initiator> initiator;
  calls::NewContext context;
  Result<void> step;  // as Kerberos, or the server, has answered
  std::unique_ptr<Call> call;
  Delay delay;  // before Kerberos is asked
};

void ClientConnection::Impl::ContextWaiter::on_renewed() noexcept {
  if (queued.exchange(true, std::memory_order_acq_rel))
    return;
  connection.tasks_.fetch_add(1, std::memory_order_relaxed);
  run = [](WorkItem& item) {
    auto& waiter = static_cast<ContextWaiter&>(item);
    Impl& its = waiter.connection;
    waiter.queued.store(false, std::memory_order_release);
    its.release_renewed();
    its.tasks_.fetch_sub(1, std::memory_order_release);
  };
  connection.core().here() ? connection.core().defer(*this) : connection.core().submit(*this);
}

bool ClientConnection::Impl::wait_for_context(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core());
  gss::ProtectedCall& protection = *call.protection;
  const uint64_t serial = call.serial.load(std::memory_order_relaxed);
  if (std::exchange(protection.serial, serial) != serial)
    protection.times_forgotten = 0;
  const bool is_unwanted = call.cancel_wanted.load(std::memory_order_relaxed) ||
                           call.abandoned.load(std::memory_order_relaxed);
  if (!is_up() || is_unwanted || protection.times_forgotten == kMostTimesForgotten)
    return false;
  ++protection.times_forgotten;
  const gss::Renewal renewal = renew(call);
  if (renewal == gss::Renewal::kFailed)
    return false;
  if (renewal == gss::Renewal::kHere)
    context_waiter_.on_renewed();
  call.phase = Call::Impl::Phase::kWaiting;
  protection.waits = true;
  forgotten_.push(call);
  if (!waiting_timer_.running())
    arm_waiting_timer(core().now());
  return true;
}

// How the call goes on, while this connection is up.
gss::Renewal ClientConnection::Impl::renew(Call::Impl& call) noexcept {
  const std::shared_ptr<gss::Initiator>& initiator = call.credential->initiator();
  try {
    note_initiator(initiator);
    const gss::Renewal renewal = initiator->renew(*call.protection->session, context_waiter_);
    if (renewal == gss::Renewal::kBegin)
      begin_renewing(initiator);
    return renewal;
  } catch (const std::bad_alloc&) {
    return gss::Renewal::kFailed;
  }
}

void ClientConnection::Impl::note_initiator(const std::shared_ptr<gss::Initiator>& initiator) {
  if (!asked_.insert(initiator).second || asked_.size() < asked_limit_)
    return;
  std::erase_if(asked_, [](const std::weak_ptr<gss::Initiator>& one) { return one.expired(); });
  asked_limit_ = std::max(asked_limit_, 2 * asked_.size());
}

void ClientConnection::Impl::begin_renewing(const std::shared_ptr<gss::Initiator>& initiator) {
  try {
    renewals_.push_back(std::make_shared<Renewing>(*this, initiator));
  } catch (const std::bad_alloc&) {
    initiator->given_up();
    throw;
  }
  Renewing::Delay& delay = renewals_.back()->delay;
  delay.fire = [](runtime::Timer& timer) {
    const auto held = static_cast<Renewing::Delay&>(timer).renewing->held();
    Impl& asker = *held->asker;
    try {
      asker.ask_kerberos(*held,
                         [](Renewing& its) { its.step = its.context.ask_kdc(*its.initiator); });
    } catch (const std::bad_alloc&) {
      held->initiator->given_up();
      std::erase(asker.renewals_, held);
    }
  };
  core().start_timer(delay, initiator->begins_at_ns());
}

// On a thread. Then the core goes on.
void ClientConnection::Impl::ask_kerberos(Renewing& renewing, void (*ask)(Renewing&)) {
  const std::shared_ptr<Renewing> held = renewing.held();
  auto find = [held, ask] { ask(*held); };
  auto then = [held, &core = core()] {
    core.post([held] {
      if (held->asker != nullptr)
        held->asker->go_on_renewing(*held);
    });
  };
  const gss::Initiator& initiator = *renewing.initiator;
  const Result<void> started =
      runtime.searches.start({.host = initiator.principal + " for " + initiator.target,
                              .is_slow = true,
                              .find = std::move(find),
                              .then = std::move(then),
                              .began_ns = nullptr});
  if (!started)
    end_renewing(renewing, started);
}

void ClientConnection::Impl::go_on_renewing(Renewing& renewing) {
  RRDK_ON_CORE(core());
  if (!renewing.step || renewing.context.is_open())
    return end_renewing(renewing, renewing.step);
  if (!is_up())
    return end_renewing(renewing, fail(Errc::kConnectionLost, "the connection is lost"));
  if (renewing.call == nullptr) {
    Carrier caller(shared_from_this());
    renewing.call = std::make_unique<Call>(caller);
    Internals::of(*renewing.call).by_renewal = true;
  }
  Call& call = *renewing.call;
  if (auto begun = renewing.context.begin_call(call, renewing.initiator->null_calls); !begun)
    return end_renewing(renewing, begun);
  call.set_timeout_ms(kTokenTimeoutMs);
  call.submit(
      [](Call&, void* argument) {
        auto& its = *static_cast<Renewing*>(argument);
        if (its.asker != nullptr)
          its.asker->on_token_answered(its);
      },
      &renewing);
}

void ClientConnection::Impl::on_token_answered(Renewing& renewing) {
  if (auto taken = renewing.context.take_reply(*renewing.call); !taken)
    return end_renewing(renewing, taken);
  ask_kerberos(renewing, [](Renewing& its) { its.step = its.context.check_answer(); });
}

// If the connection is at fault, others may have more luck.
void ClientConnection::Impl::end_renewing(Renewing& renewing, const Result<void>& how) {
  gss::Initiator& initiator = *renewing.initiator;
  const Errc code = how ? Errc::kSystem : how.error().code;
  const bool is_refused =
      code != Errc::kConnectionLost && code != Errc::kShutdown && code != Errc::kTimeout;
  const LogLevel level = how ? LogLevel::kInfo : is_refused ? LogLevel::kWarning : LogLevel::kDebug;
  if (auto left_out = initiator.renewals_said.allow(base::Tsc::now_ns()))
    base::log(level, "%s: %s security context for %s: the server does not know the last one%s%s%s",
              address().c_str(), how ? "another" : "no other", initiator.target.c_str(),
              how ? "" : ". ", how ? "" : how.error().message.c_str(),
              base::and_more(*left_out).text);
  if (how)
    initiator.renewed(renewing.context.take_session());
  else
    is_refused ? initiator.refused() : initiator.given_up();
  drop_renewing(renewing);
}

// It is destroyed later, since it may be in the callback of its call.
void ClientConnection::Impl::drop_renewing(Renewing& renewing) {
  renewing.asker = nullptr;
  core().timers().cancel(renewing.delay);
  post([last = renewing.held()] {});
  std::erase(renewals_, renewing.held());
}

// Calls that were sent before go first: the slots of their XIDs may be free still.
void ClientConnection::Impl::release_renewed() {
  set_deadlines(core().now());  // see release_waiting()
  look_at(forgotten_, core().now());
  CallList rest = forgotten_.take();
  CallList first, others;
  while (!rest.empty()) {
    Call::Impl& call = rest.pop();
    (call.resend ? first : others).push(call);
  }
  for (CallList* list : {&first, &others}) {
    while (!list->empty())
      go_on_with(list->pop());
  }
}

void ClientConnection::Impl::go_on_with(Call::Impl& call) {
  if (!is_up()) {
    call.sent = false;
    return start_without_link(call);
  }
  switch (renew(call)) {
    case gss::Renewal::kHere:
      ++client_counters_.calls_forgotten;
      return to_engine(call);
    case gss::Renewal::kBegin:
    case gss::Renewal::kWait:
      return forgotten_.push(call);
    case gss::Renewal::kFailed:
      end_later(call, call.resend ? CallStatus::kConnectionLost : CallStatus::kAuthError);
  }
}

// No call waits any more.
void ClientConnection::Impl::stop_renewals() {
  RRDK_ASSERT(forgotten_.empty());
  for (const std::weak_ptr<gss::Initiator>& one : std::exchange(asked_, {})) {
    if (const auto initiator = one.lock())
      initiator->withdraw(context_waiter_);
  }
  for (const std::shared_ptr<Renewing>& renewing : std::exchange(renewals_, {})) {
    renewing->asker = nullptr;
    core().timers().cancel(renewing->delay);
    if (renewing->call != nullptr)
      renewing->call->abandon();
    renewing->initiator->given_up();
  }
}

}  // namespace rrdk

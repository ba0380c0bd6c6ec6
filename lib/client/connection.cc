#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "client/client_impl.h"
#include "client/client_link.h"

namespace rrdk {

using runtime::WorkItem;

ClientConnection::Impl::Impl(Client::Impl& client, runtime::PollCore& core,
                             runtime::OpenDevice& device, const std::string& uri)
    : runtime(client.runtime),
      options(client.options),
      versions_(client.versions),
      core_(core),
      device_(device),
      uri_(uri),
      backoff_(options.reconnect.first_delay_ms, options.reconnect.max_delay_ms),
      silence_(options.keepalive_ms, options.keepalive_patience) {
  core.assigned().fetch_add(1, std::memory_order_relaxed);
}

ClientConnection::Impl::~Impl() {
  core_.assigned().fetch_sub(1, std::memory_order_relaxed);
}

Result<void> ClientConnection::Impl::open() {
  // Whoever comes first, the core or our patience, has it.
  auto taken = std::make_shared<std::atomic<bool>>(false);
  core_.post([this, taken] {
    if (!taken->exchange(true, std::memory_order_acq_rel))
      start_link();
    // Otherwise nothing else of it is there any more.
  });
  uint64_t deadline = base::Tsc::now_ns() + uint64_t{options.connect_timeout_ms} * 1'000'000;
  bool in_time = runtime.wait_until(
      [this] { return phase_.load(std::memory_order_acquire) != Phase::kOpening; }, deadline);
  if (alive())
    return {};
  if (!in_time && !taken->exchange(true, std::memory_order_acq_rel))
    return fail(Errc::kTimeout, uri_ + ": poll core " + std::to_string(core_.index()) +
                                    " did not begin to connect within " +
                                    std::to_string(options.connect_timeout_ms) +
                                    " ms: nobody polls it");
  core_.post([this] {
    shutting_down_ = true;  // it may have been established meanwhile
    if (link_)
      link_->close(Errc::kTimeout, "no answer");
    else if (phase_.load(std::memory_order_relaxed) != Phase::kDead)
      finish();
  });
  wait_unused();
  std::lock_guard lock(error_mutex_);
  return tl::unexpected(error_);
}

void ClientConnection::Impl::shut_down() {
  if (runtime.in_pass())
    base::log_error(
        "%s: its ClientConnection is destroyed in a callback or handler: it waits for ever",
        peer().c_str());
  core_.post([this] { close_all(); });
  wait_unused();
}

void ClientConnection::Impl::close_all() noexcept {
  shutting_down_ = true;
  end_waiting(CallStatus::kShutdown);
  if (link_)
    link_->close(Errc::kShutdown, "the connection is being closed");
  else if (phase_.load(std::memory_order_relaxed) != Phase::kDead)
    finish();
}

void ClientConnection::Impl::wait_unused() {
  runtime.wait_until([this] {
    return phase_.load(std::memory_order_acquire) == Phase::kDead &&
           queued_.load(std::memory_order_acquire) == 0;
  });
  // A task of ours may be what the core is running: it is done when a later one is.
  runtime.run_on(core_, [] {});
}

std::optional<Error> ClientConnection::Impl::error() const {
  Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::kOpening || phase == Phase::kUp)
    return std::nullopt;
  std::lock_guard lock(error_mutex_);
  return error_;
}

void ClientConnection::Impl::set_credential(const rpc::PreparedAuth& prepared) {
  auto credential = std::make_shared<const rpc::PreparedAuth>(prepared);
  std::lock_guard lock(credential_mutex_);
  credential_ = std::move(credential);
  credential_version_.fetch_add(1, std::memory_order_release);
}

void ClientConnection::Impl::take_credential(Call::Impl& call) {
  std::lock_guard lock(credential_mutex_);
  call.credential = credential_;
  call.credential_version = credential_version_.load(std::memory_order_relaxed);
}

const ClientConnection::Impl::Checked* ClientConnection::Impl::find(
    const Binding& binding) const noexcept {
  const Checked* checked = checked_.load(std::memory_order_acquire);
  while (checked != nullptr && checked->binding != &binding)
    checked = checked->following.get();
  return checked;
}

bool ClientConnection::Impl::accepts(const Binding& binding) {
  if (const Checked* checked = find(binding))
    return checked->ok;
  std::lock_guard lock(checked_mutex_);
  if (const Checked* checked = find(binding))
    return checked->ok;
  Result<void> verdict = check(binding);
  if (!verdict)
    base::log_error("%s: %s; its calls end with kInvalidCall", peer().c_str(),
                    verdict.error().message.c_str());
  first_checked_ =
      std::make_unique<Checked>(&binding, verdict.has_value(), std::move(first_checked_));
  checked_.store(first_checked_.get(), std::memory_order_release);
  return verdict.has_value();
}

void ClientConnection::Impl::complain(Mistake mistake, const char* what) {
  if ((complained_.fetch_or(mistake, std::memory_order_relaxed) & mistake) == 0)
    base::log_error("%s: %s (said once per connection)", peer().c_str(), what);
}

void ClientConnection::Impl::keep_until_ended(std::unique_ptr<Call::Impl> call) noexcept {
  Call::Impl::Farewell& farewell = call.release()->farewell;
  farewell.run = [](WorkItem& item) {
    Call::Impl* left = static_cast<Call::Impl::Farewell&>(item).call;
    Impl& connection = left->connection;
    if (left->busy())
      return connection.core().defer(item);
    delete left;
    connection.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().defer(farewell);
}

ClientStats ClientConnection::Impl::stats() const {
  xprt::Counters c;
  uint32_t granted = 0;
  {
    std::lock_guard lock(link_mutex_);
    c = past_;
    if (link_) {
      xprt::add(c, link_->counters());
      granted = alive() ? link_->window() : 0;
    }
  }
  uint64_t calls = calls_.load(std::memory_order_relaxed);
  uint64_t ok = ended_ok_.load(std::memory_order_relaxed);
  uint64_t error = ended_error_.load(std::memory_order_relaxed);
  return {.calls = calls,
          .ended_ok = ok,
          .ended_error = error,
          .timeouts = timeouts_.load(std::memory_order_relaxed),
          .long_calls = c.long_calls,
          .long_replies = c.long_replies,
          .credit_waits = c.waits_credit,
          .protocol_breaches = c.refused_short + c.refused_version + c.refused_header +
                               c.refused_xid + c.refused_limits + c.stale_replies +
                               c.malformed_replies,
          .granted = granted,
          .in_flight = static_cast<uint32_t>(calls - std::min(calls, ok + error)),
          .reconnects = reconnects_.load(std::memory_order_relaxed),
          .failed_attempts = failed_attempts_.load(std::memory_order_relaxed),
          .carried_over = carried_over_.load(std::memory_order_relaxed),
          .retransmissions = c.calls_resent,
          .keepalives = keepalives_.load(std::memory_order_relaxed),
          .keepalive_ends = keepalive_ends_.load(std::memory_order_relaxed),
          .version = version_.load(std::memory_order_relaxed),
          .fallbacks = fallbacks_.load(std::memory_order_relaxed),
          .refusals = c.refusals};
}

ClientConnection::ClientConnection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClientConnection::~ClientConnection() {
  impl_->shut_down();
}

bool ClientConnection::alive() const noexcept {
  return impl_->alive();
}

bool ClientConnection::reconnecting() const noexcept {
  return impl_->reconnecting();
}

std::optional<Error> ClientConnection::error() const {
  return impl_->error();
}

const std::string& ClientConnection::peer() const noexcept {
  return impl_->peer();
}

uint32_t ClientConnection::core() const noexcept {
  return impl_->core().index();
}

ClientStats ClientConnection::stats() const {
  return impl_->stats();
}

void ClientConnection::set_auth_sys(const AuthSys& identity) {
  impl_->set_credential(rpc::PreparedAuth(identity));
}

Result<void> ClientConnection::set_auth(AuthFlavor flavor, std::span<const std::byte> body) {
  auto prepared = rpc::PreparedAuth::opaque(flavor, body);
  if (!prepared)
    return fail(Errc::kInvalidArgument, peer() + ": a credential of " +
                                            std::to_string(body.size()) + " bytes is longer than " +
                                            std::to_string(kMaxAuthBody));
  impl_->set_credential(*prepared);
  return {};
}

}  // namespace rrdk

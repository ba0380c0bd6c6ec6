#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "client/client_impl.h"
#include "runtime/poll_core.h"

namespace rrdk {

using runtime::WorkItem;

ClientConnection::Impl::Impl(Runtime::Impl& runtime_in, const ClientOptions& options_in,
                             runtime::PollCore& core, runtime::OpenDevice& device)
    : Link(core, device), runtime(runtime_in), options(options_in) {
  core.assigned().fetch_add(1, std::memory_order_relaxed);
}

ClientConnection::Impl::~Impl() {
  core().assigned().fetch_sub(1, std::memory_order_relaxed);
}

Result<void> ClientConnection::Impl::open(const std::string& uri) {
  xprt::ConnectionOptions engine = {.role = xprt::Role::kRequester,
                                    .credits = options.credits,
                                    .send_size = options.inline_size,
                                    .receive_size = options.inline_size,
                                    .limits = {},
                                    .max_call = options.max_call,
                                    .max_reply = options.max_reply,
                                    .chunk_threshold = options.chunk_threshold,
                                    .pad_write_chunks = options.pad_write_chunks,
                                    .one_segment = options.one_segment};
  // Whoever comes first, the core or our patience, has it.
  auto taken = std::make_shared<std::atomic<bool>>(false);
  core().post([&, taken] {
    if (taken->exchange(true, std::memory_order_acq_rel))
      return;  // nothing else of it is there any more
    auto started = connect(uri, engine, runtime.memory, *this);
    if (!started && state() == runtime::LinkState::kNew) {
      error_ = started.error();
      phase_.store(Phase::kDead, std::memory_order_release);
    }
  });
  uint64_t deadline = base::Tsc::now_ns() + uint64_t{options.connect_timeout_ms} * 1'000'000;
  bool in_time = runtime.wait_until(
      [this] { return phase_.load(std::memory_order_acquire) != Phase::kOpening; }, deadline);
  if (alive())
    return {};
  if (!in_time && !taken->exchange(true, std::memory_order_acq_rel))
    return fail(Errc::kTimeout, uri + ": poll core " + std::to_string(core().index()) +
                                    " did not begin to connect within " +
                                    std::to_string(options.connect_timeout_ms) +
                                    " ms: nobody polls it");
  if (!in_time)
    core().post([this] { close(Errc::kTimeout, "no answer"); });
  wait_unused();
  return tl::unexpected(error_);
}

void ClientConnection::Impl::shut_down() {
  if (runtime.in_pass())
    base::log_error(
        "%s: its ClientConnection is destroyed in a callback or handler: it waits for ever",
        peer().c_str());
  core().post([this] { close_all(); });
  wait_unused();
}

void ClientConnection::Impl::close_all() noexcept {
  shutting_down_ = true;
  close(Errc::kShutdown, "the connection is being closed");
}

void ClientConnection::Impl::wait_unused() {
  runtime.wait_until([this] {
    return phase_.load(std::memory_order_acquire) == Phase::kDead &&
           queued_.load(std::memory_order_acquire) == 0;
  });
  // A task of ours may be what the core is running: it is done when a later one is.
  runtime.run_on(core(), [] {});
}

void ClientConnection::Impl::on_up() {
  phase_.store(Phase::kUp, std::memory_order_release);
}

void ClientConnection::Impl::on_down(Errc code, const std::string& reason) {
  if (alive() && code == Errc::kShutdown)
    base::log_debug("connection to %s closed", peer().c_str());
  else if (alive())
    base::log_info("connection to %s ended: %s", peer().c_str(), reason.c_str());
  error_ = {code, peer() + ": " + reason};
  phase_.store(Phase::kFailed, std::memory_order_release);
}

void ClientConnection::Impl::on_dead() {
  phase_.store(Phase::kDead, std::memory_order_release);
}

std::optional<Error> ClientConnection::Impl::error() const {
  Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::kOpening || phase == Phase::kUp)
    return std::nullopt;
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
  xprt::Counters c = counters();
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
          .granted = window(),
          .in_flight = static_cast<uint32_t>(calls - std::min(calls, ok + error)),
          .refusals = c.refusals};
}

ClientConnection::ClientConnection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClientConnection::~ClientConnection() {
  impl_->shut_down();
}

bool ClientConnection::alive() const noexcept {
  return impl_->alive();
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

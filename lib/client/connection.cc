#include <utility>

#include "base/clock.h"
#include "client/client_impl.h"
#include "runtime/poll_core.h"

namespace rrdk {

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
                                    .chunk_threshold = options.chunk_threshold};
  core().post([&] {
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
  if (!in_time)
    core().post([this] { close(Errc::kTimeout, "no answer"); });
  wait_unused();
  return tl::unexpected(error_);
}

void ClientConnection::Impl::shut_down() {
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
  error_ = {code, peer() + ": " + reason};
  phase_.store(Phase::kFailed, std::memory_order_release);
}

void ClientConnection::Impl::on_dead() {
  phase_.store(Phase::kDead, std::memory_order_release);
}

void ClientConnection::Impl::set_credential(const AuthSys& identity) {
  std::lock_guard lock(credentials_mutex_);
  credentials_.push_back(std::make_unique<rpc::PreparedAuth>(identity));
  credential_.store(credentials_.back().get(), std::memory_order_release);
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
          .in_flight = static_cast<uint32_t>(calls - std::min(calls, ok + error))};
}

ClientConnection::ClientConnection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClientConnection::~ClientConnection() {
  impl_->shut_down();
}

bool ClientConnection::alive() const noexcept {
  return impl_->alive();
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
  impl_->set_credential(identity);
}

}  // namespace rrdk

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "base/uri.h"
#include "client/client_impl.h"

namespace rrdk {

ClientConnection::Impl::Impl(std::shared_ptr<Client::Impl> client, runtime::PollCore& core,
                             const fabric::Driver& driver, const std::string& uri,
                             const ConnectOptions& connect_in)
    : Caller::Impl(client->runtime, core, client->runtime.open_device(driver), uri,
                   {.timeout_ms = client->options.call_timeout_ms,
                    .retransmit = client->options.retransmit,
                    .inline_size = client->options.inline_size,
                    .max_call = client->options.max_call,
                    .credits = client->options.credits,
                    .max_queued = client->options.max_queued,
                    .interceptor = client->interceptor}),
      options(client->options),
      connect(connect_in),
      services(client->services),
      client_(std::move(client)),
      versions_(client_->versions),
      driver_(driver),
      host_(base::parse_uri(uri).value_or(base::Uri{}).host),
      uri_timeout_(base::timeout_of(uri)),
      timeout_ns_(uri_timeout_
                      ? static_cast<uint64_t>(std::chrono::nanoseconds(*uri_timeout_).count())
                      : options.connect_timeout_ms * uint64_t{1'000'000}),
      backoff_(options.reconnect.first_delay_ms, options.reconnect.max_delay_ms),
      silence_(options.keepalive_ms, options.keepalive_patience) {
  core.assigned().fetch_add(1, std::memory_order_relaxed);
  if (auto first = client_->credential())
    set_credential(std::move(first));
}

ClientConnection::Impl::~Impl() = default;

// Called once it is settled. Calls that are not in flight may hold the rest for longer than the
// runtime exists.
void ClientConnection::Impl::end() noexcept {
  core().assigned().fetch_sub(1, std::memory_order_relaxed);
  probe_.reset();
  config_.reset();
  last_calls_.clear();
  client_.reset();
  retire();
}

std::optional<Error> ClientConnection::Impl::error() const {
  Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::kOpening || phase == Phase::kUp)
    return std::nullopt;
  return last_error();
}

Stats ClientConnection::Impl::link_stats() const {
  std::lock_guard lock(link_mutex_);
  Stats sum = past_;
  if (!link_)
    return sum;
  link_->add_to(sum);
  if (is_established())
    sum.add(Counter::kCredits, link_->window());
  return sum;
}

Stats ClientConnection::Impl::stats() const {
  Stats sum = link_stats();
  counters().add_to(sum);
#define RRDK_CLIENT_COUNTER(id, enumerator, name, text) \
  sum.add(Counter::k##enumerator, client_counters_.name);
#include "rrdk/counter_table.h"
  sum.add(Counter::kCallsInFlight, calls_left());
  sum.add(Counter::kConnections, sum[Counter::kCredits] != 0);
  return sum;
}

ConnectionInfo ClientConnection::Impl::info() const {
  std::lock_guard lock(link_mutex_);
  if (link_ && is_established())
    return link_->ServerConnection::info();
  ConnectionInfo none;
  none.ending = last_ending();
  return none;
}

void ClientConnection::Impl::on_call(engine::ServedCall& call) {
  link_->take(call);
}

// Calls that the library makes itself (keepalive, CONF_RDMA, the ends of contexts) have no Call,
// and neither have messages of send_option().
void ClientConnection::Impl::on_call_ended(engine::OutgoingCall& outgoing) {
  if (!outgoing.by_library) [[likely]]
    ended(static_cast<Call::Impl&>(outgoing));
  else if (outgoing.option != nullptr)
    on_option_ended(outgoing);
  else if (outgoing.secured)
    on_last_call_ended(outgoing);
  else if (&outgoing == config_.get())
    on_config_ended();
  else
    on_probe_ended();
}

void ClientConnection::Impl::on_link_tick(uint64_t now_ns) {
  set_deadlines(now_ns);
  if (options.keepalive_ms != 0 && is_up())
    look_for_silence(now_ns);
}

uint64_t ClientConnection::Impl::link_quiet_until() const noexcept {
  if (has_untimed())
    return 0;
  return options.keepalive_ms != 0 && is_up() ? silence_.next_look_ns() : UINT64_MAX;
}

ClientConnection::ClientConnection(std::shared_ptr<Impl> impl) : Caller(std::move(impl)) {}

ClientConnection::~ClientConnection() {
  if (base::forked)
    base::keep_for_good(take_impl());
  else
    impl().handle_destroyed();
}

ClientConnection::Impl& ClientConnection::impl() noexcept {
  return static_cast<Impl&>(Caller::impl());
}

const ClientConnection::Impl& ClientConnection::impl() const noexcept {
  return static_cast<const Impl&>(Caller::impl());
}

void ClientConnection::close_start() {
  impl().close_start();
}

void ClientConnection::drain_start(uint32_t timeout_ms) {
  impl().drain_start(timeout_ms);
}

uint32_t ClientConnection::drain(uint32_t timeout_ms) {
  return impl().drain(timeout_ms);
}

ConnectionState ClientConnection::state() const noexcept {
  return impl().state();
}

bool ClientConnection::reconnecting() const noexcept {
  return impl().reconnecting();
}

std::optional<Error> ClientConnection::error() const {
  return impl().error();
}

Stats ClientConnection::stats() const {
  return impl().stats();
}

uint32_t ClientConnection::version() const noexcept {
  return impl().version();
}

ConnectionInfo ClientConnection::info() const {
  return impl().info();
}

}  // namespace rrdk

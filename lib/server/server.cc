#include "rrdk/server.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/internals.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/uri.h"
#include "engine/connection.h"
#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk {

using runtime::OpenDevice;
using runtime::PollCore;
using server::Client;
using server::receive_bytes;
using server::ServerLink;
using server::TimeoutScanner;

namespace {

// Often enough that no time-out is exceeded by more than a quarter; 0: there are no time-outs.
uint64_t scan_period_ns(const ServerLimits& limits) {
  constexpr uint64_t kMillisecondNs = 1'000'000;
  constexpr uint64_t kLongestNs = 1'000 * kMillisecondNs;
  uint64_t shortest = UINT64_MAX;
  for (uint32_t ms :
       {limits.idle_timeout_ms, limits.send_timeout_ms, limits.first_call_timeout_ms}) {
    if (ms != 0)
      shortest = std::min(shortest, ms * kMillisecondNs);
  }
  return shortest == UINT64_MAX ? 0 : std::clamp(shortest / 4, kMillisecondNs, kLongestNs);
}

}  // namespace

Server::Impl::Impl(Runtime::Impl& runtime_in, const ServerOptions& options_in)
    : runtime_use(runtime_in),
      runtime(runtime_in),
      options(options_in),
      services(options_in.interceptor),
      backward_interceptor(options_in.backward_interceptor != nullptr
                               ? *options_in.backward_interceptor
                               : CallInterceptor{}),
      gss(options_in.gss != nullptr ? Internals::of(*options_in.gss) : nullptr),
      now_allowed{.max_connections = options_in.max_connections,
                  .max_connections_per_client = options_in.max_connections_per_client,
                  .first_call_timeout_ms = options_in.first_call_timeout_ms,
                  .idle_timeout_ms = options_in.idle_timeout_ms,
                  .send_timeout_ms = options_in.send_timeout_ms},
      clients(options_in.replay, server::replay_bounds(options_in, runtime_in.memory),
              runtime_in.memory, runtime_in.cores.size()),
      growth(runtime_in.memory, receive_bytes(options_in)),
      cores_(runtime_in.cores.size()),
      links_(runtime_in.cores.size()) {
  if (options.rfc5666.enabled)  // the first service, so it cannot conflict with another
    std::ignore = services.add(server::config_service(options.rfc5666), /*by_library=*/true);
}

Result<void> Server::Impl::add_service(const Service& service) {
  // Connections that exist have reserved nothing for their calls.
  if (listened_ && options.replay.entries != 0 && !clients.keeps_replies() &&
      !std::ranges::all_of(service.procedures, &Procedure::idempotent))
    return fail(Errc::kInvalidArgument,
                "a service with procedures that are not idempotent is added before listen(), or "
                "with ReplayOptions::always");
  return services.add(service);
}

// A core that waited for cores would wait for itself.
Result<void> Server::Impl::remove_service(uint32_t program, uint32_t version) {
  if (listened_ && Runtime::Impl::in_handler())
    return fail(Errc::kInvalidArgument,
                "remove_service() waits for the cores, not from a handler or a callback: use "
                "remove_service_start()");
  auto gone = services.withdraw(program, version);
  if (!gone)
    return tl::unexpected(gone.error());
  if (listened_)
    runtime.wait_until([&] { return is_left(*gone); }, UINT64_MAX,
                       "remove_service() waits for handlers to return");
  services.collect();
  return {};
}

void Server::Impl::start() {
  if (listened_)
    return;
  listened_ = true;
  clients.keep_replies(options.replay.entries != 0 &&
                       (options.replay.always || !services.idempotent()));
  services.count_on(cores_.size());
  set_scan_periods(limits());
  for (auto& core : runtime.cores)
    core->post([c = core.get(), timeout_scanner = &cores_[core->index()].timeout_scanner] {
      c->add(*timeout_scanner);
    });
}

void Server::Impl::set_scan_periods(const ServerLimits& limits) {
  for (Core& core : cores_)
    core.timeout_scanner.set_period(scan_period_ns(limits));
}

ServerLimits Server::Impl::limits() const {
  auto read = [](const std::atomic<uint32_t>& n) { return n.load(std::memory_order_relaxed); };
  return {.max_connections = read(now_allowed.max_connections),
          .max_connections_per_client = read(now_allowed.max_connections_per_client),
          .first_call_timeout_ms = read(now_allowed.first_call_timeout_ms),
          .idle_timeout_ms = read(now_allowed.idle_timeout_ms),
          .send_timeout_ms = read(now_allowed.send_timeout_ms)};
}

Result<void> Server::Impl::set_limits(const ServerLimits& limits) {
  if (auto checked = server::check(limits); !checked)
    return checked;
  now_allowed.max_connections = limits.max_connections;
  now_allowed.max_connections_per_client = limits.max_connections_per_client;
  now_allowed.first_call_timeout_ms = limits.first_call_timeout_ms;
  now_allowed.idle_timeout_ms = limits.idle_timeout_ms;
  now_allowed.send_timeout_ms = limits.send_timeout_ms;
  set_scan_periods(limits);
  return {};
}

Result<std::string> Server::Impl::listen(const std::string& uri) {
  if (auto open = check_open(); !open)
    return tl::unexpected(open.error());
  return listen(uri, fabric::look_up(uri));
}

Result<std::string> Server::Impl::listen(const std::string& uri, const Found& place) {
  if (!place)
    return tl::unexpected(base::about(uri, place.error()));
  auto device = runtime.device(**fabric::find_driver(uri), uri, fabric::Purpose::kListening);
  if (!device)
    return tl::unexpected(base::about(uri, device.error()));
  start();
  auto listener = (*device)->listen(**place, *this);
  if (!listener)
    return tl::unexpected(base::about(uri, listener.error()));
  std::lock_guard lock(listening_mutex_);
  if (auto open = check_open(); !open) {  // no longer
    (*device)->unlisten(*listener);
    return tl::unexpected(open.error());
  }
  listening_.push_back({*device, *listener});
  return (*listener)->uri();
}

void Server::Impl::listen_start(const std::string& uri, Listening listening, void* argument) {
  asides_.fetch_add(1, std::memory_order_relaxed);
  auto tell = [this, listening, argument](Result<std::string> outcome) {
    first_core().post([this, listening, argument, outcome = std::move(outcome)]() mutable {
      if (listening != nullptr && !abandoned())
        listening(std::move(outcome), argument);
      asides_.fetch_sub(1, std::memory_order_release);  // last: the Impl may be destroyed now
    });
  };
  // A name that takes long to resolve delays nothing else on the helper thread.
  const auto place = std::make_shared<Found>();
  auto asked = runtime.searches.start(
      {.host = base::parse_uri(uri).value_or(base::Uri{}).host,
       .find = [place, uri] { *place = fabric::look_up(uri); },
       .then =
           [this, place, uri, tell] {
             auto open = runtime.run_aside([this, place, uri, tell] { tell(listen(uri, *place)); });
             if (!open)
               tell(tl::unexpected(open.error()));
           },
       .began_ns = nullptr});
  if (!asked)
    tell(tl::unexpected(asked.error()));
}

void Server::Impl::stop_listening() {
  std::lock_guard lock(listening_mutex_);
  for (OpenListener& open : listening_)
    open.device->unlisten(open.listener);
  listening_.clear();
}

Result<void> Server::Impl::check_open() const {
  if (base::forked)
    return fail(Errc::kSystem, std::string("the Server ") + base::kOfParent);
  if (closing_.load(std::memory_order_relaxed))
    return fail(Errc::kShutdown, "the server is closing");
  if (draining_.load(std::memory_order_relaxed))
    return fail(Errc::kShutdown, "the server takes no more calls (Server::drain())");
  return {};
}

void Server::Impl::remove(ServerLink& link) {
  PollCore& core = link.core();
  Client& client = link.client();
  cores_[core.index()].timeout_scanner.remove(link);
  const std::optional<server::Newcomer> next = std::move(link.successor);
  silent.remove(link);
  link.leave();
  links_.remove(link);
  clients.leave(client, base::Tsc::now_ns());
  core.assigned().fetch_sub(1, std::memory_order_relaxed);
  if (!next || next->link != nullptr)
    present_.fetch_sub(1, std::memory_order_relaxed);  // otherwise the next one gets its place
  if (next)                                            // including what counts as a connection
    follow(core, *next);
  connections_.fetch_sub(1, std::memory_order_release);  // last: the Impl may be destroyed now
}

Stats Server::Impl::stats() const {
  Stats sum = links_.sums();
  backward_clients->add_to(sum);
#define RRDK_SERVER_COUNTER(id, enumerator, name, text) \
  sum.add(Counter::k##enumerator, counters.name);
#include "rrdk/counter_table.h"
  sum.add(Counter::kConnections, connections_.load(std::memory_order_relaxed));
  const server::ReplayCounters& replay = clients.counters();
#define RRDK_REPLAY_COUNTER(id, enumerator, name, text) \
  sum.add(Counter::k##enumerator, replay.name);
#include "rrdk/counter_table.h"
  sum.add(Counter::kReplayClients, clients.places_taken());
  sum.add(Counter::kReplayPlaces, options.replay.entries != 0 ? options.replay.clients : 0);
  return sum;
}

// The visitor is the program's, and may take long: it runs in no read section, which would delay
// what others free.
void Server::Impl::visit(const std::function<void(const ConnectionInfo&)>& visitor) const {
  constexpr size_t kVisitedAtOnce = 32;
  const std::vector<uint64_t> ids = links_.ids();
  std::vector<ConnectionInfo> seen;
  for (std::span<const uint64_t> left = ids; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kVisitedAtOnce));
    left = left.subspan(some.size());
    seen.clear();
    {
      const base::ReadSection reading;
      for (uint64_t id : some) {
        if (const ServerLink* link = links_.find(id))
          seen.push_back(link->info());
      }
    }
    for (const ConnectionInfo& one : seen)
      visitor(one);
  }
}

// On its core, where it cannot be destroyed meanwhile.
Result<void> Server::Impl::close(uint64_t id, const std::string& reason) {
  PollCore* core = nullptr;
  {
    const base::ReadSection reading;
    if (const ServerLink* link = links_.find(id))
      core = &link->core();
  }
  if (core == nullptr)
    return fail(Errc::kNotFound, "there is no connection " + std::to_string(id));
  core->post([this, id, reason] {
    if (ServerLink* link = links_.find(id))
      link->close_for(reason);
  });
  return {};
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  if (base::forked)
    base::keep_for_good(std::move(impl_));
  else
    impl_->handle_destroyed();
}

Result<std::unique_ptr<Server>> Server::create(Runtime& runtime, const ServerOptions& options) {
  if (auto checked = server::check(options, runtime.memory()); !checked)
    return tl::unexpected(checked.error());
  return std::unique_ptr<Server>(
      new Server(std::make_shared<Impl>(Internals::of(runtime), options)));
}

Result<void> Server::add_service(const Service& service) {
  return impl_->add_service(service);
}

Result<void> Server::remove_service(uint32_t program, uint32_t version) {
  return impl_->remove_service(program, version);
}

Result<void> Server::remove_service_start(uint32_t program, uint32_t version, Done removed,
                                          void* argument) {
  return impl_->remove_service_start(program, version, removed, argument);
}

ServerLimits Server::limits() const {
  return impl_->limits();
}

Result<void> Server::set_limits(const ServerLimits& limits) {
  return impl_->set_limits(limits);
}

Result<std::string> Server::listen(const std::string& uri) {
  return impl_->listen(uri);
}

void Server::listen_start(const std::string& uri, Listening listening, void* argument) {
  impl_->listen_start(uri, listening, argument);
}

void Server::stop_listening() {
  impl_->stop_listening();
}

uint32_t Server::drain(uint32_t timeout_ms) {
  return impl_->drain(timeout_ms);
}

void Server::drain_start(uint32_t timeout_ms, Drained drained, void* argument) {
  impl_->drain_start(timeout_ms, drained, argument);
}

void Server::close_start(Done closed, void* argument) {
  impl_->close_start(closed, argument);
}

Stats Server::stats() const {
  return impl_->stats();
}

std::vector<ProcedureStats> Server::procedures() const {
  return impl_->services.procedures();
}

Result<void> Server::close(uint64_t id, const std::string& reason) {
  return impl_->close(id, reason);
}

void Server::visit(const std::function<void(const ConnectionInfo&)>& visitor) const {
  impl_->visit(visitor);
}

}  // namespace rrdk

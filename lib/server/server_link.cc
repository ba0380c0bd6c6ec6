#include "server/server_link.h"

#include "base/clock.h"
#include "base/log.h"
#include "runtime/poll_core.h"
#include "server/server_impl.h"

namespace rrdk::server {

void ContextPool::grow() {
  constexpr size_t kSlab = 64;
  slabs_.push_back(std::make_unique<CallContext[]>(kSlab));
  // Room for all there are, so that put() never grows.
  free_.reserve(slabs_.size() * kSlab);
  for (size_t i = 0; i < kSlab; ++i)
    free_.push_back(&slabs_.back()[i]);
}

ServerLink::ServerLink(Server::Impl& server, Client& client, ContextPool& contexts,
                       runtime::PollCore& core, runtime::OpenDevice& device)
    : Link(core, device),
      server_(server),
      client_(client),
      lane_(client.replays.enter(core.now())),
      contexts_(contexts) {}

ServerLink::~ServerLink() {
  client_.replays.leave(lane_, core().now());
}

void ServerLink::on_up() {
  was_up_ = true;
  base::log_debug("connection of %s accepted on core %u", peer().c_str(), core().index());
}

void ServerLink::on_down(Errc code, const std::string& reason) {
  if (was_up_ && code != Errc::kShutdown && !draining_)
    server_.ended.fetch_add(1, std::memory_order_relaxed);
  log_end(reason);
  release_delayed();
  release_waiting();
}

void ServerLink::drain() {
  draining_ = true;
  engine().drain();
  core().mark_dirty(*this);
}

uint64_t ServerLink::Standstill::look(bool holds, uint64_t count, uint64_t now_ns) noexcept {
  if (!holds || count != seen || since_ns == 0) {
    seen = count;
    since_ns = now_ns;
  }
  return now_ns - since_ns;
}

void ServerLink::check_timeouts(uint64_t now_ns) {
  constexpr uint64_t kMillisecondNs = 1'000'000;
  if (state() != runtime::LinkState::kUp)
    return;
  const ServerOptions& options = server_.options;
  uint64_t idle = idle_.look(engine().calls() == 0, engine().counters().calls_received, now_ns);
  uint64_t stalled = sending_.look(engine().sends_pending(), engine().sends_done(), now_ns);
  if (options.send_timeout_ms != 0 && stalled >= options.send_timeout_ms * kMillisecondNs) {
    server_.closed_stalled.fetch_add(1, std::memory_order_relaxed);
    if (auto left_out = server_.stalls.allow(now_ns))
      base::log_warning(
          "connection of %s closed: it has taken no reply for %u ms (ServerOptions::"
          "send_timeout_ms; %lu more since the last such line)",
          peer().c_str(), options.send_timeout_ms, *left_out);
    close(Errc::kTimeout, "it takes no replies");
  } else if (options.idle_timeout_ms != 0 && idle >= options.idle_timeout_ms * kMillisecondNs) {
    server_.closed_idle.fetch_add(1, std::memory_order_relaxed);
    if (auto left_out = server_.idlers.allow(now_ns))
      base::log_info(
          "connection of %s closed: no calls for %u ms (ServerOptions::idle_timeout_ms; %lu more "
          "since the last such line)",
          peer().c_str(), options.idle_timeout_ms, *left_out);
    close(Errc::kShutdown, "it was idle");
  }
}

// Peers come and go; one that fails in another way is worth a line.
void ServerLink::log_end(const std::string& reason) {
  if (dropped_)
    base::log_debug("connection of %s ended: a call of it was dropped", peer().c_str());
  else if (engine().fault() == nullptr)
    base::log_debug("connection of %s ended: %s", peer().c_str(), reason.c_str());
  else if (auto left_out = server_.failures.allow(base::Tsc::now_ns()))
    base::log_warning("connection of %s failed: %s (%lu more since the last such line)",
                      peer().c_str(), reason.c_str(), *left_out);
}

void ServerLink::on_dead() {
  server_.remove(*this);
}

// Nobody waits for these replies any more.
void ServerLink::release_delayed() noexcept {
  while (delayed_ != nullptr) {
    CallContext& context = *delayed_;
    core().timers().cancel(context);
    context.fire(context);
  }
}

}  // namespace rrdk::server

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

void ServerLink::on_up() {
  was_up_ = true;
  base::log_debug("connection of %s accepted on core %u", peer().c_str(), core().index());
}

void ServerLink::on_down(Errc code, const std::string& reason) {
  if (was_up_ && code != Errc::kShutdown)
    server_.ended.fetch_add(1, std::memory_order_relaxed);
  log_end(reason);
  release_delayed();
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

#include "server/server_link.h"

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
}

void ServerLink::on_down(Errc code, const std::string&) {
  if (was_up_ && code != Errc::kShutdown)
    server_.ended.fetch_add(1, std::memory_order_relaxed);
  release_delayed();
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

#include "server/backward_client.h"

#include <algorithm>
#include <utility>

#include "base/lifetime.h"

namespace rrdk {

namespace server {

void BackwardClients::add(const BackwardClient::Impl& one) {
  std::lock_guard lock(mutex_);
  here_.push_back(&one);
}

void BackwardClients::remove(const BackwardClient::Impl& one) {
  std::lock_guard lock(mutex_);
  one.counters().add_to(past_);
  std::erase(here_, &one);
}

uint32_t BackwardClients::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(here_.size());
}

void BackwardClients::add_to(Stats& sum) const {
  std::lock_guard lock(mutex_);
  sum += past_;
  for (const BackwardClient::Impl* one : here_)
    one->counters().add_to(sum);
}

}  // namespace server

BackwardClient::Impl::Impl(Runtime::Impl& runtime_in, runtime::Link& link,
                           const calls::Defaults& defaults_in,
                           std::shared_ptr<server::BackwardClients> all)
    : Caller::Impl(runtime_in, link.core(), &link.device(), link.peer_name(), defaults_in),
      all_(std::move(all)) {
  use(link);
  all_->add(*this);
}

// Calls that are not in flight may hold it for longer.
void BackwardClient::Impl::end() noexcept {
  all_->remove(*this);
  retire();
}

std::shared_ptr<BackwardClient> BackwardClient::Impl::make(std::shared_ptr<Impl> impl) {
  return std::shared_ptr<BackwardClient>(new BackwardClient(std::move(impl)));
}

void BackwardClient::Impl::shut() noexcept {
  shutting_down = true;
  alive_.store(false, std::memory_order_release);
  if (lose())
    stop_all();
}

void BackwardClient::Impl::on_down(Errc code) noexcept {
  shutting_down = shutting_down || code == Errc::kShutdown;
  alive_.store(false, std::memory_order_release);
  lose();
}

// The last owner may be a handler or a callback, which must not wait for the core. All calls have
// ended by now, or their ends are on the way: the link also held it while the link existed.
void BackwardClient::Impl::handle_destroyed(std::shared_ptr<Impl> impl) noexcept {
  impl->on_room(1, nullptr, nullptr);
  if (impl->unused())
    return impl->end();
  Impl& left = *impl;
  left.all_->leaving.fetch_add(1, std::memory_order_relaxed);
  left.destroy_request_.run = [](runtime::WorkItem& item) {
    auto& request = static_cast<DestroyRequest&>(item);
    if (!request.client->unused())
      return request.client->core().defer(item);
    std::shared_ptr<Impl> client = std::move(request.client);
    client->end();
    client->all_->leaving.fetch_sub(1, std::memory_order_release);
  };
  left.destroy_request_.client = std::move(impl);
  left.core().submit(left.destroy_request_);
}

BackwardClient::BackwardClient(std::shared_ptr<Impl> impl) : Caller(std::move(impl)) {}

bool BackwardClient::takes_chunks() const noexcept {
  return static_cast<const Impl&>(impl()).takes_chunks();
}

BackwardClient::~BackwardClient() {
  std::shared_ptr<Impl> impl = std::static_pointer_cast<Impl>(take_impl());
  if (base::forked)
    base::keep_for_good(std::move(impl));
  else
    Impl::handle_destroyed(std::move(impl));
}

}  // namespace rrdk

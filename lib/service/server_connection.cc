// The connection of a call as its program sees it, which is the Dispatcher itself; and when the
// last handler of its calls has been entered.
#include "runtime/poll_core.h"
#include "service/dispatcher.h"

namespace rrdk {

namespace {

const service::Dispatcher& behind(const ServerConnection& connection) noexcept {
  return static_cast<const service::Dispatcher&>(connection);
}

}  // namespace

uint64_t ServerConnection::id() const noexcept {
  return behind(*this).link().id();
}

const Peer& ServerConnection::peer() const noexcept {
  return behind(*this).link().peer();
}

ConnectionInfo ServerConnection::info() const {
  const service::Dispatcher& dispatcher = behind(*this);
  ConnectionInfo info = dispatcher.link().info();
  info.rejected = dispatcher.rejected();
  return info;
}

namespace service {

// Either we see that it was entered, or it sees that we wait: both publish first, then look.
bool Dispatcher::all_entered() noexcept {
  if (entries_ == nullptr)
    return true;
  entries_->awaited.store(true, std::memory_order_seq_cst);
  return entries_->entered.load(std::memory_order_seq_cst) == entries_->given;
}

void Dispatcher::tell_entered() noexcept {
  link_.core().post([&core = link_.core(), id = link_.id()] {
    if (runtime::Link* link = core.find(id))
      core.mark_dirty(*link);
  });
}

}  // namespace service

}  // namespace rrdk

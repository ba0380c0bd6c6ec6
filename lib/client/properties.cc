// Transport properties of draft-04, as programs see them: what to ask for goes to the core, and
// what is known is read where the engine keeps it.
#include "client/client_impl.h"
#include "client/client_link.h"

namespace rrdk {

void ClientConnection::Impl::request_receive_size(uint32_t bytes) {
  size_requests_.ask();
  core().post([this, bytes] {
    bool sent = is_up() && up()->engine().request_receive_size(bytes);
    if (sent)
      core().mark_dirty(*up());
    else
      size_requests_.refuse();
  });
}

void ClientConnection::Impl::raise_receive_size(uint32_t bytes) {
  core().post([this, bytes] {
    if (is_up())
      up()->engine().raise_receives(bytes);
  });
}

ReceiveSizes ClientConnection::Impl::receive_sizes() const {
  xprt::Counters c;
  runtime::Link::ReceiveSizes sizes;
  {
    std::lock_guard lock(link_mutex_);
    c = past_;
    if (link_) {
      xprt::add(c, link_->counters());
      sizes = alive() ? link_->receive_sizes() : sizes;
    }
  }
  return size_requests_.report(sizes, c);
}

void ClientConnection::request_receive_size(uint32_t bytes) {
  impl().request_receive_size(bytes);
}
void ClientConnection::raise_receive_size(uint32_t bytes) {
  impl().raise_receive_size(bytes);
}
ReceiveSizes ClientConnection::receive_sizes() const {
  return impl().receive_sizes();
}

}  // namespace rrdk

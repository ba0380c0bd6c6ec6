// What a ClientConnection is on, and where calls of the server come in: one connection to it, of
// the several that a ClientConnection may have one after the other. It goes when the fabric and the
// engine are done with it.
#pragma once

#include <string>

#include "client/client_impl.h"
#include "runtime/link.h"
#include "service/dispatcher.h"

namespace rrdk {

class ClientLink final : public runtime::Link, public service::Dispatcher {
 public:
  explicit ClientLink(ClientConnection::Impl& connection)
      : Link(connection.core(), connection.device()),
        Dispatcher(*this, for_workers, connection.runtime.memory, connection.services,
                   connection.contexts),
        connection_(connection) {}

  using Link::set_always_ticks;

 private:
  void on_up() override { connection_.on_link_up(); }
  void on_down(Errc code, const std::string& reason) override {
    connection_.on_link_down(code, reason);
    release_delayed();
  }
  void on_tick(uint64_t now_ns) override { connection_.on_link_tick(now_ns); }
  uint64_t quiet_above() const override { return connection_.link_quiet_until(); }
  void on_finished() override { connection_.on_link_finished(); }
  void on_dead() override { connection_.on_link_dead(); }  // deletes it

  ClientConnection::Impl& connection_;
};

}  // namespace rrdk

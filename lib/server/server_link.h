// A connection as the server sees it: calls in, handlers run, replies out.
#pragma once

#include <atomic>
#include <string>

#include "rrdk/server.h"
#include "runtime/link.h"
#include "server/call_context.h"
#include "xprt/connection.h"

namespace rrdk::server {

class ServerLink final : public runtime::Link, public xprt::Upcalls {
 public:
  ServerLink(Server::Impl& server, ContextPool& contexts, runtime::PollCore& core,
             runtime::OpenDevice& device) noexcept
      : Link(core, device), server_(server), contexts_(contexts) {}

  void on_call(xprt::IncomingCall& call) override;
  void on_call_ended(xprt::OutgoingCall&) override {}  // a server calls nobody here

  // The core's thread: the call's answer is there.
  void finish(CallContext& context) noexcept;

  Server::Impl& server() noexcept { return server_; }
  uint64_t rejected() const noexcept { return rejected_.load(std::memory_order_relaxed); }

 private:
  void on_up() override;
  void on_down(Errc code, const std::string& reason) override;
  void on_dead() override;

  bool admit(CallContext& context) noexcept;
  bool find_service(CallContext& context) noexcept;
  void dispatch(CallContext& context) noexcept;
  void refuse(CallContext& context, AcceptStat status) noexcept;
  void restart_reply(CallContext& context) noexcept;
  void send(CallContext& context) noexcept;
  void delay(CallContext& context) noexcept;
  void release_delayed() noexcept;
  void log_end(const std::string& reason);

  Server::Impl& server_;
  ContextPool& contexts_;
  CallContext* delayed_ = nullptr;
  const ServiceTable::Entry* last_service_ = nullptr;  // of the last call that had one
  bool was_up_ = false;
  bool dropped_ = false;                // a call, which ends the connection
  std::atomic<uint64_t> rejected_ = 0;  // by the core; read by anybody
};

}  // namespace rrdk::server

// A connection as the server sees it: calls in, handlers run, replies out.
//
// dispatch_datapath.cc and reply_datapath.cc have the way of every call, repeat_datapath.cc that of
// calls of procedures that are not idempotent.
#pragma once

#include <atomic>
#include <string>

#include "rrdk/server.h"
#include "runtime/link.h"
#include "server/call_context.h"
#include "server/client_table.h"
#include "xprt/connection.h"

namespace rrdk::server {

class ServerLink final : public runtime::Link, public xprt::Upcalls {
 public:
  ServerLink(Server::Impl& server, Client& client, ContextPool& contexts, runtime::PollCore& core,
             runtime::OpenDevice& device);
  ~ServerLink() override;

  void on_call(xprt::IncomingCall& call) override;
  void on_call_ended(xprt::OutgoingCall&) override {}  // a server calls nobody here
  void on_access_failed(uint32_t xid) override;
  bool failed_before(uint32_t xid) override;

  // The core's thread: the call's answer is there.
  void finish(CallContext& context) noexcept;

  // No further calls; ends when those that are here have been answered.
  void drain();
  // Ends if it has been idle, or has not taken its replies, for too long. The core's Sweeper.
  void check_timeouts(uint64_t now_ns);

  Server::Impl& server() noexcept { return server_; }
  Client& client() noexcept { return client_; }
  uint64_t rejected() const noexcept { return rejected_.load(std::memory_order_relaxed); }

 private:
  void on_up() override;
  void on_down(Errc code, const std::string& reason) override;
  void on_dead() override;

  bool admit(CallContext& context) noexcept;
  bool find_service(CallContext& context) noexcept;
  void dispatch(CallContext& context) noexcept;
  void refuse_chunks(CallContext& context) noexcept;
  void refuse(CallContext& context, AcceptStat status) noexcept;
  bool begin_once(CallContext& context) noexcept;
  void answer_again(CallContext& context) noexcept;
  void drop(CallContext& context) noexcept;
  void release_waiting() noexcept;
  void restart_reply(CallContext& context) noexcept;
  void send(CallContext& context) noexcept;
  void delay(CallContext& context) noexcept;
  void release_delayed() noexcept;
  void log_end(const std::string& reason);

  // Since when something is as it is, of what a count says.
  struct Standstill {
    uint64_t seen = 0;
    uint64_t since_ns = 0;

    // For how long `count` has been the same while `holds`.
    uint64_t look(bool holds, uint64_t count, uint64_t now_ns) noexcept;
  };

  Server::Impl& server_;
  Client& client_;
  ReplayLane* const lane_;  // null: replies are not kept
  ContextPool& contexts_;
  CallContext* delayed_ = nullptr;
  const ServiceTable::Entry* last_service_ = nullptr;  // of the last call that had one
  uint32_t waiting_ = 0;                               // calls that wait for one that they repeat
  Standstill idle_;
  Standstill sending_;
  bool was_up_ = false;
  bool draining_ = false;
  bool dropped_ = false;                // a call, which ends the connection
  std::atomic<uint64_t> rejected_ = 0;  // by the core; read by anybody
};

}  // namespace rrdk::server

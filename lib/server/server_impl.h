// The server: its options and what follows from them, its services, its listeners, its connections
// and their sums.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "base/log.h"
#include "engine/connection.h"
#include "gss/contexts.h"
#include "proto/negotiation.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/rfc5666.h"
#include "rrdk/server.h"
#include "runtime/look_again.h"
#include "runtime/open_device.h"
#include "runtime/runtime_impl.h"
#include "server/backward_client.h"
#include "server/client_table.h"
#include "server/link_table.h"
#include "server/server_link.h"
#include "server/silent_links.h"
#include "service/dispatcher.h"
#include "service/service_table.h"

namespace rrdk::server {

// Errors: kInvalidArgument.
Result<void> check(const ServerOptions& options, const Memory& memory);
Result<void> check(const ServerLimits& limits);

// The size and number of the Receives of a connection that has not begun to grow.
uint32_t receive_bytes(const ServerOptions& options);
uint32_t receives_of(const ServerOptions& options);
// The credits that a connection is granted at first if Receives are shared; 0: they are not shared.
uint32_t first_credits(const ServerOptions& options);
// Replies of one connection that its client may have yet to read, by RDMA Read.
uint32_t exposed_replies(const ServerOptions& options);
// Calls that one connection may have whose replies it has not seen.
uint32_t outstanding_calls(const ServerOptions& options);

// What the duplicate request caches of all clients may use.
ReplayBounds replay_bounds(const ServerOptions& options, Memory& memory);

// The server's side of the Connection Configuration Protocol (RFC 5666 section 6): a service that a
// Server has if RFC 5666's compatibility mode is on.
//
// `options` must outlive the Server.
Service config_service(const Rfc5666ServerOptions& options);

Result<void> check(const ServerOptions& options, const Rfc5666ServerOptions& mode);

}  // namespace rrdk::server

namespace rrdk {

namespace server {

// What a server counts when connections come and go, on any core.
struct ServerCounters {
#define RRDK_SERVER_COUNTER(id, enumerator, name, text) base::SharedCount name;
#include "rrdk/counter_table.h"
};

}  // namespace server

struct Server::Impl final : runtime::Acceptor, std::enable_shared_from_this<Server::Impl> {
  Impl(Runtime::Impl& runtime_in, const ServerOptions& options_in);

  Result<void> add_service(const Service& service);
  Result<void> remove_service(uint32_t program, uint32_t version);
  ServerLimits limits() const;
  Result<void> set_limits(const ServerLimits& limits);
  Result<std::string> listen(const std::string& uri);
  using Found = Result<std::unique_ptr<fabric::Place>>;  // the target of an address
  Result<std::string> listen(const std::string& uri, const Found& place);
  void listen_start(const std::string& uri, Listening listening, void* argument);
  void stop_listening();
  // ending.cc
  Result<void> remove_service_start(uint32_t program, uint32_t version, Done removed,
                                    void* argument);
  uint32_t drain(uint32_t timeout_ms);
  void drain_start(uint32_t timeout_ms, Drained drained, void* argument);
  void close_start(Done closed, void* argument);
  // Ends the Server; what is left after it is destroyed later.
  void handle_destroyed();
  // Whether its program has destroyed it: nothing of the program may be called then. Any thread.
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_relaxed); }

  Stats stats() const;
  // Any thread.
  Result<void> close(uint64_t id, const std::string& reason);
  void visit(const std::function<void(const ConnectionInfo&)>& visitor) const;
  void on_connect_request(runtime::OpenDevice& device,
                          std::unique_ptr<fabric::ConnectRequest> request) override;
  void on_shortage() override;
  // The link's core: only readers of the table still refer to the link. Retires it.
  void remove(server::ServerLink& link);

  const runtime::RuntimeUse runtime_use;  // destroyed last
  Runtime::Impl& runtime;
  const ServerOptions options;
  service::ServiceTable services;
  const CallInterceptor backward_interceptor;  // `options` may refer to what is gone
  const std::shared_ptr<gss::Contexts> gss;    // null: RPCSEC_GSS is not for the library
  // The limits in `options`, as changed by set_limits() since.
  struct Limits {
    std::atomic<uint32_t> max_connections, max_connections_per_client, first_call_timeout_ms,
        idle_timeout_ms, send_timeout_ms;
  };
  Limits now_allowed;
  server::ClientTable clients;
  server::SilentLinks silent;
  const std::shared_ptr<std::atomic<uint32_t>> gone_links =
      std::make_shared<std::atomic<uint32_t>>(0);
  server::Growth growth;
  const std::shared_ptr<server::BackwardClients> backward_clients =
      std::make_shared<server::BackwardClients>();
  server::ServerCounters counters;
  base::LogLimit failures;  // of connections, caused by the peer
  base::LogLimit stalls;
  base::LogLimit idlers;       // including silent ones
  base::LogLimit growths;      // that were refused
  base::LogLimit unprotected;  // calls that were not run, or were run nevertheless
  base::LogLimit ways_made;    // clients that were forgotten early

 private:
  struct OpenListener {
    runtime::OpenDevice* device;
    fabric::Listener* listener;
  };
  // The data of one core, used only by that core.
  struct Core {
    server::TimeoutScanner timeout_scanner;
  };

  using Request = std::shared_ptr<fabric::ConnectRequest>;

  void start();
  void set_scan_periods(const ServerLimits& limits);
  server::Visitor visitor_of(const fabric::ConnectRequest& request) const;
  // Called when a request has arrived; its device is locked. let_in() is for a request that has a
  // place, which already counts.
  void seek_place(const server::Newcomer& newcomer);
  void let_in(const server::Newcomer& newcomer);
  // On its core: open() asks the program whether it wants the connection. accept(), which may be
  // called again, gives the connection what it needs.
  void open(runtime::PollCore& core, runtime::OpenDevice& device, server::Client& client,
            const Request& request);
  void accept(server::ServerLink& link, const Request& request);
  // After an error, `lack` is what would have to be freed for it, if that can help.
  Result<void> try_accept(server::ServerLink& link, fabric::ConnectRequest& request,
                          std::optional<server::Lack>& lack);
  // Whether connections are accepted: the server is neither closing nor draining. Errors:
  // kShutdown.
  Result<void> check_open() const;
  // Returns what the core has of the device for all its connections; null: they do not share
  // Receives. Errors: the device's.
  Result<runtime::SharedReceives*> equip(runtime::PollCore& core,
                                         runtime::OpenDevice& device) const;
  // Whether another connection may have its Receives. Errors: kNoMemory.
  Result<void> check_room(const runtime::SharedReceives* shared) const;
  bool has_private_receives(const runtime::OpenDevice& device) const;
  // Receives that one connection takes when it comes, idle or not.
  uint32_t receives_at_first(bool private_receives) const;
  uint32_t most_of_one_client(const runtime::OpenDevice& device) const;
  // Has the link accepted later, when another connection has ended, or after a time. Returns false
  // if no connection's end would help.
  bool await_room(server::ServerLink& link, const Request& request, server::Lack lack);
  bool try_later(server::ServerLink& link, const Request& request);
  // Whether a connection may be closed for lack of descriptors. Returns false if one was closed,
  // and it is not known whether that helped.
  bool begin_trial();
  void end_trial() { trial_until_ns_.store(0, std::memory_order_relaxed); }
  // Closes a connection that never made a call and whose end helps the newcomer, which follows it.
  // Returns false if no connection's end would help.
  bool make_room(const server::Newcomer& newcomer);
  void close_for(uint64_t id, const server::Newcomer& newcomer);  // on its core
  void close_silent(server::ServerLink& link);
  void try_again(const server::Newcomer& newcomer);
  void drop(const server::Newcomer& newcomer);
  void follow(const runtime::PollCore& here, const server::Newcomer& newcomer);
  void go_on(const server::Newcomer& newcomer);  // its link, on that link's core
  void turn_away(const server::Newcomer& newcomer, const std::string& reason);
  void refuse_for_the_gone(fabric::ConnectRequest& request);
  void refuse_for_client(fabric::ConnectRequest& request, uint32_t most);
  void refuse(fabric::ConnectRequest& request, proto::Rejection why, const std::string& reason);
  void refuse(server::ServerLink& link, fabric::ConnectRequest& request, proto::Rejection why,
              const Error& reason, std::string_view text = {});
  void count_refusal(const std::string& peer, const std::string& reason);
  engine::ConnectionOptions engine_options() const;

  // ending.cc
  struct Removal {
    service::ServiceTable::Withdrawn service;
    Done removed;
    void* argument;
  };
  struct Drain {
    uint64_t due_ns;
    Drained drained;
    void* argument;
    bool cut = false;   // time was up: the rest is being closed
    uint32_t rest = 0;  // the number of those
  };
  struct Close {
    Done closed;
    void* argument;
  };
  runtime::PollCore& first_core() const noexcept;
  void on_cores(void (Impl::*task)(runtime::PollCore&));
  void add_step(std::function<void()> step);
  struct Walk {
    runtime::PollCore& core;
    void (Impl::*what)(server::ServerLink&);
    size_t left;  // of the core's TimeoutScanner: those before this one
  };
  void for_links_of(runtime::PollCore& core, void (Impl::*what)(server::ServerLink&));
  void next_link(Walk walk);
  void drain_links_of(runtime::PollCore& core);
  void close_links_of(runtime::PollCore& core);
  void drain_link(server::ServerLink& link);
  void close_link(server::ServerLink& link);
  void forget_core(runtime::PollCore& core);
  void look();
  // Whether no pass and no worker is in its handlers any more, or will be.
  bool is_left(const service::ServiceTable::Withdrawn& service) const noexcept {
    return service.grace.over() && !runtime.workers_run(service.entry);
  }
  void look_at_removals();
  void look_at_drains();
  bool look_at_closes();
  void look_again();
  // In a look, which is a task itself.
  bool has_other_tasks() const noexcept {
    RRDK_ASSERT(looks_);
    return tasks_.load(std::memory_order_acquire) != 1;
  }
  void tell(Done done, void* argument) const;

  std::mutex listening_mutex_;
  std::vector<OpenListener> listening_;
  bool listened_ = false;
  std::vector<Core> cores_;
  runtime::EngineOptions engine_options_;
  std::atomic<bool> closing_ = false;
  std::atomic<bool> draining_ = false;
  // Connections, and requests on their way to a core: the Impl exists until none is left.
  std::atomic<uint32_t> connections_ = 0;
  std::atomic<uint32_t> tasks_ = 0;   // of ours, that cores have still to run
  std::atomic<uint32_t> asides_ = 0;  // what the helper thread has to do and report
  std::atomic<bool> closed_ = false;
  std::shared_ptr<Impl> self_;  // once detached
  std::atomic<bool> abandoned_ = false;
  // For core 0's thread only.
  std::vector<Removal> removals_;
  std::vector<Drain> drains_;
  std::vector<Close> closes_;
  runtime::LookAgain look_again_;
  bool looks_ = false;      // it is to come, or in progress
  bool forgotten_ = false;  // by all cores
  bool telling_ = false;    // in the callback of the close
  bool detached_ = false;   // the Server is gone, and has not waited

  std::atomic<uint32_t> present_ = 0;  // of connections_: without requests that wait for a place
  std::atomic<uint64_t> trial_until_ns_ = 0;  // 0: none is in progress (begin_trial())
  base::LogLimit refusals_;
  server::LinkTable links_;
};

}  // namespace rrdk

#include "rrdk/server.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk {

using runtime::OpenDevice;
using runtime::PollCore;
using server::ServerLink;

namespace {

constexpr uint32_t kMostCredits = 4096;
constexpr uint32_t kLargestInline = 262144;  // what RFC 8797 can say
// One buffer in so many of the Receives' size class stays for calls and replies.
constexpr uint32_t kShareKeptForCalls = 4;

Result<void> check(const ServerOptions& options, const Memory& memory) {
  if (options.credits == 0 || options.credits > kMostCredits)
    return fail(Errc::kInvalidArgument, "a server's credits are 1 to 4096");
  if (options.inline_size % 1024 != 0 || options.inline_size == 0 ||
      options.inline_size > kLargestInline)
    return fail(Errc::kInvalidArgument, "inline_size is a multiple of 1024, at most 262144");
  if (options.inline_size > memory.largest_buffer())
    return fail(Errc::kInvalidArgument, "inline_size is " + std::to_string(options.inline_size) +
                                            " and the largest buffers have " +
                                            std::to_string(memory.largest_buffer()) +
                                            " bytes: add a class to MemoryOptions::classes");
  if (options.max_chunk_bytes == 0)
    return fail(Errc::kInvalidArgument, "max_chunk_bytes is at least 1");
  if (options.max_connections == 0)
    return fail(Errc::kInvalidArgument, "max_connections is at least 1");
  return {};
}

}  // namespace

Server::Impl::Impl(Runtime::Impl& runtime_in, const ServerOptions& options_in)
    : runtime(runtime_in), options(options_in), contexts_(runtime_in.cores.size()) {}

Server::Impl::~Impl() {
  stop_listening();
  closing_.store(true, std::memory_order_relaxed);
  for (auto& core : runtime.cores)
    core->post([this, c = core.get()] { close_links_of(*c); });
  // A connection that is still being accepted closes itself (accept()).
  runtime.wait_until([this] { return connections_.load(std::memory_order_acquire) == 0; },
                     UINT64_MAX,
                     "~Server() waits for its connections to end: ServerCalls that were kept must "
                     "be answered, and cores be polled");
  // The tasks above refer to us: they have run when a later one has.
  for (auto& core : runtime.cores)
    runtime.run_on(*core, [] {});
}

void Server::Impl::close_links_of(PollCore& core) {
  // Those of this core go away on this thread only, and not within close().
  std::vector<ServerLink*> links;
  {
    std::lock_guard lock(links_mutex_);
    std::ranges::copy_if(links_, std::back_inserter(links),
                         [&](const ServerLink* link) { return &link->core() == &core; });
  }
  for (ServerLink* link : links)
    link->close(Errc::kShutdown, "the server is closing");
}

Result<void> Server::Impl::add_service(const Service& service) {
  if (listened_)
    return fail(Errc::kInvalidArgument, "services are added before listen()");
  return services.add(service);
}

Result<std::string> Server::Impl::listen(const std::string& uri) {
  auto device = runtime.device(uri);
  if (!device)
    return tl::unexpected(device.error());
  listened_ = true;
  auto listener = (*device)->listen(uri, *this);
  if (!listener)
    return tl::unexpected(listener.error());
  listening_.push_back({*device, *listener});
  return (*listener)->uri();
}

void Server::Impl::stop_listening() {
  for (Listening& l : listening_)
    l.device->unlisten(l.listener);
  listening_.clear();
}

void Server::Impl::on_connect_request(OpenDevice& device,
                                      std::unique_ptr<fabric::ConnectRequest> request) {
  if (connections_.load(std::memory_order_relaxed) >= options.max_connections) {
    count_refusal(request->peer(), "there are as many as ServerOptions::max_connections allows, " +
                                       std::to_string(options.max_connections));
    request->reject({});
    return;
  }
  connections_.fetch_add(1, std::memory_order_relaxed);
  PollCore& core = runtime.pick_core();
  core.assigned().fetch_add(1, std::memory_order_relaxed);
  // std::function wants something that can be copied.
  std::shared_ptr<fabric::ConnectRequest> shared = std::move(request);
  core.post([this, &core, &device, shared] { accept(core, device, *shared); });
}

void Server::Impl::accept(PollCore& core, OpenDevice& device, fabric::ConnectRequest& request) {
  xprt::ConnectionOptions engine = {
      .role = xprt::Role::kResponder,
      .credits = options.credits,
      .send_size = options.inline_size,
      .receive_size = options.inline_size,
      .limits = {},
      .max_call = std::min(options.max_call, options.max_chunk_bytes),
      .max_reply = std::min(options.max_reply, options.max_chunk_bytes),
      .max_chunk_bytes = options.max_chunk_bytes};
  auto* link = new ServerLink(*this, contexts_[core.index()], core, device);
  {
    std::lock_guard lock(links_mutex_);
    links_.push_back(link);
  }
  Result<void> accepted = closing_.load(std::memory_order_relaxed)
                              ? fail(Errc::kShutdown, "the server is closing")
                              : check_room();
  if (accepted)
    accepted = link->accept(request, engine, runtime.memory, *link);
  if (accepted) {
    accepted_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  count_refusal(request.peer(), accepted.error().message);
  device.with([&](fabric::Device&) { request.reject({}); });
  if (link->state() == runtime::LinkState::kNew)
    remove(*link);  // else it is on its way to on_dead()
}

// The Receives of idle connections must leave buffers for the calls of busy ones. Cores that accept
// at the same time do not see each other's: the share is large enough for that.
Result<void> Server::Impl::check_room() const {
  PoolAudit pool = runtime.memory.audit_fitting(options.inline_size);
  uint32_t kept = pool.count / kShareKeptForCalls;
  if (pool.available >= uint64_t{options.credits} + kept)
    return {};
  return fail(Errc::kNoMemory,
              std::to_string(pool.available) + " of " + std::to_string(pool.count) +
                  " buffers of " + std::to_string(pool.buffer_size) +
                  " bytes are left; a connection takes " + std::to_string(options.credits) +
                  " and " + std::to_string(kept) +
                  " are kept for calls: enlarge that class in MemoryOptions::classes, or lower "
                  "ServerOptions::credits");
}

void Server::Impl::count_refusal(const std::string& peer, const std::string& reason) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  if (auto left_out = refusals_.allow(base::Tsc::now_ns()))
    base::log_warning("connection of %s refused: %s (%lu more since the last such line)",
                      peer.c_str(), reason.c_str(), *left_out);
}

void Server::Impl::remove(ServerLink& link) {
  PollCore& core = link.core();
  {
    std::lock_guard lock(links_mutex_);
    add(past_, link);
    std::erase(links_, &link);
  }
  delete &link;
  core.assigned().fetch_sub(1, std::memory_order_relaxed);
  connections_.fetch_sub(1, std::memory_order_release);  // last: the Impl may go now
}

void Server::Impl::add(Sums& sums, const ServerLink& link) {
  xprt::Counters counters = link.counters();
  xprt::Counters& s = sums.counters;
  sums.rejected += link.rejected();
  s.calls_received += counters.calls_received;
  s.replies_sent += counters.replies_sent;
  s.errors_sent += counters.errors_sent;
  s.bytes_read += counters.bytes_read;
  s.bytes_written += counters.bytes_written;
  s.refused_short += counters.refused_short;
  s.refused_version += counters.refused_version;
  s.refused_header += counters.refused_header;
  s.refused_xid += counters.refused_xid;
  s.refused_limits += counters.refused_limits;
  s.refused_binding += counters.refused_binding;
  s.refused_reply_room += counters.refused_reply_room;
  s.credit_overruns += counters.credit_overruns;
  s.waits_turn += counters.waits_turn;
  s.waits_chunk_bytes += counters.waits_chunk_bytes;
}

ServerStats Server::Impl::stats() const {
  Sums sums;
  {
    std::lock_guard lock(links_mutex_);
    sums = past_;
    for (const ServerLink* link : links_)
      add(sums, *link);
  }
  const xprt::Counters& c = sums.counters;
  return {.connections_accepted = accepted_.load(std::memory_order_relaxed),
          .connections_refused = refused_.load(std::memory_order_relaxed),
          .connections_ended = ended.load(std::memory_order_relaxed),
          .connections = connections_.load(std::memory_order_relaxed),
          .calls = c.calls_received,
          .replies = c.replies_sent,
          .rejected = sums.rejected,
          .transport_errors = c.errors_sent,
          .protocol_breaches = c.refused_short + c.refused_version + c.refused_header +
                               c.refused_xid + c.refused_limits + c.refused_binding +
                               c.refused_reply_room + c.credit_overruns,
          .bytes_read = c.bytes_read,
          .bytes_written = c.bytes_written,
          .turn_waits = c.waits_turn,
          .chunk_waits = c.waits_chunk_bytes};
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(Runtime& runtime, const ServerOptions& options) {
  if (auto checked = check(options, runtime.memory()); !checked)
    return tl::unexpected(checked.error());
  return std::unique_ptr<Server>(new Server(std::make_unique<Impl>(runtime.impl(), options)));
}

Result<void> Server::add_service(const Service& service) {
  return impl_->add_service(service);
}

Result<std::string> Server::listen(const std::string& uri) {
  return impl_->listen(uri);
}

void Server::stop_listening() {
  impl_->stop_listening();
}

ServerStats Server::stats() const {
  return impl_->stats();
}

}  // namespace rrdk

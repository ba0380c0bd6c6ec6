// Which connections are accepted, and how space is made for them.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/connection.h"
#include "mem/memory_impl.h"
#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk {

using proto::Rejection;
using runtime::OpenDevice;
using runtime::PollCore;
using runtime::SharedReceives;
using server::Client;
using server::first_credits;
using server::kShareKeptForCalls;
using server::Lack;
using server::Newcomer;
using server::receive_bytes;
using server::receives_of;
using server::ServerLink;
using server::SilentLinks;

namespace {

// At least this many connections that have ended may keep their memory, however few connections are
// allowed: each has some 3 KiB (its ServerLink and its core's sums), 12 MiB together. It is not
// less, since a peer that keeps a handler busy on one core can make that many connections come and
// go on another.
constexpr uint32_t kFewGone = 4096;
// A newcomer closes at most this many connections.
constexpr uint32_t kMostClosed = 8;
// If descriptors are lacking, one newcomer at a time closes a connection. Each tries again this
// often, at first after a millisecond and then after twice as long each time: a driver may close
// descriptors some time after the connection has ended.
constexpr uint32_t kMostTries = 7;
constexpr uint64_t kFirstTryNs = 1'000'000;
// A system error may have another cause, which no connection's end would remove. So after a
// connection was closed because of one, no other is closed for this time, unless a newcomer that
// had met the error is accepted.
constexpr uint64_t kTrialNs = 10'000'000'000;

// What a client is told if a connection could not be made: a full core, or a process without
// descriptors, is not reported as a lack of buffers.
Rejection rejection_for(Errc code) {
  switch (code) {
    case Errc::kShutdown:
      return Rejection::kClosing;
    case Errc::kLimit:
    case Errc::kSystem:
      return Rejection::kConnections;
    default:
      return Rejection::kBuffers;
  }
}

// Queue pairs are limited by core and device, descriptors by the process.
std::optional<Lack> lack_of(Errc code) {
  switch (code) {
    case Errc::kNoMemory:
      return Lack::kReceives;
    case Errc::kLimit:
      return Lack::kQueuePairs;
    case Errc::kSystem:
      return Lack::kConnections;
    default:
      return std::nullopt;
  }
}

// It may have made its first call since it was found silent.
bool makes_calls(ServerLink& link) {
  return link.has_called() || link.engine().has_parked();
}

}  // namespace

void Server::Impl::on_connect_request(OpenDevice& device,
                                      std::unique_ptr<fabric::ConnectRequest> request) {
  connections_.fetch_add(1, std::memory_order_relaxed);
  if (gone_links->load(std::memory_order_relaxed) >
      std::max(now_allowed.max_connections.load(std::memory_order_relaxed), kFewGone))
    return refuse_for_the_gone(*request);
  const uint32_t most = most_of_one_client(device);
  Client* const client = clients.enter(visitor_of(*request), most, base::Tsc::now_ns());
  if (client == nullptr)
    return refuse_for_client(*request, most);
  silent.expect(*client);
  seek_place({.device = &device, .request = std::move(request), .client = client});
}

server::Visitor Server::Impl::visitor_of(const fabric::ConnectRequest& request) const {
  const uint32_t prefix = options.replay.ipv4_prefix != 0 ? options.replay.ipv4_prefix : 32;
  return {.identity = request.identity(),
          .group = request.group(),
          .origin = request.origin(prefix),
          .has_ended = request.has_ended()};
}

void Server::Impl::seek_place(const Newcomer& newcomer) {
  const uint32_t most = now_allowed.max_connections;
  uint32_t present = present_.load(std::memory_order_relaxed);
  while (present < most) {
    if (present_.compare_exchange_weak(present, present + 1, std::memory_order_relaxed))
      return let_in(newcomer);
  }
  // A connection that leaves makes space for it, unless a lower limit has left too many.
  if (present > most || !make_room(newcomer))
    turn_away(newcomer, "there are as many as ServerOptions::max_connections allows, " +
                            std::to_string(most));
}

void Server::Impl::let_in(const Newcomer& newcomer) {
  PollCore& core = runtime.pick_core();
  core.assigned().fetch_add(1, std::memory_order_relaxed);
  core.post([this, &core, newcomer] {
    open(core, *newcomer.device, *newcomer.client, newcomer.request);
  });
}

engine::ConnectionOptions Server::Impl::engine_options() const {
  return {.role = engine::Role::kResponder,
          .credits = options.credits,
          .first_credits = first_credits(options),
          .backward_credits = options.backward_credits,
          .backward_chunks = options.version2.backward_chunks,
          .send_size = options.inline_size,
          .receive_size = options.inline_size,
          .max_receive_size = options.version2.max_receive_size,
          .properties = options.version2.properties,
          .limits = {.versions = proto::versions_of(options.versions)},
          .max_call = std::min(options.max_call, options.max_chunk_bytes),
          .max_reply = std::min(options.max_reply, options.max_chunk_bytes),
          .max_chunk_bytes = options.max_chunk_bytes,
          .lend_ns = uint64_t{options.backward_lend_ms} * 1'000'000,
          .rfc5666 = {.enabled = options.rfc5666.enabled,
                      .max_reads = options.rfc5666.max_reads,
                      .align = options.rfc5666.align,
                      .exposed_replies = options.rfc5666.exposed_replies,
                      .exposed_bytes = options.rfc5666.exposed_bytes,
                      .total_exposed_bytes = options.rfc5666.total_exposed_bytes,
                      .done_wait_ns = uint64_t{options.rfc5666.done_timeout_ms} * 1'000'000},
          .extensions = options.version2.extensions};
}

void Server::Impl::open(PollCore& core, OpenDevice& device, Client& client,
                        const Request& request) {
  auto* link = new ServerLink(*this, client, core, device, request->peer());
  links_.add(*link);  // before on_open, which may pass its id to other threads that close it
  if (Result<void> open = check_open(); !open)
    return refuse(*link, *request, Rejection::kClosing, open.error());
  if (Result<void> wanted = link->open(); !wanted)
    return refuse(
        *link, *request, Rejection::kNotAdmitted,
        {wanted.error().code, "ServerOptions::on_open does not want it: " + wanted.error().message},
        wanted.error().message);
  cores_[core.index()].timeout_scanner.add(*link);
  accept(*link, request);
}

void Server::Impl::accept(ServerLink& link, const Request& request) {
  std::optional<Lack> lack;
  if (Result<void> accepted = try_accept(link, *request, lack); !accepted) {
    if (!lack || !await_room(link, request, *lack))
      refuse(link, *request, rejection_for(accepted.error().code), accepted.error());
    return;
  }
  if (link.closed_for_it != 0 || link.tries != 0)
    end_trial();
  link.settled = true;
  silent.add(link, has_private_receives(link.device()));
  ++counters.connections_accepted;
  link.enable_backward_calls();
}

Result<void> Server::Impl::try_accept(ServerLink& link, fabric::ConnectRequest& request,
                                      std::optional<Lack>& lack) {
  if (Result<void> open = check_open(); !open)
    return open;
  if (Result<void> wanted = link.refused(); !wanted)
    return wanted;
  // What the core has of the device for all connections: a connection that ends may leave its
  // descriptors for that, but nothing else.
  Result<SharedReceives*> shared = equip(link.core(), link.device());
  if (!shared) {
    if (shared.error().code == Errc::kSystem)
      lack = Lack::kConnections;
    return tl::unexpected(shared.error());
  }
  if (Result<void> fits = check_room(*shared); !fits) {
    lack = Lack::kReceives;
    return fits;
  }
  link.reserve_replay_cache();
  Client& client = link.client();
  Result<void> accepted = link.accept(
      request,
      engine_options_.over(link.device(), engine::Speaks::kOne,
                           [this] { return engine_options(); }),
      {.borrower = client.group.borrower.get(), .most_granted = &client.replays.most_granted()},
      runtime.memory, link);
  if (!accepted && link.state() == runtime::LinkState::kNew)
    lack = lack_of(accepted.error().code);
  return accepted;
}

bool Server::Impl::await_room(ServerLink& link, const Request& request, Lack lack) {
  const bool descriptors = lack == Lack::kConnections;
  if (descriptors && !begin_trial())
    return try_later(link, request);
  if (link.closed_for_it != kMostClosed && make_room({.device = &link.device(),
                                                      .request = request,
                                                      .client = &link.client(),
                                                      .link = &link,
                                                      .lack = lack}))
    return true;
  if (descriptors)
    end_trial();
  return false;
}

bool Server::Impl::begin_trial() {
  const uint64_t now = base::Tsc::now_ns();
  uint64_t until = trial_until_ns_.load(std::memory_order_relaxed);
  return until < now &&
         trial_until_ns_.compare_exchange_strong(until, now + kTrialNs, std::memory_order_relaxed);
}

bool Server::Impl::try_later(ServerLink& link, const Request& request) {
  struct Timer : runtime::Timer {
    Timer(Impl& server_in, ServerLink& link_in, Request request_in)
        : server(server_in), link(link_in), request(std::move(request_in)) {}
    Impl& server;
    ServerLink& link;
    const Request request;
  };
  if (link.tries == kMostTries)
    return false;
  auto* timer = new Timer(*this, link, request);
  timer->fire = [](runtime::Timer& fired) {
    const std::unique_ptr<Timer> mine(&static_cast<Timer&>(fired));
    mine->server.accept(mine->link, mine->request);
  };
  link.core().start_timer(*timer, base::Tsc::now_ns() + (kFirstTryNs << link.tries++));
  return true;
}

bool Server::Impl::make_room(const Newcomer& newcomer) {
  const SilentLinks::Victim victim = silent.take(newcomer);
  if (victim.core == nullptr)
    return false;
  victim.core->post([this, id = victim.id, newcomer] { close_for(id, newcomer); });
  return true;
}

// By now the connection may have ended or be closing, and there is space; or it may have made its
// first call; or the newcomer's peer may have hung up.
void Server::Impl::close_for(uint64_t id, const Newcomer& newcomer) {
  ServerLink* link = links_.find(id);
  const bool leaves = link != nullptr && link->state() >= runtime::LinkState::kClosing;
  if (link == nullptr || (!leaves && makes_calls(*link)))
    return try_again(newcomer);
  if (!leaves && newcomer.request->has_hung_up()) {
    silent.add(*link, has_private_receives(link->device()));
    return drop(newcomer);
  }
  link->successor = newcomer;
  if (!leaves)
    close_silent(*link);
}

void Server::Impl::close_silent(ServerLink& link) {
  ++counters.closed_for_room;
  link.close(
      {EndedBy::kLimit, Errc::kShutdown, {}, "it never made a call, and another connection came"});
}

// The newcomer is not known yet, and will come by itself. If the connection has made a call
// meanwhile, the listener reports the shortage again.
void Server::Impl::on_shortage() {
  const SilentLinks::Victim victim = silent.take({});
  if (victim.core == nullptr)
    return;
  connections_.fetch_add(1, std::memory_order_relaxed);  // the Impl stays for the task
  victim.core->post([this, id = victim.id] {
    ServerLink* link = links_.find(id);
    if (link != nullptr && link->state() < runtime::LinkState::kClosing && !makes_calls(*link))
      close_silent(*link);
    connections_.fetch_sub(1, std::memory_order_release);  // last: the Impl may go now
  });
}

// Called if nothing was freed for it.
void Server::Impl::try_again(const Newcomer& newcomer) {
  if (newcomer.link == nullptr)
    return newcomer.device->with([&](fabric::Device&) { seek_place(newcomer); });
  if (newcomer.lack == Lack::kConnections)
    end_trial();
  go_on(newcomer);
}

// Called if nothing was freed for it, and nothing will be.
void Server::Impl::drop(const Newcomer& newcomer) {
  const char* const reason = "it has hung up while it waited for another connection to end";
  if (newcomer.link == nullptr)
    return newcomer.device->with([&](fabric::Device&) { turn_away(newcomer, reason); });
  if (newcomer.lack == Lack::kConnections)
    end_trial();
  newcomer.link->core().post([this, newcomer, reason] {
    refuse(*newcomer.link, *newcomer.request, Rejection::kConnections,
           {Errc::kConnectionLost, reason});
  });
}

// At once, before another newcomer takes what is free now.
void Server::Impl::follow(const PollCore& here, const Newcomer& newcomer) {
  if (newcomer.link == nullptr)
    return let_in(newcomer);
  ++newcomer.link->closed_for_it;
  newcomer.link->tries = 0;
  if (&newcomer.link->core() == &here)
    accept(*newcomer.link, newcomer.request);
  else
    go_on(newcomer);
}

void Server::Impl::go_on(const Newcomer& newcomer) {
  newcomer.link->core().post([this, newcomer] { accept(*newcomer.link, newcomer.request); });
}

bool Server::Impl::has_private_receives(const OpenDevice& device) const {
  return !runtime::shares_receives(device.capabilities(), first_credits(options));
}

uint32_t Server::Impl::receives_at_first(bool private_receives) const {
  if (private_receives)
    return receives_of(options);
  return first_credits(options) + (options.backward_credits != 0 ? 1 : 0);
}

// A client leaves as many to the others as it has.
uint32_t Server::Impl::most_of_one_client(const OpenDevice& device) const {
  if (const uint32_t set = now_allowed.max_connections_per_client; set != 0)
    return set;
  const PoolAudit pool = runtime.memory.audit_fitting(receive_bytes(options));
  const uint64_t buffers = uint64_t{pool.count} + pool.more;
  const uint64_t for_receives = buffers - buffers / kShareKeptForCalls;
  return static_cast<uint32_t>(std::clamp<uint64_t>(
      for_receives / receives_at_first(has_private_receives(device)) / 2, 1, UINT32_MAX));
}

Result<SharedReceives*> Server::Impl::equip(PollCore& core, OpenDevice& device) const {
  if (auto queue = core.completion_queue(device); !queue)
    return tl::unexpected(queue.error());
  if (has_private_receives(device))
    return nullptr;
  return core.shared_receives(device, receive_bytes(options), runtime.memory);
}

// The Receives of idle connections must leave buffers for the calls of busy ones. Cores that accept
// at the same time do not see each other's: the margin is large enough for that.
Result<void> Server::Impl::check_room(const SharedReceives* shared) const {
  const PoolAudit pool = runtime.memory.audit_fitting(receive_bytes(options));
  const uint32_t receives = receives_at_first(shared == nullptr);
  const uint64_t all = uint64_t{pool.count} + pool.more;
  const uint64_t left = uint64_t{pool.available} + pool.more;
  const uint64_t kept = all / kShareKeptForCalls;
  const bool has_room =
      shared != nullptr ? shared->queue.could_promise(receives) : left >= receives + kept;
  if (has_room)
    return {};
  return fail(Errc::kNoMemory,
              std::to_string(left) + " of " + std::to_string(all) + " buffers of " +
                  std::to_string(pool.buffer_size) + " bytes are left; a connection takes " +
                  std::to_string(receives) + " and " + std::to_string(kept) +
                  " are kept for calls: " + mem::remedy_for(pool) +
                  ", or lower ServerOptions::credits, first_credits or backward_credits");
}

// For a request that has no link.
void Server::Impl::turn_away(const Newcomer& newcomer, const std::string& reason) {
  silent.give_up(*newcomer.client);
  clients.leave(*newcomer.client, base::Tsc::now_ns());
  refuse(*newcomer.request, Rejection::kConnections, reason);
}

// Peers come and go, and a read section that does not end keeps the memory of each connection that
// ended.
void Server::Impl::refuse_for_the_gone(fabric::ConnectRequest& request) {
  refuse(request, Rejection::kConnections,
         "more connections have ended than ServerOptions::max_connections allows, and their memory "
         "cannot be freed: a handler on a poll core, or a read section of the program's own, does "
         "not come to its end");
}

void Server::Impl::refuse_for_client(fabric::ConnectRequest& request, uint32_t most) {
  ++counters.connections_refused_per_client;
  refuse(request, Rejection::kClient,
         "this client has as many as ServerOptions::max_connections_per_client allows, " +
             std::to_string(most));
}

// Before it has a link.
void Server::Impl::refuse(fabric::ConnectRequest& request, Rejection why,
                          const std::string& reason) {
  count_refusal(request.peer().to_string(), reason);
  request.reject(proto::encode(why));
  connections_.fetch_sub(1, std::memory_order_release);  // last: the Impl may go now
}

// If its acceptance had begun, it proceeds to on_dead().
void Server::Impl::refuse(ServerLink& link, fabric::ConnectRequest& request, Rejection why,
                          const Error& reason, std::string_view text) {
  count_refusal(link.peer_name(), reason.message);
  const std::vector<std::byte> told = proto::encode(why, text);
  link.device().with([&](fabric::Device&) { request.reject(told); });
  if (link.state() != runtime::LinkState::kNew)
    return;
  link.note_ending(fabric::ending_of(reason));
  link.tell_closed();
  remove(link);
}

void Server::Impl::count_refusal(const std::string& peer, const std::string& reason) {
  ++counters.connections_refused;
  if (auto left_out = refusals_.allow(base::Tsc::now_ns()))
    base::log_warning("connection of %s refused: %s%s", peer.c_str(), reason.c_str(),
                      base::and_more(*left_out).text);
}

}  // namespace rrdk

// Who is let in, and what makes room for it.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rcu.h"
#include "mem/memory_impl.h"
#include "server/server_impl.h"
#include "server/server_link.h"
#include "xprt/connection.h"

namespace rrdk {

using proto::Rejection;
using runtime::OpenDevice;
using runtime::PollCore;
using server::Client;
using server::first_credits;
using server::kShareKeptForCalls;
using server::Lack;
using server::receive_bytes;
using server::receives_of;
using server::ServerLink;

namespace {

// One look for connections that make room finds so many at most, and no more than one in eight of
// those that are silent: newcomers change the order.
constexpr size_t kMostVictims = 32;
constexpr size_t kSilentForEach = 8;
// And about so many where the next one is of an origin, or of a client, that has less than half of
// what the first one's has.
constexpr size_t kUnequalVictims = 8;
// A newcomer closes no more than so many.
constexpr uint32_t kMostWaits = 8;

// What a client is told of a connection that could not be made: a core that is full, or a process
// without descriptors, is not about buffers.
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

// Always the oldest connection of the origin with most silent ones, and within it of the client
// with most: so a flood makes room for itself, whatever addresses it comes from, and not at the
// cost of a client that is about to make its first call. When a connection goes, its origin and
// client have one less: that gives each connection a rank in its client, and in its origin, by
// which all can be sorted. Returns ids; the connection that goes first is at the end.
std::vector<uint64_t> most_dispensable(std::vector<ServerLink*> silent) {
  struct Ranked {
    ServerLink* link;
    uint32_t in_origin, in_client;
  };
  std::unordered_map<const void*, uint32_t> counts;
  std::vector<Ranked> ranked;
  ranked.reserve(silent.size());
  std::ranges::sort(silent, std::greater(), &ServerLink::id);
  for (ServerLink* link : silent)
    ranked.push_back({link, 0, ++counts[&link->client()]});
  std::ranges::sort(ranked, {},
                    [](const Ranked& one) { return std::tuple(one.in_client, ~one.link->id()); });
  for (Ranked& one : ranked)
    one.in_origin = ++counts[&one.link->origin()];
  const size_t most = std::min(kMostVictims, (ranked.size() + kSilentForEach - 1) / kSilentForEach);
  const auto end = ranked.begin() + static_cast<ptrdiff_t>(most);
  std::ranges::partial_sort(ranked, end, std::greater(), [](const Ranked& one) {
    return std::tuple(one.in_origin, one.in_client, ~one.link->id());
  });
  std::vector<uint64_t> ids;
  for (auto at = ranked.begin(); at != end; ++at) {
    const Ranked& first = ranked.front();
    const bool unequal =
        2 * at->in_origin < first.in_origin ||
        (&at->link->origin() == &first.link->origin() && 2 * at->in_client < first.in_client);
    if (unequal && ids.size() >= kUnequalVictims)
      break;
    ids.push_back(at->link->id());
  }
  std::ranges::reverse(ids);
  return ids;
}

}  // namespace

void Server::Impl::on_connect_request(OpenDevice& device,
                                      std::unique_ptr<fabric::ConnectRequest> request) {
  connections_.fetch_add(1, std::memory_order_relaxed);
  arrive(device, std::move(request));
}

void Server::Impl::arrive(OpenDevice& device, const Request& request) {
  const uint32_t most_connections = now_allowed.max_connections;
  const uint32_t most = most_of_one_client(device);
  const uint32_t prefix = options.replay.ipv4_prefix != 0 ? options.replay.ipv4_prefix : 32;
  const server::Visitor visitor = {.identity = request->identity(),
                                   .group = request->group(),
                                   .origin = request->origin(prefix),
                                   .has_ended = request->has_ended()};
  if (clients.has_all(visitor, most))  // no other makes room for it
    return refuse_for_client(*request, most);
  uint32_t present = present_.load(std::memory_order_relaxed);
  do {
    // One that leaves makes room for it, but not where a lower limit has left too many.
    if (present == most_connections)
      return await_place(device, request);
    if (present >= most_connections)
      return refuse_for_number(*request);
  } while (!present_.compare_exchange_weak(present, present + 1, std::memory_order_relaxed));
  Client* client = clients.enter(visitor, most, base::Tsc::now_ns());
  if (client == nullptr) {
    present_.fetch_sub(1, std::memory_order_relaxed);
    return refuse_for_client(*request, most);
  }
  PollCore& core = runtime.pick_core();
  core.assigned().fetch_add(1, std::memory_order_relaxed);
  core.post([this, &core, &device, client, request] { open(core, device, *client, request); });
}

xprt::ConnectionOptions Server::Impl::engine_options(Client& client) const {
  return {.role = xprt::Role::kResponder,
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
          .borrower = client.group.borrower.get(),
          .most_granted = &client.replays.most_granted(),
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
  auto* link =
      new ServerLink(*this, client, cores_[core.index()].contexts, core, device, request->peer());
  links_.add(*link);  // before on_open, which may pass its id on to whoever closes it
  if (Result<void> open = check_open(); !open)
    return refuse(*link, *request, Rejection::kClosing, open.error());
  if (Result<void> wanted = link->open(); !wanted)
    return refuse(
        *link, *request, Rejection::kNotAdmitted,
        {wanted.error().code, "ServerOptions::on_open does not want it: " + wanted.error().message},
        wanted.error().message);
  cores_[core.index()].sweeper.add(*link);
  accept(*link, request);
}

void Server::Impl::accept(ServerLink& link, const Request& request) {
  Result<void> accepted = check_open();
  if (accepted)
    accepted = link.refused();
  if (accepted)
    accepted = check_room(link.core(), link.device());
  if (accepted) {
    link.take_lane();
    accepted = link.accept(*request, engine_options(link.client()), runtime.memory, link);
  }
  if (!accepted) {
    if (!await_room(link, request, accepted.error().code))
      refuse(link, *request, rejection_for(accepted.error().code), accepted.error());
    return;
  }
  link.settled = true;
  add_silent(link);
  accepted_.fetch_add(1, std::memory_order_relaxed);
  link.open_way_back();
}

// Not within the device's events, whose lock others wait for. By then one may have left.
void Server::Impl::await_place(OpenDevice& device, const Request& request) {
  PollCore& core = first_core();
  core.post([this, &core, &device, request] {
    auto again = [this, &device, request] {
      device.with([&](fabric::Device&) { arrive(device, request); });
    };
    if (present_.load(std::memory_order_relaxed) < now_allowed.max_connections)
      return again();
    if (!make_room(core, Lack::kConnections, device, again))
      device.with([&](fabric::Device&) { refuse_for_number(*request); });
  });
}

// Each time a connection goes that never made a call; what that frees, another newcomer may take
// before this one, or it is not enough.
bool Server::Impl::await_room(ServerLink& link, const Request& request, Errc code) {
  const std::optional<Lack> lack = lack_of(code);
  if (!lack || link.state() != runtime::LinkState::kNew || link.waits_for_room == kMostWaits)
    return false;
  ++link.waits_for_room;
  return make_room(link.core(), *lack, link.device(), [this, &link, request] {
    link.core().post([=, this, &link] { accept(link, request); });
  });
}

void Server::Impl::add_silent(ServerLink& link) {
  Core& core = cores_[link.core().index()];
  std::lock_guard lock(core.silent_mutex);
  auto found = std::ranges::find(core.silent, &link.device(), &SilentLinks::device);
  if (found == core.silent.end())
    found = core.silent.insert(found, {.device = &link.device(), .links = {}});
  found->links.push_back(&link);
}

void Server::Impl::remove_silent(ServerLink& link) {
  Core& core = cores_[link.core().index()];
  std::lock_guard lock(core.silent_mutex);
  for (SilentLinks& silent : core.silent) {
    if (silent.device == &link.device())
      std::erase(silent.links, &link);
  }
}

// The lists whose connections are of use to a newcomer of this core and device: all of them if it
// lacks a place or descriptors; else those of the same core and device; and if it lacks buffers,
// also those with private Receives, whose buffers go back to the memory. Buffers of shared Receives
// stay with their core.
void Server::Impl::each_of_use(const PollCore& here, Lack lack, const OpenDevice& device,
                               const std::function<void(std::vector<ServerLink*>&)>& visitor) {
  const uint32_t credits = first_credits(options);
  auto is_private = [&](const OpenDevice& some) {
    return !runtime::shares_receives(some.capabilities(), credits);
  };
  for (size_t i = 0; i < cores_.size(); ++i) {
    std::lock_guard lock(cores_[i].silent_mutex);
    for (SilentLinks& silent : cores_[i].silent) {
      if (lack == Lack::kConnections || (i == here.index() && silent.device == &device) ||
          (lack == Lack::kReceives && is_private(*silent.device)))
        visitor(silent.links);
    }
  }
}

// Those that have called by now are left out of later looks, so that each costs no more than the
// connections that are silent.
std::vector<ServerLink*> Server::Impl::silent_links(const PollCore& here, Lack lack,
                                                    const OpenDevice& device) {
  using Links = std::vector<ServerLink*>;
  Links silent;
  each_of_use(here, lack, device,
              [&](Links& links) { silent.insert(silent.end(), links.begin(), links.end()); });
  bool some_called = false;
  std::erase_if(silent, [&](ServerLink* link) {
    if (!link->has_called())
      return link->chosen.load(std::memory_order_relaxed);
    link->called.store(true, std::memory_order_relaxed);
    return some_called = true;
  });
  if (some_called)
    each_of_use(here, lack, device, [](Links& links) {
      std::erase_if(links,
                    [](ServerLink* link) { return link->called.load(std::memory_order_relaxed); });
    });
  return silent;
}

// The next connection to make room. One look at all that are silent serves several newcomers: to go
// through thousands each time that a peer knocks would keep a core busy.
ServerLink* Server::Impl::take_victim(const PollCore& here, Lack lack, const OpenDevice& device) {
  std::vector<Victims>& all = cores_[here.index()].victims;
  auto victims = std::ranges::find_if(
      all, [&](const Victims& some) { return some.lack == lack && some.device == &device; });
  if (victims == all.end())
    victims = all.insert(victims, {.lack = lack, .device = &device, .accepted = 0, .ids = {}});
  auto take = [&]() -> ServerLink* {
    while (!victims->ids.empty()) {
      ServerLink* link = links_.find(victims->ids.back());
      victims->ids.pop_back();
      if (link != nullptr && !link->has_called() && !link->chosen.exchange(true))
        return link;
    }
    return nullptr;
  };
  const uint64_t accepted = accepted_.load(std::memory_order_relaxed);
  if (accepted - victims->accepted <= kMostVictims) {
    if (ServerLink* link = take(); link != nullptr)
      return link;
  }
  victims->accepted = accepted;
  victims->ids = most_dispensable(silent_links(here, lack, device));
  return take();
}

bool Server::Impl::make_room(const PollCore& here, Lack lack, const OpenDevice& device,
                             std::function<void()> again) {
  const base::ReadSection reading;
  ServerLink* victim = take_victim(here, lack, device);
  if (victim == nullptr)
    return false;
  victim->core().post([this, id = victim->id(), again = std::move(again)]() mutable {
    close_for_room(id, std::move(again));
  });
  return true;
}

// By now it may be gone, or on its way, and there is room; or its first call has come.
void Server::Impl::close_for_room(uint64_t id, std::function<void()> again) {
  ServerLink* link = links_.find(id);
  if (link == nullptr)
    return again();
  if (link->has_called()) {
    link->chosen = false;
    return again();
  }
  link->after = std::move(again);
  if (link->state() == runtime::LinkState::kClosing)
    return;
  closed_for_room_.fetch_add(1, std::memory_order_relaxed);
  link->close(Errc::kShutdown, "it never made a call, and another connection came");
}

uint32_t Server::Impl::receives_at_first(const OpenDevice& device) const {
  const uint32_t credits = first_credits(options);
  if (!runtime::shares_receives(device.capabilities(), credits))
    return receives_of(options);
  return credits + (options.backward_credits != 0 ? 1 : 0);
}

// A client leaves as many to the others as it has.
uint32_t Server::Impl::most_of_one_client(const OpenDevice& device) const {
  if (const uint32_t set = now_allowed.max_connections_per_client; set != 0)
    return set;
  const PoolAudit pool = runtime.memory.audit_fitting(receive_bytes(options));
  const uint64_t buffers = uint64_t{pool.count} + pool.more;
  const uint64_t for_receives = buffers - buffers / kShareKeptForCalls;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(for_receives / receives_at_first(device) / 2, 1, UINT32_MAX));
}

// The Receives of idle connections must leave buffers for the calls of busy ones. Cores that accept
// at the same time do not see each other's: the share is large enough for that.
Result<void> Server::Impl::check_room(PollCore& core, OpenDevice& device) const {
  const PoolAudit pool = runtime.memory.audit_fitting(receive_bytes(options));
  const uint32_t receives = receives_at_first(device);
  const uint64_t all = uint64_t{pool.count} + pool.more;
  const uint64_t left = uint64_t{pool.available} + pool.more;
  const uint64_t kept = all / kShareKeptForCalls;
  bool has_room = left >= receives + kept;
  if (runtime::shares_receives(device.capabilities(), first_credits(options))) {
    auto shared = core.shared_receives(device, receive_bytes(options), runtime.memory);
    if (!shared)
      return tl::unexpected(shared.error());
    has_room = (*shared)->queue.could_promise(receives);
  }
  if (has_room)
    return {};
  return fail(Errc::kNoMemory,
              std::to_string(left) + " of " + std::to_string(all) + " buffers of " +
                  std::to_string(pool.buffer_size) + " bytes are left; a connection takes " +
                  std::to_string(receives) + " and " + std::to_string(kept) +
                  " are kept for calls: " + mem::remedy_for(pool) +
                  ", or lower ServerOptions::credits, first_credits or backward_credits");
}

void Server::Impl::refuse_for_number(fabric::ConnectRequest& request) {
  refuse(request, Rejection::kConnections,
         "there are as many as ServerOptions::max_connections allows, " +
             std::to_string(now_allowed.max_connections));
}

void Server::Impl::refuse_for_client(fabric::ConnectRequest& request, uint32_t most) {
  refused_per_client_.fetch_add(1, std::memory_order_relaxed);
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

// It goes its way to on_dead() if it had begun to be accepted.
void Server::Impl::refuse(ServerLink& link, fabric::ConnectRequest& request, Rejection why,
                          const Error& reason, std::string_view text) {
  count_refusal(link.peer_name(), reason.message);
  const std::vector<std::byte> told = proto::encode(why, text);
  link.device().with([&](fabric::Device&) { request.reject(told); });
  if (link.state() != runtime::LinkState::kNew)
    return;
  link.tell_closed(reason);
  remove(link);
}

void Server::Impl::count_refusal(const std::string& peer, const std::string& reason) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  if (auto left_out = refusals_.allow(base::Tsc::now_ns()))
    base::log_warning("connection of %s refused: %s%s", peer.c_str(), reason.c_str(),
                      base::and_more(*left_out).text);
}

}  // namespace rrdk

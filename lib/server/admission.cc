// Who is let in, and what makes room for it.
#include <algorithm>
#include <functional>
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
using server::receive_bytes;
using server::receives_of;
using server::ServerLink;

namespace {

// After a search for room in vain, the next one waits for so many times as long as that one took.
constexpr uint64_t kSearchRest = 32;

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

}  // namespace

void Server::Impl::on_connect_request(OpenDevice& device,
                                      std::unique_ptr<fabric::ConnectRequest> request) {
  connections_.fetch_add(1, std::memory_order_relaxed);
  arrive(device, std::move(request));
}

void Server::Impl::arrive(OpenDevice& device, const Request& request) {
  uint32_t present = connections_.load(std::memory_order_relaxed) -
                     parked_.load(std::memory_order_relaxed);  // this one included
  const uint32_t most_connections = now_allowed.max_connections;
  if (present > most_connections) {
    // One that leaves makes room for it, but not where a lower limit has left too many.
    if (present == most_connections + 1 && make_room([this, &device, request] {
          device.with([&](fabric::Device&) { arrive(device, request); });
        }))
      return;
    return refuse(*request, Rejection::kConnections,
                  "there are as many as ServerOptions::max_connections allows, " +
                      std::to_string(most_connections));
  }
  const uint32_t most = most_of_one_client(device);
  const uint32_t prefix = options.replay.ipv4_prefix != 0 ? options.replay.ipv4_prefix : 32;
  Client* client = clients.enter({.identity = request->identity(),
                                  .group = request->group(),
                                  .origin = request->origin(prefix),
                                  .has_ended = request->has_ended()},
                                 most, base::Tsc::now_ns());
  if (client == nullptr) {
    refused_per_client_.fetch_add(1, std::memory_order_relaxed);
    return refuse(*request, Rejection::kClient,
                  "this client has as many as ServerOptions::max_connections_per_client allows, " +
                      std::to_string(most));
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
  if (accepted) {
    accepted = check_room(link.core(), link.device());
    if (!accepted && make_room([this, &link, request] {
          link.core().post([=, this, &link] { accept(link, request); });
        }))
      return;
  }
  link.settled = true;
  if (accepted) {
    link.take_lane();
    accepted = link.accept(*request, engine_options(link.client()), runtime.memory, link);
  }
  if (!accepted)
    return refuse(link, *request, rejection_for(accepted.error().code), accepted.error());
  accepted_.fetch_add(1, std::memory_order_relaxed);
  link.open_way_back();
}

// Of the connections that never made a call, the oldest of the origin that has most of them, and
// there of the client that has most: so a flood makes room for itself, whatever addresses it comes
// from, and not at the cost of whoever is about to make its first call.
ServerLink* Server::Impl::most_dispensable() const {
  std::vector<ServerLink*> silent;
  std::unordered_map<const server::Origin*, size_t> of_origin;
  std::unordered_map<const Client*, size_t> of_client;
  links_.for_each([&](ServerLink& link) {
    if (!link.settled || link.chosen || link.called)
      return;
    link.called = link.has_called();
    if (link.called)
      return;
    silent.push_back(&link);
    ++of_origin[&link.origin()];
    ++of_client[&link.client()];
  });
  const auto most = std::ranges::max_element(silent, {}, [&](ServerLink* link) {
    return std::tuple(of_origin[&link->origin()], of_client[&link->client()], ~link->id());
  });
  return most != silent.end() ? *most : nullptr;
}

bool Server::Impl::make_room(std::function<void()> again) {
  const base::ReadSection reading;
  ServerLink* silent = nullptr;
  {
    std::lock_guard lock(search_mutex_);
    const uint64_t began = base::Tsc::now_ns();
    if (began < next_search_ns_)
      return false;
    silent = most_dispensable();
    if (silent == nullptr) {
      const uint64_t now = base::Tsc::now_ns();
      next_search_ns_ = now + kSearchRest * (now - began);
      return false;
    }
    silent->chosen = true;
  }
  parked_.fetch_add(1, std::memory_order_relaxed);
  closed_for_room_.fetch_add(1, std::memory_order_relaxed);
  auto let_in = [this, again = std::move(again)] {
    parked_.fetch_sub(1, std::memory_order_relaxed);
    again();
  };
  // By then it may be gone, and there is room.
  silent->core().post([this, id = silent->id(), let_in = std::move(let_in)] {
    ServerLink* link = links_.find(id);
    if (link == nullptr)
      return let_in();
    link->after = let_in;
    link->close(Errc::kShutdown, "it never made a call, and another connection came");
  });
  return true;
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

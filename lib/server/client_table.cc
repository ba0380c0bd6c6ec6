#include "server/client_table.h"

#include <algorithm>

#include "base/clock.h"
#include "base/random.h"

namespace rrdk::server {

namespace {

base::SipKey new_key() {
  base::Random random;
  auto word = [&] { return uint64_t{random.next()} << 32 | random.next(); };
  return {word(), word()};
}

}  // namespace

ClientTable::ClientTable(const ReplayOptions& options, const ReplayBounds& bounds, Memory& memory,
                         size_t cores)
    : options_(options),
      exposed_(bounds.exposed),
      memory_(memory),
      cores_(cores),
      keys_{new_key(), {new_key(), new_key()}},
      room_(bounds.bytes, &memory, bounds.reserve),
      groups_(0, Hash{new_key()}),
      origins_(0, Hash{new_key()}),
      clients_(0, Hash{new_key()}) {}

ClientTable::~ClientTable() {
  uint32_t all = UINT32_MAX;
  free_forgotten(all);
}

// An unknown peer is a new client each time.
Client* ClientTable::enter(const Visitor& visitor, uint32_t most, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  forget(now_ns);
  const bool known = visitor.identity.known();
  Visitor named = visitor;
  if (!known)  // no driver's identity begins with a zero
    named.identity = named.group = named.origin = {{0, ++strangers_, 0}};
  std::unique_ptr<ClientGroup>& group = groups_[named.group];
  if (group == nullptr)
    group = std::make_unique<ClientGroup>(named.group, room_, memory_, cores_);
  if (group->connections >= most)
    return nullptr;
  std::unique_ptr<Client>& client = clients_[named.identity];
  if (client == nullptr) {
    std::unique_ptr<Origin>& origin = origins_[named.origin];
    if (origin == nullptr)
      origin = std::make_unique<Origin>(named.origin);
    client = std::make_unique<Client>(named, *group, *origin, options_, exposed_, counters_);
    client->known = known;
    ++group->clients;
    ++origin->clients;
  } else if (client->connections == 0) {
    come_back(*client);
  }
  client->replays.count_connections(++client->connections);
  ++group->connections;
  return client.get();
}

// A client that only has failures to remember takes a place that is free.
void ClientTable::leave(Client& client, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  --client.group.connections;
  client.replays.count_connections(--client.connections);
  if (client.connections != 0)
    return;
  client.left_ns = now_ns;
  away_.push(client);
  client.origin.away.push(client);
  const bool nothing = !client.known || client.replays.empty();
  if (!nothing && !client.has_place && has_place_for(client.origin))
    occupy(client);
  if (nothing || !client.has_place)
    erase(client);
}

ClientTable::Place ClientTable::take_place(Client& client, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  if (client.has_place)
    return {};
  if (!client.known)
    return {.lacks =
                "the fabric cannot identify it, so it would not be recognised when it "
                "comes back"};
  forget(now_ns);
  if (!has_place_for(client.origin))
    forget_ended();
  Place place;
  if (!has_place_for(client.origin)) {
    Client* const oldest = longest_away(client.origin, now_ns);
    if (oldest == nullptr)
      return {.lacks =
                  "there are too many clients that may come back: enlarge "
                  "ReplayOptions::clients"};
    erase(*oldest);
    ++counters_.replay_made_way;
    place.made_way = true;
  }
  occupy(client);
  return place;
}

void ClientTable::occupy(Client& client) noexcept {
  client.has_place = true;
  ++client.origin.places;
  taken_.fetch_add(1, std::memory_order_relaxed);
}

bool ClientTable::has_place_for(const Origin& origin) const noexcept {
  const uint32_t taken = places_taken();
  const uint32_t for_anybody = options_.clients - options_.clients / 2;
  return taken < for_anybody || (taken < options_.clients && !exceeds_share(origin));
}

// With one more.
bool ClientTable::exceeds_share(const Origin& origin) const noexcept {
  return origin.places >= std::max(1u, options_.clients / kOriginShare);
}

// Forgets some at once. After a search in vain, the next one waits this many times as long as the
// search took.
void ClientTable::forget_ended() {
  constexpr uint32_t kLooks = 64;
  constexpr uint64_t kRest = 32;
  const uint64_t began = base::Tsc::now_ns();
  if (began < next_look_ns_)
    return;
  bool found = false;
  const Client* const first = next_looked_at_ != nullptr ? next_looked_at_ : away_.front();
  for (uint32_t i = 0; i < kLooks && !away_.empty(); ++i) {
    Client& client = next_looked_at_ != nullptr ? *next_looked_at_ : *away_.front();
    if (i != 0 && &client == first)
      break;
    next_looked_at_ = client.away.next;
    if (client.has_ended == nullptr || !client.has_ended(client.identity))
      continue;
    found = true;
    erase(client);
  }
  const uint64_t now = base::Tsc::now_ns();
  next_look_ns_ = found ? 0 : now + kRest * (now - began);
}

// Returns the client that makes way for a newcomer; null if every client that is away may still
// repeat a call.
Client* ClientTable::longest_away(const Origin& newcomer, uint64_t now_ns) const noexcept {
  constexpr uint32_t kLooks = 64;
  const uint32_t window_ms = options_.min_window_ms != 0 ? options_.min_window_ms : UINT32_MAX;
  auto is_over = [&](const Client* client) {
    return client != nullptr && client->left_ns + uint64_t{window_ms} * 1'000'000 < now_ns;
  };
  if (exceeds_share(newcomer))
    return is_over(newcomer.away.front()) ? newcomer.away.front() : nullptr;
  Client* client = away_.front();
  for (uint32_t i = 0; i < kLooks && is_over(client); ++i, client = client->away.next) {
    if (exceeds_share(client->origin))
      return client;
  }
  return is_over(away_.front()) ? away_.front() : nullptr;
}

// Forgets those that were away for the time window, a part each time.
void ClientTable::forget(uint64_t now_ns) {
  constexpr uint32_t kMost = 256;  // calls and clients
  uint64_t window_ns = uint64_t{options_.window_ms} * 1'000'000;
  uint32_t calls = kMost;
  free_forgotten(calls);
  for (uint32_t clients = 0;
       clients < kMost && !away_.empty() && away_.front()->left_ns + window_ns < now_ns;
       ++clients) {
    if (!away_.front()->replays.tidy(now_ns, calls))
      return;
    erase(*away_.front());
  }
}

void ClientTable::tidy(uint64_t now_ns) {
  std::lock_guard lock(lock_);
  forget(now_ns);
}

// Called when it has connections again, or is forgotten.
void ClientTable::come_back(Client& client) noexcept {
  if (next_looked_at_ == &client)
    next_looked_at_ = client.away.next;
  away_.remove(client);
  client.origin.away.remove(client);
}

// It must have no connections. Its place becomes free; what it remembered is freed part by part.
void ClientTable::erase(Client& client) {
  constexpr uint32_t kAtOnce = 16;  // calls
  come_back(client);
  if (client.has_place) {
    --client.origin.places;
    taken_.fetch_sub(1, std::memory_order_relaxed);
  }
  auto found = clients_.find(client.identity);
  forgotten_.push(*found->second.release());
  clients_.erase(found);
  uint32_t calls = kAtOnce;
  free_forgotten(calls);
}

void ClientTable::free_forgotten(uint32_t& calls) {
  while (!forgotten_.empty() && forgotten_.front()->replays.clear(calls)) {
    Client& client = forgotten_.pop();
    Origin& origin = client.origin;
    ClientGroup& group = client.group;
    delete &client;
    if (--origin.clients == 0)
      origins_.erase(fabric::Identity(origin.identity));
    if (--group.clients == 0)
      groups_.erase(fabric::Identity(group.identity));
  }
}

}  // namespace rrdk::server

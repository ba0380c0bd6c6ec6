#include "server/client_table.h"

#include <algorithm>

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
      clients_(0, Hash{new_key()}) {}

// Who is not known is another one each time.
Client* ClientTable::enter(const fabric::Identity& identity, const fabric::Identity& group_identity,
                           uint32_t most, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  forget(now_ns);
  const bool known = identity.known();
  // No driver's begins with a zero.
  const fabric::Identity name = known ? identity : fabric::Identity{{0, ++strangers_, 0}};
  const fabric::Identity& group_name = known ? group_identity : name;
  std::unique_ptr<ClientGroup>& group = groups_[group_name];
  if (group == nullptr)
    group = std::make_unique<ClientGroup>(group_name, room_, memory_, cores_);
  if (group->connections >= most)
    return nullptr;
  std::unique_ptr<Client>& client = clients_[name];
  if (client == nullptr) {
    client = std::make_unique<Client>(name, *group, options_, exposed_, counters_);
    client->known = known;
    ++group->clients;
  } else if (client->connections == 0) {
    away_.erase(client->away);
  }
  client->replays.count_connections(++client->connections);
  ++group->connections;
  return client.get();
}

void ClientTable::leave(Client& client, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  --client.group.connections;
  client.replays.count_connections(--client.connections);
  if (client.connections != 0)
    return;
  client.left_ns = now_ns;
  client.away = away_.insert(away_.end(), &client);
  if (!client.known || client.replays.empty() || remember(client, now_ns) != nullptr)
    erase(client);
}

ClientTable::Lane ClientTable::lane_for(Client& client, uint64_t now_ns, bool late) {
  if (!keeps_replies())
    return {};
  {
    std::lock_guard lock(lock_);
    if (const char* lacks = remember(client, now_ns))
      return {.lane = nullptr, .lacks = lacks};
  }
  ReplayLane* lane = client.replays.enter(now_ns, late);
  return {.lane = lane, .lacks = lane != nullptr ? nullptr : kNoReplayRoom};
}

// Null: it is one of those that are; else why not.
const char* ClientTable::remember(Client& client, uint64_t now_ns) {
  if (client.remembered)
    return nullptr;
  if (!client.known)
    return "the fabric can not tell who it is, so that it could not be recognised when it comes "
           "back";
  forget(now_ns);
  uint32_t share = options_.clients / kGroupShare;
  bool alone = client.group.clients == 1;
  if (remembered_ >= options_.clients || (!alone && client.group.remembered >= share))
    return "there are too many clients that may come back: enlarge ReplayOptions::clients";
  client.remembered = true;
  ++remembered_;
  ++client.group.remembered;
  return nullptr;
}

// Those that were away for the time window, a part each time.
void ClientTable::forget(uint64_t now_ns) {
  constexpr uint32_t kMost = 256;  // calls, and clients
  uint64_t window_ns = uint64_t{options_.window_ms} * 1'000'000;
  uint32_t calls = kMost;
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

// It has no connections.
void ClientTable::erase(Client& client) {
  ClientGroup& group = client.group;
  away_.erase(client.away);
  remembered_ -= client.remembered;
  group.remembered -= client.remembered;
  --group.clients;
  clients_.erase(fabric::Identity(client.identity));
  if (group.clients == 0)
    groups_.erase(fabric::Identity(group.identity));
}

}  // namespace rrdk::server

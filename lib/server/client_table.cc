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

ReplayOptions without_replies(ReplayOptions options) {
  options.entries = 0;
  return options;
}

}  // namespace

ClientTable::ClientTable(const ReplayOptions& options, uint32_t most_connections, Memory& memory)
    : options_(options), most_connections_(most_connections), memory_(memory), key_(new_key()) {}

// Who is not known is another one each time.
Client* ClientTable::find(const fabric::Identity& identity) noexcept {
  if (!identity.known())
    return nullptr;
  auto found = std::ranges::find_if(clients_, [&](const std::unique_ptr<Client>& client) {
    return client->identity == identity;
  });
  return found == clients_.end() ? nullptr : found->get();
}

Client* ClientTable::enter(const fabric::Identity& identity, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  Client* client = find(identity);
  if (client == nullptr) {
    bool keeps = room_for_another(now_ns) && keep_replies_ && identity.known();
    clients_.push_back(std::make_unique<Client>(
        identity, keeps ? options_ : without_replies(options_), counters_, memory_));
    client = clients_.back().get();
  }
  if (most_connections_ != 0 && client->connections >= most_connections_)
    return nullptr;
  ++client->connections;
  return client;
}

// Of a client without connections its cache stays, for when it comes back.
void ClientTable::leave(Client& client, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  client.left_ns = now_ns;
  if (--client.connections == 0 && (!client.identity.known() || client.replays.empty()))
    erase(client);
}

// Forgets clients that were away for the time window, and if there are still too many the one that
// was away longest.
bool ClientTable::room_for_another(uint64_t now_ns) {
  uint64_t window_ns = uint64_t{options_.window_ms} * 1'000'000;
  std::erase_if(clients_, [&](const std::unique_ptr<Client>& client) {
    return client->connections == 0 && client->left_ns + window_ns < now_ns;
  });
  if (clients_.size() < options_.clients)
    return true;
  Client* longest = nullptr;
  for (const std::unique_ptr<Client>& client : clients_) {
    if (client->connections == 0 && (longest == nullptr || client->left_ns < longest->left_ns))
      longest = client.get();
  }
  if (longest != nullptr)
    erase(*longest);
  return clients_.size() < options_.clients;
}

void ClientTable::erase(const Client& client) {
  std::erase_if(clients_,
                [&](const std::unique_ptr<Client>& each) { return each.get() == &client; });
}

}  // namespace rrdk::server

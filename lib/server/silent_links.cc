#include "server/silent_links.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "server/client_table.h"
#include "server/server_link.h"

namespace rrdk::server {

namespace {

// If there are more connections than this, this many are considered, taken at random: going through
// thousands for each connection request would keep a core busy. One look in a thousand misses a
// flood that makes up a tenth of all connections.
constexpr size_t kMostSeen = 64;

void count(Client& client) {
  ++client.silent;
  ++client.origin.silent;
}

void uncount(Client& client) {
  --client.silent;
  --client.origin.silent;
}

// Without the newcomer itself, if its client is known.
uint32_t others_of(const Client& client, const Client* newcomer) {
  return client.silent - (&client == newcomer ? 1 : 0);
}

uint32_t others_of(const Origin& origin, const Client* newcomer) {
  return origin.silent - (newcomer != nullptr && &origin == &newcomer->origin ? 1 : 0);
}

}  // namespace

SilentLinks::Links& SilentLinks::of(const runtime::PollCore* core,
                                    const runtime::OpenDevice* device) {
  for (OfCoreAndDevice& known : of_core_and_device_) {
    if (known.core == core && known.device == device)
      return known.links;
  }
  return of_core_and_device_.emplace_back(OfCoreAndDevice{core, device, {}}).links;
}

template <typename Use>
void SilentLinks::for_each_group(ServerLink& link, Use&& use) {
  use(kAll, all_);
  if (link.silent.private_receives)
    use(kPrivateReceives, private_receives_);
  use(kOfCoreAndDevice, of(&link.core(), &link.device()));
}

void SilentLinks::expect(Client& client) {
  std::lock_guard lock(mutex_);
  count(client);
}

void SilentLinks::give_up(Client& client) {
  std::lock_guard lock(mutex_);
  uncount(client);
}

void SilentLinks::add(ServerLink& link, bool private_receives) {
  std::lock_guard lock(mutex_);
  if (link.silent.state == State::kOut)
    count(link.client());
  link.silent = {.state = State::kIn, .private_receives = private_receives, .at = {}};
  for_each_group(link, [&](Group group, Links& links) {
    link.silent.at[group] = links.size();
    links.push_back(&link);
  });
}

void SilentLinks::remove(ServerLink& link) {
  std::lock_guard lock(mutex_);
  leave(link);
}

void SilentLinks::leave(ServerLink& link) {
  const State before = std::exchange(link.silent.state, State::kOut);
  if (before == State::kOut)
    return;
  uncount(link.client());
  if (before == State::kComing)
    return;
  for_each_group(link, [&](Group group, Links& links) {
    const size_t at = link.silent.at[group];
    links[at] = links.back();
    links[at]->silent.at[group] = at;
    links.pop_back();
  });
}

// Adds some of `links` to those seen: they change places with the first ones.
void SilentLinks::look(Group group, Links& links) {
  const size_t most = std::min(kMostSeen, links.size());
  for (size_t i = 0; i < most; ++i) {
    const size_t other = links.size() > kMostSeen ? i + random_.next() % (links.size() - i) : i;
    std::swap(links[i], links[other]);
    std::swap(links[i]->silent.at[group], links[other]->silent.at[group]);
    seen_.push_back(links[i]);
  }
}

// Returns, from those seen, the oldest connection of the origin with most silent connections, and
// within the origin of the client with most. So a flood makes way for itself, whatever addresses it
// comes from, and not at the cost of a client that is about to make its first call. Connections
// that have made a call are removed for good.
ServerLink* SilentLinks::most_dispensable(const Client* newcomer) {
  auto rank = [&](const ServerLink& link) {
    const Client& client = link.client();
    return std::tuple(others_of(client.origin, newcomer), others_of(client, newcomer), ~link.id());
  };
  std::erase_if(seen_, [&](ServerLink* link) {
    const bool has_called = link->has_called();
    if (has_called)
      leave(*link);
    return has_called;
  });
  auto first =
      std::ranges::max_element(seen_, {}, [&](const ServerLink* link) { return rank(*link); });
  return first != seen_.end() ? *first : nullptr;
}

// Takes none of an origin that has fewer than the newcomer's: a flood makes way for itself, or is
// refused.
SilentLinks::Victim SilentLinks::take(const Newcomer& newcomer) {
  const Client* const client = newcomer.client;
  std::lock_guard lock(mutex_);
  for (;;) {
    seen_.clear();
    if (newcomer.lack == Lack::kConnections)
      look(kAll, all_);
    else
      look(kOfCoreAndDevice, of(&newcomer.link->core(), newcomer.device));
    if (newcomer.lack == Lack::kReceives)
      look(kPrivateReceives, private_receives_);
    if (seen_.empty())
      return {};
    ServerLink* const link = most_dispensable(client);
    if (link == nullptr)
      continue;
    if (client != nullptr &&
        others_of(client->origin, client) > others_of(link->client().origin, client))
      return {};
    leave(*link);
    return {.id = link->id(), .core = &link->core()};
  }
}

}  // namespace rrdk::server

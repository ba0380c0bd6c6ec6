#include "server/silent_links.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "server/client_table.h"
#include "server/server_link.h"

namespace rrdk::server {

namespace {

// Of more connections than this, so many are looked at, taken at random: to go through thousands
// each time that a peer knocks would keep a core busy. A flood that is a tenth of all is missed by
// one look in a thousand.
constexpr size_t kMostSeen = 64;

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

void SilentLinks::add(ServerLink& link, bool private_receives) {
  std::lock_guard lock(mutex_);
  link.silent = {.taken = true, .private_receives = private_receives, .at = {}};
  for_each_group(link, [&](Group group, Links& links) {
    link.silent.at[group] = links.size();
    links.push_back(&link);
  });
  ++link.client().silent;
  ++link.client().origin.silent;
}

void SilentLinks::remove(ServerLink& link) {
  std::lock_guard lock(mutex_);
  leave(link);
}

void SilentLinks::leave(ServerLink& link) {
  if (!std::exchange(link.silent.taken, false))
    return;
  for_each_group(link, [&](Group group, Links& links) {
    const size_t at = link.silent.at[group];
    links[at] = links.back();
    links[at]->silent.at[group] = at;
    links.pop_back();
  });
  --link.client().silent;
  --link.client().origin.silent;
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

// Of those seen: the oldest one of the origin with most silent connections, and within it of the
// client with most. So a flood makes way for itself, whatever addresses it comes from, and not at
// the cost of a client that is about to make its first call. Those that have called leave for good.
ServerLink* SilentLinks::most_dispensable() {
  auto rank = [](ServerLink& link) {
    return std::tuple(link.client().origin.silent, link.client().silent, ~link.id());
  };
  ServerLink* first = nullptr;
  for (ServerLink* link : seen_) {
    if (link->has_called())
      leave(*link);
    else if (first == nullptr || rank(*link) > rank(*first))
      first = link;
  }
  return first;
}

SilentLinks::Victim SilentLinks::take(Lack lack, const runtime::PollCore* core,
                                      const runtime::OpenDevice* device) {
  std::lock_guard lock(mutex_);
  for (;;) {
    seen_.clear();
    if (lack == Lack::kConnections)
      look(kAll, all_);
    else
      look(kOfCoreAndDevice, of(core, device));
    if (lack == Lack::kReceives)
      look(kPrivateReceives, private_receives_);
    if (seen_.empty())
      return {};
    if (ServerLink* link = most_dispensable(); link != nullptr) {
      leave(*link);
      return {.id = link->id(), .core = &link->core()};
    }
  }
}

}  // namespace rrdk::server

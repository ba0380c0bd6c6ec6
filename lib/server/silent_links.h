// The connections of a server that have not made a call yet, as far as is known, and the choice of
// the one that is closed for a newcomer. Each client also counts with the connections that it is
// about to have, so a burst of requests takes no more from others than requests that come one by
// one. Cores add and remove connections when they come and go; a first call costs nothing here, and
// is noticed later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

#include "base/random.h"

namespace rrdk::runtime {
class OpenDevice;
class PollCore;
}  // namespace rrdk::runtime

namespace rrdk::server {

struct Client;
struct Newcomer;
class ServerLink;

// What a newcomer lacks: the end of any connection; buffers for its Receives; or one of the queue
// pairs that its core may have of its device.
enum class Lack : uint8_t { kConnections, kReceives, kQueuePairs };

// Any thread.
class SilentLinks {
 public:
  // The connections among which one is chosen. Receives that connections share stay with their core
  // and device; those of a connection's own go back to the memory, and can be used anywhere.
  enum Group : uint8_t { kAll, kPrivateReceives, kOfCoreAndDevice };
  static constexpr size_t kGroups = 3;

  // kComing: it counts, and is in no group. kOut: neither.
  enum class State : uint8_t { kComing, kIn, kOut };
  // A connection's positions in its groups.
  struct Place {
    State state = State::kComing;
    bool private_receives = false;
    std::array<size_t, kGroups> at = {};
  };

  struct Victim {
    uint64_t id = 0;  // 0: no connection
    runtime::PollCore* core = nullptr;
  };

  // Expects a newcomer of that client: eventually its link is removed, or it is given up before it
  // has one.
  void expect(Client& client);
  void give_up(Client& client);
  // Called when it has come, or when it was taken out and is not closed after all.
  void add(ServerLink& link, bool private_receives);
  // Called when it ends, or has been seen to have made a call. Does nothing if it is not here.
  void remove(ServerLink& link);
  // Takes out the connection that is to be closed for the newcomer.
  Victim take(const Newcomer& newcomer);

 private:
  using Links = std::vector<ServerLink*>;
  struct OfCoreAndDevice {
    const runtime::PollCore* core;
    const runtime::OpenDevice* device;
    Links links;
  };

  Links& of(const runtime::PollCore* core, const runtime::OpenDevice* device);
  template <typename Use>
  void for_each_group(ServerLink& link, Use&& use);
  void leave(ServerLink& link);
  void look(Group group, Links& links);
  ServerLink* most_dispensable(const Client* newcomer);

  std::mutex mutex_;
  Links all_;
  Links private_receives_;
  std::list<OfCoreAndDevice> of_core_and_device_;
  Links seen_;  // in the current look at some links
  base::Random random_;
};

}  // namespace rrdk::server

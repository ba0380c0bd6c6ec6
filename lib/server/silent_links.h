// The connections of a server that have made no call yet, as far as it is known, and which of them
// goes for a newcomer. Cores add and remove them when connections come and go; a first call costs
// nothing here, and is seen later.
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

class ServerLink;

// What a newcomer lacks: a connection that goes, of whatever kind; buffers for its Receives; or one
// of the queue pairs that its core may have of its device.
enum class Lack : uint8_t { kConnections, kReceives, kQueuePairs };

// Any thread.
class SilentLinks {
 public:
  // Of which connections one is chosen. Receives that connections share stay with their core and
  // device; those of a connection's own go back to the memory, and are of use anywhere.
  enum Group : uint8_t { kAll, kPrivateReceives, kOfCoreAndDevice };
  static constexpr size_t kGroups = 3;

  // A connection's places in its groups.
  struct Place {
    bool taken = false;
    bool private_receives = false;
    std::array<size_t, kGroups> at = {};
  };

  struct Victim {
    uint64_t id = 0;  // 0: there is none
    runtime::PollCore* core = nullptr;
  };

  void add(ServerLink& link, bool private_receives);
  // It goes, or has been seen to have called. Nothing happens if it is not here any more.
  void remove(ServerLink& link);
  // Takes out the connection that is to go for a newcomer of that core and device.
  Victim take(Lack lack, const runtime::PollCore* core, const runtime::OpenDevice* device);

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
  ServerLink* most_dispensable();

  std::mutex mutex_;
  Links all_;
  Links private_receives_;
  std::list<OfCoreAndDevice> of_core_and_device_;
  Links seen_;  // in the look at some that goes on
  base::Random random_;
};

}  // namespace rrdk::server

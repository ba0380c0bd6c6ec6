#include "client/version_memory.h"

#include <utility>

namespace rrdk::client {

bool VersionMemory::knows_only_one(const std::string& uri, uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  if (until_ns_.size() >= kMost)
    std::erase_if(until_ns_, [now_ns](const auto& entry) { return entry.second <= now_ns; });
  if (until_ns_.size() >= kMost && !until_ns_.contains(uri))
    return true;
  uint64_t before = std::exchange(until_ns_[uri], now_ns + lifetime_ns_);
  return before <= now_ns;
}

bool VersionMemory::is_known(const std::string& uri, uint64_t now_ns) const {
  std::lock_guard lock(mutex_);
  auto found = until_ns_.find(uri);
  return found != until_ns_.end() && now_ns < found->second;
}

}  // namespace rrdk::client

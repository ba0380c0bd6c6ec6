// Which servers do not know version 2, for a time: they may be upgraded, and asking them again at
// every connection could go on for ever (draft-04 section 7.2).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rrdk::client {

// Any thread.
class VersionMemory {
 public:
  explicit VersionMemory(uint32_t seconds) noexcept : lifetime_ns_(seconds * 1'000'000'000ull) {}

  // True: that is news.
  bool knows_only_one(const std::string& uri, uint64_t now_ns);
  bool is_known(const std::string& uri, uint64_t now_ns) const;

 private:
  // Addresses are the application's own; this is for one that makes them up.
  static constexpr size_t kMost = 4096;

  const uint64_t lifetime_ns_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, uint64_t> until_ns_;
};

}  // namespace rrdk::client

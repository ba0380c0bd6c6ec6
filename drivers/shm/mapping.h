// Memory shared between processes: sealed memfds and their mappings.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/fd.h"
#include "rrdk/error.h"

namespace rrdk::shm {

using base::Fd;

// Owns a mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* base, size_t length) noexcept : base_(base), length_(length) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), length_(std::exchange(other.length_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(length_, other.length_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* base() const noexcept { return base_; }
  size_t length() const noexcept { return length_; }

 private:
  std::byte* base_ = nullptr;
  size_t length_ = 0;
};

struct SharedMemory {
  Fd fd;
  Mapping mapping;
};

// A fresh, zeroed, sealed memfd that is mapped here and can be passed to a peer.
Result<SharedMemory> create_shared(const char* name, size_t bytes);

// Maps [offset, offset + length) of a descriptor that a peer sent. Refuses one that could shrink
// later (no F_SEAL_SHRINK) or is smaller than that: touching it would be a SIGBUS.
Result<Mapping> map_peer(int fd, uint64_t offset, size_t length);

// Mappings of peers' regions, shared by all connections to the same peer: it is the same file. All
// peers together get a part of our address space, and of the mappings that a process may have.
// Outlives what it gives out.
class MappingCache {
 public:
  static constexpr size_t kMaxMappings = 16384;
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 44;

  // Errors: kNotAPeer, kLimit, kSystem.
  Result<std::shared_ptr<Mapping>> map(int fd, uint64_t offset, size_t length);

 private:
  using Key = std::tuple<dev_t, ino_t, uint64_t, size_t>;
  void forget(const Key& key);

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<Mapping>> mappings_;
  uint64_t bytes_ = 0;
};

}  // namespace rrdk::shm

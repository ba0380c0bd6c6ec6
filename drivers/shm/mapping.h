// Memory shared between processes: sealed memfds and their mappings.
//
// The memory that a peer shows us for reading is sealed so that it stays as it is: its size
// (F_SEAL_SHRINK and F_SEAL_GROW), and its pages, since no process that holds a descriptor can
// punch holes into it (F_SEAL_FUTURE_WRITE; mmap() and fallocate() refuse). Since all the memory
// that we are told to use exists, no access can cause a SIGBUS.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/system.h"
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

// Which processes may write to a file that two processes map.
enum class Writers {
  kOwner,  // the process that made it; all others read
  kBoth,   // only for the doorbell page
};

struct SharedMemory {
  Fd fd;
  Mapping mapping;
};

// A fresh, zeroed, sealed memfd that is mapped here and can be passed to a peer.
Result<SharedMemory> create_shared(const char* name, size_t bytes, Writers writers);

// A file that a peer sent and that may be mapped.
struct PeerFile {
  dev_t device;
  ino_t inode;
  uint64_t bytes;
  uint64_t used;  // this many bytes, from its beginning, exist and will be accessed
  bool hugepages;
  uint64_t page_bytes;

  auto id() const { return std::pair(device, inode); }
};

// Refuses a file whose size could change or whose pages could disappear later, and one in which
// some of the first `used` bytes, or of all bytes, do not exist. Errors: kNotAPeer, kSystem.
Result<PeerFile> check_peer_file(int fd, Writers writers, std::optional<uint64_t> used = {});

// Checks and maps the first `length` bytes, read-only if only its owner writes. Not of hugepages: a
// part of one cannot be mapped, and if both ends may write they may also remove pages. A missing
// hugepage is a SIGBUS; the kernel replaces a missing ordinary page. Errors: kNotAPeer, kSystem.
Result<Mapping> map_peer(int fd, size_t length, Writers writers);

// Fills the page tables for the mapped memory, for reading. Kernels before 5.14 do not know
// MADV_POPULATE_READ, and sandboxes may refuse it; then a pipe takes a byte of each page. Errors:
// kNotAPeer (a page is missing, whose access would be a SIGBUS), kSystem.
Result<void> fill_page_tables(std::byte* base, size_t length, size_t page_bytes);

// Mappings of the files in which peers have their regions, once for each user, however many regions
// and connections use it. The used part of a file may grow: the next power of two is mapped, and
// mapped again when that is too small. For reading. It must outlive the mappings that it returns.
class MappingCache {
 public:
  // A part of the mappings that a process may have (65530 by default). A user whose processes have
  // as many as are left gets no more, so no user takes them all.
  static constexpr size_t kMaxMappings = 16384;

  // `file` must be the result of check_peer_file() for `fd`, which a process of `sender` sent.
  // Errors: kNotAPeer, kLimit, kSystem.
  Result<std::shared_ptr<Mapping>> map(int fd, const PeerFile& file, uid_t sender);

 private:
  using Key = std::tuple<uid_t, dev_t, ino_t, uint64_t>;  // the last one is bytes
  using Mappings = std::map<Key, std::weak_ptr<Mapping>>;
  void forget(const Key& key) noexcept;
  void forget_unused() noexcept;
  Mappings::iterator erase(Mappings::iterator entry) noexcept;

  std::mutex mutex_;
  Mappings mappings_;
  std::map<uid_t, size_t> mappings_of_;
  std::atomic<size_t> left_ = 0;  // upper bound on entries without a user
};

}  // namespace rrdk::shm

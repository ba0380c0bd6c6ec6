// Memory that another process can map too: a sealed memfd, which stays mapped here for the Arena's
// lifetime.
#pragma once

#include <cstddef>
#include <utility>

#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

struct ArenaOptions {
  size_t bytes = 0;  // rounded up to whole pages
  int numa_node = 0;
  HugepagePolicy hugepages = HugepagePolicy::kPrefer;
  bool prefault = true;
};

// The descriptor is sealed: the size of the file cannot change, and apart from this mapping the
// file can only be read. So a process that receives it can neither write here nor remove pages, and
// knows that no other process can remove them under its own mapping.
class Arena {
 public:
  // Errors: kNoMemory, kSystem.
  static Result<Arena> create(const ArenaOptions& options);

  Arena() = default;
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(length_, other.length_);
    std::swap(fd_, other.fd_);
    std::swap(huge_, other.huge_);
    std::swap(page_size_, other.page_size_);
    return *this;
  }
  ~Arena();

  // Allocates these pages, and fails if there are not enough, which touching them would not report.
  // Ordinary pages are not compared with what is available: the kernel takes them from any process.
  Result<void> fill(size_t offset, size_t length);

  std::byte* base() const { return base_; }
  size_t length() const { return length_; }
  int fd() const { return fd_; }
  bool huge() const { return huge_; }

 private:
  static Result<Arena> create_of_pages(const ArenaOptions& options, size_t page_size, bool huge);
  Result<void> map(const ArenaOptions& options, size_t page_size);
  Result<void> fill_all();

  std::byte* base_ = nullptr;
  size_t length_ = 0;
  int fd_ = -1;
  bool huge_ = false;
  size_t page_size_ = 0;
};

}  // namespace rrdk::mem

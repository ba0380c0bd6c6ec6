// Memory that another process can map too: a sealed memfd, mapped here for as long as the Arena is.
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

// The descriptor is sealed: the file cannot change its size, and but for this mapping it can only
// be read. So whoever it is passed to can neither write here nor take pages away, and knows that
// nobody else can take them away under its own mapping.
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

  // Allocates these pages, and fails if there are not enough: touching them would report nothing.
  // Ordinary pages are not compared with what is available: the kernel takes them from whomever it
  // likes.
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

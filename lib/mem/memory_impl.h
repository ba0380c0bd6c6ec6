// What a Memory is made of.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "mem/arena.h"
#include "mem/pool.h"
#include "mem/region_table.h"
#include "rrdk/memory.h"

namespace rrdk {

struct Memory::Impl {
  static constexpr uint32_t kSizes = 33;  // powers of two up to 2^32
  // The power of two that is not less than `size`.
  static uint32_t size_index(uint32_t size) noexcept {
    return static_cast<uint32_t>(std::bit_width(size == 0 ? 0 : size - 1));
  }

  struct Node {
    int numa_node;
    mem::Arena arena;
    RegionId region = kNoRegion;
    std::vector<std::unique_ptr<mem::Pool>> pools = {};  // ascending by buffer size
    // The pool of the smallest class of at least 2^i bytes; null if there is none.
    std::array<mem::Pool*, kSizes> smallest = {};
  };
  // Memory of one RegisteredMemory: its own arena, or a descriptor of the application's memory.
  struct Registration {
    mem::Arena arena = {};
    int adopted_fd = -1;
  };

  Impl() = default;
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> add_node(const std::vector<SizeClass>& ascending, int numa_node);
  void index_classes(const std::vector<SizeClass>& ascending);
  RegisteredMemory enter(Memory& memory, const mem::Region& region, size_t size,
                         Registration registration);
  void leave(RegionId region);
  uint32_t home() const noexcept;
  template <typename Take>
  bool try_pools(uint32_t size, Take take) noexcept;

  std::vector<Node> nodes;
  // The smallest class of at least 2^i bytes; past the last one if there is none.
  std::array<uint8_t, kSizes> first_class{};
  uint32_t largest_buffer = 0;

  HugepagePolicy hugepages = HugepagePolicy::kPrefer;
  bool prefault = true;
  mem::RegionTable regions;
  std::map<RegionId, Registration> registrations;
  void* lcore_callback = nullptr;
};

}  // namespace rrdk

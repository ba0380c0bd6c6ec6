// The parts of a Memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/dice.h"
#include "base/lifetime.h"
#include "mem/arena.h"
#include "mem/loans.h"
#include "mem/pool_datapath.h"
#include "mem/regions.h"
#include "mem/slabs.h"
#include "rrdk/memory.h"

namespace rrdk {

struct FaultPlan;

namespace mem {
// For messages: how to give a class more buffers.
inline const char* remedy_for(const PoolAudit& pool) noexcept {
  return pool.elastic ? "raise MemoryOptions::bytes"
                      : "enlarge that class in MemoryOptions::classes";
}
}  // namespace mem

struct Memory::Impl {
  static constexpr uint32_t kSizes = 33;  // powers of two up to 2^32
  // The smallest power of two that is not less than `size`.
  static uint32_t size_index(uint32_t size) noexcept {
    return static_cast<uint32_t>(std::bit_width(size == 0 ? 0 : size - 1));
  }

  struct Node {
    int numa_node;
    // For the classes with fixed counts; empty without such a class.
    mem::Arena arena = {};
    RegionId region = kNoRegion;
    // For the elastic classes; null without such a class.
    std::unique_ptr<mem::Slabs> slabs = {};
    std::vector<std::unique_ptr<mem::Pool>> pools = {};  // ascending by buffer size
  };
  // The pool of the smallest class of at least 2^i bytes; null if there is no such class.
  using Smallest = std::array<mem::Pool*, kSizes>;
  // The memory of one RegisteredMemory: its own arena, or a descriptor of the application's memory.
  struct Registration {
    mem::Arena arena = {};
    int adopted_fd = -1;
  };

  Impl() = default;
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Whether everything has been given back; otherwise logs errors that say what has not.
  bool complete(const Memory& memory) const;
  // Called when the Memory is no longer used.
  static void end(Memory* memory);

  Result<void> add_node(const std::vector<SizeClass>& ascending, int numa_node,
                        uint64_t elastic_bytes);
  Result<void> add_fixed(Node& node, const std::vector<SizeClass>& ascending);
  Result<void> add_elastic(Node& node, const std::vector<SizeClass>& ascending, uint64_t bytes);
  void index_classes(const std::vector<SizeClass>& ascending);
  RegisteredMemory enter(Memory& memory, const mem::Region& region, size_t size,
                         Registration registration);
  void leave(RegionId region);
  uint32_t home() const noexcept;
  // Switches faults on and off (rrdk/faults.h). Any thread.
  void set_faults(const FaultPlan& plan);
  void clear_faults();
  mem::Pool* smallest_of(uint32_t node, uint32_t index) const noexcept {
    return quick.load(std::memory_order_relaxed)[node][index];
  }
  mem::BufferSlot* get_elsewhere(uint32_t size) noexcept;
  // Takes a buffer of the class that is large enough, and of no other class, on any node.
  mem::BufferSlot* get_of_class(uint32_t index) noexcept;
  void count_missing(uint32_t index) noexcept;
  template <typename Take>
  bool try_pools(uint32_t size, Take take) noexcept;

  base::Users users;  // Runtimes

  std::vector<Node> nodes;
  // The smallest class of at least 2^i bytes; past the last one if there is no such class.
  std::array<uint8_t, kSizes> first_class{};
  uint32_t largest_buffer = 0;
  std::vector<Smallest> smallest;  // by node
  // `quick` is checked first. It is `smallest`; or `nothing` while buffers run out on purpose, so
  // that each get() takes the path that makes the random decision.
  std::vector<Smallest> nothing;
  std::atomic<const Smallest*> quick = nullptr;
  mem::Loans loans;
  base::Dice no_buffers;
  base::Dice no_registration;

  HugepagePolicy hugepages = HugepagePolicy::kPrefer;
  bool prefault = true;
  mem::RegionTable regions;
  std::map<RegionId, Registration> registrations;
  void* lcore_callback = nullptr;
};

}  // namespace rrdk

// All buffers of one size class on one NUMA node.
//
// The rte_mempool's objects are BufferSlots, in EAL's memory; each names a slice of the arena for
// good. What a peer process can write (the arena) thus holds nothing that the pool relies on.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <span>

#include "rrdk/memory.h"

namespace rrdk::mem {

class Pool {
 public:
  // Cuts [base, base + buffer_size * count) into buffers. Errors: kNoMemory, kSystem.
  static Result<std::unique_ptr<Pool>> create(SizeClass size_class, int numa_node, std::byte* base,
                                              RegionId region);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Data path (pool_datapath.h). Null, or false with nothing taken, when exhausted. Buffers in the
  // caches of other cores can not be had.
  BufferSlot* get() noexcept;
  bool get_bulk(std::span<Buffer> out) noexcept;
  void put(BufferSlot* slot) noexcept;

  // Empties the cache of a core that no thread owns any more.
  void flush_cache(unsigned lcore) noexcept;

  PoolAudit audit() const;
  uint32_t buffer_size() const { return size_class_.buffer_size; }

 private:
  Pool(rte_mempool* mempool, SizeClass size_class, int numa_node)
      : mempool_(mempool),
        caches_(mempool->cache_size == 0 ? nullptr : mempool->local_cache),
        size_class_(size_class),
        numa_node_(numa_node) {}
  void bind(std::byte* base, RegionId region);

  rte_mempool* mempool_;
  rte_mempool_cache* caches_;  // by lcore; null if the class is too small for them
  SizeClass size_class_;
  int numa_node_;
};

}  // namespace rrdk::mem

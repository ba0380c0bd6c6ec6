#include "runtime/inbox.h"

#include <rte_ring.h>

#include <bit>
#include <string>

namespace rrdk::runtime {

Result<std::unique_ptr<Ring>> Ring::create(uint32_t size, Consumers consumers) {
  if (size < 2 || size > (1u << 24) || !std::has_single_bit(size))
    return fail(Errc::kInvalidArgument,
                "ring_size " + std::to_string(size) + " is no power of two between 2 and 2^24");
  auto bytes = static_cast<size_t>(rte_ring_get_memsize(size));
  void* memory = std::aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
  if (memory == nullptr)
    return fail(Errc::kNoMemory, "no memory for a ring of " + std::to_string(size) + " entries");
  auto* ring = static_cast<rte_ring*>(memory);
  unsigned flags = consumers == Consumers::kOne ? RING_F_SC_DEQ : 0;
  if (rte_ring_init(ring, "rrdk", size, flags) != 0) {
    std::free(memory);
    return fail(Errc::kInvalidArgument, "rte_ring refuses a size of " + std::to_string(size));
  }
  return std::unique_ptr<Ring>(new Ring(ring));
}

}  // namespace rrdk::runtime

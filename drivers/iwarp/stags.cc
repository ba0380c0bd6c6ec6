#include "drivers/iwarp/stags.h"

#include <bit>
#include <numeric>

namespace rrdk::iwarp {

Stags::Stags(uint32_t count)
    : mask_(std::bit_ceil(count == 0 ? 1u : count) - 1),
      index_bits_(static_cast<uint32_t>(std::bit_width(mask_))),
      entries_(mask_ + 1),
      free_(mask_ + 1),
      free_tail_(count) {
  std::iota(free_.begin(), free_.end(), 0u);
}

}  // namespace rrdk::iwarp

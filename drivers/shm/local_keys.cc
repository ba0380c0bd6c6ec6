#include "drivers/shm/local_keys.h"

#include <bit>

namespace rrdk::shm {

LocalKeys::LocalKeys(KeyEntry* entries, uint32_t count)
    : entries_(entries),
      mask_(count - 1),
      index_bits_(static_cast<uint32_t>(std::countr_zero(count))),
      locals_(count),
      free_(count),
      free_tail_(count) {
  for (uint32_t i = 0; i < count; ++i)
    free_[i] = i;
}

}  // namespace rrdk::shm

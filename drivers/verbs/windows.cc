#include "drivers/verbs/windows.h"

#include <algorithm>
#include <bit>

namespace rrdk::verbs {

Windows::Windows(ibv_pd* pd, uint32_t most, Counters& counts)
    : pd_(pd),
      most_(most),
      counts_(counts),
      table_(std::bit_ceil(2 * most + 1)),
      table_mask_(static_cast<uint32_t>(table_.size()) - 1),
      free_(std::bit_ceil(most + 1)),
      free_mask_(static_cast<uint32_t>(free_.size()) - 1) {
  windows_.reserve(most);
}

Windows::~Windows() {
  for (const Window& window : windows_)
    ibv_dealloc_mw(window.mw);
}

// Allocates windows until `wanted` are free, and some for next time: system calls, until the
// connection has as many as it ever uses at once.
bool Windows::grow(size_t wanted) noexcept {
  const size_t free = free_tail_ - free_head_;
  if (refused_ || windows_.size() + (wanted - free) > most_)
    return false;
  const size_t target =
      std::min<size_t>(most_, windows_.size() + std::max<size_t>(wanted - free, kGrowth));
  while (windows_.size() < target) {
    ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    if (mw == nullptr) {
      Counters::count(counts_.windows_refused);
      refused_ = true;
      return free_tail_ - free_head_ >= wanted;
    }
    const auto index = static_cast<uint32_t>(windows_.size());
    windows_.push_back({.mw = mw, .key = mw->rkey, .recent = {}});
    size_t place = place_of(mw->rkey);
    while (table_[place] != 0)
      place = (place + 1) & table_mask_;
    table_[place] = index + 1;
    free_[free_tail_++ & free_mask_] = index;
  }
  return true;
}

}  // namespace rrdk::verbs

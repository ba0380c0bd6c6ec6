#include "server/replay_lane.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace rrdk::server {

void ReplayIndex::fit(size_t entries) noexcept {
  size_t wanted = std::bit_ceil(std::max(entries, kFewestBuckets));
  if (buckets_.size() >= wanted && buckets_.size() <= 4 * wanted)
    return;
  std::vector<ReplayEntry*> old;
  try {
    old.resize(wanted);
  } catch (const std::bad_alloc&) {
    return;
  }
  old.swap(buckets_);
  for (ReplayEntry* entry : old) {
    while (entry != nullptr) {
      ReplayEntry* next = entry->next;
      enter(*entry);
      entry = next;
    }
  }
}

ReplayLane::~ReplayLane() {
  counters_.evicted.fetch_add(used_, std::memory_order_relaxed);
  for (const std::unique_ptr<ReplayEntry[]>& block : blocks_) {
    for (const ReplayEntry& entry : std::span(block.get(), kBlock)) {
      if (entry.state != State::kFree)
        index_.erase(entry);
    }
  }
}

bool ReplayLane::add_entries() noexcept {
  try {
    blocks_.push_back(std::make_unique<ReplayEntry[]>(kBlock));
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (ReplayEntry& entry : std::span(blocks_.back().get(), kBlock)) {
    entry.lane = this;
    free_.push(entry);
  }
  return true;
}

// Its replies move to the beginning of the new ring.
bool ReplayLane::grow_ring(uint64_t more) noexcept {
  const uint64_t size = ring_size_ + more;
  // Not initialised: pages that no reply needs are never touched.
  std::unique_ptr<std::byte[]> ring(new (std::nothrow) std::byte[size]);
  if (ring == nullptr)
    return false;
  uint64_t end = 0;
  for (ReplayEntry* entry = oldest_reply(); entry != nullptr; entry = entry->links.next) {
    if (entry->state != State::kDone)
      continue;
    std::ranges::copy(reply_of(*entry), &ring[end]);
    entry->begin = end;
    entry->at = static_cast<uint32_t>(end);
    end += entry->length;
  }
  ring_ = std::move(ring);
  ring_size_ = size;
  head_ = end;
  return true;
}

void ReplayLane::forget_but_last(bool elders) noexcept {
  ReplayEntry* entry = finished_.back();
  for (uint32_t i = 0; i < last_ && entry != nullptr; ++i)
    entry = entry->links.previous;
  uint64_t gone = 0;
  while (entry != nullptr) {
    ReplayEntry& old = *entry;
    entry = entry->links.previous;
    if (elders && old.early) {
      set_aside(old);
    } else {
      release(old);
      ++gone;
    }
  }
  for (; !elders && !aside_.empty(); ++gone)
    release(*aside_.front());
  counters_.evicted.fetch_add(gone, std::memory_order_relaxed);
}

}  // namespace rrdk::server

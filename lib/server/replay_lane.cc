#include "server/replay_lane.h"

#include <algorithm>
#include <bit>

namespace rrdk::server {

void ReplayIndex::fit(size_t entries) {
  size_t wanted = std::bit_ceil(std::max(entries, kFewestBuckets));
  if (buckets_.size() >= wanted && buckets_.size() <= 4 * wanted)
    return;
  std::vector<ReplayEntry*> old(wanted);
  old.swap(buckets_);
  for (ReplayEntry* entry : old) {
    while (entry != nullptr) {
      ReplayEntry* next = entry->next;
      enter(*entry);
      entry = next;
    }
  }
}

ReplayLane::ReplayLane(const Size& size, const ReplayOptions& options, ReplayIndex& index,
                       ReplayCounters& counters)
    : options_(options),
      ring_size_(size.bytes),
      early_(size.early),
      index_(index),
      counters_(counters),
      entries_(size.entries + size.early),
      // Not initialised: pages that no reply needs are never touched.
      ring_(new std::byte[ring_size_]) {
  for (ReplayEntry& entry : entries_) {
    entry.lane = this;
    free_.push(entry);
  }
}

ReplayLane::~ReplayLane() {
  counters_.evicted.fetch_add(used_, std::memory_order_relaxed);
  if (used_ == 0)
    return;
  for (const ReplayEntry& entry : entries_) {
    if (entry.state != State::kFree)
      index_.erase(entry);
  }
}

void ReplayLane::forget_but(uint32_t last, bool elders) noexcept {
  ReplayEntry* entry = finished_.back();
  for (uint32_t i = 0; i < last && entry != nullptr; ++i)
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

uint64_t ReplayLane::reply_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const ReplayEntry& entry : entries_)
    bytes += entry.state == State::kDone ? entry.length : 0;
  return bytes;
}

uint64_t ReplayLane::drop_replies() noexcept {
  uint64_t bytes = reply_bytes();
  for (ReplayEntry& entry : entries_) {
    if (entry.state == State::kDone)
      drop_reply(entry);
  }
  oldest_reply_ = nullptr;
  ring_.reset();
  return bytes;
}

std::unique_ptr<ReplayLane> ReplayLane::compacted(bool with_replies) {
  auto small = std::make_unique<ReplayLane>(
      Size{.entries = used_, .early = 0, .bytes = with_replies ? reply_bytes() : 0}, options_,
      index_, counters_);
  small->number = number;
  small->in_use = in_use;
  small->left_ns = left_ns;
  small->compact = true;
  for (List* list : {&aside_, &finished_}) {
    while (!list->empty()) {
      ReplayEntry& old = *list->front();
      ReplayEntry& entry = *small->add(old.xid, old.fingerprint, false);
      entry.early = old.early;
      if (!with_replies && old.state == State::kDone)
        drop_reply(old);
      small->copy(entry, old);
      small->append(entry, old.since_ns);
      if (list == &aside_)
        small->set_aside(entry);
      release(old);
    }
  }
  return small;
}

}  // namespace rrdk::server

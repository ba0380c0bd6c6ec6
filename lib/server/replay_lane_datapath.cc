#include <algorithm>
#include <utility>

#include "server/kept_reply.h"
#include "server/replay_lane.h"

namespace rrdk::server {

ReplayEntry*& ReplayLane::bucket(uint64_t fingerprint) noexcept {
  return buckets_[static_cast<uint32_t>(fingerprint) >> bucket_shift_];
}

ReplayEntry* ReplayLane::add(uint32_t xid, uint64_t fingerprint, State state,
                             uint64_t& evicted) noexcept {
  if (free_ == nullptr) {
    if (!evict_oldest())
      return nullptr;
    ++evicted;
  }
  ReplayEntry& entry = *std::exchange(free_, free_->next);
  ++used_;
  entry.state = state;
  entry.xid = xid;
  entry.fingerprint = fingerprint;
  entry.length = 0;
  ReplayEntry*& first = bucket(fingerprint);
  entry.next = std::exchange(first, &entry);
  return &entry;
}

void ReplayLane::append(ReplayEntry& entry, uint64_t now_ns) noexcept {
  entry.since_ns = now_ns;
  entry.older = newest_;
  entry.newer = nullptr;
  (newest_ != nullptr ? newest_->newer : oldest_) = &entry;
  newest_ = &entry;
  if (oldest_reply_ == nullptr)
    oldest_reply_ = &entry;
}

void ReplayLane::unlink(ReplayEntry& entry) noexcept {
  if (oldest_reply_ == &entry)
    oldest_reply_ = entry.newer;
  (entry.older != nullptr ? entry.older->newer : oldest_) = entry.newer;
  (entry.newer != nullptr ? entry.newer->older : newest_) = entry.older;
}

// A finished entry ends. Those with bytes in the ring do so in the order in which they got them.
void ReplayLane::release(ReplayEntry& entry) noexcept {
  unlink(entry);
  if (entry.state == State::kDone)
    tail_ = entry.end;
  ReplayEntry** place = &bucket(entry.fingerprint);
  while (*place != &entry)
    place = &(*place)->next;
  *place = entry.next;
  entry.state = State::kFree;
  entry.next = std::exchange(free_, &entry);
  --used_;
}

bool ReplayLane::evict_oldest() noexcept {
  if (oldest_ == nullptr || oldest_->pins != 0)
    return false;
  release(*oldest_);
  return true;
}

uint64_t ReplayLane::expire(uint64_t now_ns) noexcept {
  uint64_t gone = 0;
  while (oldest_ != nullptr && oldest_->since_ns + window_ns_ < now_ns && evict_oldest())
    ++gone;
  return gone;
}

bool ReplayLane::clear() noexcept {
  while (evict_oldest()) {
  }
  return used_ == 0;
}

// In the order in which they came into the ring, which is that of the queue.
bool ReplayLane::drop_oldest_reply() noexcept {
  while (oldest_reply_ != nullptr && oldest_reply_->state != State::kDone)
    oldest_reply_ = oldest_reply_->newer;
  if (oldest_reply_ == nullptr || oldest_reply_->pins != 0)
    return false;
  oldest_reply_->state = State::kNotKept;
  tail_ = oldest_reply_->end;
  return true;
}

bool ReplayLane::keep(ReplayEntry& entry, std::span<const Piece> reply,
                      uint64_t& dropped) noexcept {
  uint64_t size = kept_size(reply);
  if (size > std::min<uint64_t>(max_reply_, ring_size_))
    return false;
  for (;;) {
    uint64_t rest = ring_size_ - head_ % ring_size_;
    uint64_t skip = size > rest ? rest : 0;
    if (skip + size <= ring_size_ - (head_ - tail_)) {
      entry.at = (head_ + skip) % ring_size_;
      entry.length = static_cast<uint32_t>(size);
      head_ += skip + size;
      entry.end = head_;
      server::keep(reply, &ring_[entry.at]);
      return true;
    }
    if (head_ == tail_)
      head_ = tail_ = 0;  // empty: from the beginning it fits
    else if (drop_oldest_reply())
      ++dropped;
    else
      return false;
  }
}

}  // namespace rrdk::server

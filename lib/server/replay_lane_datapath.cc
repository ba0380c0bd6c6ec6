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

// A finished entry ends. What it has of the ring is free when all older ones have ended.
void ReplayLane::release(ReplayEntry& entry) noexcept {
  unlink(entry);
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

uint64_t ReplayLane::clear() noexcept {
  uint64_t gone = 0;
  while (evict_oldest())
    ++gone;
  return gone;
}

ReplayEntry* ReplayLane::oldest_reply() noexcept {
  while (oldest_reply_ != nullptr && oldest_reply_->state != State::kDone)
    oldest_reply_ = oldest_reply_->newer;
  return oldest_reply_;
}

bool ReplayLane::drop_oldest_reply() noexcept {
  ReplayEntry* oldest = oldest_reply();
  if (oldest == nullptr || oldest->pins != 0)
    return false;
  oldest->state = State::kNotKept;
  return true;
}

// In one run: the rest of the ring before its end may have to be left out.
std::byte* ReplayLane::reserve(ReplayEntry& entry, uint64_t size, uint64_t& dropped) noexcept {
  if (size > std::min<uint64_t>(max_reply_, ring_size_))
    return nullptr;
  for (;; ++dropped) {
    const ReplayEntry* oldest = oldest_reply();
    if (oldest == nullptr)
      head_ = 0;
    uint64_t rest = ring_size_ - head_ % ring_size_;
    uint64_t skip = size > rest ? rest : 0;
    uint64_t taken = oldest == nullptr ? 0 : head_ - oldest->begin;
    if (skip + size <= ring_size_ - taken) {
      entry.begin = head_;
      entry.at = (head_ + skip) % ring_size_;
      entry.length = static_cast<uint32_t>(size);
      head_ += skip + size;
      return &ring_[entry.at];
    }
    if (!drop_oldest_reply())
      return nullptr;
  }
}

bool ReplayLane::keep(ReplayEntry& entry, std::span<const Piece> reply,
                      uint64_t& dropped) noexcept {
  std::byte* room = reserve(entry, kept_size(reply), dropped);
  if (room != nullptr)
    server::keep(reply, room);
  return room != nullptr;
}

void ReplayLane::take_over(ReplayEntry& entry, ReplayEntry& finished, uint64_t now_ns,
                           uint64_t& dropped) noexcept {
  entry.state = State::kNotKept;
  if (finished.state == State::kDone) {
    std::span<const std::byte> reply = finished.lane->reply_of(finished);
    std::byte* room = reserve(entry, reply.size(), dropped);
    if (room == nullptr) {  // it stays where it is
      append(entry, now_ns);
      return release(entry);
    }
    std::ranges::copy(reply, room);
    entry.state = State::kDone;
  }
  append(entry, now_ns);
  finished.lane->release(finished);
}

}  // namespace rrdk::server

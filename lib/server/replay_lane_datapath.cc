#include <algorithm>
#include <utility>

#include "server/kept_reply.h"
#include "server/replay_lane.h"

namespace rrdk::server {

ReplayEntry* ReplayIndex::find(uint32_t xid, uint64_t fingerprint) const noexcept {
  ReplayEntry* entry = buckets_[bucket_of(fingerprint)];
  while (entry != nullptr && (entry->xid != xid || entry->fingerprint != fingerprint ||
                              entry->state == ReplayEntry::State::kDropped))
    entry = entry->next;
  return entry;
}

void ReplayIndex::enter(ReplayEntry& entry) noexcept {
  entry.next = std::exchange(buckets_[bucket_of(entry.fingerprint)], &entry);
}

void ReplayIndex::erase(const ReplayEntry& entry) noexcept {
  ReplayEntry** place = &buckets_[bucket_of(entry.fingerprint)];
  while (*place != &entry)
    place = &(*place)->next;
  *place = entry.next;
}

void ReplayLane::List::append(ReplayEntry& entry) noexcept {
  entry.older = newest;
  entry.newer = nullptr;
  (newest != nullptr ? newest->newer : oldest) = &entry;
  newest = &entry;
}

void ReplayLane::List::unlink(ReplayEntry& entry) noexcept {
  (entry.older != nullptr ? entry.older->newer : oldest) = entry.newer;
  (entry.newer != nullptr ? entry.newer->older : newest) = entry.older;
}

ReplayEntry* ReplayLane::begin(uint32_t xid, uint64_t fingerprint, bool elders) noexcept {
  ReplayEntry* entry = add(xid, fingerprint, elders);
  if (entry != nullptr && begun_ < early_) {
    ++begun_;
    entry->early = true;
  }
  return entry;
}

ReplayEntry* ReplayLane::add(uint32_t xid, uint64_t fingerprint, bool elders) noexcept {
  while (free_ == nullptr) {
    if (!make_room(elders))
      return nullptr;
  }
  ReplayEntry& entry = *std::exchange(free_, free_->next);
  ++used_;
  ++running_;
  entry.state = State::kRunning;
  entry.early = entry.set_aside = false;
  entry.xid = xid;
  entry.fingerprint = fingerprint;
  entry.length = 0;
  index_.enter(entry);
  return &entry;
}

// Ends, for there are no more early ones than have entries of their own.
bool ReplayLane::make_room(bool elders) noexcept {
  ReplayEntry* oldest = finished_.oldest;
  while (oldest != nullptr && oldest->pins != 0)
    oldest = oldest->newer;
  if (oldest == nullptr)
    return false;
  if (elders && oldest->early) {
    set_aside(*oldest);
    return true;
  }
  release(*oldest);
  counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ReplayLane::set_aside(ReplayEntry& entry) noexcept {
  unlink(entry);
  entry.state = State::kNotKept;
  entry.set_aside = true;
  aside_.append(entry);
}

void ReplayLane::append(ReplayEntry& entry, uint64_t now_ns) noexcept {
  --running_;
  entry.since_ns = now_ns;
  finished_.append(entry);
  if (oldest_reply_ == nullptr)
    oldest_reply_ = &entry;
}

void ReplayLane::unlink(ReplayEntry& entry) noexcept {
  if (oldest_reply_ == &entry)
    oldest_reply_ = entry.newer;
  (entry.set_aside ? aside_ : finished_).unlink(entry);
}

// A finished entry ends. What it has of the ring is free when all older ones have ended.
void ReplayLane::release(ReplayEntry& entry) noexcept {
  unlink(entry);
  index_.erase(entry);
  entry.state = State::kFree;
  entry.next = std::exchange(free_, &entry);
  --used_;
}

void ReplayLane::expire(uint64_t now_ns) noexcept {
  uint64_t window_ns = uint64_t{options_.window_ms} * 1'000'000;
  while (aside_.oldest != nullptr && aside_.oldest->pins == 0 &&
         aside_.oldest->since_ns + window_ns < now_ns) {
    release(*aside_.oldest);
    counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  }
}

void ReplayLane::drop_reply(ReplayEntry& entry) noexcept {
  entry.state = State::kNotKept;
  counters_.not_kept.fetch_add(1, std::memory_order_relaxed);
}

ReplayEntry* ReplayLane::oldest_reply() noexcept {
  while (oldest_reply_ != nullptr && oldest_reply_->state != State::kDone)
    oldest_reply_ = oldest_reply_->newer;
  return oldest_reply_;
}

// In one run: the rest of the ring before its end may have to be left out.
std::byte* ReplayLane::reserve(ReplayEntry& entry, uint64_t size) noexcept {
  if (size > std::min<uint64_t>(options_.max_reply, ring_size_))
    return nullptr;
  for (;;) {
    ReplayEntry* oldest = oldest_reply();
    if (oldest == nullptr)
      head_ = 0;
    uint64_t rest = ring_size_ - head_ % ring_size_;
    uint64_t skip = size > rest ? rest : 0;
    uint64_t taken = oldest == nullptr ? 0 : head_ - oldest->begin;
    if (skip + size <= ring_size_ - taken) {
      entry.begin = head_;
      entry.at = static_cast<uint32_t>((head_ + skip) % ring_size_);
      entry.length = static_cast<uint32_t>(size);
      head_ += skip + size;
      return &ring_[entry.at];
    }
    if (oldest->pins != 0)
      return nullptr;
    drop_reply(*oldest);
  }
}

bool ReplayLane::keep(ReplayEntry& entry, std::span<const Piece> reply) noexcept {
  std::byte* room = reserve(entry, kept_size(reply));
  if (room != nullptr)
    server::keep(reply, room);
  return room != nullptr;
}

// False: its reply has no room here.
bool ReplayLane::copy(ReplayEntry& entry, const ReplayEntry& finished) noexcept {
  entry.state = State::kNotKept;
  if (finished.state != State::kDone)
    return true;
  std::span<const std::byte> reply = finished.lane->reply_of(finished);
  std::byte* room = reserve(entry, reply.size());
  if (room == nullptr)
    return false;
  std::ranges::copy(reply, room);
  entry.state = State::kDone;
  return true;
}

void ReplayLane::take_over(ReplayEntry& finished, bool elders) noexcept {
  ReplayEntry* entry = add(finished.xid, finished.fingerprint, elders);
  if (entry == nullptr)
    return;
  bool copied = copy(*entry, finished);
  append(*entry, finished.since_ns);
  (copied ? finished.lane : this)->release(copied ? finished : *entry);
}

}  // namespace rrdk::server

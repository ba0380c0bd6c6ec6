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

ReplayEntry* ReplayLane::begin(uint32_t xid, uint64_t fingerprint, bool elders) noexcept {
  ReplayEntry* entry = add(xid, fingerprint, elders);
  if (entry != nullptr && begun_ < early_) {
    ++begun_;
    entry->early = true;
  }
  return entry;
}

ReplayEntry* ReplayLane::add(uint32_t xid, uint64_t fingerprint, bool elders) noexcept {
  while (free_.empty()) {
    if (!make_room(elders))
      return nullptr;
  }
  ReplayEntry& entry = free_.pop();
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
  ReplayEntry* oldest = finished_.front();
  while (oldest != nullptr && oldest->pins != 0)
    oldest = oldest->links.next;
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
  aside_.push(entry);
}

void ReplayLane::append(ReplayEntry& entry, uint64_t now_ns) noexcept {
  --running_;
  entry.since_ns = now_ns;
  finished_.push(entry);
  if (oldest_reply_ == nullptr)
    oldest_reply_ = &entry;
}

void ReplayLane::unlink(ReplayEntry& entry) noexcept {
  if (oldest_reply_ == &entry)
    oldest_reply_ = entry.links.next;
  (entry.set_aside ? aside_ : finished_).remove(entry);
}

// A finished entry ends. What it has of the ring is free when all older ones have ended.
void ReplayLane::release(ReplayEntry& entry) noexcept {
  unlink(entry);
  index_.erase(entry);
  entry.state = State::kFree;
  free_.push(entry);
  --used_;
}

void ReplayLane::expire(uint64_t now_ns) noexcept {
  uint64_t window_ns = uint64_t{options_.window_ms} * 1'000'000;
  while (!aside_.empty() && aside_.front()->pins == 0 &&
         aside_.front()->since_ns + window_ns < now_ns) {
    release(*aside_.front());
    counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  }
}

void ReplayLane::drop_reply(ReplayEntry& entry) noexcept {
  entry.state = State::kNotKept;
  counters_.not_kept.fetch_add(1, std::memory_order_relaxed);
}

ReplayEntry* ReplayLane::oldest_reply() noexcept {
  while (oldest_reply_ != nullptr && oldest_reply_->state != State::kDone)
    oldest_reply_ = oldest_reply_->links.next;
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

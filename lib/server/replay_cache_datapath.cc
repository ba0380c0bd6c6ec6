#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/poll_core.h"
#include "server/call_context.h"
#include "server/kept_reply.h"
#include "server/replay_cache.h"
#include "server/server_link.h"

namespace rrdk::server {

namespace {

// Of the arguments: enough to tell calls apart that agree in their XID by chance.
constexpr uint32_t kHashedArgs = 256;
constexpr uint32_t kHashedWords = 5;

void count(std::atomic<uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

uint64_t fingerprint(const base::SipKey& key, const rpc::CallHeader& header,
                     const Decoder& args) noexcept {
  std::array<std::byte, (kHashedWords + 1) * sizeof(uint64_t) + kMaxAuthBody + kHashedArgs> bytes;
  uint64_t left = args.remaining();
  uint64_t words[kHashedWords + 1] = {header.program,
                                      header.version,
                                      header.procedure,
                                      static_cast<uint64_t>(header.credential.flavor),
                                      header.credential.body.size(),
                                      left};
  std::memcpy(bytes.data(), words, sizeof words);
  size_t length = sizeof words;
  header.credential.body.copy_to(bytes.data() + length);
  length += header.credential.body.size();
  Decoder beginning = args;
  ItemView hashed = beginning.get_fixed(
      static_cast<uint32_t>(std::min<uint64_t>(left & ~uint64_t{3}, kHashedArgs)));
  hashed.copy_to(bytes.data() + length);
  length += hashed.size();
  return base::sip_hash(key, std::span(bytes).first(length));
}

ReplayEntry*& ReplayCache::bucket(uint32_t xid) noexcept {
  constexpr uint32_t kGoldenRatio = 2654435769u;  // spreads XIDs that lie close together
  return buckets_[xid * kGoldenRatio >> bucket_shift_];
}

ReplayEntry* ReplayCache::find(uint32_t xid, uint64_t fingerprint) noexcept {
  for (ReplayEntry* entry = bucket(xid); entry != nullptr; entry = entry->next) {
    if (entry->xid == xid && entry->fingerprint == fingerprint && entry->state != State::kFailed &&
        entry->state != State::kDropped)
      return entry;
  }
  return nullptr;
}

bool ReplayCache::find_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
  // datapath-allow: only for a client over which a connection failed lately
  std::lock_guard lock(lock_);
  expire(now_ns);
  for (ReplayEntry* entry = bucket(xid); entry != nullptr; entry = entry->next) {
    if (entry->xid == xid && entry->state == State::kFailed)
      return entry->connection != connection;
  }
  return false;
}

ReplayEntry* ReplayCache::add(uint32_t xid, uint64_t fingerprint, State state) noexcept {
  if (free_ == nullptr && !evict_oldest())
    return nullptr;
  ReplayEntry& entry = *std::exchange(free_, free_->next);
  entry.state = state;
  entry.xid = xid;
  entry.fingerprint = fingerprint;
  entry.length = 0;
  ReplayEntry*& first = bucket(xid);
  entry.next = std::exchange(first, &entry);
  return &entry;
}

// To the queue of those that are finished.
void ReplayCache::append(ReplayEntry& entry, uint64_t now_ns) noexcept {
  entry.since_ns = now_ns;
  entry.older = newest_;
  entry.newer = nullptr;
  (newest_ != nullptr ? newest_->newer : oldest_) = &entry;
  newest_ = &entry;
}

void ReplayCache::unlink(ReplayEntry& entry) noexcept {
  (entry.older != nullptr ? entry.older->newer : oldest_) = entry.newer;
  (entry.newer != nullptr ? entry.newer->older : newest_) = entry.older;
}

// A finished entry ends. Those with bytes in the ring do so in the order in which they got them.
void ReplayCache::release(ReplayEntry& entry) noexcept {
  unlink(entry);
  if (entry.state == State::kDone)
    tail_ = entry.end;
  if (entry.state == State::kFailed)
    failures_.fetch_sub(1, std::memory_order_relaxed);
  ReplayEntry** place = &bucket(entry.xid);
  while (*place != &entry)
    place = &(*place)->next;
  *place = entry.next;
  entry.state = State::kFree;
  entry.next = std::exchange(free_, &entry);
}

bool ReplayCache::evict_oldest() noexcept {
  if (oldest_ == nullptr || oldest_->pins != 0)
    return false;
  count(counters_.evicted);
  release(*oldest_);
  return true;
}

void ReplayCache::expire(uint64_t now_ns) noexcept {
  while (oldest_ != nullptr && oldest_->since_ns + window_ns_ < now_ns && evict_oldest()) {
  }
}

// Copies the reply into the ring, in one run, where the oldest ones make room.
bool ReplayCache::keep(ReplayEntry& entry, std::span<const Piece> reply) noexcept {
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
    else if (!evict_oldest())
      return false;
  }
}

ReplayCache::Verdict ReplayCache::begin(CallContext& context, uint64_t fingerprint, uint64_t now_ns,
                                        void (*wake)(CallContext&)) noexcept {
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  expire(now_ns);
  ReplayEntry* entry = find(context.header.xid, fingerprint);
  if (entry == nullptr) {
    entry = add(context.header.xid, fingerprint, State::kRunning);
    if (entry == nullptr)
      count(counters_.unprotected);
    context.replay = entry;
    return Verdict::kRun;
  }
  context.replay = entry;
  if (entry->state == State::kRunning) {
    count(counters_.waits);
    context.wake = wake;
    context.next_waiter = std::exchange(entry->waiters, &context);
    return Verdict::kWait;
  }
  ++entry->pins;
  return Verdict::kSeen;
}

void ReplayCache::finish(CallContext& context, bool dropped, uint64_t now_ns) noexcept {
  ReplayEntry& entry = *std::exchange(context.replay, nullptr);
  CallContext* waiter = nullptr;
  {
    // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
    std::lock_guard lock(lock_);
    waiter = std::exchange(entry.waiters, nullptr);
    for (CallContext* each = waiter; each != nullptr; each = each->next_waiter)
      ++entry.pins;
    if (dropped) {
      entry.state = State::kDropped;
    } else if (keep(entry, context.call->reply().pieces())) {
      entry.state = State::kDone;
      count(counters_.stored);
    } else {
      entry.state = State::kNotKept;
      count(counters_.not_kept);
    }
    append(entry, now_ns);
    if (dropped && entry.pins == 0)
      release(entry);
  }
  while (waiter != nullptr) {
    CallContext& next = *std::exchange(waiter, waiter->next_waiter);
    next.run = [](runtime::WorkItem& item) {
      auto& woken = static_cast<CallContext&>(item);
      woken.wake(woken);
    };
    next.link->core().submit(next);
  }
}

ReplayCache::Answer ReplayCache::take(CallContext& context, Memory& memory) noexcept {
  ReplayEntry& entry = *std::exchange(context.replay, nullptr);
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  --entry.pins;
  if (entry.state == State::kDropped) {
    if (entry.pins == 0)
      release(entry);
    return Answer::kDropped;
  }
  if (entry.state == State::kNotKept) {
    count(counters_.lost);
    return Answer::kNotKept;
  }
  count(counters_.hits);
  restore({&ring_[entry.at], entry.length}, *context.results, memory);
  return Answer::kKept;
}

}  // namespace rrdk::server

// What is remembered of one connection's calls: entries in the order in which they finished, and a
// ring with their replies, in the same order. It outlives its connection: a client repeats what was
// unanswered when that broke, which is among the last that finished on it, as many as it has
// credits. Other connections of the client have lanes of their own, so that their calls do not push
// it out. A repeated call moves to the lane of the connection that repeats it, and so stays among
// the last of it.
//
// No lock of its own: the cache's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rrdk/server.h"
#include "rrdk/xdr.h"
#include "service/call_context.h"

namespace rrdk::server {

class ReplayLane;

struct ReplayEntry : service::OnceRecord {
  enum class State : uint8_t { kFree, kRunning, kDone, kNotKept, kDropped, kFailed };

  State state = State::kFree;
  uint32_t xid = 0;
  uint64_t fingerprint = 0;
  uint32_t pins = 0;        // waiters that have yet to look
  uint32_t length = 0;      // of the kept reply
  uint64_t begin = 0;       // of what it takes of the ring
  uint64_t at = 0;          // its place there
  uint64_t since_ns = 0;    // when it was finished
  uint64_t connection = 0;  // kFailed: on which it failed
  ReplayLane* lane = nullptr;
  service::CallContext* waiters = nullptr;
  ReplayEntry* next = nullptr;  // in its bucket, or free
  ReplayEntry* older = nullptr;
  ReplayEntry* newer = nullptr;
};

class ReplayLane {
 public:
  using State = ReplayEntry::State;

  // `bytes` of replies; 0: for failures only.
  ReplayLane(uint32_t entries, uint64_t bytes, const ReplayOptions& options);
  ReplayLane(const ReplayLane&) = delete;
  ReplayLane& operator=(const ReplayLane&) = delete;

  // The newest entry of a call in a state that `wanted` takes; null: none. By its fingerprint,
  // which is keyed: nobody can make calls that share a bucket.
  template <typename Wanted>
  ReplayEntry* find(uint32_t xid, uint64_t fingerprint, Wanted&& wanted) noexcept {
    ReplayEntry* entry = bucket(fingerprint);
    while (entry != nullptr &&
           (entry->xid != xid || entry->fingerprint != fingerprint || !wanted(*entry)))
      entry = entry->next;
    return entry;
  }
  // Null: all are running, or looked at. `evicted` counts those that made room.
  ReplayEntry* add(uint32_t xid, uint64_t fingerprint, State state, uint64_t& evicted) noexcept;
  // Copies the reply into the ring, in one run. The oldest replies make room; that their calls ran
  // stays known. `dropped` counts them. False: it does not fit.
  bool keep(ReplayEntry& entry, std::span<const Piece> reply, uint64_t& dropped) noexcept;
  // The same with one that is finished, and can be spared where it is: it becomes `entry`, which is
  // new here. Without room for its reply it stays, and `entry` goes.
  void take_over(ReplayEntry& entry, ReplayEntry& finished, uint64_t now_ns,
                 uint64_t& dropped) noexcept;
  std::span<const std::byte> reply_of(const ReplayEntry& entry) const noexcept {
    return {&ring_[entry.at], entry.length};
  }
  // To the end of those that are finished.
  void append(ReplayEntry& entry, uint64_t now_ns) noexcept;
  void unlink(ReplayEntry& entry) noexcept;
  void release(ReplayEntry& entry) noexcept;
  // Those that are older than the window go.
  uint64_t expire(uint64_t now_ns) noexcept;
  // Forgets what is finished, unless it is looked at.
  uint64_t clear() noexcept;
  uint32_t size() const noexcept { return used_; }
  bool empty() const noexcept { return used_ == 0; }
  std::span<ReplayEntry> entries() noexcept { return entries_; }

  bool in_use = false;   // a connection fills it
  uint64_t left_ns = 0;  // when the last one ended

 private:
  ReplayEntry*& bucket(uint64_t fingerprint) noexcept;
  bool evict_oldest() noexcept;
  ReplayEntry* oldest_reply() noexcept;
  bool drop_oldest_reply() noexcept;
  // Room for so many bytes, for `entry`; null: there is none to be had.
  std::byte* reserve(ReplayEntry& entry, uint64_t size, uint64_t& dropped) noexcept;

  const uint64_t window_ns_;
  const uint32_t max_reply_;
  const uint64_t ring_size_;
  const unsigned bucket_shift_;
  std::vector<ReplayEntry> entries_;
  std::vector<ReplayEntry*> buckets_;
  uint32_t used_ = 0;
  ReplayEntry* free_ = nullptr;
  ReplayEntry* oldest_ = nullptr;  // of the finished ones
  ReplayEntry* newest_ = nullptr;
  ReplayEntry* oldest_reply_ = nullptr;  // the first of them that may have one
  std::unique_ptr<std::byte[]> ring_;
  uint64_t head_ = 0;  // places in the ring count up, and are taken modulo its size
};

}  // namespace rrdk::server

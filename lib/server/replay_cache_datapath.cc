#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/poll_core.h"
#include "server/kept_reply.h"
#include "server/replay_cache.h"
#include "service/dispatcher.h"

namespace rrdk::server {

namespace {

// Of the arguments: enough to tell calls apart that agree in their XID by chance.
constexpr uint32_t kHashedArgs = 256;
constexpr uint32_t kHashedWords = 6;

void count(std::atomic<uint64_t>& counter, uint64_t more = 1) {
  if (more != 0)
    counter.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace

uint64_t fingerprint(const base::SipKey& key, const rpc::CallHeader& header,
                     const Decoder& args) noexcept {
  std::array<std::byte, (kHashedWords + 1) * sizeof(uint64_t) + kMaxAuthBody + kHashedArgs> bytes;
  uint64_t left = args.remaining();
  uint64_t words[kHashedWords + 1] = {header.xid,
                                      header.program,
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

ReplayEntry* ReplayCache::find(uint32_t xid, uint64_t fingerprint) noexcept {
  auto same = [](const ReplayEntry& entry) { return entry.state != State::kDropped; };
  for (const std::unique_ptr<ReplayLane>& lane : lanes_) {
    if (ReplayEntry* entry = lane->find(xid, fingerprint, same))
      return entry;
  }
  return nullptr;
}

bool ReplayCache::find_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
  // datapath-allow: only for a client over which a connection failed lately
  std::lock_guard lock(lock_);
  forget_failures(failed_.expire(now_ns));
  const ReplayEntry* entry = failed_.find(xid, 0, [](const ReplayEntry&) { return true; });
  return entry != nullptr && entry->connection != connection;
}

void ReplayCache::forget_failures(uint64_t gone) noexcept {
  failures_.fetch_sub(static_cast<uint32_t>(gone), std::memory_order_relaxed);
  count(counters_.evicted, gone);
}

void ReplayCache::expire(uint64_t now_ns) noexcept {
  for (const std::unique_ptr<ReplayLane>& lane : lanes_)
    count(counters_.evicted, lane->expire(now_ns));
}

ReplayCache::Verdict ReplayCache::begin(CallContext& context, ReplayLane& lane,
                                        uint64_t fingerprint, uint64_t now_ns,
                                        void (*wake)(CallContext&)) noexcept {
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  expire(now_ns);
  ReplayEntry* entry = find(context.header.xid, fingerprint);
  if (entry == nullptr) {
    uint64_t evicted = 0;
    entry = lane.add(context.header.xid, fingerprint, State::kRunning, evicted);
    count(counters_.evicted, evicted);
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

void ReplayCache::finish(CallContext& context, bool dropped, bool whole, uint64_t now_ns) noexcept {
  auto& entry = static_cast<ReplayEntry&>(*std::exchange(context.replay, nullptr));
  CallContext* waiter = nullptr;
  {
    // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
    std::lock_guard lock(lock_);
    waiter = std::exchange(entry.waiters, nullptr);
    for (CallContext* each = waiter; each != nullptr; each = each->next_waiter)
      ++entry.pins;
    uint64_t replies_dropped = 0;
    if (dropped) {
      entry.state = State::kDropped;
    } else if (whole && entry.lane->keep(entry, context.call->reply().pieces(), replies_dropped)) {
      entry.state = State::kDone;
      count(counters_.stored);
    } else {
      entry.state = State::kNotKept;
      count(counters_.not_kept);
    }
    count(counters_.not_kept, replies_dropped);
    entry.lane->append(entry, now_ns);
    if (dropped && entry.pins == 0)
      entry.lane->release(entry);
  }
  while (waiter != nullptr) {
    CallContext& next = *std::exchange(waiter, waiter->next_waiter);
    next.run = [](runtime::WorkItem& item) {
      auto& woken = static_cast<CallContext&>(item);
      woken.wake(woken);
    };
    next.dispatcher->link().core().submit(next);
  }
}

ReplayCache::Answer ReplayCache::take(CallContext& context, ReplayLane& lane, Memory& memory,
                                      uint64_t now_ns) noexcept {
  auto& entry = static_cast<ReplayEntry&>(*std::exchange(context.replay, nullptr));
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  --entry.pins;
  if (entry.state == State::kDropped) {
    if (entry.pins == 0)
      entry.lane->release(entry);
    return Answer::kDropped;
  }
  const bool kept = entry.state == State::kDone;
  if (kept)
    restore(entry.lane->reply_of(entry), *context.results, memory);
  count(kept ? counters_.hits : counters_.lost);
  if (entry.lane != &lane && entry.pins == 0)
    move(entry, lane, now_ns);
  return kept ? Answer::kKept : Answer::kNotKept;
}

void ReplayCache::move(ReplayEntry& entry, ReplayLane& lane, uint64_t now_ns) noexcept {
  uint64_t evicted = 0;
  ReplayEntry* moved = lane.add(entry.xid, entry.fingerprint, State::kRunning, evicted);
  count(counters_.evicted, evicted);
  if (moved == nullptr)
    return;
  uint64_t replies_dropped = 0;
  lane.take_over(*moved, entry, now_ns, replies_dropped);
  count(counters_.not_kept, replies_dropped);
}

}  // namespace rrdk::server

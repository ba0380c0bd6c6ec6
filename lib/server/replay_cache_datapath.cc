#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "server/replay_cache.h"
#include "server/replay_lane.h"

namespace rrdk::server {

namespace {

// Of the arguments: enough to tell calls apart that agree in their XID by chance.
constexpr uint32_t kHashedArgs = 256;
constexpr uint32_t kHashedWords = 6;

void count(std::atomic<uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
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

bool ReplayCache::find_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
  // datapath-allow: only for a client over which a connection failed lately
  std::lock_guard lock(lock_);
  forget_failures(now_ns);
  auto found = std::ranges::find(failures_, xid, &Failure::xid);
  return found != failures_.end() && found->connection != connection;
}

// What can not be repeated any more is a new call that looks like an old one.
ReplayEntry* ReplayCache::find(uint32_t xid, uint64_t fingerprint) noexcept {
  ReplayEntry* entry = index_.find(xid, fingerprint);
  if (entry == nullptr || entry->lane != nullptr || entry->pins != 0 ||
      !is_over(entry->since_ns, now_ns_)) [[likely]]
    return entry;
  forget(static_cast<LeftEntry&>(*entry));
  return nullptr;
}

void ReplayCache::pin(ReplayEntry& entry) noexcept {
  if (entry.lane != nullptr)
    entry.lane->pin(entry);
  else
    ++entry.pins;
}

void ReplayCache::unpin(ReplayEntry& entry) noexcept {
  if (entry.lane != nullptr)
    entry.lane->unpin(entry);
  else
    --entry.pins;
}

ReplayCache::Verdict ReplayCache::begin(CallContext& context, ReplayLane* lane,
                                        uint64_t fingerprint, uint64_t now_ns) noexcept {
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  expire(now_ns, kMostExpired);
  if (lane != nullptr) [[likely]]
    lane->expire(now_ns);
  context.is_early = lane != nullptr && lane->count(early());
  ReplayEntry* entry = find(context.header.xid, fingerprint);
  if (entry == nullptr) {
    const Verdict verdict = lane != nullptr ? find_room(*lane) : Verdict::kNoRoom;
    if (verdict == Verdict::kRun) [[likely]]
      context.replay = &lane->begin(context.header.xid, fingerprint, context.is_early);
    return verdict;
  }
  context.replay = entry;
  if (entry->state == State::kRunning) {
    count(counters_.waits);
    context.next_waiter = std::exchange(entry->waiters, &context);
    return Verdict::kWait;
  }
  pin(*entry);
  return Verdict::kSeen;
}

// kRun: the lane has a free entry.
ReplayCache::Verdict ReplayCache::find_room(ReplayLane& lane) noexcept {
  // Also where entries are free that were set aside: they are for those that will be.
  while (!lane.wants_entries()) {
    if (!lane.make_room(has_elders(lane)))
      break;
  }
  while (!lane.has_free()) {
    if (!lane.wants_entries())
      return Verdict::kAllRun;
    if (!grow(lane))
      return Verdict::kNoRoom;
  }
  return Verdict::kRun;
}

CallContext* ReplayCache::finish(CallContext& context, bool dropped, bool whole,
                                 uint64_t now_ns) noexcept {
  auto& entry = static_cast<ReplayEntry&>(*std::exchange(context.replay, nullptr));
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  ReplayLane& lane = *entry.lane;
  CallContext* waiters = std::exchange(entry.waiters, nullptr);
  for (CallContext* each = waiters; each != nullptr; each = each->next_waiter)
    lane.pin(entry);
  if (whole && !dropped)
    fit_ring(lane, kept_size(context.call->reply().pieces()));
  if (dropped) {
    entry.state = State::kDropped;
  } else if (whole && lane.keep(entry, context.call->reply().pieces())) {
    entry.state = State::kDone;
    count(counters_.stored);
  } else {
    entry.state = State::kNotKept;
    count(counters_.not_kept);
  }
  lane.append(entry, now_ns);
  if (dropped && entry.pins == 0)
    lane.release(entry);
  settle(lane);
  return waiters;
}

bool ReplayCache::withdraw(CallContext& waiter) noexcept {
  // datapath-allow: when a connection has ended
  std::lock_guard lock(lock_);
  CallContext** place = &static_cast<ReplayEntry&>(*waiter.replay).waiters;
  while (*place != nullptr && *place != &waiter)
    place = &(*place)->next_waiter;
  if (*place == nullptr)
    return false;
  *place = waiter.next_waiter;
  waiter.replay = nullptr;
  return true;
}

// None where it is not kept.
std::span<const std::byte> ReplayCache::reply_of(const ReplayEntry& entry) const noexcept {
  if (entry.state != State::kDone)
    return {};
  if (entry.lane != nullptr)
    return entry.lane->reply_of(entry);
  return {static_cast<const LeftEntry&>(entry).reply.get(), entry.length};
}

// A finished entry, which only its caller has pinned: so that it stays where it is while room is
// made for it. False: there is none.
bool ReplayCache::take_over(ReplayLane& lane, ReplayEntry& entry, bool early) noexcept {
  if (find_room(lane) != Verdict::kRun)
    return false;
  fit_ring(lane, reply_of(entry).size());
  if (!lane.take_over(entry, reply_of(entry), early))
    return false;
  unpin(entry);
  if (entry.lane != nullptr)
    entry.lane->release(entry);
  else
    forget(static_cast<LeftEntry&>(entry));
  return true;
}

ReplayCache::Answer ReplayCache::take(CallContext& context, ReplayLane* lane,
                                      Memory& memory) noexcept {
  auto& entry = static_cast<ReplayEntry&>(*std::exchange(context.replay, nullptr));
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  ReplayLane* const home = entry.lane;
  const State state = entry.state;
  if (state == State::kDropped) {
    unpin(entry);
    if (entry.pins == 0)
      home->release(entry);
  } else {
    if (state == State::kDone)
      restore(reply_of(entry), *context.results, memory);
    count(state == State::kDone ? counters_.hits : counters_.lost);
    // So it stays among the last of the connection that asked for it.
    const bool moves = lane != nullptr && home != lane && entry.pins == 1;
    if (!moves || !take_over(*lane, entry, context.is_early)) {
      unpin(entry);
      if (home == nullptr)
        renew(static_cast<LeftEntry&>(entry));
    }
  }
  if (home != nullptr)
    settle(*home);
  return state == State::kDone      ? Answer::kKept
         : state == State::kDropped ? Answer::kDropped
                                    : Answer::kNotKept;
}

}  // namespace rrdk::server

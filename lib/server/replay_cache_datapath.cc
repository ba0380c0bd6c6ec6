#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "server/replay_cache.h"

namespace rrdk::server {

namespace {

// Bytes of the arguments: enough to tell calls apart that agree in their XID by chance.
constexpr uint32_t kHashedArgs = 256;
constexpr uint32_t kHashedWords = 7;

}  // namespace

Fingerprint fingerprint(const FingerprintKeys& keys, const rpc::CallHeader& header,
                        const Decoder& args, const rpc::Principal& principal) noexcept {
  Fingerprint print;
  for (size_t i = 0; i < print.principal.size(); ++i)
    print.principal[i] = base::sip_hash(keys.principal[i], principal.bytes());

  std::array<std::byte, kHashedWords * sizeof(uint64_t) + kHashedArgs> bytes;
  uint64_t left = args.remaining();
  uint64_t words[kHashedWords] = {header.xid,        header.program, header.version,
                                  header.procedure,  left,           print.principal[0],
                                  print.principal[1]};
  std::memcpy(bytes.data(), words, sizeof words);
  size_t length = sizeof words;
  Decoder beginning = args;
  ItemView hashed = beginning.get_fixed(
      static_cast<uint32_t>(std::min<uint64_t>(left & ~uint64_t{3}, kHashedArgs)));
  hashed.copy_to(bytes.data() + length);
  length += hashed.size();
  print.call = base::sip_hash(keys.call, std::span(bytes).first(length));
  return print;
}

bool ReplayCache::find_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
  // datapath-allow: only for a client over which a connection failed lately
  std::lock_guard lock(lock_);
  forget_failures(now_ns);
  auto found = std::ranges::find(failures_, xid, &Failure::xid);
  return found != failures_.end() && found->connection != connection;
}

// A call that matches an entry whose time window is over is not a repetition, but a new call that
// looks like the old one.
ReplayEntry* ReplayCache::find(uint32_t xid, const Fingerprint& fingerprint) noexcept {
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

ReplayCache::Verdict ReplayCache::begin(ServedCall& call, ReplayLane* lane,
                                        const Fingerprint& fingerprint, uint64_t now_ns) noexcept {
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  expire(now_ns, kMostExpired);
  if (lane != nullptr) [[likely]]
    lane->expire(now_ns);
  call.is_early = lane != nullptr && lane->count(early());
  ReplayEntry* entry = find(call.header.xid, fingerprint);
  if (entry == nullptr) {
    const Verdict verdict = lane != nullptr ? find_room(*lane) : Verdict::kNoRoom;
    if (verdict == Verdict::kRun) [[likely]]
      call.replay = &lane->begin(call.header.xid, fingerprint, call.is_early);
    return verdict;
  }
  call.replay = entry;
  if (entry->state == State::kRunning) {
    ++counters_.replay_waits;
    call.next_waiter = std::exchange(entry->waiters, &call);
    return Verdict::kWait;
  }
  pin(*entry);
  return Verdict::kSeen;
}

// With kRun, the lane has a free entry.
ReplayCache::Verdict ReplayCache::find_room(ReplayLane& lane) noexcept {
  // Even if entries that had been set aside are free again: they are kept for entries that will be
  // set aside.
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

ServedCall* ReplayCache::finish(ServedCall& call, bool dropped, bool whole,
                                uint64_t now_ns) noexcept {
  auto& entry = static_cast<ReplayEntry&>(*std::exchange(call.replay, nullptr));
  // datapath-allow: for procedures that are not idempotent; its client's own, and held shortly
  std::lock_guard lock(lock_);
  ReplayLane& lane = *entry.lane;
  ServedCall* waiters = std::exchange(entry.waiters, nullptr);
  for (ServedCall* each = waiters; each != nullptr; each = each->next_waiter)
    lane.pin(entry);
  if (whole && !dropped)
    fit_ring(lane, kept_size(call.reply.pieces()));
  if (dropped) {
    entry.state = State::kDropped;
  } else if (whole && lane.keep(entry, call.reply.pieces())) {
    entry.state = State::kDone;
    ++counters_.replay_kept;
  } else {
    entry.state = State::kNotKept;
    ++counters_.replay_not_kept;
  }
  lane.append(entry, now_ns);
  if (dropped && entry.pins == 0)
    lane.release(entry);
  settle(lane);
  return waiters;
}

bool ReplayCache::withdraw(ServedCall& waiter) noexcept {
  // datapath-allow: when a connection has ended
  std::lock_guard lock(lock_);
  ServedCall** place = &static_cast<ReplayEntry&>(*waiter.replay).waiters;
  while (*place != nullptr && *place != &waiter)
    place = &(*place)->next_waiter;
  if (*place == nullptr)
    return false;
  *place = waiter.next_waiter;
  waiter.replay = nullptr;
  return true;
}

// Empty if it is not kept.
std::span<const std::byte> ReplayCache::reply_of(const ReplayEntry& entry) const noexcept {
  if (entry.state != State::kDone)
    return {};
  if (entry.lane != nullptr)
    return entry.lane->reply_of(entry);
  return {static_cast<const LeftEntry&>(entry).reply.get(), entry.length};
}

// Takes over a finished entry that only its caller has pinned, so that it stays where it is while
// space is made. Returns false if there is no space.
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

ReplayCache::Answer ReplayCache::take(ServedCall& call, ReplayLane* lane, Memory& memory) noexcept {
  auto& entry = static_cast<ReplayEntry&>(*std::exchange(call.replay, nullptr));
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
      restore(reply_of(entry), *call.results, memory);
    ++(state == State::kDone ? counters_.replay_answered : counters_.replay_lost);
    // So it stays among the last of the connection that asked for it.
    const bool moves = lane != nullptr && home != lane && entry.pins == 1;
    if (!moves || !take_over(*lane, entry, call.is_early)) {
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

// The lanes of connections.

ReplayEntry* ReplayIndex::find(uint32_t xid, const Fingerprint& fingerprint) const noexcept {
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

ReplayEntry& ReplayLane::begin(uint32_t xid, const Fingerprint& fingerprint, bool early) noexcept {
  ReplayEntry& entry = add(xid, fingerprint);
  entry.early = early;
  return entry;
}

ReplayEntry& ReplayLane::add(uint32_t xid, const Fingerprint& fingerprint) noexcept {
  ReplayEntry& entry = free_.pop();
  ++used_;
  ++running_;
  entry.state = State::kRunning;
  entry.early = entry.set_aside = false;
  entry.xid = xid;
  entry.fingerprint = fingerprint;
  entry.length = 0;
  index_.enter(entry);
  return entry;
}

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
  ++counters_.replay_forgotten;
  return true;
}

void ReplayLane::set_aside(ReplayEntry& entry) noexcept {
  unlink(entry);
  entry.state = State::kNotKept;
  entry.set_aside = true;
  ++asides_;
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
  asides_ -= entry.set_aside;
}

// Removes a finished entry. Its part of the ring becomes free when all older entries have been
// removed.
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
    ++counters_.replay_forgotten;
  }
}

void ReplayLane::drop_reply(ReplayEntry& entry) noexcept {
  entry.state = State::kNotKept;
  ++counters_.replay_not_kept;
}

ReplayEntry* ReplayLane::oldest_reply() noexcept {
  while (oldest_reply_ != nullptr && oldest_reply_->state != State::kDone)
    oldest_reply_ = oldest_reply_->links.next;
  return oldest_reply_;
}

// A reply is one run: the rest of the ring before its end may have to be skipped.
uint64_t ReplayLane::taken_with(uint64_t size) noexcept {
  const ReplayEntry* oldest = oldest_reply();
  if (oldest == nullptr)
    head_ = 0;
  const uint64_t rest = ring_size_ == 0 ? 0 : ring_size_ - head_ % ring_size_;
  return (oldest == nullptr ? 0 : head_ - oldest->begin) + (size > rest ? rest : 0) + size;
}

uint64_t ReplayLane::ring_lacks(uint64_t size) noexcept {
  if (size > std::min(options_.max_reply, options_.bytes) || taken_with(size) <= ring_size_)
    return 0;
  const uint64_t wanted = std::max({kFirstRing, 2 * ring_size_, std::bit_ceil(size)});
  return std::min<uint64_t>(wanted, options_.bytes) - ring_size_;
}

std::byte* ReplayLane::reserve(ReplayEntry& entry, uint64_t size) noexcept {
  if (ring_size_ == 0 || size > std::min<uint64_t>(options_.max_reply, ring_size_))
    return nullptr;
  while (taken_with(size) > ring_size_) {
    ReplayEntry* oldest = oldest_reply();
    if (oldest->pins != 0)
      return nullptr;
    drop_reply(*oldest);
  }
  const uint64_t at = head_ % ring_size_;
  entry.begin = head_;
  entry.at = static_cast<uint32_t>(size > ring_size_ - at ? 0 : at);
  entry.length = static_cast<uint32_t>(size);
  head_ += (entry.at == at ? 0 : ring_size_ - at) + size;
  return &ring_[entry.at];
}

bool ReplayLane::keep(ReplayEntry& entry, std::span<const Piece> reply) noexcept {
  std::byte* room = reserve(entry, kept_size(reply));
  if (room != nullptr)
    server::keep(reply, room);
  return room != nullptr;
}

bool ReplayLane::take_over(const ReplayEntry& finished, std::span<const std::byte> reply,
                           bool early) noexcept {
  ReplayEntry& entry = begin(finished.xid, finished.fingerprint, early);
  entry.state = State::kNotKept;
  std::byte* room = nullptr;
  if (finished.state == State::kDone && (room = reserve(entry, reply.size())) != nullptr) {
    std::ranges::copy(reply, room);
    entry.state = State::kDone;
  }
  append(entry, finished.since_ns);
  const bool taken = entry.state == finished.state;
  if (!taken)
    release(entry);
  return taken;
}

namespace {

enum class Kind : uint32_t { kStream, kItem, kEligible };

struct Run {
  uint32_t length;
  Kind kind;
};

constexpr uint32_t kCount = 4;  // size of an item's count

// Without the count of the item that follows, which is the last word before it.
uint32_t kept_length(std::span<const Piece> reply, size_t i) {
  bool before_item = !reply[i].item && i + 1 < reply.size() && reply[i + 1].item;
  return reply[i].bytes.length - (before_item ? kCount : 0);
}

void restore_item(const std::byte* from, uint32_t length, Encoder& out, Memory& memory) {
  if (length == 0)
    return out.put_item(MemorySpan{}, Ddp::kEligible);
  Buffer buffer = memory.get(length);
  if (buffer)
    std::memcpy(buffer.data(), from, length);
  out.put_item(std::move(buffer), length, Ddp::kEligible);
}

}  // namespace

uint64_t kept_size(std::span<const Piece> reply) noexcept {
  uint64_t size = 0;
  for (size_t i = 0; i < reply.size(); ++i)
    size += sizeof(Run) + kept_length(reply, i);
  return size;
}

void keep(std::span<const Piece> reply, std::byte* to) noexcept {
  for (size_t i = 0; i < reply.size(); ++i) {
    const Piece& piece = reply[i];
    Run run = {kept_length(reply, i), piece.eligible ? Kind::kEligible
                                      : piece.item   ? Kind::kItem
                                                     : Kind::kStream};
    std::memcpy(to, &run, sizeof run);
    to += sizeof run;
    if (!piece.scattered()) {
      if (run.length != 0)
        std::memcpy(to, piece.bytes.data, run.length);
      to += run.length;
      continue;
    }
    for (const MemorySpan& part : piece.runs()) {
      std::memcpy(to, part.data, part.length);
      to += part.length;
    }
  }
}

void restore(std::span<const std::byte> kept, Encoder& out, Memory& memory) noexcept {
  while (!kept.empty()) {
    Run run;
    std::memcpy(&run, kept.data(), sizeof run);
    std::span<const std::byte> bytes = kept.subspan(sizeof run, run.length);
    kept = kept.subspan(sizeof run + run.length);
    if (run.kind == Kind::kStream)
      out.put_fixed(bytes);
    else if (run.kind == Kind::kItem)
      out.put_opaque(bytes);
    else
      restore_item(bytes.data(), run.length, out, memory);
  }
}

}  // namespace rrdk::server

// Regions that come and go while connected: the slow paths of QueuePair's data path, and what the
// control thread hands over to it. Also the record of what a peer has reported about its regions.
#include "drivers/shm/regions.h"

#include <algorithm>
#include <string>

#include "base/assert.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

// What the control thread may have read and the data path not yet taken.
constexpr size_t kMaxPendingChanges = 64;

Message region_message(MessageType type, WireId id) {
  Message message{.type = type};
  message.region = id;
  return message;
}

}  // namespace

// A peer whose socket is full has not read what we sent before; we do not wait for it.
SendResult QueuePair::announce(const OwnRegion& own) {
  RRDK_ASSERT(own.region.fd >= 0 && own.shown() != 0, own.region.id);
  const mem::Region& region = own.region;
  if (local_regions_.entries().size() >= kMaxPeerRegions && !local_regions_.has(region.id))
    return SendResult::kFull;
  Message message = region_message(MessageType::kRegion, own.wire_id);
  message.region_offset = region.fd_offset;
  message.region_length = own.shown();
  const std::array<int, kRegionDescriptors> descriptors = {region.fd};
  const std::lock_guard lock(control_mutex_);
  const SendResult sent = send_message(socket_.get(), message, descriptors);
  if (sent == SendResult::kSent)
    local_regions_.add({region.id, own.wire_id, region.base, own.shown(), nullptr});
  return sent;
}

// A region of ours that this connection uses for the first time, or a part of one that was not
// filled when the peer was told. The peer is told before it reads about any message in that memory.
bool QueuePair::learn_local_region(const MemorySpan& span) {
  for (const OwnRegion& own : device_.regions()) {
    if (own.region.id != span.region)
      continue;
    const auto offset = static_cast<uint64_t>(span.data - own.region.base);
    const bool inside = offset < own.shown() && span.length <= own.shown() - offset;
    return own.region.fd >= 0 && inside && announce(own) == SendResult::kSent;
  }
  return false;
}

// Forgets regions of ours that are gone, and tells the peer to, now or with a later Send.
void QueuePair::sync_regions() {
  const uint64_t generation = device_.region_generation();
  const std::vector<OwnRegion> regions = device_.regions();
  std::vector<RegionEntry> gone = local_regions_.entries();
  std::erase_if(gone, [&](const RegionEntry& entry) {
    return std::ranges::find(regions, entry.wire_id, &OwnRegion::wire_id) != regions.end();
  });
  for (const RegionEntry& entry : gone) {
    local_regions_.remove(entry.id);
    untold_gone_.push_back(entry.wire_id);
  }
  const std::lock_guard lock(control_mutex_);
  while (!untold_gone_.empty()) {
    const Message message = region_message(MessageType::kRegionGone, untold_gone_.back());
    if (send_message(socket_.get(), message, {}) == SendResult::kFull)
      return;
    untold_gone_.pop_back();
  }
  regions_seen_ = generation;
}

QueuePair::Drained QueuePair::drain_socket(uint32_t& most) {
  for (; most != 0 && region_changes_.size() < kMaxPendingChanges; --most) {
    Received r = receive_message(socket_);
    const bool lacking = r.lacks_place_for(MessageType::kRegion);
    if (no_place_.exchange(lacking, std::memory_order_relaxed) != lacking && lacking)
      Counters::count(device_.counts().no_descriptors);
    if (lacking)
      return Drained::kNoPlace;
    if (r.kind == Received::Kind::kNothing)
      return Drained::kAll;
    if (r.kind == Received::Kind::kEnd)
      return Drained::kEnd;
    if (r.kind != Received::Kind::kMessage)
      return Drained::kBroken;
    if (const Drained taken = take_region_change(r); taken != Drained::kSome)
      return taken;
    regions_changed_.store(true, std::memory_order_release);
  }
  return Drained::kSome;
}

// A system call that fails is not the peer's fault.
QueuePair::Drained QueuePair::why_not_taken(Errc code) noexcept {
  switch (code) {
    case Errc::kLimit:
      return Drained::kTooMuchMemory;
    case Errc::kSystem:
      return Drained::kNotMapped;
    default:
      return Drained::kBroken;
  }
}

// kSome: it was valid.
QueuePair::Drained QueuePair::take_region_change(Received& r) {
  if (r.message.type == MessageType::kRegion) {
    Result<RegionEntry> region = take_region(r, device_.mappings(), known_regions_);
    if (!region)
      return why_not_taken(region.error().code);
    region_changes_.push_back(std::move(*region));
    return Drained::kSome;
  }
  if (r.message.type != MessageType::kRegionGone || !r.descriptors.empty() ||
      !known_regions_.remove(r.message.region))
    return Drained::kBroken;
  RegionEntry gone;
  gone.id = r.message.region;
  region_changes_.push_back(std::move(gone));
  return Drained::kSome;
}

// A message or a key names bytes of the peer's that we do not know. The announcement of their
// region is in the socket, and an honest peer has not put much before it. Other queue pairs must
// have their turns, so a message whose region is announced further behind waits for the next turn.
// A Read cannot wait, and may search everything that the socket holds. If a descriptor is lacking,
// on_tick() finds out when there is one again.
bool QueuePair::learn_peer_region(WireId id, uint64_t end, Naming by) {
  constexpr uint32_t kMostOfMessages = 128;
  constexpr uint32_t kMostOfReads = 2 * kMaxPeerRegions;
  const uint32_t most = by == Naming::kMessage ? kMostOfMessages : kMostOfReads;
  const bool waits = by == Naming::kMessage && no_place_.load(std::memory_order_relaxed);
  Drained drained = waits ? Drained::kNoPlace : Drained::kSome;
  while (peer_regions_.at(id, end, 0) == nullptr && drained == Drained::kSome &&
         packets_read_ < most) {
    uint32_t left = most - packets_read_;
    {
      const std::lock_guard lock(control_mutex_);
      drained = drain_socket(left);
    }
    packets_read_ = most - left;
    apply_region_changes();
  }
  const bool known = peer_regions_.at(id, end, 0) != nullptr;
  const bool lacking = drained == Drained::kNoPlace && !known;
  if (lacking && !waits)
    device_.control().nudge(*this);
  if (drained == Drained::kTooMuchMemory || drained == Drained::kNotMapped ||
      drained == Drained::kBroken || (lacking && by == Naming::kRead))
    end_by_socket(drained);
  region_is_late_ = by == Naming::kMessage && !known && (lacking || drained == Drained::kSome);
  return known;
}

// What the peer said about its regions ends the connection, or the fact that we cannot learn it
// now.
void QueuePair::end_by_socket(Drained how) {
  End none = End::kNotYet;
  if (dead_.compare_exchange_strong(none, end_of(how)))
    count_end(end_of(how));
}

QueuePair::End QueuePair::end_of(Drained how) noexcept {
  switch (how) {
    case Drained::kTooMuchMemory:
      return End::kTooMuchMemory;
    case Drained::kNoPlace:
      return End::kNoDescriptors;
    case Drained::kNotMapped:
      return End::kNotMapped;
    case Drained::kEnd:
      return End::kPeerGone;
    default:
      return End::kProtocol;
  }
}

void QueuePair::count_end(End by_socket) {
  if (by_socket == End::kTooMuchMemory)
    Counters::count(device_.counts().too_much_memory);
  else if (by_socket == End::kNotMapped)
    Counters::count(device_.counts().not_mapped);
  else if (by_socket == End::kProtocol)
    Counters::count(device_.counts().broken_sockets);
}

void QueuePair::apply_region_changes() {
  const std::lock_guard lock(control_mutex_);
  regions_changed_.store(false, std::memory_order_relaxed);
  RRDK_ASSERT(region_changes_.size() <= kMaxPendingChanges, region_changes_.size());
  for (RegionEntry& change : region_changes_) {
    if (change.base == nullptr)
      peer_regions_.remove(change.id);
    else
      peer_regions_.add(std::move(change));
  }
  region_changes_.clear();
}

Result<void> PeerRegions::count(File& file, uint64_t end) {
  RRDK_ASSERT(bytes_ <= most_bytes_, bytes_, most_bytes_);
  const uint64_t more = end - std::min(end, file.bytes);
  if (more > most_bytes_ - bytes_)
    return fail(Errc::kLimit, "the peer's memory is more than the " +
                                  std::to_string(most_bytes_ >> 20) +
                                  " MiB that a connection may have mapped here: shm:PATH?"
                                  "peer_memory=SIZE allows more");
  file.bytes += more;
  bytes_ += more;
  return {};
}

Result<void> PeerRegions::add(WireId id, const PeerFile& file) {
  if (const auto known = regions_.find(id); known != regions_.end()) {
    if (known->second.file != file.id() || known->second.end >= file.used)
      return fail(Errc::kNotAPeer, "the peer names a region twice");
    known->second.end = file.used;
    return count(files_[file.id()], file.used);
  }
  if (regions_.size() >= kMaxPeerRegions)
    return fail(Errc::kNotAPeer, "the peer names too many regions");
  File& lies_in = files_[file.id()];
  if (Result<void> counted = count(lies_in, file.used); !counted) {
    if (lies_in.regions == 0)
      files_.erase(file.id());
    return counted;
  }
  ++lies_in.regions;
  regions_.emplace(id, Known{file.id(), file.used});
  return {};
}

bool PeerRegions::remove(WireId id) {
  const auto found = regions_.find(id);
  if (found == regions_.end())
    return false;
  const auto file = files_.find(found->second.file);
  RRDK_ASSERT(file != files_.end() && file->second.regions != 0);
  RRDK_ASSERT(file->second.bytes <= bytes_, file->second.bytes, bytes_);
  regions_.erase(found);
  if (--file->second.regions == 0) {
    bytes_ -= file->second.bytes;
    files_.erase(file);
  }
  return true;
}

}  // namespace rrdk::shm

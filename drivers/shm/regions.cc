// Regions that come and go while connected: the slow paths of QueuePair's data path, and what the
// control thread hands over to it. And the count of what a peer has told of its regions.
#include "drivers/shm/regions.h"

#include <algorithm>
#include <string>

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

// A peer whose socket is full has not read what we told it before: it does not get to make us wait.
SendResult QueuePair::announce(const OwnRegion& own) {
  if (local_regions_.entries().size() >= kMaxPeerRegions)
    return SendResult::kFull;
  const mem::Region& region = own.region;
  Message message = region_message(MessageType::kRegion, own.wire_id);
  message.region_offset = region.fd_offset;
  message.region_length = region.length;
  const std::array<int, kRegionDescriptors> descriptors = {region.fd};
  const std::lock_guard lock(control_mutex_);
  const SendResult sent = send_message(socket_.get(), message, descriptors);
  if (sent == SendResult::kSent)
    local_regions_.add({region.id, own.wire_id, region.base, region.length, nullptr});
  return sent;
}

// A region of ours that this connection uses for the first time. The peer reads of it before it
// reads of any message that lies there.
bool QueuePair::learn_local_region(RegionId id) {
  for (const OwnRegion& own : device_.regions())
    if (own.region.id == id)
      return own.region.fd >= 0 && announce(own) == SendResult::kSent;
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

// kSome: it was good.
QueuePair::Drained QueuePair::take_region_change(Received& r) {
  if (r.message.type == MessageType::kRegion) {
    Result<RegionEntry> region = take_region(r, device_.mappings(), known_regions_);
    if (!region)
      return region.error().code == Errc::kLimit ? Drained::kTooMuchMemory : Drained::kBroken;
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

// A region of the peer's that a message or a key names and we have not heard of: it is in the
// socket, and an honest peer has not put much before it. Others have their turns meanwhile: a
// message whose region is further behind waits for the next one. A Read can not, and may look
// through all that a socket holds.
bool QueuePair::learn_peer_region(WireId id, Naming by) {
  constexpr uint32_t kMostOfMessages = 128;
  constexpr uint32_t kMostOfReads = 2 * kMaxPeerRegions;
  const uint32_t most = by == Naming::kMessage ? kMostOfMessages : kMostOfReads;
  Drained drained = Drained::kSome;
  while (!peer_regions_.has(id) && drained == Drained::kSome && packets_read_ < most) {
    uint32_t left = most - packets_read_;
    {
      const std::lock_guard lock(control_mutex_);
      drained = drain_socket(left);
    }
    packets_read_ = most - left;
    apply_region_changes();
  }
  if (drained == Drained::kTooMuchMemory || drained == Drained::kBroken)
    end_by_socket(drained);
  const bool known = peer_regions_.has(id);
  region_is_late_ = by == Naming::kMessage && !known && drained == Drained::kSome;
  return known;
}

// What the peer said of its regions ends the connection.
void QueuePair::end_by_socket(Drained how) {
  const bool memory = how == Drained::kTooMuchMemory;
  Death none = Death::kNone;
  if (!dead_.compare_exchange_strong(none, memory ? Death::kTooMuchMemory : Death::kBrokenSocket))
    return;
  Counters& counts = device_.counts();
  Counters::count(memory ? counts.too_much_memory : counts.broken_sockets);
}

void QueuePair::apply_region_changes() {
  const std::lock_guard lock(control_mutex_);
  regions_changed_.store(false, std::memory_order_relaxed);
  for (RegionEntry& change : region_changes_) {
    if (change.base == nullptr)
      peer_regions_.remove(change.id);
    else
      peer_regions_.add(std::move(change));
  }
  region_changes_.clear();
}

Result<void> PeerRegions::add(WireId id, const PeerFile& file) {
  if (regions_.size() >= kMaxPeerRegions || regions_.contains(id))
    return fail(Errc::kNotAPeer, "the peer names too many regions, or one twice");
  File& known = files_[file.id()];
  if (known.regions == 0) {
    if (file.bytes > most_bytes_ - bytes_) {
      files_.erase(file.id());
      return fail(Errc::kLimit, "the peer's memory is more than the " +
                                    std::to_string(most_bytes_ >> 20) +
                                    " MiB that a connection may have mapped here: shm:PATH?"
                                    "peer_memory=SIZE allows more");
    }
    known.bytes = file.bytes;
    bytes_ += file.bytes;
  }
  ++known.regions;
  regions_.emplace(id, file.id());
  return {};
}

bool PeerRegions::remove(WireId id) {
  const auto found = regions_.find(id);
  if (found == regions_.end())
    return false;
  const auto file = files_.find(found->second);
  regions_.erase(found);
  if (--file->second.regions == 0) {
    bytes_ -= file->second.bytes;
    files_.erase(file);
  }
  return true;
}

}  // namespace rrdk::shm

// Regions that come and go while connected: the slow paths of QueuePair's data path, and what the
// control thread hands over to it.
#include <poll.h>

#include <algorithm>

#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

Message region_message(MessageType type, WireId id) {
  Message message{.type = type};
  message.region = id;
  return message;
}

// Sends, giving a peer whose socket is full a moment to read it.
SendResult send_patiently(int socket, const Message& message, std::span<const int> descriptors) {
  constexpr int kPatienceMs = 1000;
  SendResult result = send_message(socket, message, descriptors);
  if (result == SendResult::kFull) {
    pollfd writable{socket, POLLOUT, 0};
    ::poll(&writable, 1, kPatienceMs);
    result = send_message(socket, message, descriptors);
  }
  return result;
}

}  // namespace

SendResult QueuePair::announce(const OwnRegion& own) {
  const mem::Region& region = own.region;
  Message message = region_message(MessageType::kRegion, own.wire_id);
  message.region_offset = region.fd_offset;
  message.region_length = region.length;
  const std::array<int, kRegionDescriptors> descriptors = {region.fd};
  const std::lock_guard lock(control_mutex_);
  const SendResult sent = send_patiently(socket_.get(), message, descriptors);
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

// Forgets regions of ours that are gone, and tells the peer to.
void QueuePair::sync_regions() {
  regions_seen_ = device_.region_generation();
  const std::vector<OwnRegion> regions = device_.regions();
  std::vector<RegionEntry> gone = local_regions_.entries();
  std::erase_if(gone, [&](const RegionEntry& entry) {
    return std::ranges::find(regions, entry.wire_id, &OwnRegion::wire_id) != regions.end();
  });
  const std::lock_guard lock(control_mutex_);
  for (const RegionEntry& entry : gone) {
    local_regions_.remove(entry.id);
    (void)send_patiently(socket_.get(), region_message(MessageType::kRegionGone, entry.wire_id),
                         {});
  }
}

QueuePair::Drained QueuePair::drain_socket() {
  for (;;) {
    Received r = receive_message(socket_.get());
    if (r.kind == Received::Kind::kNothing)
      return Drained::kAll;
    if (r.kind == Received::Kind::kEnd)
      return Drained::kEnd;
    if (r.kind == Received::Kind::kMessage && r.message.type == MessageType::kRegion &&
        peer_region_count_ < kMaxPeerRegions) {
      Result<RegionEntry> region = take_region(r, device_.mappings());
      if (!region)
        return Drained::kBroken;
      ++peer_region_count_;
      region_changes_.push_back(std::move(*region));
    } else if (r.kind == Received::Kind::kMessage && r.message.type == MessageType::kRegionGone &&
               peer_region_count_ > 0) {
      --peer_region_count_;
      RegionEntry gone;
      gone.id = r.message.region;
      region_changes_.push_back(std::move(gone));
    } else if (r.kind != Received::Kind::kMessage || r.message.type != MessageType::kHello) {
      return Drained::kBroken;
    }
    regions_changed_.store(true, std::memory_order_release);
  }
}

// A region of the peer's that a message names and we have not heard of: it is in the socket.
bool QueuePair::learn_peer_region(WireId id) {
  {
    const std::lock_guard lock(control_mutex_);
    if (drain_socket() == Drained::kBroken)
      return false;
  }
  apply_region_changes();
  return peer_regions_.has(id);
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

}  // namespace rrdk::shm

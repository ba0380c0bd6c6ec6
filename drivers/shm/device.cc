#include "drivers/shm/device.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/assert.h"
#include "base/log.h"
#include "base/system.h"
#include "drivers/shm/completion_queue.h"
#include "drivers/shm/listener.h"
#include "drivers/shm/queue_pair.h"
#include "drivers/shm/socket.h"
#include "fabric/device.h"

namespace rrdk::shm {

namespace {

constexpr fabric::Capabilities kCapabilities = {
    .max_sges = Slot::kMaxSges,
    .max_inline = Slot::kMaxInline,
    .max_copied = kMaxCopied,
    .reads_at_once = true,
    .max_send_wrs = kMaxSlots / 2,
    .max_receive_wrs = kMaxSlots,
    .max_shared_receives = 1u << 20,
    .max_reads = 128,
    .max_keys = kMaxKeys,
    .max_message = std::numeric_limits<uint32_t>::max(),
    .sends_invalidations = true,
    .takes_invalidations = true,
    .acknowledges = true,
    .read_by_peer = true,
    .max_read_bytes = 256 << 10,
    .binds_lists = true,
    .needs_descriptors = true,
};

}  // namespace

Device::Device(Memory& memory) : SoftwareDevice(kCapabilities), memory_(memory) {}

Result<std::unique_ptr<fabric::Device>> Device::open(Memory& memory, std::string_view /*uri*/,
                                                     fabric::Purpose /*purpose*/) {
  std::unique_ptr<Device> device(new Device(memory));
  mem::listen_regions(memory, *device);
  if (Result<void> started = device->control().start(); !started)
    return tl::unexpected(started.error());
  return device;
}

Device::~Device() {
  control().clear();
  mem::unlisten_regions(memory_, *this);
}

Result<std::unique_ptr<fabric::CompletionQueue>> Device::create_completion_queue(
    uint32_t /*entries*/) {
  return CompletionQueue::create(counts_);
}

Result<std::unique_ptr<fabric::QueuePair>> Device::create_queue_pair(
    const fabric::QueuePairOptions& options) {
  return QueuePair::create(*this, options);
}

Result<std::unique_ptr<fabric::Listener>> Device::listen(const fabric::Place& place) {
  return Listener::create(*this, static_cast<const Address&>(place));
}

Result<void> Device::connect(fabric::QueuePair& qp, const fabric::Place& place,
                             std::span<const std::byte> private_data) {
  if (auto checked = drivers::check_private_data(private_data); !checked)
    return checked;
  const auto& address = static_cast<const Address&>(place);
  const uint64_t peer_memory = address.peer_memory == 0 ? kMemoryOfServer : address.peer_memory;
  Result<Fd> socket = connect_socket(address.path);
  if (!socket)
    return tl::unexpected(socket.error());
  return static_cast<QueuePair&>(qp).start_connect(
      PeerSocket(std::move(*socket)), peer_memory,
      address.timeout.value_or(fabric::kConnectTimeout), private_data);
}

std::vector<OwnRegion> Device::regions() const {
  const std::lock_guard lock(regions_mutex_);
  return regions_;
}

bool Device::holds(const MemorySpan& span) const noexcept {
  const std::lock_guard lock(regions_mutex_);
  return std::ranges::any_of(regions_, [&](const OwnRegion& own) {
    const auto offset = static_cast<uint64_t>(span.data - own.region.base);
    return own.region.id == span.region && offset < own.region.length &&
           span.length <= own.region.length - offset;
  });
}

// Peers are shown no memory with holes: their accesses would fill the holes, at their cost. So a
// region that is used as a whole is filled here; one that is filled step by step is shown as far as
// it is filled.
void Device::region_added(const mem::Region& region) {
  OwnRegion own{region, 0};
  struct stat st{};
  if (region.fd >= 0 && region.filled == mem::Region::kWhole &&
      (::fstat(region.fd, &st) != 0 || ::fallocate(region.fd, 0, 0, st.st_size) != 0)) {
    base::log_error(
        "shm: a region of %zu bytes cannot be shown to peers, calls that use it will "
        "fail: fallocate: %s",
        region.length, base::system_message(errno).c_str());
    own.region.fd = -1;
  }
  const std::lock_guard lock(regions_mutex_);
  own.wire_id = next_wire_id_++;
  regions_.push_back(own);
}

void Device::region_filled(const mem::Region& region) {
  const std::lock_guard lock(regions_mutex_);
  for (OwnRegion& own : regions_) {
    if (own.region.id != region.id)
      continue;
    RRDK_ASSERT(own.region.filled <= region.filled, own.region.filled, region.filled);
    own.region.filled = region.filled;
  }
}

void Device::region_removed(const mem::Region& region) {
  const std::lock_guard lock(regions_mutex_);
  std::erase_if(regions_, [&](const OwnRegion& r) { return r.region.id == region.id; });
  region_generation_.fetch_add(1, std::memory_order_release);
}

std::vector<fabric::Counter> Device::counters() const {
  const Counters& c = counts_;
  return {{"rnr_waits", c.rnr_waits},
          {"doorbells", c.doorbells},
          {"handshakes_refused", c.handshakes_refused},
          {"other_versions", c.other_versions},
          {"visitors_dropped", c.visitors_dropped},
          {"visitors_refused", c.visitors_refused},
          {"accept_failures", c.accept_failures},
          {"broken_sockets", c.broken_sockets},
          {"no_descriptors", c.no_descriptors},
          {"too_much_memory", c.too_much_memory},
          {"not_mapped", c.not_mapped},
          {"stuck_readers", c.stuck_readers},
          {"bad_wake_ups", c.bad_wake_ups},
          {"peers_lost", c.peers_lost},
          {"messages_too_long", c.messages_too_long},
          {"bad_slots", c.bad_slots},
          {"bad_regions", c.bad_regions},
          {"bad_consumed", c.bad_consumed},
          {"bad_invalidations", c.bad_invalidations},
          {"refused_keys", c.refused_keys},
          {"refused_rights", c.refused_rights},
          {"refused_bounds", c.refused_bounds},
          {"bad_keys", c.bad_keys},
          {"local_protection", c.local_protection}};
}

// The driver for two processes, or two parts of one, on a host: shared memory.
extern const fabric::Driver kDriver = {.scheme = kScheme, .open = Device::open, .find = find};

}  // namespace rrdk::shm

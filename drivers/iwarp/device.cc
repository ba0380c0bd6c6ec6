#include "drivers/iwarp/device.h"

#include <limits>
#include <utility>

#include "drivers/iwarp/address.h"
#include "drivers/iwarp/completion_queue.h"
#include "drivers/iwarp/listener.h"
#include "drivers/iwarp/queue_pair.h"
#include "fabric/device.h"

namespace rrdk::iwarp {

namespace {

constexpr uint32_t kMostRequests = 1u << 16;

constexpr fabric::Capabilities kCapabilities = {
    .max_sges = 15,  // pages of 4 KiB in one FPDU, which is a little shorter than 64 KiB
    // A Send is complete when TCP has it; there is no report when the peer has it.
    .max_inline = std::numeric_limits<uint32_t>::max(),
    .max_copied = kMaxCopied,
    .reads_at_once = false,
    .max_send_wrs = kMostRequests,
    .max_receive_wrs = kMostRequests,
    .max_shared_receives = 1u << 20,
    .max_reads = 128,
    .max_keys = 1u << 20,
    .max_message = std::numeric_limits<uint32_t>::max(),
    .sends_invalidations = true,
    .takes_invalidations = true,
    .acknowledges = false,
    .binds_lists = true,
};

}  // namespace

Device::Device(Memory& memory)
    : SoftwareDevice(kCapabilities), memory_(memory), silence_watch_(control()) {}

Result<std::unique_ptr<fabric::Device>> Device::open(Memory& memory, std::string_view /*uri*/,
                                                     fabric::Purpose /*purpose*/) {
  std::unique_ptr<Device> device(new Device(memory));
  Result<void> started =
      device->control().start().and_then([&] { return device->silence_watch_.start(); });
  if (!started)
    return tl::unexpected(started.error());
  return device;
}

Device::~Device() {
  control().clear();
}

Result<std::unique_ptr<fabric::CompletionQueue>> Device::create_completion_queue(
    uint32_t /*entries*/) {
  return CompletionQueue::create();
}

Result<std::unique_ptr<fabric::QueuePair>> Device::create_queue_pair(
    const fabric::QueuePairOptions& options) {
  return QueuePair::create(*this, options);
}

Result<std::unique_ptr<fabric::Listener>> Device::listen(const fabric::Place& place) {
  return Listener::create(*this, static_cast<const Place&>(place));
}

Result<void> Device::connect(fabric::QueuePair& qp, const fabric::Place& place,
                             std::span<const std::byte> private_data) {
  if (auto checked = drivers::check_private_data(private_data); !checked)
    return checked;
  return static_cast<QueuePair&>(qp).start_connect(static_cast<const Place&>(place), private_data);
}

std::vector<fabric::Counter> Device::counters() const {
  const Counters& c = counts_;
  return {{"rnr_waits", c.rnr_waits},
          {"tcp_waits", c.tcp_waits},
          {"read_waits", c.read_waits},
          {"handshakes_refused", c.handshakes_refused},
          {"handshakes_cut", c.handshakes_cut},
          {"handshakes_late", c.handshakes_late},
          {"markers_refused", c.markers_refused},
          {"visitors_dropped", c.visitors_dropped},
          {"partings_cut", c.partings_cut},
          {"accept_failures", c.accept_failures},
          {"pokes", c.pokes},
          {"peers_lost", c.peers_lost},
          {"terminates_sent", c.terminates_sent},
          {"terminates_received", c.terminates_received},
          {"messages_too_long", c.messages_too_long},
          {"bad_lengths", c.bad_lengths},
          {"bad_versions", c.bad_versions},
          {"bad_opcodes", c.bad_opcodes},
          {"bad_queues", c.bad_queues},
          {"bad_numbers", c.bad_numbers},
          {"bad_offsets", c.bad_offsets},
          {"bad_crcs", c.bad_crcs},
          {"bad_invalidations", c.bad_invalidations},
          {"read_overruns", c.read_overruns},
          {"bad_responses", c.bad_responses},
          {"refused_keys", c.refused_keys},
          {"refused_rights", c.refused_rights},
          {"refused_bounds", c.refused_bounds},
          {"reads_denied", c.reads_denied},
          {"local_protection", c.local_protection}};
}

// iWARP over TCP in user space: RFC 5044 and 6581 (MPA), 5041 (DDP), 5040 (RDMAP). Addresses are
// iwarp://host:port.
extern const fabric::Driver kDriver = {.scheme = kScheme, .open = Device::open, .find = find};

}  // namespace rrdk::iwarp

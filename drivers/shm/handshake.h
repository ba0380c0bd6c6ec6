// What crosses the UNIX socket of a connection: the handshake, with the descriptors of everything
// that the two ends share, and later the regions that come and go.
//
//   connecting end                      listening end
//        connect()                ->    accept()
//                                 <-    Hello       "I speak this protocol"
//        Connect, private data    ->                (a ConnectRequest for the application)
//                                 <-    Accept, or Reject, private data
//        Region...              <- ->   Region...
//
// No memory of the connecting end is mapped before the application has accepted it. Afterwards the
// socket stays open: its end means that the peer has died.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "drivers/shm/doorbell.h"
#include "drivers/shm/janitor.h"
#include "drivers/shm/mapping.h"
#include "drivers/shm/regions.h"
#include "drivers/shm/segment.h"
#include "fabric/device.h"

namespace rrdk::shm {

constexpr uint64_t kMagic = 0x6d68734b44525231;  // any layout change changes kVersion
constexpr uint32_t kVersion = 9;
constexpr std::string_view kScheme = "shm";

enum class MessageType : uint32_t { kHello = 1, kConnect, kAccept, kReject, kRegion, kRegionGone };

// One packet. Fixed in size; unused fields are zero. `magic` and `version` have the same position
// in every version, so that incompatible builds can report it.
struct Message {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  MessageType type = MessageType::kHello;
  // kConnect and kAccept; descriptors: segment, doorbell page, wake-up socket
  uint32_t slots = 0;
  uint32_t keys = 0;
  uint32_t reads = 0;
  uint32_t doorbell_bit = 0;
  // kRegion, with the region's descriptor, again when more of the region is shown; kRegionGone
  uint32_t region = kNoWireId;
  // kConnect, kAccept, kReject
  uint32_t private_length = 0;
  uint64_t region_offset = 0;  // within the descriptor
  uint64_t region_length = 0;
  uint64_t copies = 0;  // kConnect and kAccept, like `slots`
  std::array<std::byte, fabric::kMaxPrivateData> private_data{};
};
static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 120);

constexpr size_t kConnectDescriptors = 3;
constexpr size_t kRegionDescriptors = 1;

struct Received {
  enum class Kind {
    kNothing,  // no packet yet
    kNoPlace,  // this process has no descriptor left for those in the packet, which stays in the
               // socket
    kMessage,
    kEnd,           // the peer closed or died
    kOtherVersion,  // of our protocol: message.version
    kGarbage,       // not our protocol
  };
  Kind kind = Kind::kNothing;
  Message message;
  std::vector<PeerFd> descriptors;

  // An honest peer sends no other type with descriptors, so such a packet is not waited for.
  bool lacks_place_for(MessageType expected) const {
    return kind == Kind::kNoPlace && message.type == expected;
  }
};

// Never blocks.
Received receive_message(const PeerSocket& socket);

enum class SendResult { kSent, kFull, kBroken };
// Never blocks. `descriptors` remain the caller's.
SendResult send_message(int socket, const Message& message, std::span<const int> descriptors);

// The contents of a kConnect or kAccept, checked but not mapped yet.
struct Offer {
  Geometry geometry{};
  PeerFd segment;
  PeerFd doorbells;
  PeerFd wake_socket;
  uint32_t doorbell_bit = 0;
  uint32_t reads = 0;
};

// The parts of the peer that a queue pair works with.
struct Peer {
  Geometry geometry{};
  Mapping segment;
  Mapping doorbell_page;
  PeerFd wake_socket;
  uint32_t doorbell_bit = 0;
  uint32_t reads = 0;
};

Result<Offer> take_offer(Received& received);
Result<Peer> map_offer(Offer offer);

// Checks and maps the contents of a kRegion, and enters it into `known`. Errors: kNotAPeer, kLimit,
// kSystem.
Result<RegionEntry> take_region(Received& received, MappingCache& cache, PeerRegions& known);

// For people: why a peer of another version cannot be used.
std::string other_version(const Message& message);

// Copies private data, whose length the caller has checked, into a message.
void put_private_data(Message& message, std::span<const std::byte> data);

// The peer at the other end of a connected socket.
rrdk::Peer peer_of(int socket);

// The process there: pid, uid and its start time, since pids are reused.
fabric::Identity peer_identity(int socket);
// Its user.
fabric::Identity user_identity(int socket);
// Whether the process with this identity has exited. No descriptor is kept for that: it is checked
// only when it matters. A process that has its pid by now is taken for it.
bool process_has_ended(const fabric::Identity& process);

}  // namespace rrdk::shm

// A peer that speaks the shm protocol by hand, and so can break it anywhere.
#pragma once

#include <string>

#include "drivers/shm/handshake.h"
#include "drivers/shm/socket.h"
#include "test/fabric/end.h"

namespace rrdk::shm::test {

// An unsealed memfd, or one of the wrong size.
Fd plain_memfd(size_t bytes);
// A sealed one of that size, with no memory behind it.
Fd sealed_memfd(size_t bytes);

// What a slot of the ring can be made to say.
struct Forged {
  uint32_t length = 0;
  uint16_t flags = 0;
  uint16_t num_sges = 0;
  uint32_t invalidate_key = 0;
  std::array<RemoteSge, Slot::kMaxSges> sges{};
};

class RawPeer {
 public:
  // Connects to a listening device. The device is pumped while the peer waits for it.
  RawPeer(fabric::test::End& server, const std::string& uri);

  // The messages of an honest peer, to be spoilt.
  Message connect_message() const;
  Message region_message() const;
  std::array<int, kConnectDescriptors> descriptors() const;

  SendResult send(const Message& message, std::span<const int> fds);
  // Completes the handshake as an honest peer would; our view of the server's segment is `theirs`.
  void establish(fabric::QueuePairOptions options = {});
  // Publishes a slot.
  void publish(const Forged& slot);

  static constexpr Geometry kGeometry{.slots = 16, .keys = 16};
  static constexpr uint32_t kRegion = 7;
  static constexpr size_t kRegionBytes = 8192;

  fabric::test::End& server;
  Fd socket;
  SharedMemory segment;
  SharedMemory doorbells;
  SharedMemory region;
  Fd wake;
  SegmentView mine;
  SegmentView theirs;
  Peer peer;
  uint64_t sent = 0;
  std::unique_ptr<fabric::QueuePair> server_qp;
};

}  // namespace rrdk::shm::test

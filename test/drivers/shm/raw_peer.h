// Peers that speak the shm protocol by hand, and so can violate it anywhere.
#pragma once

#include <fcntl.h>

#include <string>
#include <vector>

#include "drivers/shm/handshake.h"
#include "drivers/shm/socket.h"
#include "test/fabric/end.h"

namespace rrdk::shm::test {

// The seals that keep a file's size.
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
// The seals on the region of an honest peer.
constexpr int kRegionSeals = kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// An unsealed memfd.
Fd plain_memfd(size_t bytes);
// A memfd with these seals. `flags` are those of memfd_create(); with `holes` it has no memory
// behind it.
Fd sealed_memfd(size_t bytes, int seals, unsigned flags = 0, bool holes = false);

// The content of a slot of the ring.
struct Forged {
  uint32_t length = 0;
  uint8_t flags = 0;
  uint8_t num_sges = 0;
  uint32_t key = 0;
  uint64_t address = 0;  // kWrite, kCopied
  std::array<RemoteSge, Slot::kMaxSges> sges{};
};

// Common to both roles.
class RawEnd {
 public:
  RawEnd();
  virtual ~RawEnd() = default;

  // The messages of an honest peer, for tests to change.
  Message offer(MessageType type) const;
  Message region_message() const;
  std::array<int, kConnectDescriptors> descriptors() const;

  SendResult send(const Message& message, std::span<const int> fds);
  SendResult send_region(int fd, uint32_t id, uint64_t length, uint64_t offset = 0);
  // The next message of this type; others are kept for their descriptors.
  Received receive(MessageType type);
  // Publishes a slot.
  void publish(const Forged& slot);

  static constexpr Geometry kGeometry{.slots = 16, .keys = 16, .copies = 4096};
  static constexpr uint32_t kRegion = 7;
  static constexpr size_t kRegionBytes = 8192;

  PeerSocket socket;
  SharedMemory segment;
  SharedMemory doorbells;
  SharedMemory region;
  Fd wake;
  SegmentView mine;
  SegmentView theirs;  // read only
  Peer peer;
  // What was received from the other end, in order.
  std::vector<Received> told;
  uint64_t sent = 0;
  std::unique_ptr<fabric::QueuePair> victim;  // the honest end

 protected:
  void take(Received& offer_of_victim);
};

// A client of a listening device. The device is pumped while the peer waits for it.
class RawPeer : public RawEnd {
 public:
  RawPeer(fabric::test::End& server, const std::string& uri);

  Message connect_message() const { return offer(MessageType::kConnect); }
  // Completes the handshake as an honest peer would.
  void establish(fabric::QueuePairOptions options = {});

  fabric::test::End& server;
};

// A server, to which a client of `client` connects.
class RawServer : public RawEnd {
 public:
  RawServer(fabric::test::End& client, const std::string& uri);
  // The rest of the handshake.
  void establish();

 private:
  fabric::test::End& client_;
  ListeningSocket listening_;
};

}  // namespace rrdk::shm::test

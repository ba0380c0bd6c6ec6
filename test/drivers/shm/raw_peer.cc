#include "test/drivers/shm/raw_peer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace rrdk::shm::test {

using fabric::EventType;

Fd plain_memfd(size_t bytes) {
  Fd fd(::memfd_create("plain", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

Fd sealed_memfd(size_t bytes) {
  Fd fd(::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return fd;
}

RawPeer::RawPeer(fabric::test::End& end, const std::string& uri)
    : server(end),
      socket(connect_socket(parse_path(uri).value()).value()),
      segment(create_shared("raw", kGeometry.bytes()).value()),
      doorbells(create_shared("raw", kDoorbellBytes).value()),
      region(create_shared("raw", kRegionBytes).value()),
      wake(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      mine(segment.mapping.base(), kGeometry) {}

Message RawPeer::connect_message() const {
  Message m{.type = MessageType::kConnect};
  m.slots = kGeometry.slots;
  m.keys = kGeometry.keys;
  m.reads = 1;
  m.doorbell_bit = 3;
  return m;
}

Message RawPeer::region_message() const {
  Message m{.type = MessageType::kRegion};
  m.region = kRegion;
  m.region_length = kRegionBytes;
  return m;
}

std::array<int, kConnectDescriptors> RawPeer::descriptors() const {
  return {segment.fd.get(), doorbells.fd.get(), wake.get()};
}

SendResult RawPeer::send(const Message& message, std::span<const int> fds) {
  return send_message(socket.get(), message, fds);
}

void RawPeer::establish(fabric::QueuePairOptions options) {
  const std::array<int, 1> region_fd = {region.fd.get()};
  ASSERT_EQ(send(region_message(), region_fd), SendResult::kSent);
  ASSERT_EQ(send(connect_message(), descriptors()), SendResult::kSent);
  ASSERT_TRUE(fabric::test::pump_until(
      {&server}, [&] { return server.has_event(EventType::kConnectRequest); }));
  fabric::Event event = server.take_event(EventType::kConnectRequest);
  options.cq = server.cq.get();
  server_qp = event.request->create_queue_pair(options).value();
  ASSERT_TRUE(event.request->accept(*server_qp, {}));
  for (;;) {
    Received r = receive_message(socket.get());
    ASSERT_EQ(r.kind, Received::Kind::kMessage);
    if (r.message.type != MessageType::kAccept)
      continue;
    ASSERT_TRUE(take_peer(r, peer));
    break;
  }
  theirs = SegmentView(peer.segment.base(), peer.geometry);
  ASSERT_TRUE(fabric::test::pump_until({&server},
                                       [&] { return server.has_event(EventType::kEstablished); }));
  server.events.clear();
}

void RawPeer::publish(const Forged& slot) {
  Slot& to = mine.slot(sent);
  to.length = slot.length;
  to.flags = slot.flags;
  to.num_sges = slot.num_sges;
  to.invalidate_key = slot.invalidate_key;
  std::memcpy(to.sges, slot.sges.data(), sizeof(to.sges));
  to.sequence.store(++sent, std::memory_order_release);
}

}  // namespace rrdk::shm::test

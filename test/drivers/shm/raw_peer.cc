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

Fd sealed_memfd(size_t bytes, int seals, unsigned flags, bool holes) {
  Fd fd(::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (!holes) {
    EXPECT_EQ(::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)), 0);
  }
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

RawEnd::RawEnd()
    : segment(create_shared("raw", kGeometry.bytes(), Writers::kOwner).value()),
      doorbells(create_shared("raw", kDoorbellBytes, Writers::kBoth).value()),
      region(create_shared("raw", kRegionBytes, Writers::kOwner).value()),
      wake(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)),
      mine(segment.mapping.base(), kGeometry) {}

Message RawEnd::offer(MessageType type) const {
  Message m{.type = type};
  m.slots = kGeometry.slots;
  m.keys = kGeometry.keys;
  m.copies = kGeometry.copies;
  m.reads = 1;
  m.doorbell_bit = 3;
  return m;
}

Message RawEnd::region_message() const {
  Message m{.type = MessageType::kRegion};
  m.region = kRegion;
  m.region_length = kRegionBytes;
  return m;
}

std::array<int, kConnectDescriptors> RawEnd::descriptors() const {
  return {segment.fd.get(), doorbells.fd.get(), wake.get()};
}

SendResult RawEnd::send(const Message& message, std::span<const int> fds) {
  return send_message(socket.get(), message, fds);
}

SendResult RawEnd::send_region(int fd, uint32_t id, uint64_t length, uint64_t offset) {
  Message m = region_message();
  m.region = id;
  m.region_length = length;
  m.region_offset = offset;
  return send(m, std::span(&fd, 1));
}

Received RawEnd::receive(MessageType type) {
  for (;;) {
    Received r = receive_message(socket);
    if (r.kind != Received::Kind::kMessage || r.message.type == type)
      return r;
    told.push_back(std::move(r));
  }
}

void RawEnd::take(Received& offer_of_victim) {
  ASSERT_EQ(offer_of_victim.kind, Received::Kind::kMessage);
  Received copy;
  copy.message = offer_of_victim.message;
  for (const PeerFd& fd : offer_of_victim.descriptors)
    copy.descriptors.emplace_back(Fd(::dup(fd.get())), fd.sender());
  told.push_back(std::move(copy));
  Result<Peer> taken = take_offer(offer_of_victim).and_then(map_offer);
  ASSERT_TRUE(taken) << taken.error().message;
  peer = std::move(*taken);
  theirs = SegmentView(peer.segment.base(), peer.geometry);
}

void RawEnd::publish(const Forged& slot) {
  Slot& to = mine.slot(sent);
  to.far.key = slot.key;
  to.far.length = slot.length;
  to.far.address = slot.address;
  std::memcpy(to.far.sges, slot.sges.data(), sizeof(to.far.sges));
  to.word.store({static_cast<uint32_t>(++sent), static_cast<uint16_t>(slot.length), slot.flags,
                 slot.num_sges},
                std::memory_order_release);
}

RawPeer::RawPeer(fabric::test::End& end, const std::string& uri) : server(end) {
  socket = PeerSocket(connect_socket(parse_address(uri).value().path).value());
}

void RawPeer::establish(fabric::QueuePairOptions options) {
  ASSERT_EQ(send(connect_message(), descriptors()), SendResult::kSent);
  ASSERT_TRUE(fabric::test::pump_until(
      {&server}, [&] { return server.has_event(EventType::kConnectRequest); }));
  fabric::Event event = server.take_event(EventType::kConnectRequest);
  options.cq = server.cq.get();
  victim = event.request->create_queue_pair(options).value();
  ASSERT_TRUE(event.request->accept(*victim, {}));
  Received r = receive(MessageType::kAccept);
  take(r);
  ASSERT_EQ(send_region(region.fd.get(), kRegion, kRegionBytes), SendResult::kSent);
  ASSERT_TRUE(fabric::test::pump_until({&server},
                                       [&] { return server.has_event(EventType::kEstablished); }));
  server.events.clear();
}

RawServer::RawServer(fabric::test::End& client, const std::string& uri)
    : client_(client), listening_(ListeningSocket::open(parse_address(uri).value().path).value()) {
  victim = client.queue_pair();
  EXPECT_TRUE(client.device->connect(*victim, uri, {}));
  socket = PeerSocket(Fd(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC)));
  EXPECT_EQ(send(Message{}, {}), SendResult::kSent);
}

void RawServer::establish() {
  Received r = receive(MessageType::kConnect);
  take(r);
  ASSERT_EQ(send(offer(MessageType::kAccept), descriptors()), SendResult::kSent);
  ASSERT_EQ(send_region(region.fd.get(), kRegion, kRegionBytes), SendResult::kSent);
  ASSERT_TRUE(fabric::test::pump_until({&client_},
                                       [&] { return client_.has_event(EventType::kEstablished); }));
  client_.events.clear();
}

}  // namespace rrdk::shm::test

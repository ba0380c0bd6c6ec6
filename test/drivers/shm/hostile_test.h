// A server over shared memory with an honest client and a dishonest peer (raw_peer.h).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "test/drivers/shm/raw_peer.h"
#include "test/fabric/fabrics.h"

namespace rrdk::shm::test {

inline std::string new_uri() {
  return fabric::test::fabrics()[0].new_uri();
}

class Hostile : public testing::Test {
 protected:
  // The honest pair, on the same devices, still works.
  void expect_bystanders_unharmed() {
    Buffer buffer = fabric::test::test_memory().get(4096);
    honest_.post_receives(*honest_.server_qp, 2);
    EXPECT_EQ(honest_.run(fabric::test::send_wr(1, {buffer.first(100)})).status,
              fabric::WcStatus::kSuccess);
    EXPECT_EQ(honest_.run(fabric::test::send_wr(2, {buffer.first(4096)})).status,
              fabric::WcStatus::kSuccess);
    honest_.server.completions.clear();
  }
  // The server closes the socket of this peer without having told its application.
  void expect_refused(RawPeer& peer) {
    const uint64_t before = refused_;
    ASSERT_TRUE(fabric::test::pump_until(
        {&honest_.server}, [&] { return honest_.server.counter("handshakes_refused") > before; }));
    refused_ = honest_.server.counter("handshakes_refused");
    EXPECT_FALSE(honest_.server.has_event(fabric::EventType::kConnectRequest));
    Received r;
    do
      r = receive_message(peer.socket);
    while (r.kind == Received::Kind::kMessage);
    EXPECT_EQ(r.kind, Received::Kind::kEnd);
  }
  void expect_disconnected(const char* counter) {
    ASSERT_TRUE(fabric::test::pump_until({&honest_.server}, [&] {
      return honest_.server.has_event(fabric::EventType::kDisconnected);
    }));
    EXPECT_GE(honest_.server.counter(counter), 1u) << counter;
    honest_.server.events.clear();
    expect_bystanders_unharmed();
  }

  fabric::test::Pair honest_{new_uri() + "?timeout=60"};
  uint64_t refused_ = 0;
};

// The same with a client's device, for raw servers.
class HostileToBoth : public Hostile {
 protected:
  fabric::test::End client_{honest_.uri};
};

}  // namespace rrdk::shm::test

// A requester and a responder, back to back: each must understand what the other sends.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine_end.h"

namespace rrdk::engine::test {

// One opaque<> of a test message. A message is XID, msg_type, an id, and its items.
struct Item {
  uint32_t length;
  bool eligible = false;  // by reference, and the binding allows chunks for it
  bool reference = false;
  uint32_t segments = 1;  // if there are more: runs of memory of odd lengths, by reference
};

// For tests that hold in each version.
inline auto each_wire() {
  return testing::Values(proto::Wire::kVersion1, proto::Wire::kDraft00, proto::Wire::kDraft04);
}
inline std::string wire_name(const testing::TestParamInfo<proto::Wire>& wire) {
  constexpr const char* kNames[] = {"Version1", "Draft00", "Draft04"};
  return kNames[static_cast<size_t>(wire.param)];
}

class Pair : public EngineTest {
 protected:
  using EngineTest::EngineTest;

  void connect(ConnectionOptions client = {}, ConnectionOptions server = {}, uint32_t reads = 16) {
    client.role = Role::kRequester;
    server.role = Role::kResponder;
    a = std::make_unique<End>(client, *memory, *pool);
    b = std::make_unique<End>(server, *memory, *pool);
    a->qp.remote = &b->qp;
    b->qp.remote = &a->qp;
    a->engine->on_established(b->engine->private_data(), reads);
    b->engine->on_established(a->engine->private_data(), reads);
    a->engine->set_port(&a->qp);
    b->engine->set_port(&b->qp);
  }
  // The same in that version.
  void connect_in(proto::Wire wire, ConnectionOptions client = {}, ConnectionOptions server = {},
                  uint32_t reads = 16) {
    if (wire != proto::Wire::kVersion1) {
      client.speaks = Speaks::kTwo;
      client.limits.versions.two = server.limits.versions.two = wire;
      client.properties = server.properties = false;
    }
    Pair::connect(client, server, reads);
  }
  void run() {
    for (bool again = true; again;) {
      again = a->run();
      again |= b->run();
    }
  }
  // The connection ends, and calls that are held above are answered; then nothing may be left.
  void finish() {
    a->disconnect();
    b->disconnect();
    for (ServedCall* call : std::exchange(b->held, {}))
      b->engine->reply(*call);
    for (End* end : {a.get(), b.get()}) {
      EXPECT_TRUE(end->engine->idle());
      EXPECT_TRUE(end->qp.keys.empty());
    }
    a.reset();
    b.reset();
  }
  void TearDown() override {
    if (a != nullptr)
      finish();
    scattered.clear();
    EngineTest::TearDown();
  }

  void write(Message& message, uint32_t xid, uint32_t type, const std::vector<Item>& items,
             uint32_t id = 0) {
    Encoder e(message, *memory, 900, 8u << 20);
    e.put_u32(xid);
    e.put_u32(type);
    e.put_u32(id);
    uint32_t seed = id;
    for (const Item& item : items) {
      Bytes bytes = pattern(item.length, seed++);
      if (!item.eligible && !item.reference) {
        e.put_opaque(std::span<const std::byte>(bytes));
        continue;
      }
      const Ddp ddp = item.eligible ? Ddp::kEligible : Ddp::kNo;
      if (item.segments > 1) {
        e.put_item(scatter(bytes, item.segments), ddp);
        continue;
      }
      Buffer buffer = memory->get(std::max(item.length, 1u));
      ASSERT_TRUE(buffer);
      std::copy(bytes.begin(), bytes.end(), buffer.data());
      e.put_item(std::move(buffer), item.length, ddp);
    }
    e.finish();
    ASSERT_TRUE(e.ok());
  }
  // The bytes in that number of runs, with gaps between them, of memory that lives until the test
  // ends. All but the last have a length that is no multiple of four.
  std::vector<MemorySpan> scatter(const Bytes& bytes, uint32_t segments) {
    std::vector<MemorySpan> spans;
    const auto most = static_cast<uint32_t>(bytes.size()) / segments | 1;
    for (size_t at = 0; at != bytes.size();) {
      size_t length = bytes.size() - at;
      if (spans.size() + 1 != segments)
        length = std::min<size_t>(length, most > 4 ? most - 2 * (spans.size() % 2) : most);
      if (scattered.empty() || scattered.back().capacity() - used < length + 1) {
        scattered.push_back(
            memory->get(static_cast<uint32_t>(std::max<size_t>(length + 1, 16384))));
        EXPECT_TRUE(scattered.back());
        used = 0;
      }
      const Buffer& buffer = scattered.back();
      spans.push_back({buffer.data() + used, static_cast<uint32_t>(length), buffer.region()});
      std::copy_n(bytes.begin() + at, length, spans.back().data);
      at += length;
      used += length + 1;
    }
    return spans;
  }
  static void check(Decoder d, const std::vector<Item>& items, uint32_t id = 0) {
    d.get_u32();
    d.get_u32();
    EXPECT_EQ(d.get_u32(), id);
    uint32_t seed = id;
    for (const Item& item : items) {
      ItemView view = item.eligible ? d.get_item(1u << 20) : d.get_opaque(1u << 20);
      Bytes bytes(view.size());
      view.copy_to(bytes.data());
      EXPECT_EQ(bytes, pattern(item.length, seed++));
    }
    EXPECT_TRUE(d.at_end());
  }
  static uint64_t stream_length(const std::vector<Item>& items) {
    uint64_t length = 12;
    for (const Item& item : items)
      length += 4 + item.length + xdr_pad(item.length);
    return length;
  }
  // The responder's upper layer: checks the arguments, answers with `items`.
  void serve(std::vector<Item> arguments, std::vector<Item> items) {
    b->handler = [this, arguments, items](ServedCall& call) {
      check(Decoder(call.message), arguments);
      write(call.reply, call.xid, 1, items);
      b->engine->reply(call);
    };
  }
  // One call from start to end.
  void call_once(OutgoingCall& call, const std::vector<Item>& arguments,
                 const std::vector<Item>& results) {
    serve(arguments, results);
    write(call.message, 0, 0, arguments);
    a->engine->submit(call);
    run();
    ASSERT_EQ(a->ended.size(), 1u);
    a->ended.clear();
    ASSERT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
    check(Decoder(call.reply, call.placed), results);
    EXPECT_TRUE(a->qp.keys.empty()) << "a key outlived its call";
  }
  // The message type in the header of this end's Send number `index`, counted from 0.
  proto::MessageType sent_type(const End& end, size_t index) {
    size_t n = 0;
    for (const fabric::SendWr& wr : end.qp.log) {
      bool send = wr.op == fabric::Op::kSend || wr.op == fabric::Op::kSendInvalidate;
      if (send && n++ == index)
        return static_cast<proto::MessageType>(xdr::load_u32(wr.sges[0].data + 12));
    }
    ADD_FAILURE() << "no such Send";
    return proto::MessageType::kDone;
  }

  std::vector<Buffer> scattered;
  size_t used = 0;         // bytes of the last one
  std::unique_ptr<End> a;  // requester
  std::unique_ptr<End> b;  // responder
};

}  // namespace rrdk::engine::test

// One end of a connection over shared memory, whose peer writes its own segment in any way: slots,
// copies, keys and counts that are right except for a few words, or plain bytes. Meanwhile the end
// receives in Receives and in its lane, and sends. It must report each of our requests once, keep
// to the memory that the peer may write, and end.
#include <fuzzer/FuzzedDataProvider.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fabric/lane.h"
#include "require.h"
#include "test/drivers/shm/raw_peer.h"
#include "test/fabric/end.h"

namespace rrdk::fuzz {
namespace {

using namespace shm;
using fabric::Op;
using fabric::Rights;
using shm::test::Forged;
using shm::test::RawEnd;
using shm::test::RawPeer;

// Parts of the memory: readable, writable, Receives, Read sinks, guard.
constexpr uint32_t kPart = 8192;
constexpr uint32_t kReceive = 1024;
constexpr uint32_t kReceives = 6;
constexpr uint64_t kQuiet = 99;
constexpr std::byte kMark{0x5a};
constexpr size_t kSlotsEnd = sizeof(State) + RawEnd::kGeometry.slots * sizeof(Slot);

struct Ground {
  Ground()
      : end("shm:"),
        listener(end.device->listen("shm:@rrdk-fuzz-" + std::to_string(::getpid())).value()) {
    buffer = fabric::test::test_memory().get(1 << 20);
  }
  fabric::test::End end;
  std::unique_ptr<fabric::Listener> listener;
  Buffer buffer;
};

Ground& ground() {
  static Ground& g = *new Ground;
  return g;
}

class Connection final : private fabric::LaneUser {
 public:
  explicit Connection(FuzzedDataProvider& in) : in_(in), peer_(ground().end, uri()) {
    std::fill_n(memory(), 5 * kPart, kMark);
    peer_.establish({.send_wrs = 16, .receive_wrs = kReceives, .keys = 4, .reads = 1});
    require(peer_.victim != nullptr, "a connection");
    if (in.ConsumeBool())
      peer_.victim->set_lane_user(this);
    require(peer_.victim->reserve_keys(keys_), "keys");
    post(Op::kBindKey, keys_[0], part(0, 1024, 4096), Rights::kRemoteRead);
    post(Op::kBindKey, keys_[1], part(1, 1024, 4096), Rights::kRemoteWrite);
    for (uint32_t i = 0; i != kReceives; ++i)
      post_receive(i);
  }
  ~Connection() {
    peer_.victim->disconnect();
    for (int i = 0; i != 20; ++i)
      poll();
    require(reported_ == posted_, "a request that was not reported, or twice");
    peer_.victim.reset();
    ground().end.events.clear();
    only_the_window_changed();
  }

  void step() {
    switch (in_.ConsumeIntegralInRange(0, 11)) {
      case 0:
        return post(Op::kRead, near<uint32_t>(9), part(3, 0, size(4096)));
      case 1:
        return post(Op::kSend, 0, part(3, 0, size(8192)), Rights::kRemoteRead, in_.ConsumeBool());
      case 2:
        return post(Op::kInvalidateKey, keys_[in_.ConsumeBool()], {});
      case 3:
        return post_receive(0);
      case 4:
        return send_in_lane();
      case 5:
        return write_bytes(in_.ConsumeIntegralInRange<size_t>(0, RawEnd::kGeometry.bytes()));
      case 6:
        return write_bytes(in_.ConsumeIntegralInRange<size_t>(sizeof(State), kSlotsEnd));
      case 7:
        return write_state();
      case 8:
        return write_key();
      case 9:
        return write_ring();
      default:
        write_slot(peer_.sent);
        return poll();
    }
  }

 private:
  static std::string uri() { return ground().listener->uri(); }
  static std::byte* memory() { return ground().buffer.data(); }
  static MemorySpan part(uint32_t which, uint32_t at, uint32_t length) {
    return {memory() + which * kPart + at, length, ground().buffer.region()};
  }
  uint32_t size(uint32_t most) { return in_.ConsumeIntegralInRange<uint32_t>(0, most); }
  // A correct value, one near it, or any value.
  template <typename T>
  T near(T right) {
    switch (in_.ConsumeIntegralInRange(0, 15)) {
      case 0:
        return in_.ConsumeIntegral<T>();
      case 1:
        return static_cast<T>(right + in_.ConsumeIntegralInRange<T>(0, 8) - 4);
      default:
        return right;
    }
  }

  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override {
    std::array<std::byte, kMaxCopied> bytes;
    for (; most != 0; --most) {
      const fabric::LaneMessage message = lane.peek();
      if (!message || taken_ % 7 == 6)
        break;
      require(message.length() <= lane.most() && message.length() % 4 == 0, "a message's length");
      require(message.invalidated() == 0 || std::ranges::count(keys_, message.invalidated()) == 1,
              "a key that is not ours");
      message.copy(bytes.data(), 0, message.length());
      lane.take(message);
      if (std::byte* const reply = lane.begin(message.length())) {
        std::memcpy(reply, bytes.data(), message.length());
        lane.send(message.length());
      }
      ++taken_;
    }
    ++taken_;
  }

  void post(Op op, uint32_t key, MemorySpan span, Rights rights = Rights::kRemoteRead,
            bool copied = false) {
    fabric::SendWr wr;
    wr.op = op;
    wr.key = key;
    wr.rights = rights;
    wr.num_sges = span.data != nullptr ? 1 : 0;
    wr.sges[0] = span;
    if (copied && span.length <= kMaxCopied) {
      wr.signaled = false;
      wr.quiet = wr.copied = true;
      wr.wr_id = kQuiet;
      peer_.victim->post_send({&wr, 1});
      return;
    }
    posted_ += peer_.victim->post_send({&wr, 1});
  }
  void post_receive(uint32_t number) {
    const fabric::ReceiveWr wr{number, part(2, number * kReceive, kReceive)};
    posted_ += peer_.victim->post_receive({&wr, 1});
  }
  void send_in_lane() {
    fabric::Lane* const lane = peer_.victim->lane();
    if (lane == nullptr)
      return;
    const uint32_t most = size(2000);
    std::byte* const place = lane->begin(most);
    if (place == nullptr)
      return;
    const uint32_t length = std::max(size(most) & ~3u, 4u);
    std::memset(place, 1, length);
    lane->send(length, near<uint32_t>(0));
    lane->flush();
  }

  void poll() {
    ground().end.pump();
    for (const fabric::Completion& completion : ground().end.take_completions()) {
      // A quiet Send is only reported if it has ended the connection.
      reported_ += completion.wr_id != kQuiet ? 1 : 0;
      require(completion.op != Op::kReceive || completion.byte_length <= kReceive,
              "a message that is longer than its Receive");
    }
  }

  std::byte* segment() { return peer_.segment.mapping.base(); }
  void write_bytes(size_t at) {
    const auto some = in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange<size_t>(0, 64));
    std::copy_n(std::as_bytes(std::span(some)).begin(),
                std::min(some.size(), RawEnd::kGeometry.bytes() - at), segment() + at);
    poll();
  }
  void write_state() {
    peer_.mine.state->consumed.store(near(sent_by_victim()));
    if (in_.ConsumeIntegralInRange(0, 30) == 0)
      peer_.mine.state->closed.store(in_.ConsumeIntegral<uint8_t>());
    peer_.mine.state->wants.store(in_.ConsumeIntegral<uint8_t>());
    poll();
  }
  // As far as it is visible: the highest number in its ring.
  uint64_t sent_by_victim() {
    uint64_t most = 0;
    for (uint32_t i = 0; i <= peer_.theirs.slot_mask; ++i)
      most = std::max<uint64_t>(most, peer_.theirs.slots[i].word.load().sequence);
    return most;
  }
  void write_key() {
    KeyEntry& entry = peer_.mine.keys[in_.ConsumeIntegralInRange<uint32_t>(0, 15)];
    entry.key.store(near<uint32_t>(9));
    entry.region.store(near(RawEnd::kRegion));
    entry.runs.store(near<uint32_t>(0));
    entry.offset.store(near<uint64_t>(0));
    entry.length.store(near<uint64_t>(4096));
    entry.rights.store(near<uint32_t>(0));
  }

  // The whole ring at once, before the other end looks.
  void write_ring() {
    for (uint32_t i = 0; i != RawEnd::kGeometry.slots && in_.remaining_bytes() != 0; ++i)
      write_slot(peer_.sent);
    poll();
  }
  void write_slot(uint64_t number) {
    constexpr std::array<uint8_t, 8> kUsual = {
        kInline,     kInline | kInvalidate, kCopied, kCopied | kInvalidate, kWrite, 0,
        kInvalidate, kInline | kAckWanted};
    Forged slot;
    slot.flags = near(kUsual[in_.ConsumeIntegralInRange<size_t>(0, 7)]);
    slot.length = near(4 * size(slot.flags & kInline ? 70 : 300));
    slot.key = near(keys_[in_.ConsumeBool()]);
    slot.address = (slot.flags & kWrite) != 0 ? near(address(1) + size(4096)) : near(64 * size(60));
    slot.num_sges = near<uint8_t>(1);
    slot.sges[0] = {near<uint64_t>(size(4096)), near(RawEnd::kRegion), near(slot.length)};
    peer_.publish(slot);
    Slot& to = peer_.mine.slot(number);
    if ((slot.flags & kInline) != 0 && slot.length <= Slot::kMaxInline)
      std::memcpy(to.room + slot.length, &slot.key, sizeof slot.key);
    if (in_.ConsumeIntegralInRange(0, 15) == 0) {
      SlotWord word = to.word.load();
      word.sequence = near(word.sequence);
      word.length = near(word.length);
      to.word.store(word);
    }
  }
  static uint64_t address(uint32_t which) {
    return reinterpret_cast<uintptr_t>(part(which, 1024, 0).data);
  }
  static void only_the_window_changed() {
    const auto marked = [](uint32_t which, uint32_t from, uint32_t to) {
      const std::byte* at = part(which, 0, 0).data;
      return std::all_of(at + from, at + to, [](std::byte b) { return b == kMark; });
    };
    require(marked(0, 0, kPart), "memory that the peer may read was written");
    require(marked(1, 0, 1024) && marked(1, 5120, kPart), "a Write outside its window");
    require(marked(2, kReceives * kReceive, kPart), "a Send outside the Receives");
    require(marked(3, 4096, kPart) && marked(4, 0, kPart), "a Read outside its sink");
  }

  FuzzedDataProvider& in_;
  RawPeer peer_;
  std::array<uint32_t, 2> keys_{};
  size_t posted_ = 0, reported_ = 0;
  uint32_t taken_ = 0;
};

}  // namespace
}  // namespace rrdk::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  rrdk::fuzz::Connection connection(in);
  for (int i = 0; i != 60 && in.remaining_bytes() != 0; ++i)
    connection.step();
  return 0;
}

// One end of an iWARP connection, fed with a stream from a peer whose frames are right except for a
// few words, or are plain bytes, cut anywhere. It must report each of our requests once, keep to
// the windows that were opened, and end.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "drivers/iwarp/address.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/listener.h"
#include "drivers/iwarp/segment.h"
#include "require.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"

namespace rrdk::fuzz {
namespace {

using namespace iwarp;
using fabric::Op;
using fabric::Rights;

// Parts of the memory: readable, writable, Receives, Read sinks, guard.
constexpr uint32_t kPart = 8192;
constexpr uint32_t kReceive = 256;
constexpr uint32_t kReceives = 6;
constexpr uint32_t kReads = 3;
constexpr std::byte kMark{0x5a};

struct Ground {
  Ground() {
    require(ensure_eal().has_value(), "EAL");
    memory = Memory::create({.classes = {{65536, 4}},
                             .hugepages = HugepagePolicy::kNever,
                             .numa_nodes = {},
                             .prefault = false})
                 .value();
    device = Device::open(*memory, "iwarp:", fabric::Purpose::kListening).value();
    cq = device->create_completion_queue(64).value();
    buffer = memory->get(65536);
  }
  std::unique_ptr<Memory> memory;
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<fabric::CompletionQueue> cq;
  Buffer buffer;
};

Ground& ground() {
  static Ground& g = *new Ground;
  return g;
}

class Connection {
 public:
  explicit Connection(FuzzedDataProvider& in) : in_(in), crc_(in.ConsumeBool()) {
    std::fill_n(memory(), 65536, kMark);
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
    peer_ = base::Fd(ends[1]);
    MpaFrame asked{.crc = crc_, .enhanced = true};
    asked.ird = in.ConsumeIntegralInRange<uint16_t>(0, kReads);
    asked.ord = in.ConsumeIntegralInRange<uint16_t>(0, kReads);
    asked.peer_to_peer = in.ConsumeBool();
    asked.rtr_send = in.ConsumeBool();
    asked.rtr_read = in.ConsumeBool();
    ConnectRequest request(static_cast<Device&>(*ground().device), base::Fd(ends[0]), {}, kSilence,
                           asked);
    qp_ = request
              .create_queue_pair({.cq = ground().cq.get(),
                                  .send_wrs = 64,
                                  .receive_wrs = kReceives,
                                  .keys = 4,
                                  .reads = kReads})
              .value();
    for (uint64_t i = 0; i != kReceives; ++i) {
      const fabric::ReceiveWr wr{i, part(2, static_cast<uint32_t>(i) * kReceive, kReceive)};
      posted_ += qp_->post_receive(std::span(&wr, 1));
    }
    require(request.accept(*qp_, {}).has_value(), "accept");
    require(qp_->reserve_keys(keys_), "keys");
    post(Op::kBindKey, keys_[0], part(0, 1024, 4096), Rights::kRemoteRead);
    post(Op::kBindKey, keys_[1], part(1, 1024, 4096), Rights::kRemoteWrite);
  }
  ~Connection() {
    qp_->disconnect();
    for (int i = 0; i != 20; ++i)
      poll(32);
    require(reported_ == posted_, "a request that was not reported, or twice");
    qp_.reset();
    while (!ground().device->poll_events(16).empty()) {
    }
    only_the_window_changed();
  }

  void step() {
    switch (in_.ConsumeIntegralInRange(0, 12)) {
      case 0:
        return post(Op::kRead, 9, part(3, 0, in_.ConsumeIntegralInRange<uint32_t>(0, 4096)));
      case 1:
        return post(Op::kSend, 0, part(3, 0, in_.ConsumeIntegralInRange<uint32_t>(0, 4096)));
      case 2:
        return post(Op::kInvalidateKey, keys_[in_.ConsumeBool()], {});
      case 3:
        return poll(in_.ConsumeIntegralInRange<size_t>(0, 3));
      case 4:
        return say(raw());
      default:
        return say(frame());
    }
  }

 private:
  using Bytes = std::vector<std::byte>;

  static std::byte* memory() { return ground().buffer.data(); }
  static MemorySpan part(uint32_t which, uint32_t at, uint32_t length) {
    return {memory() + which * kPart + at, length, ground().buffer.region()};
  }

  void post(Op op, uint32_t key, MemorySpan span, Rights rights = Rights::kRemoteRead) {
    fabric::SendWr wr;
    wr.op = op;
    wr.key = key;
    wr.rights = rights;
    wr.num_sges = span.data != nullptr ? 1 : 0;
    wr.sges[0] = span;
    posted_ += qp_->post_send(std::span(&wr, 1));
  }
  void poll(size_t most) {
    std::array<fabric::Completion, 32> out;
    reported_ += ground().cq->poll(std::span(out).first(most));
    std::array<std::byte, 65536> nobody;
    while (::recv(peer_.get(), nobody.data(), nobody.size(), MSG_DONTWAIT) > 0) {
    }
  }
  // In pieces, each processed before the next one.
  void say(const Bytes& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t piece =
          in_.ConsumeBool() ? bytes.size() - at : in_.ConsumeIntegralInRange<size_t>(1, 64);
      const size_t length = std::min(piece, bytes.size() - at);
      (void)::send(peer_.get(), bytes.data() + at, length, MSG_NOSIGNAL);
      at += length;
      poll(2);
    }
  }
  Bytes raw() {
    const std::vector<uint8_t> some =
        in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange<size_t>(0, 100));
    Bytes bytes(some.size());
    std::ranges::copy(std::as_bytes(std::span(some)), bytes.begin());
    return bytes;
  }
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
  Bytes frame() {
    SegmentHeader header{.last = near<uint8_t>(1) != 0,
                         .opcode = static_cast<Opcode>(in_.ConsumeIntegralInRange(0, 7))};
    Bytes payload(near<uint32_t>(in_.ConsumeIntegralInRange(0, 600)) % 5000, std::byte{0x11});
    header.tagged = header.opcode == Opcode::kWrite || header.opcode == Opcode::kReadResponse;
    if (header.opcode == Opcode::kWrite) {
      header.stag = near(keys_[1]);
      header.offset = near(address(1) + in_.ConsumeIntegralInRange<uint32_t>(0, 4096));
    } else if (header.opcode == Opcode::kReadResponse) {
      header.stag = near(response_);
      header.offset = near<uint64_t>(response_at_);
      response_at_ = header.last ? 0 : response_at_ + static_cast<uint32_t>(payload.size());
      response_ += header.last;
    } else if (header.opcode == Opcode::kReadRequest) {
      header.queue = near<uint32_t>(kReadQueue);
      header.number = near(request_++);
      payload = request_body();
    } else if (header.opcode == Opcode::kTerminate) {
      header.queue = near<uint32_t>(kTerminateQueue);
      header.number = near<uint32_t>(1);
      payload.resize(std::min<size_t>(payload.size(), 60));
    } else {
      header.stag = near(keys_[in_.ConsumeBool()]);
      header.queue = near<uint32_t>(kSendQueue);
      header.number = near(send_);
      header.offset = near(send_at_);
      send_at_ = header.last ? 0 : send_at_ + static_cast<uint32_t>(payload.size());
      send_ += header.last;
    }
    return fpdu(header, payload);
  }
  Bytes request_body() {
    Bytes body(kReadRequestBody);
    encode(ReadRequest{.sink_stag = near<uint32_t>(5),
                       .sink_offset = near<uint64_t>(0),
                       .length = near(in_.ConsumeIntegralInRange<uint32_t>(0, 4096)),
                       .source_stag = near(keys_[0]),
                       .source_offset = near(address(0))},
           body.data());
    return body;
  }
  Bytes fpdu(const SegmentHeader& header, const Bytes& payload) {
    Bytes bytes(kLengthField + kUntaggedHeader);
    const uint32_t length = encode(header, bytes.data() + kLengthField);
    bytes.resize(kLengthField + length);
    const auto ulpdu = static_cast<uint32_t>(length + payload.size());
    store_u16(bytes.data(), near(static_cast<uint16_t>(ulpdu)));
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    bytes.resize(bytes.size() + pad_of(ulpdu));
    const uint32_t sum = near(add_crc(kCrcStart, bytes.data(), bytes.size()));
    bytes.resize(bytes.size() + kCrcField);
    store_crc(bytes.data() + bytes.size() - kCrcField, sum);
    return bytes;
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
    require(marked(3, 4096, kPart) && marked(4, 0, kPart), "a Read Response outside its sink");
  }

  FuzzedDataProvider& in_;
  const bool crc_;
  base::Fd peer_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::array<uint32_t, 2> keys_;
  uint32_t send_ = 1, request_ = 1, response_ = 1;  // the peer's next one
  uint32_t send_at_ = 0, response_at_ = 0;
  size_t posted_ = 0, reported_ = 0;
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

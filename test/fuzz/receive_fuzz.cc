// Whole receive paths: a responder and a requester, each fed with messages by a peer whose memory
// may exist or not. The input is a program: its bytes choose what the peer sends next, from headers
// that are right except for a few words to plain bytes.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <memory>
#include <vector>

#include "require.h"
#include "test/engine/script.h"

namespace rrdk::fuzz {
namespace {

using namespace engine;
using engine::test::Bytes;
using engine::test::End;
using engine::test::Script;
using engine::test::Wire;

constexpr uint32_t kKeys = 8;
constexpr uint32_t kKeyBytes = 3000;

struct Pools {
  Pools() {
    require(ensure_eal().has_value(), "EAL");
    memory = Memory::create({.classes = {{4096, 512}, {16384, 64}, {65536, 16}},
                             .hugepages = HugepagePolicy::kNever,
                             .numa_nodes = {},
                             .prefault = false})
                 .value();
    calls = std::make_unique<CallPool>(*memory, 64);
  }
  std::unique_ptr<Memory> memory;
  std::unique_ptr<CallPool> calls;
};

Pools& pools() {
  static Pools& p = *new Pools;
  return p;
}

size_t available(const Memory& memory) {
  size_t sum = 0;
  for (const PoolAudit& audit : memory.audit())
    sum += audit.available;
  return sum;
}

// A correct word, one near it, or any word.
uint32_t word(FuzzedDataProvider& in, uint32_t right) {
  switch (in.ConsumeIntegralInRange(0, 15)) {
    case 0:
      return in.ConsumeIntegral<uint32_t>();
    case 1:
      return right + in.ConsumeIntegralInRange<uint32_t>(0, 8) - 4;
    default:
      return right;
  }
}

class Peer {
 public:
  Peer(FuzzedDataProvider& in, Role role) : in_(in) {
    ConnectionOptions options;
    options.role = role;
    options.credits = in.ConsumeIntegralInRange(1, 16);
    options.max_call = options.max_reply = 100'000;
    end_ = std::make_unique<End>(options, *pools().memory, *pools().calls);
    end_->qp.expect_refusals = true;
    script_ = std::make_unique<Script>(*end_);
    for (uint32_t i = 0; i < kKeys; ++i)
      script_->expose(Bytes(kKeyBytes, std::byte{0x5a}),
                      i % 2 == 0 ? fabric::Rights::kRemoteRead : fabric::Rights::kRemoteWrite);
    end_->engine->on_established({in.ConsumeBool(), 4096, 4096}, 4);
  }

  void say(const Bytes& message) {
    if (end_->qp.receives.empty() || message.size() > end_->qp.receives.front().buffer.length)
      return;
    script_->say(message);
  }
  Bytes message(uint32_t xid, uint32_t rpc_type) {
    if (in_.ConsumeIntegralInRange(0, 7) == 0) {
      std::vector<uint8_t> raw = in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange(0, 200));
      Bytes bytes(raw.size());
      std::copy(raw.begin(), raw.end(), reinterpret_cast<uint8_t*>(bytes.data()));
      return bytes;
    }
    Wire wire;
    uint32_t type = in_.ConsumeIntegralInRange<uint32_t>(0, 4);
    wire.add({word(in_, xid), word(in_, 1), word(in_, 4), type});
    if (type == 2)
      wire.add({4, 1024});
    if (type < 3)
      lists(wire);
    else if (type == 4)
      wire.add({word(in_, 2), word(in_, 1), word(in_, 1)});
    if (type == 0 || type == 2) {
      wire.add({word(in_, xid), word(in_, rpc_type)});
      wire.raw(Bytes(4 * in_.ConsumeIntegralInRange<size_t>(0, 300)));
    }
    Bytes bytes = wire;
    if (in_.ConsumeIntegralInRange(0, 15) == 0)
      bytes.resize(in_.ConsumeIntegralInRange<size_t>(0, bytes.size()));
    return bytes;
  }
  // Everything ends, and comes back.
  void end() {
    end_->disconnect();
    for (ServedCall* call : std::exchange(end_->held, {}))
      end_->engine->reply(*call);
    end_->run();
    require(end_->engine->idle(), "an engine that is not idle after its connection's end");
    script_.reset();
    end_.reset();
  }
  End& engine_end() { return *end_; }

 private:
  void segment(Wire& wire, bool readable) {
    uint32_t key = 1000 + 2 * in_.ConsumeIntegralInRange<uint32_t>(0, kKeys / 2 - 1) + !readable;
    uint32_t length = word(in_, in_.ConsumeIntegralInRange<uint32_t>(0, kKeyBytes));
    wire.segment(word(in_, key), length, script_->at(key).address + word(in_, 0));
  }
  void lists(Wire& wire) {
    uint32_t position = 0;
    for (uint32_t n = in_.ConsumeIntegralInRange(0, 6); n != 0; --n) {
      wire.add({word(in_, 1), word(in_, position)});
      segment(wire, true);
      if (in_.ConsumeBool())
        position += 4 * in_.ConsumeIntegralInRange<uint32_t>(0, 400);
    }
    wire.add(word(in_, 0));
    for (uint32_t n = in_.ConsumeIntegralInRange(0, 3); n != 0; --n) {
      uint32_t segments = in_.ConsumeIntegralInRange(0, 4);
      wire.add({word(in_, 1), word(in_, segments)});
      for (; segments != 0; --segments)
        segment(wire, false);
    }
    wire.add(word(in_, 0));
    if (!in_.ConsumeBool()) {
      wire.add(word(in_, 0));
      return;
    }
    uint32_t segments = in_.ConsumeIntegralInRange(0, 4);
    wire.add({word(in_, 1), word(in_, segments)});
    for (; segments != 0; --segments)
      segment(wire, false);
  }

  FuzzedDataProvider& in_;
  std::unique_ptr<End> end_;
  std::unique_ptr<Script> script_;
};

// Its handler answers with what was asked for, or holds the call.
void serve(FuzzedDataProvider& in) {
  Peer peer(in, Role::kResponder);
  End& end = peer.engine_end();
  end.handler = [&](ServedCall& call) {
    Bytes got = test::flatten(call.message);
    if (in.ConsumeIntegralInRange(0, 7) == 0) {
      end.held.push_back(&call);
      return;
    }
    Encoder e(call.reply, *pools().memory, call.inline_size(), call.max_reply());
    e.put_u32(call.xid);
    e.put_u32(1);
    for (uint32_t i = 0; i < call.write_chunks(); ++i) {
      uint32_t length = in.ConsumeIntegralInRange<uint32_t>(0, 4000);
      e.put_item(pools().memory->get(4096), length, Ddp::kEligible);
    }
    e.put_fixed(got);
    e.finish();
    if (in.ConsumeIntegralInRange(0, 15) == 0)
      end.engine->refuse(call, 0, 0);
    else
      end.engine->reply(call);
  };
  for (uint32_t xid = 1; in.remaining_bytes() != 0 && xid < 40; ++xid)
    peer.say(peer.message(xid, 0));
  peer.end();
}

void call(FuzzedDataProvider& in) {
  Peer peer(in, Role::kRequester);
  End& end = peer.engine_end();
  Buffer source = pools().memory->get(4096), sink = pools().memory->get(4096);
  std::array<MemorySpan, 2> spans = {sink.first(1000), {sink.data() + 1000, 500, sink.region()}};
  ResultRoom room{spans};
  std::vector<std::unique_ptr<OutgoingCall>> calls;
  for (uint32_t i = 0; in.remaining_bytes() != 0 && i < 40; ++i) {
    if (calls.size() < 8 && in.ConsumeBool()) {
      OutgoingCall& c = *calls.emplace_back(std::make_unique<OutgoingCall>());
      Encoder e(c.message, *pools().memory, 1024, 1u << 20);
      e.put_u64(0);
      if (in.ConsumeBool())
        e.put_item(source.first(in.ConsumeIntegralInRange<uint32_t>(0, 4096)), Ddp::kEligible);
      e.finish();
      if (in.ConsumeBool())
        c.results = {&room, 1};
      c.max_reply = in.ConsumeIntegralInRange<uint64_t>(24, 9000);
      end.engine->submit(c);
      end.run();
    }
    // The engine chooses its own XIDs; the newest call's is in the message that it sent.
    uint32_t xid = 0;
    if (!end.qp.log.empty() && end.qp.log.back().op == fabric::Op::kSend)
      xid = xdr::load_u32(end.qp.log.back().sges[0].data);
    peer.say(peer.message(xid, 1));
  }
  size_t ended = 0;
  end.on_ended = [&ended](OutgoingCall&) { ++ended; };
  ended += end.ended.size();
  peer.end();
  require(ended == calls.size(), "a call that did not end, or ended twice");
}

}  // namespace
}  // namespace rrdk::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rrdk::fuzz;
  GTEST_FLAG_SET(break_on_failure, true);
  size_t before = available(*pools().memory);
  uint32_t calls = pools().calls->capacity();
  FuzzedDataProvider in(data, size);
  if (in.ConsumeBool())
    serve(in);
  else
    call(in);
  require(pools().calls->available() == pools().calls->capacity(), "a call object was lost");
  // The pool of call objects keeps a buffer for each sixteen of them, and some for their replies.
  pools().calls->release_idle();
  size_t kept = (pools().calls->capacity() - calls) / 16;
  require(available(*pools().memory) + kept == before, "a buffer was lost");
  return 0;
}

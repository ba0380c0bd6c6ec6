// Random traffic between two engines: shapes, sizes, thresholds, completion order, lost
// connections. The first seed is printed; RRDK_SEED=n begins with n.
#include <random>
#include <string>

#include "pair.h"
#include "test/seed.h"

namespace rrdk::xprt::test {
namespace {

struct Traffic {
  OutgoingCall call;
  std::vector<Item> arguments;
  std::vector<Item> results;
  std::vector<Buffer> buffers;
  std::vector<std::vector<MemorySpan>> spans;
  std::vector<ResultRoom> rooms;
  bool too_small = false;
  bool in_flight = false;
};

class RandomTraffic : public Pair {
 protected:
  RandomTraffic() : Pair({{4096, 2048}, {16384, 512}, {131072, 192}}) {}

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }

  uint32_t size() {
    constexpr uint32_t kEdges[] = {0, 1, 3, 4, 5, 1000, 1024, 4096, 65536, 100000};
    return one_in(3) ? kEdges[below(10)] : below(one_in(8) ? 100000 : 2000);
  }
  std::vector<Item> items() {
    std::vector<Item> list(below(5));
    for (Item& item : list)
      item = {size(), one_in(2), one_in(2)};
    return list;
  }
  void shape(Traffic& t) {
    t.arguments = items();
    t.results = items();
    t.spans.clear();
    t.rooms.clear();
    t.buffers.clear();
    t.too_small = false;
    uint64_t reply = stream_length(t.results);
    for (const Item& item : t.results) {
      if (!item.eligible || one_in(4) || t.rooms.size() == 3)
        break;
      std::vector<MemorySpan> spans;
      if (item.length != 0 && !one_in(8)) {
        bool small = item.length > 1 && one_in(40);
        t.too_small |= small;
        uint32_t left = item.length - (small ? 1 : 0) + (!small && one_in(2) ? below(50) : 0);
        while (left != 0) {
          uint32_t n = spans.size() == 2 ? left : std::min(left, 1 + below(left));
          t.buffers.push_back(memory->get(n));
          ASSERT_TRUE(t.buffers.back());
          spans.push_back(t.buffers.back().first(n));
          left -= n;
        }
        reply -= item.length + xdr_pad(item.length);
      }
      t.spans.push_back(std::move(spans));
    }
    for (const auto& spans : t.spans)
      t.rooms.push_back({spans});
    t.call.results = t.rooms;
    t.call.max_reply = reply + (one_in(2) ? 4 * below(100) : 0);
    t.call.force_long = one_in(20);
    t.call.deadline_ns = 0;
  }
  void submit(Traffic& t) {
    shape(t);
    t.in_flight = true;
    t.call.user = &t;
    write(t.call.message, 0, 0, t.arguments, static_cast<uint32_t>(&t - traffic.data()));
    a->engine->submit(t.call);
  }
  void on_ended(OutgoingCall& call) {
    Traffic& t = *static_cast<Traffic*>(call.user);
    ASSERT_TRUE(t.in_flight) << "ended twice";
    t.in_flight = false;
    ++ended;
    if (call.status == CallStatus::kOk)
      check(Decoder(call.reply, call.placed), t.results,
            static_cast<uint32_t>(&t - traffic.data()));
    else if (!lost)
      EXPECT_TRUE(t.too_small && call.status == CallStatus::kChunkError) << to_string(call.status);
    else
      EXPECT_TRUE(call.status == CallStatus::kConnectionLost ||
                  (t.too_small && call.status == CallStatus::kChunkError))
          << to_string(call.status);
    call.release();
    t.buffers.clear();
  }
  void answer(IncomingCall& call) {
    Decoder d(call.message());
    d.get_u64();
    uint32_t id = d.get_u32();
    ASSERT_LT(id, traffic.size());
    check(Decoder(call.message()), traffic[id].arguments, id);
    write(call.reply(), call.xid(), 1, traffic[id].results, id);
    b->engine->reply(call);
  }
  void deliver_some(End& end) {
    end.qp.deliver(*end.engine, one_in(2) ? end.qp.receive_completions : end.qp.send_completions,
                   1 + below(8));
  }
  void step() {
    End& end = one_in(2) ? *a : *b;
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        end.qp.post(*end.engine);
        end.qp.execute_one();
        break;
      case 3:
      case 4:
        deliver_some(end);
        break;
      case 5:
        if (!b->held.empty()) {
          size_t index = below(static_cast<uint32_t>(b->held.size()));
          IncomingCall* call = b->held[index];
          b->held.erase(b->held.begin() + static_cast<long>(index));
          answer(*call);
        }
        break;
      case 6: {
        Traffic& t = traffic[below(static_cast<uint32_t>(traffic.size()))];
        if (!t.in_flight && started < kCalls) {
          ++started;
          submit(t);
        }
        break;
      }
      case 7:
        end.engine->on_tick(1);
    }
    EXPECT_LE(a->engine->in_flight(), a->engine->window());
  }
  void run_seed(uint64_t seed) {
    SCOPED_TRACE("RRDK_SEED=" + std::to_string(seed));
    random.seed(seed);
    ConnectionOptions client, server;
    for (ConnectionOptions* o : {&client, &server}) {
      o->credits = 1 + below(8);
      o->send_size = 1024 * (1 + below(4));
      o->receive_size = 1024 * (1 + below(4));
      o->send_wrs = 8 + below(60);
      o->max_sges = 2 + below(15);
      o->chunk_threshold = below(2000);
      o->remote_invalidation = !one_in(3);
    }
    connect(client, server, 1 + below(16));
    started = ended = 0;
    lost = false;
    traffic = std::vector<Traffic>(1 + below(10));
    a->on_ended = [this](OutgoingCall& call) { on_ended(call); };
    bool loses = one_in(3);
    for (uint64_t steps = 0; ended < kCalls && !HasFailure(); ++steps) {
      if (loses && ended > kCalls / 2 && one_in(200)) {
        lost = true;
        break;
      }
      ASSERT_LT(steps, 1000000u) << "calls do not end";
      step();
    }
    EXPECT_EQ(b->engine->counters().credit_overruns, 0u);
    lost = true;
    finish();
    EXPECT_EQ(ended, started);
    traffic.clear();
    EXPECT_TRUE(pool->available() == pool->capacity());
  }

  static constexpr uint32_t kCalls = 60;
  std::mt19937_64 random;
  std::vector<Traffic> traffic;
  uint32_t started = 0;
  uint32_t ended = 0;
  bool lost = false;
};

// Shows: V1-CHUNK-01, V1-CHUNK-04, V1-CHUNK-07, V1-CHUNK-11, V1-CHUNK-17, V1-CHUNK-18, V1-RL-01,
// V1-RL-05, V1-WL-03, V1-WL-16, V1-RC-01, V1-RC-18, V1-PAD-01, V1-PAD-15, V1-LONG-03, V1-CREDIT-09,
// V1-CREDIT-14, V1-MEM-05, V1-MEM-12, V1-MEM-13, EXP-01, EXP-05, EXP-09, EXP-17
TEST_F(RandomTraffic, DataIsRightAndEveryCallEndsOnce) {
  uint64_t first = rrdk::test::run_seed();
  for (uint64_t seed = first; seed < first + 60 && !HasFailure(); ++seed)
    run_seed(seed);
}

}  // namespace
}  // namespace rrdk::xprt::test

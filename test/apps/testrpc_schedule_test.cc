// The open loop's schedule on a simulated clock, compared with queueing theory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "apps/testrpc/load.h"
#include "apps/testrpc/schedule.h"

namespace rrdk::testrpc {
namespace {

using Kind = ArrivalPattern::Kind;

constexpr ArrivalPattern kPoisson = {Kind::kPoisson};
constexpr uint64_t kSeed = 1;  // for all simulations: a result that is near theory once stays near
constexpr double kServiceNs = 10'000;
constexpr uint64_t kSecond = 1'000'000'000;

struct Interval {
  uint64_t from = 0, to = 0;  // within each second

  // When work planned for `at` can continue.
  uint64_t after(uint64_t at) const {
    const uint64_t second = at / kSecond * kSecond, phase = at - second;
    return phase >= from && phase < to ? second + to : at;
  }
};

// Calls of one client to servers that each take one call at a time, in order of arrival.
struct Simulation {
  ArrivalPattern arrivals = {};
  double rate = 0;
  uint64_t calls = 0;
  uint32_t connections = 1;
  uint32_t window = 64;
  uint64_t last_start_ns = UINT64_MAX;
  uint32_t servers = 1;  // connections are assigned to the servers in turn
  std::function<double(uint32_t server)> service = [](uint32_t) { return kServiceNs; };
  Interval server_frozen = {}, client_frozen = {};

  struct Outcome {
    Latencies latency;
    double rate = 0;
    std::vector<uint64_t> made;        // on each connection
    std::vector<Histogram> of_server;  // latencies
    uint64_t not_made = 0;
  };
  Outcome run() const;
};

Simulation::Outcome Simulation::run() const {
  struct InFlight {
    uint64_t ends_ns, due_ns;
    uint32_t connection;
  };
  Schedule schedule;
  schedule.begin(Arrivals(arrivals, rate, kSeed), connections, window, calls, UINT64_MAX);
  Outcome outcome;
  outcome.made.resize(connections);
  outcome.of_server.resize(servers);
  std::vector<std::deque<InFlight>> queues(servers);
  std::vector<double> idle_from(servers, 0.0);
  uint64_t now = 0, made = 0;
  auto end_calls = [&] {
    for (uint32_t s = 0; s < servers; ++s) {
      for (auto& queue = queues[s]; !queue.empty() && queue.front().ends_ns <= now;
           queue.pop_front()) {
        outcome.of_server[s].record(now - queue.front().due_ns);
        schedule.ended(queue.front().connection);
      }
    }
  };
  auto make_call = [&](const Schedule::Turn& turn) {
    const uint32_t s = turn.connection % servers;
    const double begins = std::max(static_cast<double>(now), idle_from[s]);
    idle_from[s] =
        static_cast<double>(server_frozen.after(static_cast<uint64_t>(begins))) + service(s);
    queues[s].push_back({static_cast<uint64_t>(idle_from[s]), turn.due_ns, turn.connection});
    ++outcome.made[turn.connection];
    ++made;
  };
  for (;;) {
    end_calls();
    while (now <= last_start_ns) {
      const auto turn = schedule.next(now);
      if (!turn)
        break;
      make_call(*turn);
    }
    uint64_t next = now <= last_start_ns ? schedule.wake_ns() : UINT64_MAX;
    for (const auto& queue : queues)
      next = queue.empty() ? next : std::min(next, queue.front().ends_ns);
    if (next == UINT64_MAX)
      break;
    now = client_frozen.after(std::max(next, now));
  }
  Histogram all;
  for (const Histogram& one : outcome.of_server)
    all.add(one);
  outcome.latency = Latencies::of(all);
  outcome.rate = static_cast<double>(made) * 1e9 / static_cast<double>(now);
  outcome.not_made = calls - made;
  return outcome;
}

// The share of calls that wait at most `wait` for their turn in an M/D/1 queue (Erlang, 1909).
// Times are in units of the service time.
double shorter_md1_waits(double load, double wait) {
  long double sum = 0;
  for (int k = 0; k <= static_cast<int>(wait); ++k) {
    const long double x = load * (wait - k);
    long double term = std::exp(x);
    for (int i = 1; i <= k; ++i)
      term *= -x / i;
    sum += term;
  }
  return static_cast<double>((1 - load) * sum);
}

double md1_wait(double load, double share) {
  double low = 0, high = 100 / (1 - load);
  high = std::min(high, 36.0);  // beyond this, the sum above loses precision
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (shorter_md1_waits(load, middle) < share ? low : high) = middle;
  }
  return high;
}

void expect_near(double value, double theory, const char* what) {
  EXPECT_NEAR(value / theory, 1, 0.03) << what << ": " << value << " against " << theory;
}

TEST(Schedule, DealsCallsOutInTurn) {
  for (ArrivalPattern pattern : {ArrivalPattern{}, kPoisson, ArrivalPattern{Kind::kBurst, 7}}) {
    for (double rate : {20.0, 1000.0, 90'000.0}) {
      for (uint32_t connections : {1u, 2u, 16u, 1000u}) {
        Simulation load = {pattern, rate, 101ull * connections, connections};
        load.servers = std::min(connections, 2u);
        const auto outcome = load.run();
        for (uint64_t made : outcome.made)
          EXPECT_EQ(made, 101u) << to_string(pattern) << " " << rate << " " << connections;
      }
    }
  }
}

// The calls of that connection wait, and are late by the time they have waited.
TEST(Schedule, AConnectionThatGetsNoRepliesHoldsUpNoOther) {
  constexpr uint32_t kConnections = 10, kStuck = 3, kWindow = 2;
  Schedule schedule;
  schedule.begin(Arrivals({}, 1e9, 1), kConnections, kWindow, 1000, UINT64_MAX);
  std::vector<uint64_t> made(kConnections);
  for (uint64_t now = 0; now < 2000; ++now) {
    while (auto turn = schedule.next(now)) {
      EXPECT_EQ(turn->due_ns, now);
      EXPECT_EQ(turn->behind_since_ns, now);
      ++made[turn->connection];
      if (turn->connection != kStuck)
        schedule.ended(turn->connection);
    }
  }
  for (uint32_t i = 0; i < kConnections; ++i)
    EXPECT_EQ(made[i], i == kStuck ? kWindow : 100u) << i;
  EXPECT_TRUE(schedule.has_more());
  EXPECT_EQ(schedule.due_by(2000), 1000u);
  for (uint64_t i = kWindow; i < 100; ++i) {
    EXPECT_FALSE(schedule.next(5000));
    schedule.ended(kStuck);
    const auto turn = schedule.next(5000);
    ASSERT_TRUE(turn);
    EXPECT_EQ(turn->connection, kStuck);
    EXPECT_EQ(turn->due_ns, i * kConnections + kStuck);
    // Since the first call that found the window full.
    EXPECT_EQ(turn->behind_since_ns, kWindow * kConnections + kStuck);
  }
  EXPECT_FALSE(schedule.has_more());
}

TEST(Schedule, CallsThatWaitOnSeveralConnectionsAreMadeInTurn) {
  Schedule schedule;
  schedule.begin(Arrivals({}, 1e9, 1), 3, 1, 9, UINT64_MAX);
  for (uint32_t i = 0; i < 2; ++i)
    EXPECT_EQ(schedule.next(9)->connection, i);
  schedule.ended(0);  // while the third connection has not had its call
  EXPECT_EQ(schedule.next(9)->due_ns, 2u);
  std::vector<uint64_t> due;
  for (uint32_t i = 0; i < 6; ++i) {
    if (i % 3 == 0) {
      for (uint32_t c = i == 0 ? 1 : 0; c < 3; ++c)
        schedule.ended(c);
    }
    due.push_back(schedule.next(9)->due_ns);
  }
  EXPECT_TRUE(std::ranges::is_sorted(due));
  EXPECT_EQ(due.back(), 8u);
  EXPECT_FALSE(schedule.has_more());
}

TEST(Schedule, KeepsTheDueTimesOfTooManyWaitingCalls) {
  constexpr uint64_t kCalls = 2ull * Schedule::kMostWaiting + 1000;
  Schedule schedule;
  schedule.begin(Arrivals({}, 1e9, 1), 2, 1, kCalls, UINT64_MAX);
  constexpr uint64_t kLate = 2 * kCalls;
  uint64_t made[2] = {};
  ASSERT_EQ(schedule.next(kLate)->connection, 0u);  // which gets no reply
  while (auto turn = schedule.next(kLate)) {
    ASSERT_EQ(turn->connection, 1u);
    ASSERT_EQ(turn->due_ns, 2 * made[1]++ + 1);
    schedule.ended(1);
  }
  EXPECT_EQ(made[1], uint64_t{Schedule::kMostWaiting} + 1);
  for (made[0] = 1; schedule.has_more();) {
    schedule.ended(0);
    while (auto turn = schedule.next(kLate)) {
      ASSERT_EQ(turn->due_ns, 2 * made[turn->connection]++ + turn->connection);
      if (turn->connection == 1)
        schedule.ended(1);
    }
  }
  EXPECT_EQ(made[0] + made[1], kCalls);
}

TEST(Schedule, ALostConnectionTakesItsShareWithIt) {
  Schedule schedule;
  schedule.begin(Arrivals({}, 1e9, 1), 4, 2, 4000, UINT64_MAX);
  std::vector<uint64_t> made(4);
  for (uint64_t now = 0; now < 5000; ++now) {
    if (now == 1000) {
      schedule.ended(1);  // one of its calls could be made now
      schedule.lost(1);
      schedule.lost(1);
      schedule.ended(1);
    }
    while (auto turn = schedule.next(now)) {
      ++made[turn->connection];
      if (turn->connection != 1)
        schedule.ended(turn->connection);
    }
  }
  EXPECT_EQ(made, (std::vector<uint64_t>{1000, 2, 1000, 1000}));
  EXPECT_FALSE(schedule.has_more());
  EXPECT_EQ(schedule.due_by(5000), 4000u);
  for (uint32_t i : {0u, 2u, 3u})
    schedule.lost(i);
  EXPECT_TRUE(schedule.all_lost());
  EXPECT_TRUE(schedule.full());
}

// As for MPI's ranks: each has its own schedule.
TEST(Schedule, RanksTakeTurns) {
  constexpr int kRanks = 4;
  for (ArrivalPattern pattern : {ArrivalPattern{}, ArrivalPattern{Kind::kBurst, 3}}) {
    std::vector<double> ranks, one;
    Arrivals all(pattern, 1000, 1);
    for (int i = 0; i < 120; ++i, all.take())
      one.push_back(all.next_ns());
    for (int rank = 0; rank < kRanks; ++rank) {
      Arrivals share(pattern, 1000.0 / kRanks, 1, static_cast<double>(rank) / kRanks);
      EXPECT_EQ(share.due_before(120e6), 30u);
      for (int i = 0; i < 30; ++i, share.take())
        ranks.push_back(share.next_ns());
    }
    std::ranges::sort(ranks);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(ranks[i], one[i], 1e-3) << i;
  }
}

class AtLoad : public testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(Theory, AtLoad, testing::Values(0.1, 0.5, 0.8, 0.9), [](const auto& at) {
  return std::to_string(std::lround(100 * at.param));
});

TEST_P(AtLoad, EvenCallsOfEqualLengthNeverWait) {
  const double load = GetParam();
  const auto outcome =
      Simulation{.rate = 1e9 * load / kServiceNs, .calls = 100'000, .connections = 7}.run();
  expect_near(outcome.rate, 1e9 * load / kServiceNs, "rate");
  for (double latency :
       {static_cast<double>(outcome.latency.min), outcome.latency.mean,
        static_cast<double>(outcome.latency.p50), static_cast<double>(outcome.latency.p99.value()),
        static_cast<double>(outcome.latency.max)})
    expect_near(latency, kServiceNs, "latency");
}

TEST_P(AtLoad, PoissonCallsOfEqualLengthWaitAsErlangSays) {
  const double load = GetParam();
  Simulation queue = {kPoisson, 1e9 * load / kServiceNs, load > 0.85 ? 4'000'000u : 1'000'000u};
  const auto outcome = queue.run();
  expect_near(outcome.rate, queue.rate, "rate");
  const double mean = 1 + load / 2 / (1 - load);
  expect_near(outcome.latency.mean, kServiceNs * mean, "mean");
  std::printf("M/D/1 at %.0f %%, seed 1: mean %.3f against %.3f", 100 * load,
              outcome.latency.mean / kServiceNs, mean);
  for (auto [share, value] :
       {std::pair{0.5, outcome.latency.p50}, std::pair{0.9, outcome.latency.p90.value()},
        std::pair{0.99, outcome.latency.p99.value()}}) {
    const double theory = 1 + md1_wait(load, share);
    expect_near(static_cast<double>(value), kServiceNs * theory, "percentile");
    std::printf(", p%.0f %.3f against %.3f", 100 * share, static_cast<double>(value) / kServiceNs,
                theory);
  }
  std::printf("\n");
}

// Several connections change the order in which calls are answered, but not the mean: the server
// has work whenever a call waits.
TEST_P(AtLoad, TheMeanIsThatOfOneQueueHoweverManyConnectionsThereAre) {
  const double load = GetParam();
  Simulation queue = {kPoisson, 1e9 * load / kServiceNs, load > 0.85 ? 4'000'000u : 1'000'000u,
                      1000, 1};
  const double mean = queue.run().latency.mean / kServiceNs, theory = 1 + load / 2 / (1 - load);
  expect_near(mean, theory, "mean");
  std::printf("M/D/1 at %.0f %%, 1000 connections, window 1, seed 1: mean %.3f against %.3f\n",
              100 * load, mean, theory);
}

// Pollaczek and Khinchine: a tenth of the calls takes ten times as long.
TEST_P(AtLoad, CallsOfTwoLengthsWaitAsPollaczekAndKhinchineSay) {
  const double load = GetParam();
  std::mt19937_64 random(kSeed);
  std::bernoulli_distribution is_long(0.1);
  constexpr double kLong = 10, kMean = 0.9 + 0.1 * kLong, kSquare = 0.9 + 0.1 * kLong * kLong;
  Simulation queue = {kPoisson, 1e9 * load / (kServiceNs * kMean), 2'000'000};
  queue.service = [&](uint32_t) { return is_long(random) ? kLong * kServiceNs : kServiceNs; };
  const double rate = load / kMean;  // for each unit of the service
  const double mean = queue.run().latency.mean / kServiceNs;
  const double theory = kMean + rate * kSquare / 2 / (1 - load);
  expect_near(mean, theory, "mean");
  std::printf("M/G/1 at %.0f %%, seed 1: mean %.3f against %.3f\n", 100 * load, mean, theory);
}

// Who stands still makes no difference to calls that count from when they were due: those of the
// pause wait until its end and then for each other, down to nothing after pause / (gap - service).
void expect_pauses_of_20_ms(const Simulation& load) {
  constexpr double kPauseNs = 20e6;
  const auto outcome = load.run();
  const double gap = 1e9 / load.rate;
  const double late = kPauseNs / (gap - kServiceNs) / load.rate;  // share of all calls
  ASSERT_GT(late, 0.021);
  const auto percentile = [&](double p) { return kPauseNs * (1 - (1 - p) / late) + kServiceNs; };
  Histogram all;
  for (const Histogram& one : outcome.of_server)
    all.add(one);
  // From the longest one down, the shares of late calls are those of the percentiles.
  for (double part : {0.1, 0.25, 0.5, 0.75}) {
    const double p = 1 - late * part;
    expect_near(static_cast<double>(all.percentile(100 * p)), kPauseNs * (1 - part) + kServiceNs,
                "late calls");
  }
  expect_near(static_cast<double>(outcome.latency.p99.value()), percentile(0.99), "p99");
  expect_near(static_cast<double>(outcome.latency.max), kPauseNs + kServiceNs, "max");
  expect_near(static_cast<double>(outcome.latency.min), kServiceNs, "min");
  expect_near(static_cast<double>(outcome.latency.p50), kServiceNs, "p50");
  std::printf(
      "20 ms in each second at %.0f %%, %u connections, window %u: p99 %.2f ms against %.2f\n",
      load.rate * kServiceNs / 1e7, load.connections, load.window,
      static_cast<double>(outcome.latency.p99.value()) / 1e6, percentile(0.99) / 1e6);
}

TEST_P(AtLoad, APauseShowsInAllCallsThatItDelayedWhoeverMakesIt) {
  constexpr Interval kPause = {500'000'000, 520'000'000};
  const double rate = 1e9 * GetParam() / kServiceNs;
  for (uint32_t window : {1u, 64u}) {
    Simulation load = {.rate = rate, .calls = static_cast<uint64_t>(4 * rate), .window = window};
    load.server_frozen = kPause;
    expect_pauses_of_20_ms(load);
    load.server_frozen = {};
    load.client_frozen = kPause;
    expect_pauses_of_20_ms(load);
    load.connections = 16;
    expect_pauses_of_20_ms(load);
  }
}

TEST(Theory, ABurstIsAnsweredOneAfterTheOther) {
  constexpr uint32_t kBurst = 16;
  for (uint32_t connections : {1u, 5u, 16u, 100u}) {
    for (uint32_t window : {1u, 64u}) {
      const auto outcome =
          Simulation{{Kind::kBurst, kBurst}, 50'000, 160'000, connections, window}.run();
      expect_near(static_cast<double>(outcome.latency.min), kServiceNs, "min");
      expect_near(static_cast<double>(outcome.latency.p50), 8 * kServiceNs, "p50");
      expect_near(outcome.latency.mean, 8.5 * kServiceNs, "mean");
      expect_near(static_cast<double>(outcome.latency.p99.value()), 16 * kServiceNs, "p99");
      expect_near(static_cast<double>(outcome.latency.max), 16 * kServiceNs, "max");
    }
  }
}

// Two servers, one of which takes twice as long for a call as passes until its next one.
TEST(Theory, ASlowServerHoldsUpNoneOfTheOthersCalls) {
  constexpr double kRate = 100'000, kSlow = 4 * kServiceNs;
  Simulation load = {.rate = kRate, .calls = 100'000, .connections = 4, .window = 8};
  load.servers = 2;
  load.service = [](uint32_t server) { return server == 0 ? kServiceNs : kSlow; };
  const auto outcome = load.run();
  EXPECT_EQ(outcome.made, std::vector<uint64_t>(4, 25'000));
  const Latencies fast = Latencies::of(outcome.of_server[0]);
  const Latencies slow = Latencies::of(outcome.of_server[1]);
  expect_near(static_cast<double>(fast.max), kServiceNs, "the fast one's");
  // Call i is due at 2 i / rate, and ends after i + 1 times the service.
  const double lag = 50'000 * (kSlow - 2e9 / kRate);
  expect_near(static_cast<double>(slow.max), lag, "the slow one's longest");
  expect_near(static_cast<double>(slow.p50), lag / 2, "the slow one's median");
  expect_near(slow.mean, lag / 2, "the slow one's mean");
}

// A fifth more than can be served: each call waits longer than the one before, and at the end some
// have not been made.
TEST(Theory, OverloadGrowsByTheDifferenceOfTheRates) {
  constexpr double kRate = 120'000;
  for (uint32_t connections : {1u, 16u}) {
    Simulation load = {.rate = kRate, .calls = 10 * 120'000, .connections = connections};
    load.last_start_ns = 10 * kSecond;
    const auto outcome = load.run();
    expect_near(outcome.rate, 1e9 / kServiceNs, "rate");
    // Those in the windows are made, and answered later.
    const double made = 10e9 / kServiceNs;
    expect_near(static_cast<double>(outcome.not_made), 10 * kRate - made, "not made");
    const double longest = 10e9 * (1 - 1e9 / kServiceNs / kRate);
    expect_near(static_cast<double>(outcome.latency.max), longest, "max");
    expect_near(static_cast<double>(outcome.latency.p50), longest / 2, "p50");
  }
}

}  // namespace
}  // namespace rrdk::testrpc

// Disturbances of runs: gaps and their evaluation, the slowest calls, and the contents of /proc.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>

#include "apps/testrpc/noise.h"
#include "apps/testrpc/outliers.h"
#include "apps/testrpc/report.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

// The first line about a connection that was lost before it was written.
TEST(Report, AConnectionThatIsGoneIsNotCalledConnected) {
  testing::internal::CaptureStdout();
  print_negotiated({});
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("is lost already"), std::string::npos) << said;
  EXPECT_EQ(said.find("version"), std::string::npos) << said;
}

constexpr uint64_t kMs = 1'000'000;

GapKind kind_of(uint64_t length, const ThreadUsage& used, GapKind otherwise) {
  GapKind kind = otherwise;
  return judge_gap(length, length, used, kind) != 0 ? kind : GapKind::kCreditWait;
}

ThreadUsage used(uint64_t cpu_ns, std::optional<uint64_t> waited_ns) {
  ThreadUsage usage;
  usage.cpu_ns = cpu_ns;
  usage.waited_ns = waited_ns;
  return usage;
}

TEST(Gap, IsWhatTheKernelSays) {
  EXPECT_EQ(kind_of(5 * kMs, used(0, 5 * kMs), GapKind::kUnaccounted), GapKind::kSwitchedOut);
  EXPECT_EQ(kind_of(5 * kMs, used(5 * kMs, 0), GapKind::kUnaccounted), GapKind::kUnaccounted);
  EXPECT_EQ(kind_of(5 * kMs, used(5 * kMs, 0), GapKind::kOwnWork), GapKind::kOwnWork);
  EXPECT_EQ(kind_of(5 * kMs, used(1 * kMs, 0), GapKind::kUnaccounted), GapKind::kInterrupt);
  ThreadUsage faults = used(5 * kMs, 0);
  faults.minor_faults = 1;
  EXPECT_EQ(kind_of(5 * kMs, faults, GapKind::kUnaccounted), GapKind::kPageFault);
  faults.major_faults = 1;
  EXPECT_EQ(kind_of(5 * kMs, faults, GapKind::kUnaccounted), GapKind::kMajorFault);
}

TEST(Gap, WithoutTheTimeThatAThreadWaitedSwitchesTell) {
  ThreadUsage usage = used(1 * kMs, std::nullopt);
  EXPECT_EQ(kind_of(5 * kMs, usage, GapKind::kUnaccounted), GapKind::kInterrupt);
  usage.involuntary = 1;
  GapKind kind = GapKind::kUnaccounted;
  EXPECT_EQ(judge_gap(5 * kMs, 5 * kMs, usage, kind), 4 * kMs);
  EXPECT_EQ(kind, GapKind::kSwitchedOut);
}

TEST(Gap, SwitchesTellAlsoWhereTheKernelDidNotCountTheWait) {
  ThreadUsage usage = used(1 * kMs, 0);
  usage.involuntary = 1;
  EXPECT_EQ(kind_of(5 * kMs, usage, GapKind::kUnaccounted), GapKind::kSwitchedOut);
}

TEST(Gap, SleepIsNoGapButWaitingAfterItIs) {
  ThreadUsage slept = used(0, 0);
  slept.voluntary = 1;
  GapKind kind = GapKind::kUnaccounted;
  EXPECT_EQ(judge_gap(5 * kMs, 5 * kMs, slept, kind), 0u);
  slept.waited_ns = 1 * kMs;
  EXPECT_EQ(judge_gap(5 * kMs, 5 * kMs, slept, kind), 1 * kMs);
  EXPECT_EQ(kind, GapKind::kSwitchedOut);
}

TEST(GapLog, KeepsTheLatest) {
  auto log = std::make_unique<GapLog>();
  for (uint64_t i = 1; i <= 5000; ++i)
    log->add({10 * i, 10 * i + 5, 5, GapKind::kSwitchedOut, 0});
  uint64_t expected = 5000;
  log->for_each_since(49'000, [&](const Gap& gap) { EXPECT_EQ(gap.start_ns, 10 * expected--); });
  EXPECT_EQ(expected, 4899u);
  uint64_t seen = 0;
  log->for_each_since(0, [&](const Gap&) { ++seen; });
  EXPECT_GE(seen, 1000u);
  EXPECT_LT(seen, 5000u);
}

TEST(GapWatch, TellsPollingFromOtherWork) {
  auto log = std::make_unique<GapLog>();
  uint64_t credits = 0;
  GapWatch watch(*log, [&] { return WaitCounters{.credit_waits = credits}; });
  const uint64_t now = Runtime::now_ns();
  watch.start(now);
  watch.look(now);
  EXPECT_EQ(watch.totals().count(GapKind::kOwnWork), 0u);
  // Whatever this thread did since, it did not poll; according to the kernel it may not even have
  // run.
  const GapTotals before = watch.totals();
  watch.start(Runtime::now_ns() - 50 * kMs);
  watch.after_own_work(Runtime::now_ns());
  const GapTotals grown = watch.totals().since(before);
  uint64_t gaps = 0;
  for (uint64_t count : grown.counts)
    gaps += count;
  EXPECT_EQ(gaps, 1u);
  // The first look at the counters reads their values, and the next one finds that they have grown.
  watch.tick(Runtime::now_ns());
  credits = 7;
  watch.tick(Runtime::now_ns());
  EXPECT_EQ(watch.totals().count(GapKind::kCreditWait), 1u);
}

Outlier call_of(uint64_t start_ns, uint64_t total_ns) {
  Outlier call = {};
  call.start_ns = call.behind_since_ns = start_ns;
  call.total_ns = total_ns;
  return call;
}

TEST(Outliers, AreTheSlowest) {
  Outliers outliers;
  outliers.begin(3);
  for (uint64_t total : {5, 1, 9, 7, 3, 8}) {
    if (total > outliers.bar_ns())
      outliers.offer(call_of(100, total));
  }
  std::vector<Outlier> slowest = outliers.sorted();
  ASSERT_EQ(slowest.size(), 3u);
  EXPECT_EQ(slowest[0].total_ns, 9u);
  EXPECT_EQ(slowest[1].total_ns, 8u);
  EXPECT_EQ(slowest[2].total_ns, 7u);
  EXPECT_EQ(outliers.bar_ns(), 7u);
}

TEST(Outliers, EmptyRunKeepsNone) {
  Outliers outliers;
  outliers.begin(0);
  EXPECT_EQ(outliers.bar_ns(), UINT64_MAX);
  EXPECT_TRUE(outliers.sorted().empty());
}

// The server is switched out again before it can report.
TEST(Outliers, AreExplainedByGapsThatGetKnownLate) {
  auto client = std::make_unique<GapLog>();
  auto server = std::make_unique<GapLog>();
  Outliers outliers;
  outliers.begin(1);
  const uint64_t start = Runtime::now_ns();
  outliers.offer(call_of(start, 5 * kMs));
  for (uint64_t ms : {6, 20, 30})
    outliers.explain({client.get(), server.get()}, start + ms * kMs);
  EXPECT_EQ(outliers.sorted()[0].num_causes, 0u);
  server->add({0, UINT64_MAX, 5 * kMs, GapKind::kSwitchedOut, 1});
  outliers.explain({client.get(), server.get()}, start + 40 * kMs);
  EXPECT_EQ(outliers.sorted()[0].num_causes, 1u);
}

class Explained : public testing::Test {
 protected:
  std::unique_ptr<GapLog> client = std::make_unique<GapLog>();
  std::unique_ptr<GapLog> server = std::make_unique<GapLog>();

  Outlier explain(Outlier call) {
    testrpc::explain(call, {client.get(), server.get()}, 0);
    return call;
  }
};

TEST_F(Explained, ByTheGapsThatFallIntoACall) {
  server->add({0, 1 * kMs, 1 * kMs, GapKind::kSwitchedOut, 1});          // before it
  server->add({10 * kMs, 14 * kMs, 4 * kMs, GapKind::kSwitchedOut, 1});  // in it
  server->add({15 * kMs, 16 * kMs, 1 * kMs, GapKind::kSwitchedOut, 1});  // again
  // Half of this time falls into the call.
  client->add({9 * kMs, 11 * kMs, 2 * kMs, GapKind::kUnaccounted, 0});
  client->add({12 * kMs, 12 * kMs + 1000, 1000, GapKind::kPageFault, 0});  // too short
  client->add({18 * kMs, 25 * kMs, 7 * kMs, GapKind::kSwitchedOut, 0});    // after it
  const Outlier call = explain(call_of(10 * kMs, 7 * kMs));
  ASSERT_EQ(call.num_causes, 2u);
  EXPECT_EQ(call.causes[0].kind, GapKind::kSwitchedOut);
  EXPECT_TRUE(call.causes[0].at_server);
  EXPECT_EQ(call.causes[0].cpu, 1);
  EXPECT_EQ(call.causes[0].took_ns, 5 * kMs);
  EXPECT_EQ(call.causes[0].times, 2u);
  EXPECT_EQ(call.causes[1].kind, GapKind::kUnaccounted);
  EXPECT_FALSE(call.causes[1].at_server);
  EXPECT_EQ(call.causes[1].took_ns, 1 * kMs);
}

TEST_F(Explained, ByNothing) {
  EXPECT_EQ(explain(call_of(10 * kMs, 7 * kMs)).num_causes, 0u);
}

// It was due after the gap, and waited for the calls that were due during the gap.
TEST_F(Explained, ByTheGapThatDelayedTheSchedule) {
  server->add({10 * kMs, 15 * kMs, 5 * kMs, GapKind::kSwitchedOut, 1});
  Outlier call = call_of(16 * kMs, 2 * kMs);
  EXPECT_EQ(explain(call).num_causes, 0u);
  call.behind_since_ns = 10 * kMs;
  ASSERT_EQ(explain(call).num_causes, 1u);
}

TEST_F(Explained, ByEventsOfUnknownDuration) {
  client->add({10 * kMs, 20 * kMs, 0, GapKind::kTcpRetransmission, 0});
  const Outlier call = explain(call_of(0, 300 * kMs));
  ASSERT_EQ(call.num_causes, 1u);
  EXPECT_EQ(call.causes[0].kind, GapKind::kTcpRetransmission);
}

std::string text_of(const std::vector<OutlierPart>& parts) {
  std::string text;
  for (const OutlierPart& part : parts)
    text += (text.empty() ? "" : ", ") + part.name + " " +
            (part.took_ns ? std::to_string(*part.took_ns / kMs) : "?") + " " +
            (part.side != nullptr ? part.side : "-");
  return text;
}

// The known parts of a call's time, whether causes or stages, the largest part first.
TEST_F(Explained, PartByPart) {
  client->add({14 * kMs, 19 * kMs, 5 * kMs, GapKind::kSwitchedOut, 0});
  client->add({15 * kMs, 15 * kMs, 0, GapKind::kCreditWait, 0});
  Outlier call = explain(call_of(0, 26 * kMs));
  EXPECT_EQ(text_of(parts_of(call)),
            "cause not known 21 -, switched out 5 client, waited for a credit ? client");
  call.stamps = StampedCall{};
  call.steps[static_cast<size_t>(Step::kReply)] = 20 * kMs;
  call.steps[static_cast<size_t>(Step::kResponse)] = 6 * kMs;  // the client was away for 5 of these
  EXPECT_EQ(text_of(parts_of(call)),
            "reply 20 server, switched out 5 client, waited for a credit ? client");
  call.total_ns += 14 * kMs;  // it was due that long before it was made
  EXPECT_EQ(text_of(parts_of(call)),
            "reply 20 server, made late 9 client, response 6 network, switched out 5 client, "
            "waited for a credit ? client");
  // A cause is not subtracted from the other end's stages.
  call.causes[0].at_server = true;
  call.causes[0].took_ns = 22 * kMs;
  EXPECT_EQ(text_of(parts_of(call)).substr(0, 43), "switched out 22 server, made late 12 client");
}

constexpr const char* kInterrupts =
    "           CPU0       CPU2       \n"
    " 24:          1          7  IO-APIC   5-edge      eth0-rx\n"
    " 25:          0          4  PCI-MSIX 0-edge      eth0-rx\n"
    "NMI:          2         11   Non-maskable interrupts\n"
    "ERR:          3\n"
    "garbage\n"
    "LOC:        100  99999999999999999999999 Local timer interrupts\n";

TEST(Proc, InterruptsOfOneCpu) {
  std::istringstream file(kInterrupts);
  const NamedCounts counts = counts_of_cpu(file, 2);
  EXPECT_EQ(counts, (NamedCounts{{"eth0-rx", 11}, {"NMI", 11}}));
  std::istringstream again(kInterrupts);
  EXPECT_EQ(counts_of_cpu(again, 0),
            (NamedCounts{{"eth0-rx", 1}, {"NMI", 2}, {"ERR", 3}, {"LOC", 100}}));
}

TEST(Proc, MissingOrMalformedValuesAreUnknown) {
  for (const char* text : {"", "\n", "CPU0\n", "CPU1 CPU3\n 1: 5 6 x\n"}) {
    std::istringstream file(text);
    EXPECT_TRUE(counts_of_cpu(file, 0).empty()) << text;
  }
  for (const char* text :
       {"", "cpu0 1 2 3\n", "cpu0 1 2 3 4 5 6 7 x 9 10\n", "cpu1 1 2 3 4 5 6 7 8\n"}) {
    std::istringstream file(text);
    EXPECT_FALSE(steal_ns_of_cpu(file, 0)) << text;
  }
  const CpuState none = CpuState::read(100'000);
  EXPECT_FALSE(none.interrupts || none.softirqs || none.steal_ns || none.khz);
}

TEST(Proc, Steal) {
  std::istringstream file("cpu  1 2 3 4 5 6 7 999 0 0\ncpu0 1 2 3 4 5 6 7 25 0 0\n");
  EXPECT_EQ(steal_ns_of_cpu(file, 0).value_or(0) % 25, 0u);
}

Noise quiet() {
  Noise noise;
  noise.seconds = 2;
  noise.line_before_ns = 300;
  noise.line_after_ns = 310;
  Noise::Thread thread;
  thread.side = "server";
  thread.cpu = 1;
  thread.used = used(1'999 * kMs, 1 * kMs);
  noise.threads = {thread};
  return noise;
}

TEST(Noise, IsOnlyRemarkedWhenItMatters) {
  EXPECT_TRUE(quiet().remarks().empty());

  Noise noise = quiet();
  noise.threads[0].used = used(1'860 * kMs, 140 * kMs);
  EXPECT_EQ(noise.remarks(), std::vector<std::string>{"server had 93.0% of CPU 1"});

  noise = quiet();
  noise.threads[0].used.waited_ns.reset();
  noise.threads[0].used.involuntary = 100;
  EXPECT_TRUE(noise.remarks().empty()) << "who yields is switched out, too";
  noise.busy = true;
  EXPECT_EQ(noise.remarks(), std::vector<std::string>{"server lost CPU 1 100 times"});

  noise = quiet();
  noise.line_after_ns = 90;
  EXPECT_EQ(noise.remarks(), std::vector<std::string>{"cache line 300 ns before, 90 after"});

  noise = quiet();
  Noise::Cpu cpu;
  cpu.cpu = 3;
  cpu.steal_ns = 100 * kMs;
  cpu.interrupts = 1000;
  noise.cpus = {cpu};
  EXPECT_EQ(noise.remarks(), std::vector<std::string>{"CPU 3: 5.0% stolen"});
}

TEST(Noise, TheWorstComesFirst) {
  Noise noise = quiet();
  noise.threads[0].used = used(1'960 * kMs, 40 * kMs);
  noise.threads[0].used.major_faults = 400;
  const std::vector<std::string> remarks = noise.remarks();
  ASSERT_EQ(remarks.size(), 2u);
  EXPECT_EQ(remarks[0], "server: 400 major page faults");
}

TEST(UsageMeter, ReportsItsOwnThread) {
  UsageMeter meter;
  const ThreadUsage before = meter.read();
  ThreadUsage grown;
  do
    grown = meter.read().since(before);
  while (grown.cpu_ns == 0);
  EXPECT_LT(grown.cpu_ns, 60'000 * kMs);
}

}  // namespace
}  // namespace rrdk::testrpc

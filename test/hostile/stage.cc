#include "stage.h"

#include <chrono>

#include "base/internals.h"
#include "rrdk/eal.h"
#include "runtime/runtime_impl.h"

namespace rrdk::hostile {

Refusals operator-(Refusals now, const Refusals& before) {
  for (size_t i = 0; i < kRefusals; ++i)
    now.counts[i] -= before.counts[i];
  return now;
}

Refusals refusals_of(const Stats& stats) {
  Refusals refusals;
  for (Refusal reason : all_refusals())
    refusals[reason] = stats[reason];
  return refusals;
}

uint64_t breaches(const Refusals& refusals) {
  uint64_t sum = 0;
  for (Refusal reason : all_refusals())
    sum += is_breach(reason) ? refusals[reason] : 0;
  return sum;
}

std::string describe(const Refusals& refusals) {
  std::string text;
  for (Refusal reason : all_refusals()) {
    if (refusals[reason] != 0)
      text += std::string(text.empty() ? "" : ", ") + std::to_string(refusals[reason]) + " x \"" +
              to_string(reason) + "\"";
  }
  return text.empty() ? "none" : text;
}

Refusals sum(const std::vector<Moved>& moved, bool acknowledges) {
  Refusals all;
  for (const Moved& one : moved)
    all[acknowledges ? one.reason : one.unacknowledged] += one.times;
  return all;
}

namespace {

std::unique_ptr<Memory> small_memory() {
  EXPECT_TRUE(ensure_eal());
  auto memory = Memory::create({.classes = {{4096, 512}, {65536, 24}, {1u << 20, 4}},
                                .hugepages = HugepagePolicy::kNever,
                                .prefault = false});
  EXPECT_TRUE(memory) << memory.error().message;
  return std::move(*memory);
}

// Scripts make calls before they take answers.
ServerOptions with_all_credits(ServerOptions options) {
  options.first_credits = options.credits;
  return options;
}

}  // namespace

Stage::Stage(const fabric::test::FabricUnderTest& fabric, const ServerOptions& server_options,
             const ClientOptions& client_options, bool client_serves)
    : memory(small_memory()),
      runtime(
          Runtime::create(*memory, {.worker_cpus = {-1}, .idle = IdlePolicy::kAdaptive}).value()),
      server(Server::create(*runtime, with_all_credits(server_options)).value()) {
  auto added = server->add_service(
      {.binding = &loopback::kBinding, .procedures = loopback::kTable, .context = &keeper});
  EXPECT_TRUE(added) << added.error().message;
  uri = server->listen(fabric.new_uri()).value();
  client = Client::create(*runtime, client_options).value();
  if (client_serves) {
    EXPECT_TRUE(client->add_service(
        {.binding = &loopback::kBinding, .procedures = loopback::kTable, .context = &keeper}));
  }
  bystander = std::make_unique<Bystander>(client->connect(uri).value(), *memory);
  passes(16);
  uint64_t before = bystander->verified();
  passes(kAlonePasses);
  alone_ = bystander->verified() - before;
  EXPECT_GT(alone_, 0u);
}

Stage::~Stage() {
  until("the bystander's last calls end", [this] { return bystander->finish(); });
  EXPECT_TRUE(bystander->connection().alive());
  bystander.reset();
  client.reset();
  keeper.join();
  keeper.release();
  server.reset();
  peer.reset();
  runtime.reset();
  EXPECT_TRUE(memory->whole());
  EXPECT_TRUE(fabric::test::test_memory().whole()) << "the peer's own";
}

void Stage::pass() {
  runtime->poll();
  if (bystander)
    bystander->pump();
  if (peer)
    peer->pump();
  ++passes_;
}

bool Stage::until(const char* what, const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    pass();
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "it never happened: " << what;
      return false;
    }
  }
  return true;
}

uint64_t Stage::refused_accesses() {
  uint64_t count = 0;
  const auto add = [&](const fabric::Device& device) {
    for (const fabric::Counter& counter : device.counters()) {
      if (counter.name.starts_with("refused_"))
        count += counter.value;
    }
  };
  add(peer->device());
  for (auto& device : Internals::of(*runtime).devices)
    device->with([&](const fabric::Device& d) { add(d); });
  return count;
}

void Stage::begin_comparison() {
  from_pass_ = passes_;
  from_call_ = bystander->verified();
}

void Stage::end_comparison() {
  while (passes_ - from_pass_ < kFewestPasses)
    pass();
  uint64_t calls = bystander->verified() - from_call_;
  uint64_t passes = passes_ - from_pass_;
  EXPECT_GE(calls * kAlonePasses * kRatio, alone_ * passes)
      << "the bystander made " << calls << " calls in " << passes << " passes, and alone " << alone_
      << " in " << kAlonePasses;
}

}  // namespace rrdk::hostile

// The table of services, changed in random orders while cores look calls up in it.
#include "service/service_table.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "base/rcu.h"
#include "seed.h"

namespace rrdk::service {
namespace {

constexpr uint32_t kPrograms = 4;
constexpr uint32_t kCores = 2;
constexpr uint32_t kProcedure = 1;

constexpr ProcedureBinding kBound[] = {{.procedure = kProcedure, .name = "ONE"}};
constexpr Binding binding_of(uint32_t program) {
  return {.program = program, .version = 1, .name = "random", .procedures = kBound};
}
constexpr std::array<Binding, kPrograms> kBindings = {binding_of(0), binding_of(1), binding_of(2),
                                                      binding_of(3)};
constexpr Procedure kTable[] = {{kProcedure, [](ServerCall, void*) {}}};

// RRDK_TABLE_ORDERS: the number of changes.
uint64_t orders() {
  const char* given = std::getenv("RRDK_TABLE_ORDERS");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 4000;
}

// Calls of one core, which are found in one pass and end in this or a later one.
class CoreOfCalls {
 public:
  CoreOfCalls(const ServiceTable& table, uint32_t index, uint64_t seed)
      : table_(table), index_(index), random_(seed), thread_([this] { run(); }) {}
  void stop() {
    stop_ = true;
    thread_.join();
  }
  uint64_t calls() const { return calls_; }

 private:
  struct OpenCall {
    uint32_t program;
    const ServiceEntry* entry;
    ProcedureCounters* counters;
  };

  void run() {
    while (!stop_ || !open_.empty()) {
      {
        const base::ReadSection pass;
        if (!stop_ && open_.size() < 4)
          begin();
        for (uint64_t spins = random_() % 64; spins != 0; --spins)
          look();
      }
      look();
      if (!open_.empty() && (stop_ || random_() % 2 == 0)) {
        open_.back().counters->calls_in_progress.take_one();
        open_.pop_back();
      }
    }
  }
  void begin() {
    const auto program = static_cast<uint32_t>(random_() % kPrograms);
    const ServiceTable::Found found = table_.find(program, 1);
    if (found.verdict != ServiceTable::Verdict::kFound)
      return;
    for (uint64_t spins = random_() % 256; spins != 0; --spins)
      std::atomic_signal_fence(std::memory_order_seq_cst);  // not to be optimised away
    const Procedure* procedure = found.entry->find(kProcedure);
    ASSERT_NE(procedure, nullptr);
    ProcedureCounters& counters =
        found.entry->counters_of(index_)[found.entry->index_of(procedure)];
    ++counters.calls_in_progress;
    open_.push_back({program, found.entry, &counters});
    ++calls_;
  }
  void look() const {
    for (const OpenCall& call : open_) {
      ASSERT_EQ(call.entry->binding, &kBindings[call.program]);
      ASSERT_EQ(call.entry->procedures.size(), 1u);
    }
  }

  const ServiceTable& table_;
  const uint32_t index_;
  std::mt19937_64 random_;
  std::vector<OpenCall> open_;
  uint64_t calls_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void wait_for(const base::GracePeriod& grace) {
  while (!grace.over())
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

TEST(ServiceTables, KeepWhatCoresHaveInAnyOrderOfChanges) {
  constexpr uint64_t kOrdersOfAGracePeriod = 256;  // bounds the services that wait to be freed
  ::mallopt(M_PERTURB, 0xa5);
  ASSERT_TRUE(base::start_rcu_thread());
  std::mt19937_64 random(test::run_seed());
  ServiceTable table;
  table.count_on(kCores);
  std::array<bool, kPrograms> is_there = {};
  CoreOfCalls first(table, 0, random()), second(table, 1, random());
  for (uint64_t order = 0, all = orders(); order < all && !testing::Test::HasFailure(); ++order) {
    const auto program = static_cast<uint32_t>(random() % kPrograms);
    switch (random() % 4) {
      case 0:
        EXPECT_EQ(table.add({.binding = &kBindings[program], .procedures = kTable}).has_value(),
                  !is_there[program]);
        is_there[program] = true;
        break;
      case 1:
        EXPECT_EQ(table.withdraw(program, 1).has_value(), is_there[program]);
        is_there[program] = false;
        break;
      case 2:
        table.collect();
        break;
      default:
        std::this_thread::yield();
    }
    if (order % kOrdersOfAGracePeriod == 0) {
      wait_for(base::GracePeriod());
      table.collect();
    }
  }
  first.stop();
  second.stop();
  EXPECT_GT(first.calls() + second.calls(), 0u);
  ::mallopt(M_PERTURB, 0);
}

}  // namespace
}  // namespace rrdk::service

// The hop between cores: one item through a ring and back through another, and bursts through one.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "machine_limits.h"
#include "runtime/inbox.h"

namespace {

using rrdk::runtime::Consumers;
using rrdk::runtime::Ring;
using rrdk::runtime::WorkItem;

constexpr size_t kBurst = 32;

std::unique_ptr<Ring> make_ring(Consumers consumers) {
  return std::move(Ring::create(1024, consumers).value());
}

WorkItem* pop_one(Ring& ring, const std::atomic<bool>& stop) {
  std::array<WorkItem*, 1> item;
  while (ring.pop_burst(item) == 0) {
    if (stop.load(std::memory_order_relaxed))
      return nullptr;
    _mm_pause();
  }
  return item[0];
}

// Beside the round trip of the bare cache line between the same two CPUs.
void round_trip(benchmark::State& state) {
  // Asked once: pinning changes the answer.
  static const std::vector<int> cpus = rrdk::apps::allowed_cpus();
  if (cpus.size() < 2) {
    state.SkipWithError("needs two CPUs");
    return;
  }
  rrdk::apps::pin_to_cpu(cpus[0]);
  double line_ns = rrdk::apps::cache_line_round_trip_ns(cpus[1], 200);
  std::unique_ptr<Ring> there = make_ring(Consumers::kMany);
  std::unique_ptr<Ring> back = make_ring(Consumers::kOne);
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    rrdk::apps::pin_to_cpu(cpus[1]);
    while (WorkItem* item = pop_one(*there, stop))
      back->push(*item);
  });
  WorkItem item;
  for (auto _ : state) {
    there->push(item);
    pop_one(*back, stop);
  }
  stop = true;
  worker.join();
  line_ns = (line_ns + rrdk::apps::cache_line_round_trip_ns(cpus[1], 200)) / 2;
  state.counters["cache_line_ns"] = line_ns;
}

// Without another core: the price of the instructions.
void push_and_pop(benchmark::State& state) {
  std::unique_ptr<Ring> ring = make_ring(Consumers::kMany);
  std::array<WorkItem, kBurst> items;
  std::array<WorkItem*, kBurst> pointers;
  for (size_t i = 0; i < kBurst; ++i)
    pointers[i] = &items[i];
  auto burst = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    ring->push_burst(std::span(pointers).first(burst));
    benchmark::DoNotOptimize(ring->pop_burst(std::span(pointers).first(burst)));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(round_trip)->UseRealTime();
BENCHMARK(push_and_pop)->Arg(1)->Arg(8)->Arg(32);

}  // namespace

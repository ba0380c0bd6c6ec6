// Taking buffers from their pool and giving them back, with the per-core cache that poll cores
// have.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>

#include "rrdk/memory.h"

namespace {

rrdk::Memory& memory() {
  static std::unique_ptr<rrdk::Memory> made =
      std::move(rrdk::Memory::create({.classes = {{4096, 1024}, {65536, 64}}}).value());
  return *made;
}

void get_put(benchmark::State& state) {
  auto size = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    rrdk::Buffer buffer = memory().get(size);
    benchmark::DoNotOptimize(buffer.data());
  }
}

void get_put_bulk(benchmark::State& state) {
  std::array<rrdk::Buffer, 32> buffers;
  for (auto _ : state) {
    benchmark::DoNotOptimize(memory().get_bulk(4096, buffers));
    for (rrdk::Buffer& buffer : buffers)
      buffer.reset();
  }
  state.SetItemsProcessed(state.iterations() * 32);
}

BENCHMARK(get_put)->Arg(1000)->Arg(4096)->Arg(65536);
BENCHMARK(get_put_bulk);

}  // namespace

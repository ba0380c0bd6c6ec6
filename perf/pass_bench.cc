// A pass of a core that finds nothing: what each pass costs before it does anything.
#include <benchmark/benchmark.h>

#include <memory>

#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"

namespace {

using rrdk::Memory;
using rrdk::Runtime;

// Without a device: no completion queue is polled.
void idle_pass(benchmark::State& state) {
  rrdk::must(rrdk::ensure_eal());
  std::unique_ptr<Memory> memory =
      rrdk::must(Memory::create({.classes = {{4096, 64}}, .prefault = false}));
  std::unique_ptr<Runtime> runtime = rrdk::must(Runtime::create(*memory, {}));
  for (auto _ : state)
    benchmark::DoNotOptimize(runtime->poll());
}
BENCHMARK(idle_pass);

}  // namespace

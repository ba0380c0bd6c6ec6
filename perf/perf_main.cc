// The main function of the benchmarks: EAL first, since pools and rings need it.
#include <benchmark/benchmark.h>

#include <cstdio>

#include "rrdk/eal.h"

int main(int argc, char** argv) {
  rrdk::Result<void> eal = rrdk::ensure_eal();
  if (!eal) {
    std::fprintf(stderr, "%s\n", eal.error().message.c_str());
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

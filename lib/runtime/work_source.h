// The contract of everything that gives a core work: completion queues, rings, timers, control
// events. A core sleeps only when all its sources agree.
//
//   poll       takes a bounded amount of work and does it; returns how much (0: idle)
//   peek       whether poll would find something now; changes nothing
//   try_sleep  arranges that the core's descriptors become readable at the next work; false: there
//              is work already, do not sleep. Published before the last look at the source, so
//              that work arriving in between is either seen here or wakes the core
//   wake       takes the arrangement back; after every try_sleep, whatever it returned
#pragma once

#include <concepts>
#include <cstdint>

namespace rrdk::runtime {

template <typename T>
concept WorkSource = requires(T& source, uint64_t now_ns) {
  { source.poll(now_ns) } -> std::same_as<uint32_t>;
  { source.peek(now_ns) } -> std::same_as<bool>;
  { source.try_sleep(now_ns) } -> std::same_as<bool>;
  { source.wake() } -> std::same_as<void>;
};

}  // namespace rrdk::runtime

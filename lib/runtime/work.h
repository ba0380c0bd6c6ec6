// What cores do: items of work, and the sources that work comes from.
#pragma once

#include <concepts>
#include <cstdint>

#include "base/assert.h"
#include "base/list.h"
#include "base/work_item.h"

namespace rrdk::runtime {

using base::ItemList;
using base::run_some;
using base::WorkItem;

struct WorkerClient;

// The items of one connection that wait for the workers. It outlives the items.
struct WorkerQueue {
  explicit WorkerQueue(WorkerClient& its_client) noexcept : client(its_client) {}

  WorkerClient& client;  // outlives it
  ItemList items;
  WorkerQueue* next = nullptr;
};

// The queues of one client's connections that are not empty.
struct WorkerClient {
  base::Queue<WorkerQueue, &WorkerQueue::next> queues;
  WorkerClient* next = nullptr;
};

// The contract of everything that gives a core work: completion queues, rings, timers, control
// events. A core sleeps only if all its sources agree.
//
//   poll       takes a bounded amount of work and does it; returns how much (0: idle)
//   peek       whether poll would find something now; changes nothing
//   try_sleep  arranges that the core's descriptors become readable at the next work; false: there
//              is work already, do not sleep. Published before the last look at the source, so
//              that work arriving in between is either seen here or wakes the core
//   wake       undoes the arrangement; called after every try_sleep, whatever that returned
template <typename T>
concept WorkSource = requires(T& source, uint64_t now_ns) {
  { source.poll(now_ns) } -> std::same_as<uint32_t>;
  { source.peek(now_ns) } -> std::same_as<bool>;
  { source.try_sleep(now_ns) } -> std::same_as<bool>;
  { source.wake() } -> std::same_as<void>;
};

}  // namespace rrdk::runtime

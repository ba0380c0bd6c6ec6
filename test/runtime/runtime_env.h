// EAL, and a Memory and a Runtime for tests that need cores.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "runtime/runtime_impl.h"

namespace rrdk {

inline std::unique_ptr<Memory> small_memory() {
  auto eal = ensure_eal();
  if (!eal)
    ADD_FAILURE() << eal.error().message;
  auto memory = Memory::create({.classes = {{4096, 1024}}, .hugepages = HugepagePolicy::kNever});
  if (!memory)
    ADD_FAILURE() << memory.error().message;
  return std::move(*memory);
}

inline std::unique_ptr<Runtime> runtime_of(Memory& memory, const RuntimeOptions& options) {
  auto runtime = Runtime::create(memory, options);
  if (!runtime)
    ADD_FAILURE() << runtime.error().message;
  return std::move(*runtime);
}

// An item that counts its runs.
struct Counted : runtime::WorkItem {
  std::atomic<int>* count = nullptr;
};

inline void count_it(runtime::WorkItem& item) {
  auto* count = static_cast<Counted&>(item).count;
  count->fetch_add(1, std::memory_order_release);
  count->notify_all();
}

}  // namespace rrdk

// The Memory's regions, registered with the device.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "drivers/verbs/counters.h"
#include "mem/regions.h"
#include "rrdk/error.h"

namespace rrdk::verbs {

class Regions final : public mem::RegionListener {
 public:
  Regions(Memory& memory, Counters& counts) : memory_(memory), counts_(counts) {}
  ~Regions() { stop(); }

  // Registers the existing regions, and from now on new ones. Errors: kNoMemory, with the limit
  // that prevents it; kSystem.
  Result<void> start(ibv_pd* pd, const std::string& device, int access);
  // Must be called before the protection domain is destroyed.
  void stop();

  // Returns null if it is not registered. Any thread.
  ibv_mr* find(RegionId id) const noexcept {
    const Block* block =
        id < kBlocks * kBlockSize ? blocks_[id / kBlockSize].load(kAcquire) : nullptr;
    return block != nullptr ? (*block)[id % kBlockSize].load(kAcquire) : nullptr;
  }
  // Has a key that makes the device refuse the request if the span is in no region.
  ibv_sge sge_of(const MemorySpan& span) const noexcept {
    const ibv_mr* mr = find(span.region);
    return {reinterpret_cast<uintptr_t>(span.data), span.length,
            mr != nullptr ? mr->lkey : guard_->lkey};
  }
  // Outside every registration, so that the device refuses it.
  ibv_sge forbidden() const noexcept { return {kForbidden, 1, guard_->lkey}; }

  void region_added(const mem::Region& region) override;
  void region_removed(const mem::Region& region) override;

 private:
  static constexpr auto kAcquire = std::memory_order_acquire;
  static constexpr uint64_t kForbidden = 64;  // never mapped (vm.mmap_min_addr)
  static constexpr size_t kBlockSize = 1024;
  static constexpr size_t kBlocks = 1024;
  using Block = std::array<std::atomic<ibv_mr*>, kBlockSize>;

  Result<ibv_mr*> register_range(void* base, size_t length) const;

  Memory& memory_;
  Counters& counts_;
  ibv_pd* pd_ = nullptr;
  std::string device_;
  int access_ = 0;
  std::mutex mutex_;  // regions come while others are being registered
  bool listening_ = false;
  bool started_ = false;
  Error first_error_{};  // of those that start() registers
  bool failed_ = false;
  alignas(64) std::array<std::byte, 64> guarded_{};
  ibv_mr* guard_ = nullptr;  // registers `guarded_`, which no request names
  std::array<std::atomic<Block*>, kBlocks> blocks_ = {};
  std::array<std::unique_ptr<Block>, kBlocks> owned_;
};

}  // namespace rrdk::verbs

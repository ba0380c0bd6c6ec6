// Remote keys that are type 2B memory windows: bound and invalidated by work requests, of use on
// their queue pair alone. The device chooses the upper 24 bits of a key, we the lower 8.
#pragma once

#include <array>
#include <vector>

#include "base/random.h"
#include "drivers/verbs/counters.h"
#include "drivers/verbs/keys.h"

namespace rrdk::verbs {

class Windows final : public Keys {
 public:
  // Up to `most`, allocated as they are first needed, some at a time.
  Windows(ibv_pd* pd, uint32_t most, Counters& counts);
  ~Windows() override;

  bool reserve(std::span<uint32_t> keys) noexcept override;
  uint32_t name(uint32_t key, const MemorySpan&, fabric::Rights) noexcept override { return key; }
  void release(uint32_t key) noexcept override;
  KeyVerdict bind(const fabric::SendWr& wr, ibv_mr* mr, ibv_send_wr& to) noexcept override;
  KeyVerdict invalidate(uint32_t key, ibv_send_wr& to) noexcept override;
  bool is_hopeless() const noexcept override {
    return refused_ && free_tail_ - free_head_ == windows_.size();
  }
  void died(uint32_t key) noexcept override;

 private:
  enum class Use : uint8_t { kFree, kReserved, kBound, kDead };
  // A value does not come again while one of these remembers it.
  static constexpr size_t kRemembered = 16;
  static constexpr uint32_t kGrowth = 32;
  static constexpr uint32_t kTagMask = 0xff;

  struct Window {
    ibv_mw* mw = nullptr;
    uint32_t key = 0;
    Use use = Use::kFree;
    uint8_t next_memory = 0;
    std::array<uint8_t, kRemembered> recent{};
  };

  bool grow(size_t wanted) noexcept;
  Window* find(uint32_t key) noexcept;
  uint32_t fresh(Window& of) noexcept;
  size_t place_of(uint32_t key) const noexcept { return ((key >> 8) * 2654435761u) & table_mask_; }

  ibv_pd* pd_;
  const uint32_t most_;
  Counters& counts_;
  bool refused_ = false;  // the device had none left, and none has come back here since
  base::Random tags_;
  std::vector<Window> windows_;  // as many as `most_` are reserved
  std::vector<uint32_t> table_;  // by the upper bits of a key: an index in windows_, plus one
  uint32_t table_mask_;
  std::vector<uint32_t> free_;  // a ring of indexes, so that reuse comes as late as possible
  uint32_t free_mask_;
  uint64_t free_head_ = 0;
  uint64_t free_tail_ = 0;
};

}  // namespace rrdk::verbs

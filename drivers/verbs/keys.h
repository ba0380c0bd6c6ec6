// The sources of one connection's remote keys: memory windows, or registrations.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "drivers/verbs/counters.h"
#include "fabric/work.h"

namespace rrdk::verbs {

// What becomes of a request to bind or invalidate a key.
enum class KeyVerdict : uint8_t {
  kPost,     // the device's request was filled in
  kNothing,  // there is nothing left to do, but it completes in its turn
  kRefused,  // not a key of ours, or not in a state that permits it
};

class Keys {
 public:
  virtual ~Keys() = default;
  virtual bool reserve(std::span<uint32_t> keys) noexcept = 0;
  virtual uint32_t name(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept = 0;
  virtual void release(uint32_t key) noexcept = 0;
  virtual KeyVerdict bind(const fabric::SendWr& wr, ibv_mr* mr, ibv_send_wr& to) noexcept = 0;
  virtual KeyVerdict invalidate(uint32_t key, ibv_send_wr& to) noexcept = 0;
  // After reserve() has failed: whether waiting is useless. The device has no more, and no key is
  // in use that could come back.
  virtual bool is_hopeless() const noexcept { return false; }
  // The peer's Send has invalidated it.
  virtual void died(uint32_t key) noexcept = 0;
};

// Remote keys that are type 2B memory windows: bound and invalidated by work requests, and valid
// only on their queue pair. The device chooses the upper 24 bits of a key, we choose the lower 8.
class Windows final : public Keys {
 public:
  // Up to `most`, allocated a few at a time when they are first needed.
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
  // A value is not used again while one of these remembers it.
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
  std::vector<Window> windows_;  // space for `most_` is reserved
  std::vector<uint32_t> table_;  // by the upper bits of a key: an index in windows_, plus one
  uint32_t table_mask_;
  std::vector<uint32_t> free_;  // a ring of indexes, so that reuse comes as late as possible
  uint32_t free_mask_;
  uint64_t free_head_ = 0;
  uint64_t free_tail_ = 0;
};

// The fallback for devices without type 2B memory windows: each key is a registration of its own,
// made when the key is named and ended when it is invalidated. Two system calls for each, and the
// key is valid on every connection of the device, as registrations are.
class Registrations final : public Keys {
 public:
  Registrations(ibv_pd* pd, uint32_t most, Counters& counts)
      : pd_(pd), most_(most), counts_(counts) {}
  ~Registrations() override;

  bool reserve(std::span<uint32_t> keys) noexcept override;
  uint32_t name(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept override;
  void release(uint32_t key) noexcept override;
  KeyVerdict bind(const fabric::SendWr& wr, ibv_mr* mr, ibv_send_wr& to) noexcept override;
  KeyVerdict invalidate(uint32_t key, ibv_send_wr& to) noexcept override;
  void died(uint32_t /*key*/) noexcept override {}

 private:
  struct Entry {
    ibv_mr* mr = nullptr;  // null: not named, or invalidated
    MemorySpan span;
    fabric::Rights rights{};
  };

  static void end(Entry& entry) noexcept;

  ibv_pd* pd_;
  const uint32_t most_;
  Counters& counts_;
  base::Random names_;  // of keys that are not registered yet
  std::unordered_map<uint32_t, Entry> entries_;
};

}  // namespace rrdk::verbs

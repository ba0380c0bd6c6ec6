// The fallback for devices without type 2B memory windows: each key is a registration of its own,
// made when the key is named and ended when it is invalidated. Two system calls for each, and the
// key is of use on every connection of the device, as registrations are.
#pragma once

#include <unordered_map>

#include "base/random.h"
#include "drivers/verbs/counters.h"
#include "drivers/verbs/keys.h"

namespace rrdk::verbs {

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

// Where the remote keys of one connection come from: memory windows, or registrations.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "fabric/work.h"

namespace rrdk::verbs {

// What becomes of a request to bind or invalidate a key.
enum class KeyVerdict : uint8_t {
  kPost,     // the device's request was filled in
  kNothing,  // there is nothing left to do, but it completes in its turn
  kRefused,  // not a key of ours, or not in a state for this
};

class Keys {
 public:
  virtual ~Keys() = default;
  virtual bool reserve(std::span<uint32_t> keys) noexcept = 0;
  virtual uint32_t name(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept = 0;
  virtual void release(uint32_t key) noexcept = 0;
  virtual KeyVerdict bind(const fabric::SendWr& wr, ibv_mr* mr, ibv_send_wr& to) noexcept = 0;
  virtual KeyVerdict invalidate(uint32_t key, ibv_send_wr& to) noexcept = 0;
  // After reserve() has failed: whether waiting is in vain. The device has no more, and no key is
  // out that could come back.
  virtual bool is_hopeless() const noexcept { return false; }
  // The peer's Send killed it.
  virtual void died(uint32_t key) noexcept = 0;
};

}  // namespace rrdk::verbs

#include <cstdint>
#include <new>
#include <span>

#include "base/assert.h"
#include "drivers/iwarp/stags.h"

namespace rrdk::iwarp {

using Use = drivers::KeyTable::Use;

bool Stags::bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept {
  if (keys_.use(key) != Use::kReserved)
    return false;
  keys_.set(key, Use::kBound);
  Window& window = windows_[keys_.index(key)] = {span.data, span.length, rights, 0};
  for_large_writes_ += for_large_writes(window);
  return true;
}

bool Stags::bind(uint32_t key, const MemorySpan& list, uint16_t runs,
                 fabric::Rights rights) noexcept {
  uint64_t length = 0;
  const auto* first = reinterpret_cast<const MemorySpan*>(list.data);
  for (const MemorySpan& run : std::span(first, runs))
    length += run.length;
  if (length > UINT32_MAX || rights != fabric::Rights::kRemoteRead ||
      !bind(key, {list.data, static_cast<uint32_t>(length), list.region}, rights))
    return false;
  windows_[keys_.index(key)].runs = runs;
  return true;
}

bool Stags::kill(uint32_t key) noexcept {
  const Use use = keys_.use(key);
  if (use == Use::kFree)
    return false;
  RRDK_ASSERT(use != Use::kBound || keys_.index(key) < windows_.size());
  if (use == Use::kBound)
    for_large_writes_ -= for_large_writes(windows_[keys_.index(key)]);
  keys_.set(key, Use::kDead);
  return true;
}

void Stags::kill_all() noexcept {
  keys_.for_each_bound([this](uint32_t key) { keys_.set(key, Use::kDead); });
  for_large_writes_ = 0;
}

}  // namespace rrdk::iwarp

#include <algorithm>

#include "base/assert.h"
#include "drivers/verbs/keys.h"

namespace rrdk::verbs {

Windows::Window* Windows::find(uint32_t key) noexcept {
  for (size_t place = place_of(key); table_[place] != 0; place = (place + 1) & table_mask_) {
    Window& window = windows_[table_[place] - 1];
    if (window.mw->rkey >> 8 == key >> 8)
      return window.key == key && window.use != Use::kFree ? &window : nullptr;
  }
  return nullptr;
}

// Returns a tag that the window does not have and has not had recently, since a bind must change
// it.
uint32_t Windows::fresh(Window& of) noexcept {
  uint32_t tag;
  do {
    tag = tags_.next() & kTagMask;
  } while (tag == (of.mw->rkey & kTagMask) || std::ranges::find(of.recent, tag) != of.recent.end());
  of.recent[of.next_memory++ % kRemembered] = static_cast<uint8_t>(tag);
  return (of.mw->rkey & ~kTagMask) | tag;
}

bool Windows::reserve(std::span<uint32_t> keys) noexcept {
  if (free_tail_ - free_head_ < keys.size() && !grow(keys.size()))
    return false;
  for (uint32_t& key : keys) {
    Window& window = windows_[free_[free_head_++ & free_mask_]];
    RRDK_ASSERT(window.use == Use::kFree, window.use);
    key = window.key = fresh(window);
    window.use = Use::kReserved;
  }
  return true;
}

void Windows::release(uint32_t key) noexcept {
  Window* window = find(key);
  if (window == nullptr)
    return;
  // The next bind starts from the key that the device has now: the last one bound.
  if (window->use != Use::kReserved)
    window->mw->rkey = key;
  window->use = Use::kFree;
  refused_ = false;
  RRDK_ASSERT(free_tail_ - free_head_ < windows_.size(), free_head_, free_tail_);
  free_[free_tail_++ & free_mask_] = static_cast<uint32_t>(window - windows_.data());
}

KeyVerdict Windows::bind(const fabric::SendWr& wr, ibv_mr* mr, ibv_send_wr& to) noexcept {
  Window* window = find(wr.key);
  if (window == nullptr || window->use != Use::kReserved || mr == nullptr || wr.num_sges != 1)
    return KeyVerdict::kRefused;
  const MemorySpan& span = wr.sges[0];
  to.opcode = IBV_WR_BIND_MW;
  to.bind_mw.mw = window->mw;
  to.bind_mw.rkey = wr.key;
  to.bind_mw.bind_info = {.mr = mr,
                          .addr = reinterpret_cast<uintptr_t>(span.data),
                          .length = span.length,
                          .mw_access_flags = wr.rights == fabric::Rights::kRemoteRead
                                                 ? unsigned{IBV_ACCESS_REMOTE_READ}
                                                 : unsigned{IBV_ACCESS_REMOTE_WRITE}};
  window->use = Use::kBound;
  return KeyVerdict::kPost;
}

KeyVerdict Windows::invalidate(uint32_t key, ibv_send_wr& to) noexcept {
  Window* window = find(key);
  if (window == nullptr)
    return KeyVerdict::kRefused;
  if (window->use != Use::kBound)
    return KeyVerdict::kNothing;  // devices treat a second invalidation as an error
  to.opcode = IBV_WR_LOCAL_INV;
  to.invalidate_rkey = key;
  window->use = Use::kDead;
  return KeyVerdict::kPost;
}

void Windows::died(uint32_t key) noexcept {
  if (Window* window = find(key); window != nullptr && window->use == Use::kBound)
    window->use = Use::kDead;
}

}  // namespace rrdk::verbs

#include "drivers/verbs/keys.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/assert.h"

namespace rrdk::verbs {

Windows::Windows(ibv_pd* pd, uint32_t most, Counters& counts)
    : pd_(pd),
      most_(most),
      counts_(counts),
      table_(std::bit_ceil(2 * most + 1)),
      table_mask_(static_cast<uint32_t>(table_.size()) - 1),
      free_(std::bit_ceil(most + 1)),
      free_mask_(static_cast<uint32_t>(free_.size()) - 1) {
  windows_.reserve(most);
}

Windows::~Windows() {
  for (const Window& window : windows_)
    ibv_dealloc_mw(window.mw);
}

// Allocates windows until `wanted` are free, and some for the next time. These are system calls,
// made until the connection has as many as it ever uses at once.
bool Windows::grow(size_t wanted) noexcept {
  RRDK_ASSERT(free_tail_ - free_head_ < wanted, wanted);
  const size_t free = free_tail_ - free_head_;
  if (refused_ || windows_.size() + (wanted - free) > most_)
    return false;
  const size_t target =
      std::min<size_t>(most_, windows_.size() + std::max<size_t>(wanted - free, kGrowth));
  while (windows_.size() < target) {
    ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    if (mw == nullptr) {
      Counters::count(counts_.windows_refused);
      refused_ = true;
      return free_tail_ - free_head_ >= wanted;
    }
    const auto index = static_cast<uint32_t>(windows_.size());
    RRDK_ASSERT(windows_.size() < windows_.capacity());  // find() returns pointers
    windows_.push_back({.mw = mw, .key = mw->rkey, .recent = {}});
    size_t place = place_of(mw->rkey);
    while (table_[place] != 0)
      place = (place + 1) & table_mask_;
    table_[place] = index + 1;
    free_[free_tail_++ & free_mask_] = index;
  }
  return true;
}

Registrations::~Registrations() {
  for (auto& [key, entry] : entries_)
    end(entry);
}

void Registrations::end(Entry& entry) noexcept {
  if (entry.mr != nullptr)
    ibv_dereg_mr(std::exchange(entry.mr, nullptr));
}

bool Registrations::reserve(std::span<uint32_t> keys) noexcept {
  if (entries_.size() + keys.size() > most_)
    return false;
  for (uint32_t& key : keys) {
    do {
      key = names_.next();
    } while (!entries_.try_emplace(key).second);
  }
  return true;
}

uint32_t Registrations::name(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept {
  auto reserved = entries_.find(key);
  if (reserved == entries_.end() || reserved->second.mr != nullptr)
    return key;
  const int access = rights == fabric::Rights::kRemoteRead
                         ? IBV_ACCESS_REMOTE_READ
                         : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  // The real function: <infiniband/verbs.h> has a macro of this name for constant arguments.
  ibv_mr* mr = (ibv_reg_mr)(pd_, span.data, span.length, access);
  if (mr == nullptr) {
    Counters::count(counts_.registrations_failed);
    return key;  // its bind will be refused
  }
  Counters::count(counts_.keys_by_registration);
  if (mr->rkey != key &&
      entries_.contains(mr->rkey)) {  // the name of a key that has not been given back yet
    ibv_dereg_mr(mr);
    return key;
  }
  entries_.erase(key);
  entries_.emplace(mr->rkey, Entry{mr, span, rights});
  return mr->rkey;
}

void Registrations::release(uint32_t key) noexcept {
  if (auto found = entries_.find(key); found != entries_.end()) {
    end(found->second);
    entries_.erase(found);
  }
}

KeyVerdict Registrations::bind(const fabric::SendWr& wr, ibv_mr* /*mr*/,
                               ibv_send_wr& /*to*/) noexcept {
  auto found = entries_.find(wr.key);
  if (found == entries_.end() || found->second.mr == nullptr || wr.num_sges != 1)
    return KeyVerdict::kRefused;
  const Entry& entry = found->second;
  const MemorySpan& span = wr.sges[0];
  const bool as_named =
      entry.span.data == span.data && entry.span.length == span.length && entry.rights == wr.rights;
  return as_named ? KeyVerdict::kNothing : KeyVerdict::kRefused;
}

KeyVerdict Registrations::invalidate(uint32_t key, ibv_send_wr& /*to*/) noexcept {
  auto found = entries_.find(key);
  if (found == entries_.end())
    return KeyVerdict::kRefused;
  end(found->second);
  return KeyVerdict::kNothing;
}

}  // namespace rrdk::verbs

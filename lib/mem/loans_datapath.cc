#include "base/assert.h"
#include "mem/loans.h"
#include "mem/memory_impl.h"

namespace rrdk::mem {

bool Loans::is_fair(const Claim& claim, uint64_t left, uint64_t whole) const noexcept {
  return mem::is_fair(claim, left, whole, peers_.load(std::memory_order_relaxed));
}

bool Loans::is_fair_for(uint32_t size, const Claim& claim) const noexcept {
  const Class& c = classes_[size];
  if (c.elastic.empty()) {
    const uint32_t lent = c.lent.load(std::memory_order_relaxed) + claim.at_hand;
    return is_fair(claim, c.count - std::min(c.count, lent), c.count);
  }
  uint64_t home = 0;
  uint64_t unused = 0;
  for (const Pool* pool : c.elastic) {
    home += pool->home();
    unused += pool->unused();
  }
  if (is_fair(claim, (home + unused) << size, elastic_bytes_)) [[likely]]
    return true;
  uint64_t more = 0;
  for (const Pool* pool : c.elastic)
    more += pool->more();
  return is_fair(claim, (home + more) << size, elastic_bytes_);
}

bool Loans::is_fair_at_all(const Claim& claim) const noexcept {
  uint64_t unused = 0;
  for (const Slabs* budget : budgets_)
    unused += budget->unused();
  if (is_fair(claim, unused, elastic_bytes_)) [[likely]]
    return true;
  uint64_t left = 0;
  for (const Slabs* budget : budgets_)
    left += budget->left();
  return is_fair(claim, left, elastic_bytes_);
}

// An estimate while others take and give back.
uint64_t Borrower::elastic_held() const noexcept {
  const uint64_t all = bytes_.load(std::memory_order_relaxed) & ~kOwned;
  uint64_t fixed = 0;
  for (uint32_t i = 0; i < loans_.num_sizes_; ++i) {
    const uint32_t size = loans_.sizes_[i];
    if (!loans_.elastic(size))
      fixed += uint64_t{held(size)} << size;
  }
  return all - std::min(all, fixed);
}

// Whether the peer may hold one buffer more, which has been taken and will be counted by lend().
bool Borrower::may_hold(uint32_t capacity, bool alone) const noexcept {
  const uint32_t size = Loans::size_of(capacity);
  const uint64_t held_now = loans_.elastic(size) ? elastic_held() + capacity : held(size) + 1;
  return loans_.is_fair_for(size, {.held = held_now, .alone = alone, .at_hand = 1});
}

bool Borrower::exceeds() const noexcept {
  for (uint32_t i = 0; i < loans_.num_sizes_; ++i) {
    const uint32_t size = loans_.sizes_[i];
    if (!loans_.elastic(size) && held(size) != 0 && !loans_.is_fair_for(size, {.held = held(size)}))
      return true;
  }
  const uint64_t bytes = elastic_held();
  return bytes != 0 && !loans_.is_fair_at_all({.held = bytes});
}

Buffer Borrower::get(uint32_t size, bool alone, Shortage& shortage) noexcept {
  Buffer buffer = memory_.get(size);
  if (!buffer) [[unlikely]] {
    shortage = Shortage::kPool;
    return {};
  }
  if (!(alone && idle()) && !may_hold(buffer.capacity(), alone)) [[unlikely]] {
    shortage = Shortage::kShare;
    return {};
  }
  lend(buffer);
  return buffer;
}

void Borrower::lend(Buffer& buffer) noexcept {
  BufferSlot* slot = buffer.release();
  buffer = Buffer(slot);
  if (slot == nullptr || slot->borrower != nullptr)
    return;
  slot->borrower = this;
  const uint32_t size = Loans::size_of(slot->capacity);
  if (!loans_.elastic(size)) {
    held_[size].fetch_add(1, std::memory_order_relaxed);
    loans_.classes_[size].lent.fetch_add(1, std::memory_order_relaxed);
  }
  bytes_.fetch_add(slot->capacity, std::memory_order_relaxed);
}

void Borrower::take_back(BufferSlot& slot) noexcept {
  RRDK_ASSERT(slot.borrower == this && slot.held, slot.index);
  slot.borrower = nullptr;
  const uint32_t size = Loans::size_of(slot.capacity);
  if (!loans_.elastic(size)) {
    held_[size].fetch_sub(1, std::memory_order_relaxed);
    loans_.classes_[size].lent.fetch_sub(1, std::memory_order_relaxed);
  }
  release(slot.capacity);
}

void Borrower::release(uint64_t bytes) noexcept {
  RRDK_ASSERT(bytes <= bytes_.load(std::memory_order_relaxed), bytes);
  if (bytes_.fetch_sub(bytes, std::memory_order_acq_rel) == bytes) [[unlikely]]
    dispose();
}

bool Borrower::expose(uint64_t bytes, uint64_t most) noexcept {
  uint64_t all = loans_.exposed_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t own = exposed_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  bool alone = own == bytes;  // it has nothing else
  if (all <= most && (alone || own <= most - all))
    return true;
  unexpose(bytes);
  return false;
}

void Borrower::unexpose(uint64_t bytes) noexcept {
  RRDK_ASSERT(bytes <= exposed_.load(std::memory_order_relaxed), bytes);
  exposed_.fetch_sub(bytes, std::memory_order_relaxed);
  loans_.exposed_.fetch_sub(bytes, std::memory_order_relaxed);
}

std::atomic<uint32_t>* Borrower::waiting(Shortage shortage) noexcept {
  switch (shortage) {
    case Shortage::kPool:
      return &loans_.waiting_;
    case Shortage::kShare:
      return &waiting_;
    case Shortage::kNone:
      break;
  }
  return nullptr;
}

void Borrower::change_wait(Shortage from, Shortage to) noexcept {
  if (from == to)
    return;
  if (auto* ceases = waiting(from))
    ceases->fetch_sub(1, std::memory_order_relaxed);
  if (auto* begins = waiting(to))
    begins->fetch_add(1, std::memory_order_relaxed);
}

}  // namespace rrdk::mem

#include "mem/loans.h"
#include "mem/memory_impl.h"

namespace rrdk::mem {

uint32_t Loans::left(uint32_t size) const noexcept {
  const Class& c = classes_[size];
  uint32_t left = 0;
  for (const Pool* pool : c.elastic)
    left += pool->home() + pool->more();
  if (!c.elastic.empty())
    return left;
  return c.count - std::min(c.count, c.lent.load(std::memory_order_relaxed));
}

uint64_t Loans::elastic_left() const noexcept {
  uint64_t bytes = 0;
  for (const Slabs* budget : budgets_)
    bytes += budget->left();
  return bytes;
}

uint64_t Borrower::elastic_held() const noexcept {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < loans_.num_sizes_; ++i) {
    uint32_t size = loans_.sizes_[i];
    if (!loans_.classes_[size].elastic.empty())
      bytes += uint64_t{held_[size].load(std::memory_order_relaxed)} << size;
  }
  return bytes;
}

// With one more it has no more than is left for others.
bool Borrower::may_hold(uint32_t capacity) const noexcept {
  uint32_t size = Loans::size_of(capacity);
  uint64_t has = held(capacity);
  if (!loans_.classes_[size].elastic.empty())
    has = elastic_held() >> size;
  // What is left of an elastic class no longer has the buffer at hand, which lend() is to count.
  uint32_t at_hand = loans_.classes_[size].elastic.empty() ? 0 : 1;
  return has + 2 <= uint64_t{loans_.left(size)} + at_hand;
}

bool Borrower::exceeds() const noexcept {
  for (uint32_t i = 0; i < loans_.num_sizes_; ++i) {
    uint32_t size = loans_.sizes_[i];
    if (loans_.classes_[size].elastic.empty() &&
        held_[size].load(std::memory_order_relaxed) > loans_.left(size))
      return true;
  }
  uint64_t held = elastic_held();
  return held != 0 && held > loans_.elastic_left();
}

Buffer Borrower::get(uint32_t size, bool alone, Shortage& shortage) noexcept {
  Buffer buffer = memory_.get(size);
  if (!buffer) [[unlikely]] {
    shortage = Shortage::kPool;
    return {};
  }
  if (!alone && !may_hold(buffer.capacity())) [[unlikely]] {
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
  uint32_t size = Loans::size_of(slot->capacity);
  references_.fetch_add(1, std::memory_order_relaxed);
  held_[size].fetch_add(1, std::memory_order_relaxed);
  loans_.classes_[size].lent.fetch_add(1, std::memory_order_relaxed);
}

void Borrower::take_back(BufferSlot& slot) noexcept {
  slot.borrower = nullptr;
  uint32_t size = Loans::size_of(slot.capacity);
  held_[size].fetch_sub(1, std::memory_order_relaxed);
  loans_.classes_[size].lent.fetch_sub(1, std::memory_order_relaxed);
  release();
}

void Borrower::release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) [[unlikely]]
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

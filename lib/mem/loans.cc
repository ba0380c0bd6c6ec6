#include "mem/loans.h"

#include "base/internals.h"
#include "mem/memory_impl.h"

namespace rrdk::mem {

void Loans::add(uint32_t capacity, uint32_t count) noexcept {
  uint32_t size = size_of(capacity);
  if (classes_[size].count == 0 && classes_[size].elastic.empty())
    sizes_[num_sizes_++] = static_cast<uint8_t>(size);
  classes_[size].count += count;
}

void Loans::add_elastic(const Pool& pool, const Slabs& budget) {
  add(pool.buffer_size(), 0);
  classes_[size_of(pool.buffer_size())].elastic.push_back(&pool);
  if (budgets_.empty() || budgets_.back() != &budget)
    budgets_.push_back(&budget);
}

Borrower::Borrower(Memory& memory) noexcept
    : memory_(memory), loans_(Internals::of(memory).loans) {}

BorrowerRef Borrower::create(Memory& memory) {
  return BorrowerRef(new Borrower(memory));
}

void Borrower::dispose() noexcept {
  delete this;
}

void ReleaseBorrower::operator()(Borrower* borrower) const noexcept {
  borrower->release(Borrower::kOwned);
}

}  // namespace rrdk::mem

// Work requests waiting to be posted: a list whose elements are reused, not constructed anew,
// because a SendWr with its sixteen spans is costly to clear. Memory is touched only as far as it
// is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

namespace rrdk::xprt {

template <typename Wr>
class WorkList {
  static_assert(std::is_trivially_copyable_v<Wr> && std::is_trivially_destructible_v<Wr>);

 public:
  explicit WorkList(size_t capacity)
      : store_(std::allocator<Wr>().allocate(capacity)), capacity_(capacity) {}
  ~WorkList() { std::allocator<Wr>().deallocate(store_, capacity_); }
  WorkList(const WorkList&) = delete;
  WorkList& operator=(const WorkList&) = delete;

  // A contiguous range: converts to std::span<const Wr>.
  const Wr* data() const noexcept { return store_ + first_; }
  size_t size() const noexcept { return last_ - first_; }
  bool empty() const noexcept { return first_ == last_; }
  const Wr* begin() const noexcept { return store_ + first_; }
  const Wr* end() const noexcept { return store_ + last_; }
  const Wr& operator[](size_t i) const noexcept { return store_[first_ + i]; }

  // Takes the first `count` off: they were posted.
  void pop_front(size_t count) noexcept {
    first_ += count;
    if (first_ == last_)
      first_ = last_ = 0;
  }
  void clear() noexcept { pop_front(size()); }
  // Counts all that were ever appended: the number of the next one.
  uint64_t appended() const noexcept { return appended_; }
  // Of these, those that were taken off.
  uint64_t taken() const noexcept { return appended_ - size(); }

  // A new last element with whatever values an earlier one left: set all that matter. The caller
  // keeps size() below the capacity.
  Wr& append() noexcept {
    if (last_ == capacity_) {
      std::copy(store_ + first_, store_ + last_, store_);
      last_ -= first_;
      first_ = 0;
    }
    if (last_ == constructed_)
      ::new (static_cast<void*>(store_ + constructed_++)) Wr;
    ++appended_;
    return store_[last_++];
  }

 private:
  Wr* store_;
  size_t capacity_;
  size_t first_ = 0;
  size_t last_ = 0;
  size_t constructed_ = 0;  // high-water mark
  uint64_t appended_ = 0;
};

}  // namespace rrdk::xprt

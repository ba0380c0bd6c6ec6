// Work requests: what their wr_id points to, and a list of those that wait to be posted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "base/system.h"

namespace rrdk::xprt {

enum class WorkKind : uint8_t {
  kReceive,  // owner: ReceiveSlot
  kSilent,   // an unsignaled request that failed; whoever owns the chain hears of its signaled end
  kRead,     // owner: Incoming; one RDMA Read
  kReply,    // owner: Incoming; Writes and the Send of a reply or an error
  kCall,     // owner: OutgoingCall::State; binds and the Send of a call
  kRevoke,   // owner: OutgoingCall::State; invalidations
  kProperties,  // owner: Properties::Outgoing; a Send
  // RFC 5666's compatibility mode. Owner of both: ReplyReader::Reading.
  kReplyRead,  // one RDMA Read of a reply's data
  kDone,       // the Send of RDMA_DONE
};

// What a work request's wr_id points to. Completions are dispatched by our own tag, never by the
// opcode of a completion, which is not to be trusted when the request failed.
struct WorkTag {
  WorkKind kind;
  void* owner;

  uint64_t id() const noexcept { return reinterpret_cast<uint64_t>(this); }
  static const WorkTag& of(uint64_t wr_id) noexcept {
    return *reinterpret_cast<const WorkTag*>(wr_id);
  }
};

// Work requests waiting to be posted: a list whose elements are reused, not constructed anew,
// because a SendWr with its sixteen spans is costly to clear. Memory is touched only as far as it
// is used: most connections never have many at a time.
template <typename Wr>
class WorkList {
  static_assert(std::is_trivially_copyable_v<Wr> && std::is_trivially_destructible_v<Wr>);

 public:
  explicit WorkList(size_t capacity)
      : pages_(capacity * sizeof(Wr)),
        store_(static_cast<Wr*>(pages_.data())),
        capacity_(capacity) {}
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
  const base::LazyPages pages_;
  Wr* const store_;
  const size_t capacity_;
  size_t first_ = 0;
  size_t last_ = 0;
  size_t constructed_ = 0;  // high-water mark
  uint64_t appended_ = 0;
};

}  // namespace rrdk::xprt

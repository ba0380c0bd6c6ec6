// Work requests: what their wr_id points to, the list of those that wait to be posted, and the send
// queue of one connection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/list.h"
#include "base/system.h"
#include "fabric/device.h"
#include "fabric/work.h"

namespace rrdk::engine {

enum class WorkKind : uint8_t {
  kReceive,     // owner: ReceiveSlot
  kSilent,      // an unsignaled request that failed; its chain's owner gets the completion of the
                // signaled one
  kRead,        // owner: ServedCall; one RDMA Read
  kReply,       // owner: ServedCall; Writes and the Send of a reply or an error
  kCall,        // owner: Requester::Slot; binds and the Send of a call
  kRevoke,      // owner: Requester::Slot; invalidations
  kProperties,  // owner: Properties::Outgoing; a Send
  // RFC 5666's compatibility mode. The owner of both is ReplyReader::Reading.
  kReplyRead,  // one RDMA Read of a reply's data
  kDone,       // the Send of RDMA_DONE
};

// What a work request's wr_id points to. Completions are dispatched by our own tag, never by the
// completion's opcode, which is not reliable when the request failed.
struct WorkTag {
  WorkKind kind;
  void* owner;

  uint64_t id() const noexcept { return reinterpret_cast<uint64_t>(this); }
  static const WorkTag& of(uint64_t wr_id) noexcept {
    return *reinterpret_cast<const WorkTag*>(wr_id);
  }
};
static_assert(sizeof(WorkTag) == 16);

// Memory for work requests that wait to be posted. Only the part that is used is ever touched.
template <typename Wr>
class WorkArray {
  static_assert(std::is_trivially_copyable_v<Wr> && std::is_trivially_destructible_v<Wr>);

 public:
  explicit WorkArray(uint32_t capacity) : pages_(capacity * sizeof(Wr)) {}

  Wr* data() const noexcept { return static_cast<Wr*>(pages_.data()); }
  // Elements are reused rather than constructed again, because clearing a SendWr with its sixteen
  // spans is expensive.
  Wr& element(uint32_t index) noexcept {
    RRDK_ASSERT(index <= constructed_, index, constructed_);
    if (index == constructed_) [[unlikely]]
      ::new (static_cast<void*>(data() + constructed_++)) Wr;
    return data()[index];
  }

  WorkArray* next = nullptr;  // in WorkArrays

 private:
  const base::LazyPages pages_;
  uint32_t constructed_ = 0;  // high-water mark
};

// Arrays for the lists of one core's connections that have the same capacity. A list has an array
// only while it is not empty, and gets the one that was used last. So only as many arrays are ever
// touched as lists are non-empty at once, and these stay in the core's caches. There are as many
// arrays as lists, so a list never lacks one.
template <typename Wr>
class WorkArrays {
 public:
  explicit WorkArrays(uint32_t capacity) noexcept : capacity_(capacity) {}
  ~WorkArrays() { RRDK_ASSERT(used_.empty() && fresh_.empty()); }
  WorkArrays(const WorkArrays&) = delete;
  WorkArrays& operator=(const WorkArrays&) = delete;

  uint32_t capacity() const noexcept { return capacity_; }
  // Called when a list is created or destroyed. A list that is destroyed must have no array.
  void join() { fresh_.push(*new WorkArray<Wr>(capacity_)); }
  void part() noexcept { delete &take(fresh_.empty() ? used_ : fresh_); }

  WorkArray<Wr>& take() noexcept { return take(used_.empty() ? fresh_ : used_); }
  void give(WorkArray<Wr>& array) noexcept { used_.push(array); }

 private:
  using Stack = base::Stack<WorkArray<Wr>, &WorkArray<Wr>::next>;
  static WorkArray<Wr>& take(Stack& from) noexcept {
    RRDK_ASSERT(!from.empty());
    return from.pop();
  }

  const uint32_t capacity_;
  Stack used_;   // the one that was used last is on top
  Stack fresh_;  // never used
};

// Work requests that wait to be posted.
template <typename Wr>
class WorkList {
 public:
  // The list has an array of its own, or takes one of `arrays` while it is not empty.
  explicit WorkList(uint32_t capacity)
      : array_(new WorkArray<Wr>(capacity)), store_(array_->data()), capacity_(capacity) {}
  explicit WorkList(WorkArrays<Wr>& arrays) : arrays_(&arrays), capacity_(arrays.capacity()) {
    arrays.join();
  }
  ~WorkList() {
    if (arrays_ == nullptr) {
      delete array_;
      return;
    }
    clear();
    arrays_->part();
  }
  WorkList(const WorkList&) = delete;
  WorkList& operator=(const WorkList&) = delete;

  // A contiguous range: converts to std::span<const Wr>.
  const Wr* data() const noexcept { return store_ + first_; }
  size_t size() const noexcept { return last_ - first_; }
  bool empty() const noexcept { return first_ == last_; }
  const Wr* begin() const noexcept { return data(); }
  const Wr* end() const noexcept { return store_ + last_; }
  const Wr& operator[](size_t i) const noexcept { return data()[i]; }

  // Takes the first `count` off; they have been posted.
  void pop_front(size_t count) noexcept {
    RRDK_ASSERT(count <= size(), count, size());
    first_ += static_cast<uint32_t>(count);
    if (first_ != last_)
      return;
    first_ = last_ = 0;
    if (arrays_ != nullptr && array_ != nullptr) {
      store_ = nullptr;
      arrays_->give(*std::exchange(array_, nullptr));
    }
  }
  void clear() noexcept { pop_front(size()); }
  // The number of all elements ever appended, which is the number of the next one.
  uint64_t appended() const noexcept { return appended_; }
  // The number of these that were taken off.
  uint64_t taken() const noexcept { return appended_ - size(); }

  // Appends an element, which keeps the values of an earlier one: the caller must set all that
  // matter.
  Wr& append() noexcept {
    RRDK_ASSERT(size() < capacity_, capacity_);
    if (array_ == nullptr) {
      array_ = &arrays_->take();
      store_ = array_->data();
    } else if (last_ == capacity_) {
      std::copy(store_ + first_, store_ + last_, store_);
      last_ -= first_;
      first_ = 0;
    }
    ++appended_;
    return array_->element(last_++);
  }

 private:
  WorkArrays<Wr>* const arrays_ = nullptr;
  WorkArray<Wr>* array_ = nullptr;
  Wr* store_ = nullptr;  // the array's
  uint64_t appended_ = 0;
  const uint32_t capacity_;
  uint32_t first_ = 0;
  uint32_t last_ = 0;
};

// A chain of work requests that is posted in order, and in pieces if the queue is short. Only the
// last request of the chain, and the last one before the queue is full, are signaled. A chain that
// is a copied Send, possibly with Binds before it, completes when that Send is posted
// (SendWr::copied).
struct Job {
  WorkTag tag;
  Job* next = nullptr;
  Job* next_copied = nullptr;
  uint64_t number = 0;   // of a copied Send, in the list
  uint16_t signals = 0;  // signaled requests of the chain that have not completed
  bool queued = false;   // in the FIFO: part of it is still to be posted

  bool settled() const noexcept { return !queued && signals == 0; }
};
static_assert(sizeof(Job) <= 48);

// The send queue of one connection: how many work requests are on it, which of them are signaled,
// and which chains wait. Chains (Writes and a Send, Binds and a Send, invalidations) form one FIFO.
// RDMA Reads have slots of their own, so that neither can starve the other.
class SendQueue {
 public:
  // `depth` is at least 8 requests, of which at most a quarter are Reads. It must also be the
  // capacity of `arrays`.
  SendQueue(uint32_t depth, WorkArrays<fabric::SendWr>& arrays);
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  WorkList<fabric::SendWr>& list() noexcept { return list_; }
  // Posts the list as far as it fits. Returns false if something is left.
  bool post(fabric::QueuePair& queue_pair) noexcept {
    if (!list_.empty())
      list_.pop_front(queue_pair.post_send(list_));
    return list_.empty();
  }
  bool empty() const noexcept { return list_.empty(); }  // nothing waits to be posted

  // Chains. A new chain may be posted at once only if no other chain waits.
  bool idle() const noexcept { return jobs_.empty(); }
  void push(Job& job) noexcept;
  Job* front() const noexcept { return jobs_.front(); }
  void pop() noexcept;

  uint32_t free_slots() const noexcept { return free_; }
  // Appends one request of `job`'s chain. The caller fills in the rest.
  fabric::SendWr& append(Job& job, fabric::Op op, bool last) noexcept;
  // The same for a job that ends in a Send that may be copied: its Binds, and the Send. One request
  // in several is signaled nevertheless; its completion frees the slots of those before it.
  fabric::SendWr& append_copied(Job& job, fabric::Op op) noexcept;
  // Called when a signaled request of a chain has completed: its slots and those before it are
  // free.
  void complete(Job& job) noexcept;
  // Returns the next job that completed because its copied Send was posted, or null.
  Job* pop_copied() noexcept {
    if (copied_.empty() || copied_.front()->number >= list_.taken())
      return nullptr;
    Job& job = copied_.pop();
    RRDK_ASSERT(job.signals != 0);
    --job.signals;
    ++copied_done_;
    return &job;
  }

  // Limits the Reads to `most` at once (the ORD), and never more than their share of the queue.
  void set_read_limit(uint32_t most) noexcept;
  uint32_t read_limit() const noexcept { return read_limit_; }
  bool read_slot() const noexcept { return reads_ < read_limit_; }
  fabric::SendWr& append_read(const WorkTag& tag) noexcept;
  void complete_read() noexcept {
    RRDK_ASSERT(reads_ != 0);
    --reads_;
    ++reads_done_;
  }

  // True if everything that was appended has been reported.
  bool drained() const noexcept { return signals_ == 0 && reads_ == 0 && copied_.empty(); }
  // Counts the requests that were reported or need no report; wraps.
  uint32_t done() const noexcept { return covers_first_ + reads_done_ + copied_done_; }

 private:
  void note_copied(Job& job) noexcept;

  WorkList<fabric::SendWr> list_;
  base::Queue<Job, &Job::next> jobs_;           // the FIFO
  base::Queue<Job, &Job::next_copied> copied_;  // jobs whose copied Send is in the list
  const uint32_t read_share_;
  uint32_t free_;
  uint32_t unsignaled_ = 0;  // since the last signaled request
  uint32_t signals_ = 0;     // signaled requests in flight, chains only
  uint32_t most_unsignaled_;
  uint32_t copied_done_ = 0;
  uint32_t read_limit_ = 0;
  uint32_t reads_ = 0;
  uint32_t reads_done_ = 0;
  // The slots that each signaled request in flight frees, in posting order (a ring).
  std::vector<uint16_t> covers_;
  uint32_t covers_first_ = 0;
  uint32_t covers_last_ = 0;
  WorkTag silent_{WorkKind::kSilent, nullptr};
};

}  // namespace rrdk::engine

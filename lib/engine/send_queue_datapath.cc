#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "engine/send_queue.h"

namespace rrdk::engine {

using fabric::Op;
using fabric::SendWr;

SendQueue::SendQueue(uint32_t depth, WorkArrays<fabric::SendWr>& arrays)
    : list_(arrays),
      read_share_(std::max(1u, depth / 4)),
      free_(depth - read_share_),
      most_unsignaled_(free_ / 4),
      covers_(std::bit_ceil(depth)) {}

void SendQueue::push(Job& job) noexcept {
  RRDK_ASSERT(!job.queued);
  job.queued = true;
  jobs_.push(job);
}

void SendQueue::pop() noexcept {
  jobs_.pop().queued = false;
}

SendWr& SendQueue::append(Job& job, Op op, bool last) noexcept {
  RRDK_ASSERT(free_ != 0);
  --free_;
  ++unsignaled_;
  SendWr& wr = list_.append();
  wr.op = op;
  wr.signaled = last || free_ == 0;
  wr.quiet = wr.copied = false;
  if (!wr.signaled) {
    wr.wr_id = silent_.id();
    return wr;
  }
  wr.wr_id = job.tag.id();
  covers_[covers_last_++ & (covers_.size() - 1)] = static_cast<uint16_t>(unsignaled_);
  unsignaled_ = 0;
  ++signals_;
  ++job.signals;
  return wr;
}

SendWr& SendQueue::append_copied(Job& job, Op op) noexcept {
  RRDK_ASSERT(free_ != 0);
  if (unsignaled_ >= most_unsignaled_ || free_ == 1)
    return append(job, op, true);
  --free_;
  ++unsignaled_;
  if (op != Op::kBindKey)
    note_copied(job);
  SendWr& wr = list_.append();
  wr.wr_id = silent_.id();
  wr.op = op;
  wr.signaled = false;
  wr.quiet = true;
  wr.copied = op != Op::kBindKey;
  return wr;
}

void SendQueue::note_copied(Job& job) noexcept {
  job.number = list_.appended();
  ++job.signals;
  copied_.push(job);
}

void SendQueue::complete(Job& job) noexcept {
  RRDK_ASSERT(signals_ != 0 && job.signals != 0, signals_, job.signals);
  RRDK_ASSERT(covers_first_ != covers_last_);
  free_ += covers_[covers_first_++ & (covers_.size() - 1)];
  --signals_;
  --job.signals;
}

void SendQueue::set_read_limit(uint32_t most) noexcept {
  read_limit_ = std::min(most, read_share_);
}

SendWr& SendQueue::append_read(const WorkTag& tag) noexcept {
  RRDK_ASSERT(read_slot(), reads_, read_limit_);
  ++reads_;
  SendWr& wr = list_.append();
  wr.wr_id = tag.id();
  wr.op = Op::kRead;
  wr.signaled = true;
  wr.quiet = wr.copied = false;
  return wr;
}

}  // namespace rrdk::engine

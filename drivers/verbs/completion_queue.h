// The completion queue of one thread: the device's own, and a list of the queue pairs that have
// something to report that the device does not know about.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/system.h"
#include "drivers/verbs/shared_receive_queue.h"
#include "fabric/device.h"
#include "fabric/work.h"

namespace rrdk::verbs {

class Device;
class QueuePair;

constexpr size_t kMaxQueuePairs = 16384;  // of one completion queue

// A chain of work requests under construction, posted with one doorbell.
struct SendChain {
  static constexpr uint32_t kMost = 16;
  std::array<ibv_send_wr, kMost> wrs;
  std::array<std::array<ibv_sge, fabric::kMaxSges>, kMost> sges;
  uint32_t count = 0;
};

class CompletionQueue final : public fabric::CompletionQueue {
 public:
  // Errors: kNoMemory, kSystem.
  static Result<std::unique_ptr<CompletionQueue>> create(Device& device, uint32_t entries);
  ~CompletionQueue() override;

  uint32_t poll(std::span<fabric::Completion> out) override;
  int wake_fd() const override { return epoll_.get(); }
  bool arm() override;
  void disarm() override;

  ibv_cq* get() noexcept { return cq_; }
  // Makes space for what a queue pair can have posted, since a queue that overflows is lost.
  // Errors: kLimit.
  Result<void> reserve(uint32_t completions);
  void unreserve(uint32_t completions);
  // Control path: completions of `number` belong to the queue pair from now on.
  void add(QueuePair& qp, uint32_t number);
  // Destroys the device's queue pair, by the polling thread or while nothing polls. Its remaining
  // completions are dropped with it, so that its number can be used again.
  void destroy(QueuePair& qp, ibv_qp* queue_pair);
  // The polling thread, or while nothing polls: `qp` is being destroyed.
  void forget(QueuePair& qp);
  // Any thread: makes the polling thread check `qp`.
  void ring(QueuePair& qp) noexcept;
  // How often it was found empty: when this has increased by two, everything that a device had
  // written before has been seen.
  uint64_t times_empty() const noexcept { return times_empty_.load(std::memory_order_acquire); }

  // `qp` has something to report that the device does not know about.
  void activate(QueuePair& qp) noexcept;
  // Where this thread's queue pairs build their chains.
  SendChain& sends() noexcept { return sends_; }
  ReceiveChain& receives() noexcept { return receives_; }

 private:
  // A QueuePair's position by its number: open addressing, at most half full.
  static constexpr size_t kPlaces = 2 * kMaxQueuePairs;
  static constexpr uint32_t kBatch = 32;

  explicit CompletionQueue(Device& device) : device_(device), places_(kPlaces) {}
  Result<void> open(uint32_t entries);
  bool grow(uint64_t entries);
  QueuePair* find(uint32_t number) const noexcept;
  bool refill(size_t most) noexcept;
  void take_rings() noexcept;
  void vacate(QueuePair& qp, uint32_t number) noexcept;
  void purge(QueuePair& qp, uint32_t number);
  uint32_t poll_active(std::span<fabric::Completion> out, bool empty) noexcept;

  Device& device_;
  base::Fd epoll_;
  base::Fd rings_;  // eventfd
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;

  // Taken from the device, and not processed yet.
  std::array<ibv_wc, kBatch> batch_;
  uint32_t batch_next_ = 0;
  uint32_t batch_count_ = 0;
  std::vector<ibv_wc> kept_;  // completions of others that purge() took
  size_t kept_next_ = 0;
  std::vector<QueuePair*> active_;  // reserved for kMaxQueuePairs
  std::atomic<uint64_t> times_empty_{0};
  SendChain sends_;
  ReceiveChain receives_;

  std::atomic<bool> has_rings_{false};
  std::mutex mutex_;                             // protects the members below
  std::vector<std::atomic<QueuePair*>> places_;  // the polling thread reads it without the lock
  size_t queue_pairs_ = 0;
  uint64_t reserved_ = 0;
  std::vector<QueuePair*> rung_;
};

// Converts the outcomes of verbs to those of the fabric interface.

constexpr fabric::WcStatus status_of(ibv_wc_status status) noexcept {
  using fabric::WcStatus;
  switch (status) {
    case IBV_WC_SUCCESS:
      return WcStatus::kSuccess;
    case IBV_WC_WR_FLUSH_ERR:
      return WcStatus::kFlushed;
    case IBV_WC_LOC_LEN_ERR:
      return WcStatus::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
      return WcStatus::kLocalProtection;
    case IBV_WC_REM_INV_REQ_ERR:
      return WcStatus::kRemoteInvalid;
    case IBV_WC_REM_ACCESS_ERR:
      return WcStatus::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_BAD_RESP_ERR:
      return WcStatus::kRemoteOperation;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return WcStatus::kRnrExceeded;
    default:  // retries exceeded, aborted, fatal
      return WcStatus::kPeerLost;
  }
}

// The status of a Receive. Its memory is ours and valid, so only its length can be wrong; rxe uses
// other codes for that.
constexpr fabric::WcStatus status_of_receive(ibv_wc_status status) noexcept {
  return status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR
             ? fabric::WcStatus::kLocalLength
             : status_of(status);
}

// The status of a request that was posted only to be refused (QueuePair::make_refused()): whatever
// the device found wrong, it counts as local protection.
constexpr fabric::WcStatus status_of_refused(ibv_wc_status status) noexcept {
  return status == IBV_WC_WR_FLUSH_ERR ? fabric::WcStatus::kFlushed
                                       : fabric::WcStatus::kLocalProtection;
}

}  // namespace rrdk::verbs

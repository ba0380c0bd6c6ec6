// Fault injection (rrdk/faults.h) into what the cores post and what completes, through their taps
// (poll_core.h). Not the data path: nothing here runs while no plan is set.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dice.h"
#include "engine/stage_log_datapath.h"
#include "fabric/work.h"

namespace rrdk {
struct FaultPlan;
struct FaultCounts;
}  // namespace rrdk

namespace rrdk::fabric {
class QueuePair;
}

namespace rrdk::runtime {

class Link;

// The faults to inject on all cores of a Runtime. Any thread.
struct Faults {
  struct Kind {
    base::Dice dice;
    std::atomic<fabric::WcStatus> status = fabric::WcStatus::kRemoteOperation;
  };

  void set(const FaultPlan& plan);
  void clear();
  FaultCounts counts() const;

  std::atomic<bool> on = false;
  Kind send, read, write, receive, rnr, bind;
  base::Dice delay;
  std::atomic<uint64_t> delay_ns = 0;
  engine::LateStage stage;
};

// The faults in progress on one core. The core's thread, except engage().
class CoreFaults {
 public:
  bool engaged() const noexcept { return faults_.load(std::memory_order_relaxed) != nullptr; }
  // Any thread; `faults` must outlive this object.
  void engage(Faults& faults) noexcept { faults_.store(&faults); }

  // While engaged(): the functions of fabric::Tap.
  uint32_t filter(std::span<fabric::Completion> out, uint32_t count);
  uint32_t post(Link& link, fabric::QueuePair& queue_pair, std::span<const fabric::SendWr> wrs);
  bool holding() const noexcept { return !held_.empty(); }
  bool holds_up(const void* owner) const;  // whether some of its completions are held back
  void forget(const Link& link);           // it is over

 private:
  struct Held {
    fabric::Completion completion;
    uint64_t due_ns;
  };
  // A queue pair that was made to fail.
  struct Broken {
    const Link* link;
    uint64_t wr_id;  // the request that is to be reported with `status` when it is flushed
    fabric::Op op;
    fabric::WcStatus status;  // kSuccess: already reported
    bool receives;            // a Receive failed: no later one succeeds
  };

  void disengage(Faults& faults);
  void fail(Faults& faults, fabric::Completion& completion);
  Broken* find(const void* link);
  static Faults::Kind* failing(Faults& faults, fabric::Op op);

  std::atomic<Faults*> faults_ = nullptr;
  std::vector<fabric::Completion> polled_;
  std::vector<Held> held_;  // in order
  std::vector<Broken> broken_;
};

}  // namespace rrdk::runtime

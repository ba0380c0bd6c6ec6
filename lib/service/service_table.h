// What a server offers: found by program, version and procedure for each call
// (dispatch_datapath.cc), and what is counted of each procedure.
//
// Cores read it without a lock while it changes. A change publishes another list of entries and
// retires the old one. An entry that is withdrawn is destroyed when its own grace period is over,
// so that no pass can find it any more, and no call that has not ended refers to it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/rcu.h"
#include "engine/stage_log_datapath.h"
#include "rrdk/procedure_stats.h"
#include "rrdk/service.h"

namespace rrdk::service {

// What ProcedureStats has of one procedure at one core.
struct alignas(64) ProcedureCounters {
  base::Count calls_in_progress;  // calls that have come, and not ended
  base::Count calls;
  base::Count errors;
  base::Count received_bytes;
  base::Count sent_bytes;
  engine::Durations fetch;
  engine::Durations decode;
  engine::Durations queue;
  engine::Durations handler;
  engine::Durations reply;

  void add_to(ProcedureStats& sum) const noexcept {
    sum.calls_in_progress += calls_in_progress;
    sum.calls += calls;
    sum.errors += errors;
    sum.received_bytes += received_bytes;
    sum.sent_bytes += sent_bytes;
    fetch.add_to(sum.fetch);
    decode.add_to(sum.decode);
    queue.add_to(sum.queue);
    handler.add_to(sum.handler);
    reply.add_to(sum.reply);
  }
};
static_assert(offsetof(ProcedureCounters, fetch) <= 64, "a call that is not timed touches a line");

// What a handler of ours can do wrong; each has its counter.
enum class Mistake : uint8_t {
#define RRDK_MISTAKE(id, mistake, name, text) k##mistake,
#include "rrdk/counter_table.h"
};
constexpr size_t kMistakes = 0
#define RRDK_MISTAKE(id, mistake, name, text) +1
#include "rrdk/counter_table.h"
    ;

// A service, of one version of a program.
struct ServiceEntry {
  const Binding* binding = nullptr;
  std::vector<Procedure> procedures = {};  // in ascending order, each with its context
  // Of each, a bit for each Mistake that the log has been told of.
  std::unique_ptr<std::atomic<uint8_t>[]> told = {};
  // By core, of each procedure, and then of NULL where the table lacks it. Empty: not counted.
  std::vector<std::unique_ptr<ProcedureCounters[]>> counters = {};
  // Versions of the same program that there are (PROG_MISMATCH); zeros: none any more.
  std::atomic<uint32_t> low = 0;
  std::atomic<uint32_t> high = 0;
  std::atomic<bool> removed = false;  // none of its handlers is entered any more

  // Its own entry, or that of kOtherProcedures. Null: no such procedure.
  const Procedure* find(uint32_t number) const noexcept;
  // Of one core, in the same order; null: not counted.
  ProcedureCounters* counters_of(uint32_t core) const noexcept {
    return counters.empty() ? nullptr : counters[core].get();
  }
  // `procedure` null: of NULL.
  size_t index_of(const Procedure* procedure) const noexcept {
    return procedure != nullptr ? static_cast<size_t>(procedure - procedures.data())
                                : procedures.size();
  }
  // Whether calls that have not ended refer to it; without counters there were none.
  bool in_use() const noexcept;
};

class ServiceTable {
 public:
  enum class Verdict : uint8_t { kFound, kNoProgram, kNoVersion };
  struct Found {
    Verdict verdict;
    const ServiceEntry* entry;  // with kNoVersion: of another version
  };

  ServiceTable() = default;
  ServiceTable(const ServiceTable&) = delete;
  ServiceTable& operator=(const ServiceTable&) = delete;

  // Core threads, in a pass. The entry that find() returns is valid in this pass. Later it is valid
  // for calls that are counted, and for readers that see the same edition.
  Found find(uint32_t program, uint32_t version) const noexcept;
  uint64_t edition() const noexcept { return edition_.load(std::memory_order_acquire); }

  // One thread at a time. Errors: kInvalidArgument.
  Result<void> add(const Service& service);
  // A service that calls do not find any more. When the grace period is over, and no worker runs
  // the entry (WorkerPool::runs()), none of its handlers runs.
  struct Withdrawn {
    const void* entry;  // only its address: the entry may be gone
    base::GracePeriod grace;
  };
  // Errors: kNotFound.
  Result<Withdrawn> withdraw(uint32_t program, uint32_t version);
  void withdraw_all();
  // Destroys the withdrawn entries that are no longer in use. Any thread.
  void collect();
  // From now on, counts what that many cores do.
  void count_on(size_t cores);

  // Any thread.
  bool empty() const noexcept;
  std::vector<ProcedureStats> procedures() const;
  // Whether each procedure may be run twice.
  bool idempotent() const noexcept;

  // Says it in the log, once for each kind and procedure: a handler's mistake, by any thread, when
  // procedure `number` was called. `item`: of kInvalidMemory, which result it is.
  void note(Mistake mistake, const ServiceEntry& entry, uint32_t number,
            uint32_t item = 0) const noexcept;

 private:
  struct Entries : base::Retired {
    std::vector<const ServiceEntry*> all;
  };
  struct Removed {
    std::unique_ptr<ServiceEntry> entry;
    base::GracePeriod grace;
  };

  void publish();
  // Tells the program's entries which versions there are; zeros: none.
  std::pair<uint32_t, uint32_t> set_versions(uint32_t program);

  mutable std::mutex mutex_;  // cores do not take it
  size_t cores_ = 0;
  std::vector<std::unique_ptr<ServiceEntry>> entries_;  // in ascending order of program and version
  std::vector<Removed> removed_;
  std::unique_ptr<Entries> list_;  // the one that is published
  // What cores read for each call; it is not written meanwhile.
  alignas(64) std::atomic<const Entries*> published_ = nullptr;
  std::atomic<uint64_t> edition_ = 0;
};

}  // namespace rrdk::service

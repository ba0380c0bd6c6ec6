// What a server offers, which is looked up by program, version and procedure for each call
// (dispatch_datapath.cc), and what is counted for each procedure.
//
// Cores read the table without a lock while it changes. A change publishes another list of entries
// and retires the old one. An entry that is withdrawn is destroyed when its own grace period is
// over, so that no pass can find it any more, and no call that has not ended refers to it.
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
#include "rrdk/interceptor.h"
#include "rrdk/procedure_stats.h"
#include "rrdk/service.h"

namespace rrdk::service {

// What ProcedureStats has for one procedure on one core.
struct alignas(64) ProcedureCounters {
  base::Count calls_in_progress;  // calls that have arrived and not ended
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

// What a handler can do wrong; each mistake has its counter.
enum class Mistake : uint8_t {
#define RRDK_MISTAKE(id, mistake, name, text) k##mistake,
#include "rrdk/counter_table.h"
};
constexpr size_t kMistakes = 0
#define RRDK_MISTAKE(id, mistake, name, text) +1
#include "rrdk/counter_table.h"
    ;

// A procedure's own handler, behind the one that asks the interceptor.
struct InterceptedHandler {
  Handler handler;
  void* context;
  const ServiceInterceptor* interceptor;
};

// A service of one version of a program.
struct ServiceEntry {
  const Binding* binding = nullptr;
  std::vector<Procedure> procedures = {};  // in ascending order, each with its context
  // With an interceptor, which each of the procedures has as its handler: their own ones.
  std::vector<InterceptedHandler> intercepted = {};
  bool null_added = false;  // the table lacks NULL, and the first of the procedures is NULL
  // For each procedure, a bit for each Mistake that has been logged.
  std::unique_ptr<std::atomic<uint8_t>[]> told = {};
  // For each core, the counters of each procedure, and then those of NULL if the table lacks it.
  // Empty: not counted.
  std::vector<std::unique_ptr<ProcedureCounters[]>> counters = {};
  // The versions of the same program that exist (PROG_MISMATCH); zeros: none any more.
  std::atomic<uint32_t> low = 0;
  std::atomic<uint32_t> high = 0;
  std::atomic<bool> removed = false;  // none of its handlers is entered any more

  // Returns the procedure's own entry, or that of kOtherProcedures; null if there is neither.
  const Procedure* find(uint32_t number) const noexcept;
  // The counters of one core, in the same order; null: not counted.
  ProcedureCounters* counters_of(uint32_t core) const noexcept {
    return counters.empty() ? nullptr : counters[core].get();
  }
  // A null `procedure` stands for NULL.
  size_t index_of(const Procedure* procedure) const noexcept {
    return procedure != nullptr ? static_cast<size_t>(procedure - procedures.data())
                                : procedures.size();
  }
  // Whether calls that have not ended refer to it; always false without counters.
  bool in_use() const noexcept;
};

class ServiceTable {
 public:
  enum class Verdict : uint8_t { kFound, kNoProgram, kNoVersion };
  struct Found {
    Verdict verdict;
    const ServiceEntry* entry;  // with kNoVersion: the entry of another version
  };

  // Copies the interceptor; null: none.
  explicit ServiceTable(const ServiceInterceptor* interceptor = nullptr) noexcept
      : interceptor_(interceptor != nullptr ? *interceptor : ServiceInterceptor{}) {}
  ServiceTable(const ServiceTable&) = delete;
  ServiceTable& operator=(const ServiceTable&) = delete;

  // For core threads, in a pass. The entry that find() returns is valid in this pass. Later it is
  // valid only for calls that are counted, and for readers that see the same edition.
  Found find(uint32_t program, uint32_t version) const noexcept;
  uint64_t edition() const noexcept { return edition_.load(std::memory_order_acquire); }

  // One thread at a time. `by_library`: without the interceptor. Errors: kInvalidArgument.
  Result<void> add(const Service& service, bool by_library = false);
  // A service that calls no longer find. When the grace period is over, and no worker runs the
  // entry (WorkerPool::runs()), none of its handlers runs.
  struct Withdrawn {
    const void* entry;  // only its address: the entry may be gone
    base::GracePeriod grace;
  };
  // Errors: kNotFound.
  Result<Withdrawn> withdraw(uint32_t program, uint32_t version);
  void withdraw_all();
  // Destroys the withdrawn entries that are no longer in use. Any thread.
  void collect();
  // Starts counting, for `cores` cores.
  void count_on(size_t cores);

  // Any thread.
  bool empty() const noexcept;
  std::vector<ProcedureStats> procedures() const;
  // Whether every procedure may be run twice.
  bool idempotent() const noexcept;

  // Logs a handler's mistake, once for each kind and procedure; any thread. `number` is the
  // procedure that was called. `item`: with kInvalidMemory, which result it is.
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

  const ServiceInterceptor interceptor_;
  mutable std::mutex mutex_;  // cores do not take it
  size_t cores_ = 0;
  std::vector<std::unique_ptr<ServiceEntry>> entries_;  // in ascending order of program and version
  std::vector<Removed> removed_;
  std::unique_ptr<Entries> list_;  // the one that is published
  // What cores read for each call. It is not written meanwhile.
  alignas(64) std::atomic<const Entries*> published_ = nullptr;
  std::atomic<uint64_t> edition_ = 0;
};

// The handler of procedures with an interceptor; `context` is its InterceptedHandler.
void enter_intercepted(ServerCall call, void* context);

}  // namespace rrdk::service

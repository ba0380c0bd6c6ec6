// What a server offers: found by program, version and procedure for each call
// (dispatch_datapath.cc). Filled before listen(), and only read from then on, so the cores need no
// lock for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "rrdk/procedure_stats.h"
#include "rrdk/service.h"
#include "service/procedure_counters.h"

namespace rrdk::service {

// As in HandlerMistakes, in the same order.
enum class Mistake : uint8_t {
  kInvalidMemory,
  kUnusableMemory,
  kTooLarge,
  kNoBuffers,
  kFailed,
  kUnanswered,
};
constexpr size_t kMistakes = 6;

class ServiceTable {
 public:
  struct Entry {
    const Binding* binding;
    std::vector<Procedure> procedures;  // in ascending order, each with its context
    // Of each, a bit for each Mistake that the log has been told of.
    std::unique_ptr<std::atomic<uint8_t>[]> told = {};
    // By core, of each procedure, and then of NULL where that is none of them. Empty: not counted.
    std::vector<std::unique_ptr<ProcedureCounters[]>> counters = {};
    // Versions of the same program that there are (PROG_MISMATCH).
    uint32_t low = 0;
    uint32_t high = 0;

    // Null: no such procedure.
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
  };
  enum class Verdict : uint8_t { kFound, kNoProgram, kNoVersion };
  struct Found {
    Verdict verdict;
    const Entry* entry;  // with kNoVersion: of another version
  };

  // Errors: kInvalidArgument.
  Result<void> add(const Service& service);
  Found find(uint32_t program, uint32_t version) const noexcept;
  bool empty() const noexcept { return entries_.empty(); }
  // When all have been added: what so many cores do is counted.
  void count_on(size_t cores);
  std::vector<ProcedureStats> procedures() const;
  // Whether each procedure may be run twice.
  bool idempotent() const noexcept;

  // A handler's, by any thread. `item`: of kInvalidMemory, which result it is.
  void note(Mistake mistake, const Entry& entry, const Procedure& procedure,
            uint32_t item = 0) const noexcept;
  HandlerMistakes mistakes() const noexcept;

 private:
  mutable std::array<std::atomic<uint64_t>, kMistakes> mistakes_{};
  std::vector<Entry> entries_;  // in ascending order of program and version
};

}  // namespace rrdk::service

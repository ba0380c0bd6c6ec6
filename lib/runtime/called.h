// How long the calls took that this end made: those that are sampled, by server, program and
// procedure. Connections to one server share the counters, since there can be thousands of
// connections.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/count.h"
#include "engine/stage_log_datapath.h"
#include "rrdk/binding.h"
#include "rrdk/procedure_stats.h"

namespace rrdk::runtime {

// The parts of a call's path, in order, and the stage with which each ends.
struct CalledStep {
  const char* name;
  Stage end;
};
inline constexpr std::array<CalledStep, 5> kCalledSteps = {{{"wait", Stage::kStarted},
                                                            {"post", Stage::kPosted},
                                                            {"away", Stage::kSeen},
                                                            {"complete", Stage::kCalled},
                                                            {"callback", Stage::kEnded}}};

struct CalledStats {
  std::string target;  // the server's address
  std::string name;    // "READ of blk"
  uint32_t program = 0;
  uint32_t version = 0;
  DurationHistogram call;  // from submit() to the callback
  std::array<uint64_t, kCalledSteps.size()> step_ns = {};
};

// On one core: the calls of one program to one server.
class CalledProgram {
 public:
  CalledProgram(uint32_t core, std::string target, const Binding& binding);

  // Counts a call whose callback has returned. The core's thread.
  void note(const engine::StageRecord& call) noexcept;

  bool is_of(uint32_t core, const std::string& target, const Binding& binding) const noexcept {
    return core_ == core && program_ == binding.program && version_ == binding.version &&
           target_ == target;
  }
  uint32_t core() const noexcept { return core_; }
  void add_to(std::vector<CalledStats>& all) const;

 private:
  struct Procedure {
    uint32_t number;
    std::string name;
    engine::Durations call;
    std::array<base::Count, kCalledSteps.size()> step_ns;
  };

  static constexpr size_t kMostProcedures = 64;

  Procedure& find(uint32_t number) noexcept;

  const uint32_t core_;
  const std::string target_;
  const uint32_t program_;
  const uint32_t version_;
  std::vector<Procedure> procedures_;  // in ascending order; the last one is for all others
};

// On the heap, outside the Memory's budget: a procedure takes 2.3 KiB, so a core's programs take
// 10 MB at most. What decides is the program's own bindings, and no peer.
class CalledPrograms {
 public:
  static constexpr size_t kMost = 64;  // of a core: a program can call any number of servers

  // Returns an object that is never destroyed, or null if there are too many. Any thread.
  CalledProgram* of(uint32_t core, const std::string& target, const Binding& binding);
  // Returns, for each procedure with sampled calls, the sum of all cores. Any thread.
  std::vector<CalledStats> read() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<CalledProgram>> all_;
};

}  // namespace rrdk::runtime

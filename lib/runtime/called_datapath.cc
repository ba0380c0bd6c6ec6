#include <algorithm>

#include "runtime/called.h"

namespace rrdk::runtime {

CalledProgram::Procedure& CalledProgram::find(uint32_t number) noexcept {
  // Most tables are dense from zero.
  if (number < procedures_.size() && procedures_[number].number == number)
    return procedures_[number];
  const auto at = std::ranges::lower_bound(procedures_, number, {}, &Procedure::number);
  return at->number == number ? *at : procedures_.back();
}

// If a call had no answer, or its Send was not stamped, the parts are not known.
void CalledProgram::note(const engine::StageRecord& call) noexcept {
  if (call.at(Stage::kPosted) == 0 || call.at(Stage::kSeen) == 0)
    return;
  Procedure& procedure = find(call.procedure.load(std::memory_order_relaxed));
  procedure.call.record(call.ns(Stage::kSubmitted, Stage::kCalled));
  Stage from = Stage::kSubmitted;
  for (size_t i = 0; i < kCalledSteps.size(); ++i) {
    procedure.step_ns[i] += call.ns(from, kCalledSteps[i].end);
    from = kCalledSteps[i].end;
  }
}

}  // namespace rrdk::runtime

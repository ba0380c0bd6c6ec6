#include "runtime/called.h"

#include <algorithm>
#include <utility>

#include "rpc/names.h"

namespace rrdk::runtime {

CalledProgram::CalledProgram(uint32_t core, std::string target, const Binding& binding)
    : core_(core),
      target_(std::move(target)),
      program_(binding.program),
      version_(binding.version) {
  const size_t size = std::min(binding.procedures.size(), kMostProcedures);
  procedures_.reserve(size + 1);
  const auto add = [&](uint32_t number) {
    procedures_.push_back({number, rpc::name_of(binding, number), {}, {}});
  };
  for (const ProcedureBinding& bound : binding.procedures.first(size))
    add(bound.procedure);
  if (procedures_.empty() || procedures_.back().number != kOtherProcedures)
    add(kOtherProcedures);
}

void CalledProgram::add_to(std::vector<CalledStats>& all) const {
  for (const Procedure& procedure : procedures_) {
    DurationHistogram call;
    procedure.call.add_to(call);
    if (call.count() == 0)
      continue;
    auto sum = std::ranges::find_if(all, [&](const CalledStats& one) {
      return one.program == program_ && one.version == version_ && one.name == procedure.name &&
             one.target == target_;
    });
    if (sum == all.end())
      sum = all.insert(sum, {target_, procedure.name, program_, version_, {}, {}});
    procedure.call.add_to(sum->call);
    for (size_t i = 0; i < kCalledSteps.size(); ++i)
      sum->step_ns[i] += procedure.step_ns[i];
  }
}

CalledProgram* CalledPrograms::of(uint32_t core, const std::string& target,
                                  const Binding& binding) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      all_, [&](const auto& one) { return one->is_of(core, target, binding); });
  if (found != all_.end())
    return found->get();
  const auto of_core = [core](const auto& one) { return one->core() == core; };
  if (std::ranges::count_if(all_, of_core) >= static_cast<ptrdiff_t>(kMost))
    return nullptr;
  return all_.emplace_back(std::make_unique<CalledProgram>(core, target, binding)).get();
}

std::vector<CalledStats> CalledPrograms::read() const {
  std::vector<const CalledProgram*> programs;  // they stay
  {
    std::lock_guard lock(mutex_);  // not for longer: poll cores wait for it in of()
    programs.reserve(all_.size());
    for (const auto& one : all_)
      programs.push_back(one.get());
  }
  std::vector<CalledStats> all;
  for (const CalledProgram* one : programs)
    one->add_to(all);
  return all;
}

}  // namespace rrdk::runtime

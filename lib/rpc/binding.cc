#include "rrdk/binding.h"

#include <string>

namespace rrdk {

namespace {

// Returns what is wrong with one entry; null if nothing is wrong.
const char* fault(const ProcedureBinding& entry) {
  if (entry.name == nullptr || *entry.name == '\0')
    return "has no name";
  if (entry.eligible_args > kMaxEligibleItems)
    return "has more than 16 eligible arguments";
  if (entry.eligible_results > kMaxEligibleItems)
    return "has more than 16 eligible results";
  if (entry.fixed_results % 4 != 0)
    return "has a size of fixed results that is not a multiple of four";
  if (entry.fixed_results > kMaxFixedResults)
    return "has more than 65536 bytes of fixed results";
  // The length word of an eligible item stays in the reply (RFC 5666 section 3.4).
  if (entry.fixed_results < 4u * entry.eligible_results)
    return "has fixed results too small for the length words of its eligible results";
  // RFC 5531 section 12: procedure 0 has neither arguments nor results.
  if (entry.procedure == 0 &&
      (entry.eligible_args != 0 || entry.eligible_results != 0 || entry.fixed_results != 0))
    return "is the NULL procedure, which has neither arguments nor results";
  return nullptr;
}

std::string describe(const Binding& binding) {
  return "binding \"" + std::string(binding.name != nullptr ? binding.name : "") + "\" (program " +
         std::to_string(binding.program) + ", version " + std::to_string(binding.version) + ")";
}

}  // namespace

Result<void> check(const Binding& binding) {
  if (binding.name == nullptr || *binding.name == '\0')
    return fail(Errc::kInvalidArgument, describe(binding) + " has no name");
  const ProcedureBinding* previous = nullptr;
  for (const ProcedureBinding& entry : binding.procedures) {
    const char* what = fault(entry);
    if (what == nullptr && previous != nullptr && previous->procedure == entry.procedure)
      what = "is listed twice";
    if (what == nullptr && previous != nullptr && previous->procedure > entry.procedure)
      what = "is out of order: sort procedures by number";
    if (what != nullptr)
      return fail(Errc::kInvalidArgument, describe(binding) + ": procedure " +
                                              std::to_string(entry.procedure) + " " + what);
    previous = &entry;
  }
  return {};
}

}  // namespace rrdk

#include "service/service_table.h"

#include <algorithm>
#include <string>
#include <utility>

namespace rrdk::service {

namespace {

std::string name_of(const Binding& binding) {
  return std::string(binding.name != nullptr ? binding.name : "program") + " (" +
         std::to_string(binding.program) + " version " + std::to_string(binding.version) + ")";
}

std::pair<uint32_t, uint32_t> key(const ServiceTable::Entry& entry) {
  return {entry.binding->program, entry.binding->version};
}

}  // namespace

Result<void> ServiceTable::add(const Service& service) {
  if (service.binding == nullptr)
    return fail(Errc::kInvalidArgument, "a service needs a binding");
  if (auto checked = check(*service.binding); !checked)
    return checked;
  Entry entry = {
      service.binding, service.context, {service.procedures.begin(), service.procedures.end()}};
  std::ranges::sort(entry.procedures, {}, &Procedure::number);
  for (size_t i = 0; i < entry.procedures.size(); ++i) {
    const Procedure& p = entry.procedures[i];
    if (p.handler == nullptr)
      return fail(Errc::kInvalidArgument, name_of(*service.binding) + ": procedure " +
                                              std::to_string(p.number) + " has no handler");
    if (i > 0 && entry.procedures[i - 1].number == p.number)
      return fail(Errc::kInvalidArgument, name_of(*service.binding) + ": procedure " +
                                              std::to_string(p.number) + " is there twice");
  }
  auto at = std::ranges::lower_bound(entries_, key(entry), {}, key);
  if (at != entries_.end() && key(*at) == key(entry))
    return fail(Errc::kInvalidArgument, name_of(*service.binding) + " was added before");
  entries_.insert(at, std::move(entry));

  auto same = std::ranges::equal_range(entries_, service.binding->program, {},
                                       [](const Entry& e) { return e.binding->program; });
  uint32_t low = same.front().binding->version;
  uint32_t high = same.back().binding->version;
  for (Entry& e : same) {
    e.low = low;
    e.high = high;
  }
  return {};
}

bool ServiceTable::idempotent() const noexcept {
  return std::ranges::all_of(entries_, [](const Entry& entry) {
    return std::ranges::all_of(entry.procedures, &Procedure::idempotent);
  });
}

}  // namespace rrdk::service

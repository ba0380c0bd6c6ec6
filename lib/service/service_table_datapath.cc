#include "service/service_table.h"

namespace rrdk::service {

const Procedure* ServiceTable::Entry::find(uint32_t number) const noexcept {
  // Most tables are dense from zero, or from one: an entry's index follows from its number.
  if (number < procedures.size() && procedures[number].number == number)
    return &procedures[number];
  if (number - 1 < procedures.size() && procedures[number - 1].number == number)
    return &procedures[number - 1];
  for (const Procedure& procedure : procedures) {
    if (procedure.number >= number)
      return procedure.number == number ? &procedure : nullptr;
  }
  return nullptr;
}

ServiceTable::Found ServiceTable::find(uint32_t program, uint32_t version) const noexcept {
  const Entry* other = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.binding->program != program)
      continue;
    if (entry.binding->version == version)
      return {Verdict::kFound, &entry};
    other = &entry;
  }
  return {other != nullptr ? Verdict::kNoVersion : Verdict::kNoProgram, other};
}

}  // namespace rrdk::service

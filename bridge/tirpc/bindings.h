// Binding files: the items of procedures that may be placed directly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rrdk/binding.h"

namespace rrdk::tirpc {

// One eligible item, as a line names it.
struct Item {
  std::string type;   // of the .x, whose routine is xdr_TYPE
  std::string field;  // TYPE itself for a typedef
  uint32_t largest;
  bool copy;  // decoded memory is malloc()'s

  // Whether an xdr_bytes() in `routine` with this argument text encodes or decodes this item.
  bool matches(const char* routine, const char* argument) const noexcept;
};

struct ProcedureItems {
  uint32_t procedure;
  std::vector<Item> args, results;
  std::optional<uint32_t> reply = {};  // bytes of the results without these items
};

// The items of one version of a program. Immutable.
class ProgramItems {
 public:
  ProgramItems(uint32_t program, uint32_t version, std::vector<ProcedureItems> procedures);
  ProgramItems(const ProgramItems&) = delete;
  ProgramItems& operator=(const ProgramItems&) = delete;

  const Binding& binding() const noexcept { return binding_; }
  std::span<const ProcedureItems> procedures() const noexcept { return procedures_; }
  // Returns null if there is no line for it.
  const ProcedureItems* find(uint32_t procedure) const noexcept;

 private:
  std::vector<ProcedureItems> procedures_;  // in ascending order of their numbers
  std::vector<std::string> names_;
  std::vector<ProcedureBinding> table_;
  std::string name_;
  Binding binding_;
};

// Any thread. Errors: kSystem (it cannot be read), kInvalidArgument (a line).
Result<void> read_binding(const std::string& file);
// The items that the binding files read so far name for this version of the program; otherwise a
// binding without items. First reads the file that the environment names, if that was not done yet;
// errors are those of reading it. Any thread.
Result<std::shared_ptr<const ProgramItems>> items_of(uint32_t program, uint32_t version);

}  // namespace rrdk::tirpc

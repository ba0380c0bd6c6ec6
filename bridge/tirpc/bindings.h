// Binding files: which items of which procedures may be placed directly.
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
  bool copy;  // what is decoded is malloc()'s

  // Whether an xdr_bytes() of `routine` with an argument of this text is of this item.
  bool matches(const char* routine, const char* argument) const noexcept;
};

struct ProcedureItems {
  uint32_t procedure;
  std::vector<Item> args, results;
  std::optional<uint32_t> reply = {};  // bytes of the results but for these items
};

// Of one version of a program. Does not change.
class ProgramItems {
 public:
  ProgramItems(uint32_t program, uint32_t version, std::vector<ProcedureItems> procedures);
  ProgramItems(const ProgramItems&) = delete;
  ProgramItems& operator=(const ProgramItems&) = delete;

  const Binding& binding() const noexcept { return binding_; }
  std::span<const ProcedureItems> procedures() const noexcept { return procedures_; }
  // Null: nothing is said of it.
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
// What the binding files read so far say of this version of the program; if nothing, a binding
// without items. Reads the file that the environment names first, if that was not done yet; errors
// are those of reading it. Any thread.
Result<std::shared_ptr<const ProgramItems>> items_of(uint32_t program, uint32_t version);

}  // namespace rrdk::tirpc

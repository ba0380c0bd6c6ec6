// What a server offers: found by program, version and procedure for each call. Filled before
// listen(), and only read from then on, so the cores need no lock for it.
#pragma once

#include <cstdint>
#include <vector>

#include "rrdk/service.h"

namespace rrdk::service {

class ServiceTable {
 public:
  struct Entry {
    const Binding* binding;
    void* context;
    std::vector<Procedure> procedures;  // in ascending order
    // Versions of the same program that there are (PROG_MISMATCH).
    uint32_t low = 0;
    uint32_t high = 0;

    // Null: no such procedure.
    const Procedure* find(uint32_t number) const noexcept;
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
  // Whether each procedure may be run twice.
  bool idempotent() const noexcept;

 private:
  std::vector<Entry> entries_;  // in ascending order of program and version
};

}  // namespace rrdk::service

#include "nfs3_kinds.h"

#include <algorithm>

#include "values.h"

namespace rrdk::testrpc {
namespace {

constexpr const char* kKindNames[kNfs3Kinds] = {"null", "getattr", "lookup", "readlink",
                                                "read", "write",   "readdir"};
}  // namespace

Result<uint32_t> parse_nfs3_calls(const std::string& text) {
  uint32_t calls = 0;
  for (const std::string& name : split(text)) {
    const auto* found = std::ranges::find(kKindNames, name);
    if (found == std::end(kKindNames))
      return fail(Errc::kInvalidArgument,
                  "unknown NFS call '" + name + "': there are " + nfs3_call_names());
    calls |= 1u << (found - kKindNames);
  }
  return calls;
}

std::string nfs3_call_names(uint32_t calls) {
  std::string names;
  for (uint32_t i = 0; i < kNfs3Kinds; ++i) {
    if (has(calls, static_cast<Nfs3Kind>(i)))
      names += (names.empty() ? "" : ",") + std::string(kKindNames[i]);
  }
  return names;
}

}  // namespace rrdk::testrpc

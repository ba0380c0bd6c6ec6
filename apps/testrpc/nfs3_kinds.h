// The NFSv3 calls of the engine nfs3.
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// The position of a READ or WRITE in its file.
enum class Access : uint8_t {
  kNear,        // anywhere, in a file of the size of the largest transfer
  kSequential,  // behind the one before it, in a larger file
  kRandom,      // anywhere in the larger file
};
// The size of the larger file, in largest transfers.
constexpr uint32_t kAccessSpan = 16;

// The calls that the engine draws among; bits of Options::nfs_calls.
enum class Nfs3Kind : uint8_t {
  kNull,
  kGetattr,
  kLookup,
  kReadlink,
  kRead,
  kWrite,
  kReaddir,
};
constexpr uint32_t kNfs3Kinds = 7;
constexpr uint32_t kAllNfs3Calls = (1u << kNfs3Kinds) - 1;

constexpr bool has(uint32_t calls, Nfs3Kind kind) {
  return (calls >> static_cast<uint32_t>(kind) & 1) != 0;
}

// Converts "null,getattr,..." to bits, and back.
Result<uint32_t> parse_nfs3_calls(const std::string& text);
std::string nfs3_call_names(uint32_t calls = kAllNfs3Calls);

}  // namespace rrdk::testrpc

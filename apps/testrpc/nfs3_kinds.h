// Which NFSv3 calls the engine nfs3 makes.
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// Where in its file a READ or WRITE goes.
enum class Access : uint8_t {
  kNear,        // anywhere, in a file of the size of the largest transfer
  kSequential,  // behind the one before it, in a larger file
  kRandom,      // anywhere in the larger file
};
// How many times the largest transfer that file has.
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

// "null,getattr,..." as bits; and back.
Result<uint32_t> parse_nfs3_calls(const std::string& text);
std::string nfs3_call_names(uint32_t calls = kAllNfs3Calls);

}  // namespace rrdk::testrpc

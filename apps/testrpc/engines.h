// The engines: what one call of each kind writes as arguments, where its results may be placed, and
// how they are checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rrdk/client.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::testrpc {

// One call, as it was drawn.
struct Draw {
  uint64_t offset;  // where the pattern begins
  uint32_t size;    // bytes of data
  bool verify;
  bool place;         // offer room for the data to be placed by RDMA; else it comes inline
  uint32_t segments;  // of each room offered
  MemorySpan source;  // data to send; filled by prepare() when it is to be verified
  MemorySpan sink;    // room for data to receive
};

// What a reply was worth.
struct Verdict {
  bool decoded = true;       // the results were whole, with the status and lengths asked for
  uint32_t perf_status = 0;  // what the server answered, when it could be read
  uint64_t wrong_bytes = 0;  // an item whose checksum differs counts as wrong altogether
};

struct Engine {
  const char* name;
  uint32_t procedure;
  bool sized;  // its calls carry data
  // Writes the arguments, and offers room. Null for "mixed", which draws among the others.
  void (*prepare)(const Draw& draw, Encoder& args, Call& call);
  Verdict (*check)(const Draw& draw, Decoder& results);
};

std::span<const Engine> all_engines();
// Those that "mixed" draws among: all but itself.
std::span<const Engine> plain_engines();
const Engine* find_engine(std::string_view name);
// "null, echo, ..."
std::string engine_names();

}  // namespace rrdk::testrpc

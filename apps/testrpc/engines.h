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

class Nfs3Work;

// One call, as it was drawn.
struct Draw {
  uint64_t offset;  // where the pattern begins
  uint32_t size;    // bytes of data
  bool verify;
  bool touch;         // read every byte of data received
  bool place;         // offer room for the data to be placed by RDMA; else it comes inline
  uint32_t segments;  // of each room offered
  MemorySpan source;  // data to send; filled by prepare() when it is to be verified
  MemorySpan sink;    // room for data to receive
  uint32_t procedure;
  Nfs3Work* nfs3;  // what the slot does with engine nfs3; else null
};

// What a reply was worth.
struct Verdict {
  bool decoded = true;       // the results were whole, with the status and lengths asked for
  uint32_t perf_status = 0;  // what the server answered, when it could be read
  uint32_t nfs_status = 0;   // the same of an NFS server, an nfsstat3
  bool try_later = false;    // the NFS server asked for that: neither right nor wrong
  uint64_t wrong_bytes = 0;  // an item whose checksum differs counts as wrong altogether
};

struct Engine {
  const char* name;
  const Binding& (*binding)();
  uint32_t procedure;  // of all its calls; nfs3 draws one for each
  bool sized;          // its calls carry data
  // Writes the arguments, and offers room. Null for "mixed", which draws among the others.
  void (*prepare)(const Draw& draw, Encoder& args, Call& call);
  Verdict (*check)(const Draw& draw, Decoder& results);
};

// What --engine all means: those of the perf program.
std::span<const Engine> all_engines();
// Those that "mixed" draws among: all but itself and callback, which not every peer can do.
std::span<const Engine> plain_engines();
const Engine* find_engine(std::string_view name);
// "null, echo, ..."
std::string engine_names();
// It calls an NFS server, and draws procedures and sizes by itself (nfs3_work.h).
bool is_nfs3(const Engine& engine);
// The server calls the client, with data that must fit inline.
bool is_callback(const Engine& engine);

// Offers `room` for one result, in as many segments as the draw asks for, if the data is to be
// placed. Returns by how many bytes the reply grows if it is not.
uint32_t offer(const Draw& draw, Call& call, MemorySpan room);

}  // namespace rrdk::testrpc

// The engines: how a call of each kind writes its arguments, where its results may be placed, and
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

// The parameters of one call.
struct Draw {
  uint64_t offset;  // where the pattern begins
  uint32_t size;    // bytes of data
  bool verify;
  bool touch;         // read every byte of data received
  bool place;         // offer memory in which RDMA places the data; else it comes inline
  uint32_t segments;  // of each memory range offered
  uint32_t pieces;    // of memory in which the data to send lies
  MemorySpan source;  // data to send; filled by prepare() if it is to be verified
  MemorySpan sink;    // memory for data to receive
  uint32_t procedure;
  Nfs3Work* nfs3;  // the slot's state with engine nfs3; else null
};

// The result of checking a reply.
struct Verdict {
  bool decoded = true;       // the results were complete, with the expected status and lengths
  uint32_t perf_status = 0;  // the server's answer, if it could be decoded
  uint32_t nfs_status = 0;   // the same of an NFS server, an nfsstat3
  bool try_later = false;    // the NFS server asked for a retry: neither right nor wrong
  uint64_t wrong_bytes = 0;  // an item whose checksum differs counts as wrong altogether
};

struct Engine {
  const char* name;
  const Binding& (*binding)();
  uint32_t procedure;  // of all its calls; nfs3 draws one for each call
  bool sized;          // its calls carry data
  // Writes the arguments and offers memory. Null for "mixed", which draws among the others.
  void (*prepare)(const Draw& draw, Encoder& args, Call& call);
  Verdict (*check)(const Draw& draw, Decoder& results);
};

// The engines of --engine all: those of the perf program.
std::span<const Engine> all_engines();
// The engines that "mixed" draws among: all but itself and callback, which not every peer supports.
std::span<const Engine> plain_engines();
const Engine* find_engine(std::string_view name);
// "null, echo, ..."
std::string engine_names();
// Returns whether the engine calls an NFS server; it draws procedures and sizes itself
// (nfs3_work.h).
bool is_nfs3(const Engine& engine);
// Returns whether the engine makes the server call the client, with data that must fit inline.
bool is_callback(const Engine& engine);

// Offers `room` for one result, in as many segments as the draw asks for, if the data is to be
// placed. Otherwise returns the number of bytes by which the reply grows.
uint32_t offer(const Draw& draw, Call& call, MemorySpan room);

}  // namespace rrdk::testrpc

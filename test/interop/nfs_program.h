// NFS version 3 over a Tree: the program's procedures, as a Service.
#pragma once

#include "rrdk/server.h"
#include "tree.h"

namespace rrdk::interop {

// Bytes of data in one READ or WRITE, and of one listing's reply.
constexpr uint32_t kMostData = 1u << 20;
constexpr uint32_t kMostListing = 64u << 10;

// The tree outlives the Server, whose poll core alone uses it.
Service nfs_service(Tree& tree);

}  // namespace rrdk::interop

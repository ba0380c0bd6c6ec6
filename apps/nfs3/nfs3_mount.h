// Finds the root of an NFS export by the MOUNT protocol (RFC 1813 appendix I) over TCP, blocking.
#pragma once

#include <cstdint>
#include <string>

#include "nfs3_protocol.h"
#include "rrdk/error.h"

namespace rrdk::nfs3 {

struct MountTarget {
  std::string host;            // name or address of the server
  uint16_t port = 0;           // of its MOUNT service; 0: from its rpcbind, else 20048
  std::string path = "/";      // the export
  uint32_t timeout_ms = 5000;  // for each exchange
};

// Returns the export's root handle. Errors name host, port and reason: those of call_over_tcp(),
// and kNotFound (no such export), kPermission (not exported to us), kNotAPeer (the answer is not
// that of a MOUNT service), kSystem.
Result<FileHandle> mount_export(const MountTarget& target);

// Tells the server that the export is no longer used. Servers only keep a list, so errors do not
// matter.
void unmount_export(const MountTarget& target);

}  // namespace rrdk::nfs3

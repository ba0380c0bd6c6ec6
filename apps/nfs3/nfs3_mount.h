// Finding the root of an NFS export: the MOUNT protocol (RFC 1813 appendix I) over TCP, blocking.
#pragma once

#include <cstdint>
#include <string>

#include "nfs3_protocol.h"
#include "rrdk/error.h"

namespace rrdk::nfs3 {

struct MountTarget {
  std::string host;            // name or address of the server
  uint16_t port = 0;           // of its MOUNT service; 0: as its rpcbind says, else 20048
  std::string path = "/";      // the export
  uint32_t timeout_ms = 5000;  // for each exchange
};

// The export's root handle. Errors name host, port and reason: those of call_over_tcp(), and
// kNotFound (no such export), kPermission (not exported to us), kNotAPeer (what came is no answer
// of a MOUNT service), kSystem.
Result<FileHandle> mount_export(const MountTarget& target);

// Tells the server that the export is not used any more. Servers only keep a list, so that what
// goes wrong does not matter.
void unmount_export(const MountTarget& target);

}  // namespace rrdk::nfs3

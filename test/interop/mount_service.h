// The MOUNT protocol, version 3, over TCP (RFC 1813 appendix I), by libtirpc in its own thread: one
// export, "/".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "nfs3_protocol.h"
#include "rrdk/error.h"

namespace rrdk::interop {

class MountService {
 public:
  // Listens on TCP port `port` of all addresses; 0 means any free port. It does not tell rpcbind.
  // There is one per process, because libtirpc's state is the process's. `flavors` are those of NFS
  // calls, the best first.
  static Result<std::unique_ptr<MountService>> start(uint16_t port, const nfs3::FileHandle& root,
                                                     std::vector<uint32_t> flavors);
  ~MountService();
  MountService(const MountService&) = delete;
  MountService& operator=(const MountService&) = delete;

  uint16_t port() const { return port_; }

 private:
  MountService() = default;
  void serve();

  uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace rrdk::interop

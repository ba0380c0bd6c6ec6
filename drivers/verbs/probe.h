// What a device supports, found out by trying it. The attributes are the kernel's: the device's
// user-space library may lack a part of what they promise (bnxt_re says "type 2B" and cannot bind).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk::verbs {

// Which work requests a queue pair takes, beyond those that every device has.
struct Requests {
  bool windows = false;              // type 2 windows can be allocated, bound and invalidated
  bool sends_invalidations = false;  // Send with Invalidate
};

struct Abilities {
  ibv_qp_cap caps = {};  // of a queue pair, with the most inline data
  bool resizes_completion_queues = false;
  Requests requests;
};

// `sges`: of one request. Errors: kNoMemory, kSystem: no queue pair can be made.
Result<Abilities> probe(ibv_pd* pd, const std::string& device, uint32_t sges);

// Posts one of each to `qp`, which must be in error, so that none is executed. A null `mr` means
// that memory cannot be registered for binding.
Requests probe_requests(ibv_qp* qp, ibv_mr* mr);

}  // namespace rrdk::verbs

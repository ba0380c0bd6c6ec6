// RDMA devices through libibverbs and librdmacm: InfiniBand, RoCE, iWARP, and Linux's own software
// devices rxe and siw. Addresses are verbs://host:port.
#pragma once

#include "fabric/driver.h"

namespace rrdk::verbs {

extern const fabric::Driver kDriver;

}  // namespace rrdk::verbs

// iWARP over TCP in user space: RFC 5044 and 6581 (MPA), 5041 (DDP), 5040 (RDMAP). Addresses are
// iwarp://host:port.
#pragma once

#include "fabric/driver.h"

namespace rrdk::iwarp {

extern const fabric::Driver kDriver;

}  // namespace rrdk::iwarp

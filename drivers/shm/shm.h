// The driver for two processes, or two halves of one, on a host: shared memory.
#pragma once

#include "fabric/driver.h"

namespace rrdk::shm {

extern const fabric::Driver kDriver;

}  // namespace rrdk::shm

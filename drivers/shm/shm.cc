#include "drivers/shm/shm.h"

#include "drivers/shm/device.h"

namespace rrdk::shm {

const fabric::Driver kDriver = {.scheme = "shm", .open = Device::open};

}  // namespace rrdk::shm

#include "drivers/iwarp/iwarp.h"

#include "drivers/iwarp/device.h"

namespace rrdk::iwarp {

const fabric::Driver kDriver = {.scheme = "iwarp", .open = Device::open};

}  // namespace rrdk::iwarp

#include "drivers/verbs/verbs.h"

#include "drivers/verbs/device.h"

namespace rrdk::verbs {

const fabric::Driver kDriver = {.scheme = "verbs", .open = Device::open};

}  // namespace rrdk::verbs

// Which of the host's RDMA devices an address leads to.
#pragma once

#include <string>

#include "drivers/verbs/address.h"

namespace rrdk::verbs {

// Its name. Can take some seconds. Errors: kUnsupported (there are no devices), kNotFound.
Result<std::string> choose_device(const Address& address);

}  // namespace rrdk::verbs

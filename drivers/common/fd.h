#pragma once

#include "base/fd.h"

namespace rrdk::drivers {
using base::Fd;
}  // namespace rrdk::drivers

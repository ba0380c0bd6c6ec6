// What every driver asks of what is given to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/device.h"
#include "rrdk/error.h"

namespace rrdk::drivers {

// Errors, of all: kInvalidArgument.
Result<void> check(const fabric::QueuePairOptions& options, const fabric::Capabilities& most);
Result<void> check_shared_receives(uint32_t entries, uint32_t most);
Result<void> check_private_data(std::span<const std::byte> data);

}  // namespace rrdk::drivers

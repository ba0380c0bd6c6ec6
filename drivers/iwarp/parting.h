// The end of a TCP connection: sends what is left, closes our half, then reads whatever the peer
// still sends, so that no reset destroys data that the peer has not read.
#pragma once

#include <cstddef>
#include <vector>

#include "base/system.h"

namespace rrdk::iwarp {

class Device;

// Stays in the control loop until the peer has closed too, or for kPartingTime. `rest` may be
// empty. The loop's lock must be held.
void part(Device& device, base::Fd socket, std::vector<std::byte> rest);

// Closes the oldest one immediately. Returns false if none is left. The loop's lock must be
// held.
bool cut_parting(Device& device);

}  // namespace rrdk::iwarp

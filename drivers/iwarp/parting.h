// The end of a TCP connection: what is left to send, then our half of the close, then whatever the
// peer still sends, so that no reset destroys what it has not read.
#pragma once

#include <cstddef>
#include <vector>

#include "base/system.h"

namespace rrdk::iwarp {

class Device;

// Lives in the control loop until the peer has closed too, or for kPartingTime. `rest` may be
// empty. The loop's lock is held.
void part(Device& device, base::Fd socket, std::vector<std::byte> rest);

// Closes the one that began first as it is. False: there is none. The loop's lock is held.
bool cut_parting(Device& device);

}  // namespace rrdk::iwarp

// Which congestion control TCP uses for a connection. Across a network it is the system's, unless
// the address says otherwise, since the right choice depends on the network. Between two ends on
// one host there is no network, and BBR, which paces what it sends, only costs time: it is replaced
// by cubic or reno.
#pragma once

#include <string>

#include "drivers/common/endpoint.h"
#include "rrdk/error.h"

namespace rrdk::iwarp {

// The longest name that Linux has for one (TCP_CA_NAME_MAX without the zero).
constexpr size_t kLongestCongestion = 15;

// Errors: kUnsupported, which names those that the kernel has; kPermission.
Result<void> set_congestion(int socket, const std::string& name);

// For a connection between ends on one host: replaces BBR, and nothing else.
void set_congestion_of_host(int socket, const drivers::Endpoint4Or6& near,
                            const drivers::Endpoint4Or6& far);
// The same before `socket` connects to `far`, so that BBR's pacing never begins.
void set_congestion_of_host(int socket, const drivers::Endpoint4Or6& far);

}  // namespace rrdk::iwarp

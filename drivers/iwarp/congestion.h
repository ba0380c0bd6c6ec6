// Which congestion control TCP has for a connection. Across a network it is the system's, unless
// the address says otherwise: which one is good there is for who knows the network. Between two
// ends on one host there is no network, and BBR, which paces what it sends, only costs time: cubic
// or reno takes its place.
#pragma once

#include <string>

#include "drivers/common/endpoint.h"
#include "rrdk/error.h"

namespace rrdk::iwarp {

// The longest name that Linux has for one (TCP_CA_NAME_MAX without the zero).
constexpr size_t kLongestCongestion = 15;

// Errors: kUnsupported, naming what the kernel has; kPermission.
Result<void> set_congestion(int socket, const std::string& name);

// Of a connection between ends that are on one host: nothing else is changed.
void set_congestion_of_host(int socket, const drivers::Endpoint4Or6& near,
                            const drivers::Endpoint4Or6& far);
// The same before `socket` connects to `far`: BBR's pacing never begins then.
void set_congestion_of_host(int socket, const drivers::Endpoint4Or6& far);

}  // namespace rrdk::iwarp

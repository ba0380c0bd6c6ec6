// File descriptors for many connections.
#pragma once

#include <cstdint>
#include <string>

namespace rrdk::testrpc {

// Raises this process's soft limit as far as `connections` need and the hard limit lets it. Empty,
// or what to tell the user: the limit does not suffice. Over shm a connection takes more.
std::string raise_file_limit(uint32_t connections, bool over_shm);

}  // namespace rrdk::testrpc

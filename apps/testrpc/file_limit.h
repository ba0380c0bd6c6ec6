// File descriptors for many connections.
#pragma once

#include <cstdint>
#include <string>

namespace rrdk::testrpc {

// Raises this process's soft limit as far as `connections` need and the hard limit allows. Returns
// a message for the user if the limit does not suffice, else an empty string. A connection needs
// more descriptors over shm.
std::string raise_file_limit(uint32_t connections, bool over_shm);

}  // namespace rrdk::testrpc

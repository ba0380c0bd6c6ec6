// The options of the survival program's three processes, from their command lines.
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk::survival {

enum class Role : uint8_t { kSupervisor, kServer, kClient };

// How connections are lost.
enum class Mode : uint8_t {
  kKill,   // the supervisor kills the server and starts another one
  kBreak,  // the server lives, and closes them
  // The server lives, and once a second (of thousands when all have been back for a few seconds)
  // all connections break at once, with replies on their way. Only additions are called, which the
  // Server must recognise when they come again.
  kAll,
};

struct Options {
  Role role = Role::kSupervisor;
  Mode mode = Mode::kKill;
  double seconds = 20;
  uint64_t seed = 0;  // 0: drawn
  std::string json;   // the summary goes there too
  // kBreak: the server's own record of executed calls is not used. The Server must recognise
  // repeated calls itself.
  bool server_cache = false;
  std::string transport = "shm";  // or iwarp, with servers that live
  uint32_t connections = 2;       // of each client
  uint32_t calls = 48;            // additions that each connection has in flight
  uint32_t processes = 1;         // how many processes are clients

  // For server and client.
  std::string uri;
  std::string announce;  // a file into which the server writes its address
  std::string journal;
  int report_fd = -1;
};

Result<Options> parse_options(int argc, char** argv);
const char* usage();
const char* to_string(Mode mode);

}  // namespace rrdk::survival

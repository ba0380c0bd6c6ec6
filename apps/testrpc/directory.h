// --rpcbind: where the program is served is in the directory of the server's host.
#pragma once

#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// "iwarp://host" with the port that the host's rpcbind has for the program.
Result<std::string> with_listed_port(const std::string& uri);

// The program's entry at this host's rpcbind, as long as this lives.
class Listing {
 public:
  Listing() = default;
  Listing(Listing&& other) noexcept;
  Listing& operator=(Listing&& other) noexcept;
  ~Listing();

  // `uri` is what listen() returned.
  static Result<Listing> enter(const std::string& uri);

 private:
  std::string host_;  // empty: none
};

}  // namespace rrdk::testrpc

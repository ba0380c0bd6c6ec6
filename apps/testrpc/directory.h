// --rpcbind: where the program is served is in the directory of the server's host.
#pragma once

#include <memory>
#include <string>

#include "rrdk/error.h"
#include "rrdk/rpcbind.h"

namespace rrdk::testrpc {

// "iwarp://host" with the address and the port where the host's rpcbind has the program.
Result<std::string> with_listed_port(const std::string& uri);

// The program's entries at this host's rpcbind, as long as this lives.
class Listing {
 public:
  Listing() = default;
  Listing(Listing&& other) noexcept = default;
  Listing& operator=(Listing&& other) noexcept;
  ~Listing();

  // `uri` is what listen() returned.
  static Result<Listing> enter(const std::string& uri);

 private:
  std::unique_ptr<RpcbindListing> entries_;  // null: none
};

}  // namespace rrdk::testrpc

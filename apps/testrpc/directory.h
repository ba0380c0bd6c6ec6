// --rpcbind: the port of the program is registered with the rpcbind of the server's host.
#pragma once

#include <memory>
#include <string>

#include "rrdk/error.h"
#include "rrdk/rpcbind.h"

namespace rrdk::testrpc {

// Returns "iwarp://host" with the address and the port that the host's rpcbind has for the program.
Result<std::string> with_listed_port(const std::string& uri);

// Registers the program with this host's rpcbind, until it is destroyed.
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

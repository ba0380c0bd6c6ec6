// The server's side of the Connection Configuration Protocol (RFC 5666 section 6): a service that a
// Server has when RFC 5666's compatibility mode is on.
#pragma once

#include "rrdk/rfc5666.h"
#include "rrdk/server.h"

namespace rrdk::server {

// `options` outlives the Server.
Service config_service(const Rfc5666ServerOptions& options);

Result<void> check(const ServerOptions& options, const Rfc5666ServerOptions& mode);

}  // namespace rrdk::server

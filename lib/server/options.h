// A server's options: whether they can be had, and what follows from them.
#pragma once

#include <cstdint>

#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/rfc5666.h"
#include "rrdk/server.h"
#include "server/client_table.h"

namespace rrdk::server {

// Errors: kInvalidArgument.
Result<void> check(const ServerOptions& options, const Memory& memory);
Result<void> check(const ServerLimits& limits);

// Bytes and number of the Receives of a connection that has not begun to grow.
uint32_t receive_bytes(const ServerOptions& options);
uint32_t receives_of(const ServerOptions& options);
// What a connection is granted at first where Receives are shared; 0: they are not to be.
uint32_t first_credits(const ServerOptions& options);
// Replies of one connection that its client may have yet to read, by RDMA Read.
uint32_t exposed_replies(const ServerOptions& options);
// Calls that one connection may have without having seen their replies.
uint32_t outstanding_calls(const ServerOptions& options);

// What the duplicate request caches of all clients may have.
ReplayBounds replay_bounds(const ServerOptions& options, Memory& memory);

// The server's side of the Connection Configuration Protocol (RFC 5666 section 6): a service that a
// Server has when RFC 5666's compatibility mode is on.
//
// `options` outlives the Server.
Service config_service(const Rfc5666ServerOptions& options);

Result<void> check(const ServerOptions& options, const Rfc5666ServerOptions& mode);

}  // namespace rrdk::server

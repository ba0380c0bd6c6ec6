// --sec: which calls a server takes, and how a client's calls are secured.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "options.h"
#include "rrdk/binding.h"
#include "rrdk/error.h"
#include "rrdk/gss.h"

namespace rrdk::testrpc {

// How calls are made.
Sec sec_of(const Options& options);
bool is_kerberos(Sec sec);
// What the server accepts.
Acceptance acceptance_of(const Options& options);
// Returns AUTH_SYS with the user of this process.
AuthSys own_identity();

// Returns the keys of a server for messages of up to that length, or null if it accepts no
// Kerberos.
Result<std::unique_ptr<GssAcceptor>> take_keys(const Options& options, uint64_t largest);

// Gives the connections their security contexts, which are made by calls of the program. A few
// connections to one server share one: the connections are distributed among the targets in turn.
Result<void> secure(const Options& options, std::span<const std::string> targets,
                    std::span<const std::unique_ptr<ClientConnection>> connections,
                    const Binding& program);

}  // namespace rrdk::testrpc

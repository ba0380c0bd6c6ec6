// testrpc: measures ONC RPC over RDMA, as testpmd measures packets. doc/testrpc.md is its manual.

#include <cstdio>

#include "audit.h"
#include "client_role.h"
#include "file_limit.h"
#include "options.h"
#include "self_role.h"
#include "server_role.h"

using namespace rrdk::testrpc;

int main(int argc, char** argv) {
  rrdk::Result<Options> options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, "testrpc: %s\n", options.error().message.c_str());
    return 2;
  }
  if (const std::string missing = raise_file_limit(options->connections); !missing.empty())
    std::fprintf(stderr, "testrpc: %s\n", missing.c_str());
  count_allocations();
  switch (options->role) {
    case Role::kServer:
      return run_server(*options);
    case Role::kClient:
      return run_client(*options);
    case Role::kSelf:
      return run_self(*options);
    case Role::kVersion:
      std::puts("testrpc " RRDK_VERSION);
      return 0;
    case Role::kHelp:
    case Role::kNone:
      break;
  }
  std::fputs(usage().c_str(), stdout);
  return 0;
}

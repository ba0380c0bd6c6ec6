// Does anything get lost, doubled or damaged when servers are killed and connections are closed
// under many calls in flight?
//
//   supervisor ---- starts, kills, starts ... ---->  server  ----  journal (a shared file)
//       |                                              ^
//       +---------- starts, reads its report ------> client
//
// The client's calls are sent again on new connections under their XIDs. A counter that is not
// idempotent shows whether each was executed exactly once; data that is read and written is
// verified byte by byte.
#include <sys/resource.h>

#include <cstdio>

#include "client.h"
#include "options.h"
#include "server.h"
#include "supervisor.h"

namespace {

// A descriptor for each connection over iwarp, three over shm.
void allow_descriptors() {
  rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0)
    return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rrdk::survival;
  allow_descriptors();
  rrdk::Result<Options> options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, "survival: %s\n%s", options.error().message.c_str(), usage());
    return 2;
  }
  switch (options->role) {
    case Role::kServer:
      return run_server(*options);
    case Role::kClient:
      return run_client(*options);
    case Role::kSupervisor:
      break;
  }
  return run_supervisor(*options);
}

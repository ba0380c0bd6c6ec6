/* Makes one call that takes long, and says how it ended. Usage: slow_client URI */
#include <rrdk/tirpc.h>
#include <stdio.h>

#include "perf.h"

int main(int argc, char** argv) {
  perf_read_args args = {0, 1, 0, 10000000};
  CLIENT* client = rrdk_clnt_create(argc > 1 ? argv[1] : "", PERF_PROG, PERF_V1);
  if (client == NULL) {
    clnt_pcreateerror("slow_client");
    return 1;
  }
  perf_null_1(NULL, client);
  printf("calling\n");
  fflush(stdout);
  if (perf_read_1(&args, client) == NULL)
    printf("%s\n", clnt_sperror(client, "slow_client"));
  clnt_destroy(client);
  return 0;
}

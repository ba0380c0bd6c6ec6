/* Serves kv.x at one address or more. Usage: kv_server URI... */
#include <rrdk/tirpc.h>
#include <signal.h>
#include <stdio.h>

#include "kv.h"

extern void kv_prog_1(struct svc_req *, SVCXPRT *);

static void stop(int signal) {
  (void)signal;
  rrdk_svc_exit();
}

int main(int argc, char **argv) {
  int i;
  if (argc < 2) {
    fprintf(stderr, "usage: kv_server URI...\n");
    return 2;
  }
  for (i = 1; i < argc; i++) {
    SVCXPRT *transport = rrdk_svc_create(argv[i]);
    if (transport == NULL || !rrdk_svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, 0)) {
      fprintf(stderr, "kv_server: %s\n", rrdk_tirpc_error());
      return 1;
    }
    printf("serving at %s\n", rrdk_svc_uri(transport));
  }
  fflush(stdout);
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
  rrdk_svc_run();
  return 0;
}

/* Asks a server of kv.x whether it is there, and then for what it has. Usage: ping_client URI */
#include <rrdk/tirpc.h>
#include <stdio.h>

#include "kv.h"

int main(int argc, char** argv) {
  struct timeval patience = {60, 0};
  CLIENT* client = rrdk_clnt_create(argc > 1 ? argv[1] : "", KV_PROG, KV_V1);
  kv_list list = NULL;
  if (client == NULL) {
    clnt_pcreateerror("ping_client");
    return 1;
  }
  if (clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience) !=
      RPC_SUCCESS) {
    clnt_perror(client, "ping_client");
    return 1;
  }
  printf("answered, calling\n");
  fflush(stdout);
  if (clnt_call(client, KV_LIST, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_kv_list, (char*)&list,
                patience) != RPC_SUCCESS) {
    clnt_perror(client, "ping_client");
    return 1;
  }
  clnt_freeres(client, (xdrproc_t)xdr_kv_list, (char*)&list);
  clnt_destroy(client);
  return 0;
}

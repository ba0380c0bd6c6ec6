/* XDR routines that were compiled with rrdk/tirpc_items.h, in a program that is linked with
 * libtirpc alone. */
#include <stdio.h>
#include <string.h>

#include "kv.h"

int main(void) {
  char message[256];
  char name[] = "greeting", bytes[] = "hello";
  kv_put_args sent = {name, {sizeof bytes, bytes}}, received = {NULL, {0, NULL}};
  XDR out, in;
  int right;
  xdrmem_create(&out, message, sizeof message, XDR_ENCODE);
  xdrmem_create(&in, message, sizeof message, XDR_DECODE);
  right = xdr_kv_put_args(&out, &sent) && xdr_kv_put_args(&in, &received) &&
          strcmp(received.name, name) == 0 && received.value.value_len == sizeof bytes &&
          memcmp(received.value.value_val, bytes, sizeof bytes) == 0;
  xdr_free((xdrproc_t)xdr_kv_put_args, (char*)&received);
  if (!right)
    fprintf(stderr, "tcp_only: what was decoded is not what was encoded\n");
  return right ? 0 : 1;
}

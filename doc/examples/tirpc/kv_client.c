/* Asks a server of kv.x. Usage: kv_client URI put NAME VALUE | get NAME | remove NAME | list */
#include <rrdk/tirpc.h>
#include <stdio.h>
#include <string.h>

#include "kv.h"

static int put(CLIENT *client, char *name, char *value) {
  kv_put_args args = {name, {(u_int)strlen(value), value}};
  kv_status *result = kv_put_1(&args, client);
  return result != NULL && *result == KV_OK;
}

static int get(CLIENT *client, char *name) {
  kv_get_res *result = kv_get_1(&name, client);
  int found = result != NULL && result->status == KV_OK;
  if (found) {
    kv_value *value = &result->kv_get_res_u.found;
    printf("%.*s\n", (int)value->value.value_len, value->value.value_val);
  }
  if (result != NULL)
    clnt_freeres(client, (xdrproc_t)xdr_kv_get_res, (char *)result);
  return found;
}

static int list(CLIENT *client) {
  kv_list *result = kv_list_1(NULL, client);
  kv_list entry;
  if (result == NULL)
    return 0;
  for (entry = *result; entry != NULL; entry = entry->next)
    printf("%s: %u bytes\n", entry->name, entry->size);
  clnt_freeres(client, (xdrproc_t)xdr_kv_list, (char *)result);
  return 1;
}

int main(int argc, char **argv) {
  const char *what = argc > 2 ? argv[2] : "";
  CLIENT *client;
  int done = 0;
  if (argc < 3) {
    fprintf(stderr, "usage: kv_client URI put NAME VALUE | get NAME | remove NAME | list\n");
    return 2;
  }
  client = rrdk_clnt_create(argv[1], KV_PROG, KV_V1);
  if (client == NULL) {
    clnt_pcreateerror("kv_client");
    return 1;
  }
  if (strcmp(what, "put") == 0 && argc == 5) {
    done = put(client, argv[3], argv[4]);
  } else if (strcmp(what, "get") == 0 && argc == 4) {
    done = get(client, argv[3]);
  } else if (strcmp(what, "remove") == 0 && argc == 4) {
    kv_status *result = kv_remove_1(&argv[3], client);
    done = result != NULL && *result == KV_OK;
  } else if (strcmp(what, "list") == 0 && argc == 3) {
    done = list(client);
  }
  if (!done)
    clnt_perror(client, "kv_client");
  clnt_destroy(client);
  return done ? 0 : 1;
}

/* The procedures of kv.x: the same as for TCP; nothing here knows about RDMA. */
#include <stdlib.h>
#include <string.h>

#include "kv.h"

struct item {
  char *name;
  kv_value value;
  struct item *next;
};

static struct item *items;

/* Where the item is linked, or would be. */
static struct item **place_of(const char *name) {
  struct item **place = &items;
  while (*place != NULL && strcmp((*place)->name, name) != 0)
    place = &(*place)->next;
  return place;
}

kv_status *kv_put_1_svc(kv_put_args *args, struct svc_req *request) {
  static kv_status result;
  struct item **place = place_of(args->name);
  struct item *item = *place;
  (void)request;
  if (item == NULL) {
    item = calloc(1, sizeof *item);
    if (item == NULL || (item->name = strdup(args->name)) == NULL) {
      free(item);
      return NULL;
    }
    *place = item;
  }
  if (args->value.value_len > item->value.value.value_len) {
    char *larger = realloc(item->value.value.value_val, args->value.value_len);
    if (larger == NULL)
      return NULL;
    item->value.value.value_val = larger;
  }
  item->value.value.value_len = args->value.value_len;
  if (args->value.value_len > 0)
    memcpy(item->value.value.value_val, args->value.value_val, args->value.value_len);
  item->value.changes++;
  result = KV_OK;
  return &result;
}

kv_get_res *kv_get_1_svc(kv_name *name, struct svc_req *request) {
  static kv_get_res result;
  struct item *item = *place_of(*name);
  (void)request;
  result.status = item != NULL ? KV_OK : KV_NOT_FOUND;
  if (item != NULL)
    result.kv_get_res_u.found = item->value;
  return &result;
}

kv_status *kv_remove_1_svc(kv_name *name, struct svc_req *request) {
  static kv_status result;
  struct item **place = place_of(*name);
  struct item *item = *place;
  (void)request;
  result = item != NULL ? KV_OK : KV_NOT_FOUND;
  if (item != NULL) {
    *place = item->next;
    free(item->value.value.value_val);
    free(item->name);
    free(item);
  }
  return &result;
}

kv_list *kv_list_1_svc(void *nothing, struct svc_req *request) {
  static kv_list result;
  kv_list *end = &result;
  struct item *item;
  (void)nothing;
  (void)request;
  xdr_free((xdrproc_t)xdr_kv_list, (char *)&result);
  result = NULL;
  for (item = items; item != NULL; item = item->next) {
    *end = calloc(1, sizeof **end);
    if (*end == NULL || ((*end)->name = strdup(item->name)) == NULL)
      return NULL;
    (*end)->size = item->value.value.value_len;
    end = &(*end)->next;
  }
  return &result;
}

/* Calls a server of perf.x by rpcgen's stubs, and compares what comes back. Usage: perf_client URI
 */
#include <rrdk/tirpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "perf_data.h"

#define LARGEST 2000001u

static char bytes[2 * LARGEST];

static void check(int right, const char* what, u_int size) {
  if (right)
    return;
  fprintf(stderr, "perf_client: %s of %u bytes is wrong: %s\n", what, size, rrdk_tirpc_error());
  exit(1);
}

/* The stubs' memory for no bytes may be null. */
static int same(const char* a, const char* b, u_int size) {
  return size == 0 || memcmp(a, b, size) == 0;
}

static void echo(CLIENT* client, u_int size) {
  perf_blob blob = {size, bytes};
  perf_blob* result = perf_echo_1(&blob, client);
  check(result != NULL && result->perf_blob_len == size && same(result->perf_blob_val, bytes, size),
        "echo", size);
  clnt_freeres(client, (xdrproc_t)xdr_perf_blob, (char*)result);
}

static void read_at(CLIENT* client, u_int size) {
  perf_read_args args = {7, size, PERF_VERIFY, 0};
  perf_read_res* result = perf_read_1(&args, client);
  perf_read_ok* ok = result != NULL ? &result->perf_read_res_u.ok : NULL;
  check(result != NULL && result->status == PERF_OK && ok->data.data_len == size &&
            ok->crc32c == perf_crc32c(ok->data.data_val, size) &&
            same(ok->data.data_val, bytes + 7, size),
        "read", size);
  clnt_freeres(client, (xdrproc_t)xdr_perf_read_res, (char*)result);
}

static void write_at(CLIENT* client, u_int size, char* from) {
  perf_write_args args = {0, PERF_VERIFY, 0, {size, from}};
  perf_write_res* result = perf_write_1(&args, client);
  check(result != NULL && result->status == PERF_OK && result->perf_write_res_u.ok.count == size &&
            result->perf_write_res_u.ok.crc32c == perf_crc32c(from, size),
        "write", size);
}

static void sandwich(CLIENT* client, u_int around, u_int size) {
  perf_sandwich_args args = {{around, bytes}, PERF_VERIFY, {size, bytes}, {around, bytes}};
  perf_sandwich_res* result = perf_sandwich_1(&args, client);
  perf_sandwich_ok* ok = result != NULL ? &result->perf_sandwich_res_u.ok : NULL;
  check(result != NULL && result->status == PERF_OK && ok->data_count == size &&
            ok->head_crc32c == perf_crc32c(bytes, around) &&
            ok->data_crc32c == perf_crc32c(bytes, size) &&
            ok->tail_crc32c == perf_crc32c(bytes, around),
        "sandwich", size);
}

static void read2(CLIENT* client, u_int first, u_int second) {
  perf_read2_args args = {0, first, second, PERF_VERIFY};
  perf_read2_res* result = perf_read2_1(&args, client);
  perf_read2_ok* ok = result != NULL ? &result->perf_read2_res_u.ok : NULL;
  check(result != NULL && result->status == PERF_OK && ok->first.first_len == first &&
            ok->second.second_len == second && same(ok->first.first_val, bytes, first) &&
            same(ok->second.second_val, bytes + first, second),
        "read2", first + second);
  clnt_freeres(client, (xdrproc_t)xdr_perf_read2_res, (char*)result);
}

int main(int argc, char** argv) {
  static const u_int sizes[] = {0, 1, 4095, 4096, 20000, 65536, 1000001, LARGEST};
  CLIENT* client = rrdk_clnt_create(argc > 1 ? argv[1] : "", PERF_PROG, PERF_V1);
  char* own = rrdk_tirpc_alloc(LARGEST);
  uint32_t most = 4u << 20;
  size_t i;
  if (client == NULL || own == NULL) {
    fprintf(stderr, "perf_client: %s\n", rrdk_tirpc_error());
    return 1;
  }
  clnt_control(client, RRDK_CLSET_MAX_REPLY, (char*)&most);
  perf_fill(bytes, sizeof bytes, 0);
  memcpy(own, bytes, LARGEST);
  check(perf_null_1(NULL, client) != NULL, "null", 0);
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const u_int size = sizes[i];
    echo(client, size);
    read_at(client, size);
    write_at(client, size, bytes);
    write_at(client, size, own);
    sandwich(client, 0, size);
    sandwich(client, 11, size);
    read2(client, size, 3);
    read2(client, 0, size);
  }
  rrdk_tirpc_free(own);
  clnt_destroy(client);
  printf("all right\n");
  return 0;
}

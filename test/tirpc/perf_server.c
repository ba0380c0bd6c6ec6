/* Serves perf.x by rpcgen's stubs. Usage: perf_server URI... */
#include <rrdk/tirpc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf.h"
#include "perf_data.h"

#define LARGEST (4u << 20)

extern void perf_prog_1(struct svc_req*, SVCXPRT*);

void* perf_null_1_svc(void* nothing, struct svc_req* request) {
  static char result;
  (void)nothing;
  (void)request;
  return &result;
}

perf_blob* perf_echo_1_svc(perf_blob* args, struct svc_req* request) {
  (void)request;
  return args;
}

/* Memory for what is answered: some of the library's, and some of malloc()'s. */
static char* room(int which) {
  static char* rooms[2];
  if (rooms[which] == NULL)
    rooms[which] = which == 0 ? rrdk_tirpc_alloc(LARGEST) : malloc(LARGEST);
  return rooms[which];
}

static uint32_t crc_if(u_int flags, const char* bytes, u_int count) {
  return (flags & PERF_VERIFY) != 0 ? perf_crc32c(bytes, count) : 0;
}

perf_read_res* perf_read_1_svc(perf_read_args* args, struct svc_req* request) {
  static perf_read_res result;
  perf_read_ok* ok = &result.perf_read_res_u.ok;
  (void)request;
  result.status = args->count > LARGEST ? PERF_ERR_TOOBIG : PERF_OK;
  if (result.status != PERF_OK)
    return &result;
  ok->data.data_len = args->count;
  ok->data.data_val = room(0);
  perf_fill(ok->data.data_val, args->count, args->offset);
  ok->crc32c = crc_if(args->flags, ok->data.data_val, args->count);
  return &result;
}

perf_write_res* perf_write_1_svc(perf_write_args* args, struct svc_req* request) {
  static perf_write_res result;
  perf_write_ok* ok = &result.perf_write_res_u.ok;
  (void)request;
  ok->count = args->data.data_len;
  ok->crc32c = crc_if(args->flags, args->data.data_val, args->data.data_len);
  return &result;
}

perf_sandwich_res* perf_sandwich_1_svc(perf_sandwich_args* args, struct svc_req* request) {
  static perf_sandwich_res result;
  perf_sandwich_ok* ok = &result.perf_sandwich_res_u.ok;
  (void)request;
  ok->head_crc32c = crc_if(args->flags, args->head.head_val, args->head.head_len);
  ok->data_crc32c = crc_if(args->flags, args->data.data_val, args->data.data_len);
  ok->tail_crc32c = crc_if(args->flags, args->tail.tail_val, args->tail.tail_len);
  ok->data_count = args->data.data_len;
  return &result;
}

perf_read2_res* perf_read2_1_svc(perf_read2_args* args, struct svc_req* request) {
  static perf_read2_res result;
  perf_read2_ok* ok = &result.perf_read2_res_u.ok;
  (void)request;
  result.status = args->count1 > LARGEST || args->count2 > LARGEST ? PERF_ERR_TOOBIG : PERF_OK;
  if (result.status != PERF_OK)
    return &result;
  ok->first.first_len = args->count1;
  ok->first.first_val = room(0);
  perf_fill(ok->first.first_val, args->count1, args->offset);
  ok->second.second_len = args->count2;
  ok->second.second_val = room(1);
  perf_fill(ok->second.second_val, args->count2, args->offset + args->count1);
  ok->crc32c_first = crc_if(args->flags, ok->first.first_val, args->count1);
  ok->crc32c_second = crc_if(args->flags, ok->second.second_val, args->count2);
  return &result;
}

static void stop(int signal) {
  (void)signal;
  rrdk_svc_exit();
}

int main(int argc, char** argv) {
  int i;
  for (i = 1; i < argc; i++) {
    SVCXPRT* transport = rrdk_svc_create(argv[i]);
    if (transport == NULL || !rrdk_svc_reg(transport, PERF_PROG, PERF_V1, perf_prog_1, 0)) {
      fprintf(stderr, "perf_server: %s\n", rrdk_tirpc_error());
      return 1;
    }
    printf("listening on %s\n", rrdk_svc_uri(transport));
  }
  fflush(stdout);
  signal(SIGTERM, stop);
  rrdk_svc_run();
  return 0;
}

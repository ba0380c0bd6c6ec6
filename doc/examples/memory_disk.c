/* A disk in memory, served over RDMA by a program in C that is built as SPDK's are: a reactor of one
 * thread calls pollers, RRDK's among them, and a device does its work elsewhere and answers from there.
 *
 *   memory_disk serve [URI]     serves until SIGTERM
 *   memory_disk check URI       writes to the disk, reads it back and compares
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rrdk/rrdk.h>

enum { DISK_PROGRAM = 0x2000446B, DISK_VERSION = 1 };
enum { DISK_NULL, DISK_SIZE, DISK_READ, DISK_WRITE };
enum { STATUS_OK, STATUS_OUT_OF_RANGE, STATUS_BUSY };

#define DISK_BYTES (16u << 20)
#define LARGEST_IO (1u << 20)

static _Noreturn void give_up(const char *what, const rrdk_error *error) {
  fprintf(stderr, "memory_disk: %s: %s\n", what, error->message);
  exit(1);
}

/* ---- The reactor calls the registered pollers ---- */

typedef int (*poller)(void *context); /* returns how much it did */

static struct {
  poller run;
  void *context;
} pollers[8];
static int num_pollers;
static volatile sig_atomic_t stopping;

static void register_poller(poller run, void *context) {
  pollers[num_pollers].run = run;
  pollers[num_pollers++].context = context;
}

static void stop(int signal) {
  (void)signal;
  stopping = 1;
}

static int poll_rrdk(void *runtime) {
  return (int)rrdk_runtime_poll(runtime, 0);
}

/* A reactor with a CPU of its own polls on. This one sleeps when no poller has anything to do. Signals
 * are unblocked only then, so that none is missed. */
static void run_reactor(rrdk_runtime *runtime) {
  struct pollfd event = {.fd = rrdk_runtime_wake_fd(runtime, 0), .events = POLLIN};
  sigset_t all;
  sigemptyset(&all);
  while (!stopping) {
    int done = 0;
    for (int i = 0; i < num_pollers; ++i)
      done += pollers[i].run(pollers[i].context);
    if (done == 0 && rrdk_runtime_arm_wake(runtime, 0))
      ppoll(&event, 1, NULL, &all);
  }
}

/* ---- The device: takes requests from a queue, on a thread of its own ---- */

struct request {
  rrdk_server_call *call;
  uint64_t offset;
  uint32_t count;
  rrdk_buffer *to;  /* of a READ */
  rrdk_view from;   /* of a WRITE: the bytes stay where they were received, until it is answered */
};

static struct {
  unsigned char bytes[DISK_BYTES];
  struct request queue[256];
  unsigned first, last; /* free-running */
  int ending;
  pthread_mutex_t mutex;
  pthread_cond_t work;
  pthread_t thread;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static void reply_status(rrdk_server_call *call, uint32_t status) {
  rrdk_put_u32(rrdk_server_call_results(call), status);
  rrdk_server_call_reply(call);
}

static void do_request(const struct request *request) {
  unsigned char *at = disk.bytes + request->offset;
  rrdk_encoder *results = rrdk_server_call_results(request->call);
  rrdk_put_u32(results, STATUS_OK);
  if (request->to != NULL) {
    memcpy(rrdk_buffer_data(request->to), at, request->count);
    rrdk_put_buffer(results, request->to, request->count, RRDK_DDP_ELIGIBLE);
  } else {
    rrdk_view_copy(&request->from, at);
  }
  rrdk_server_call_reply(request->call);
}

static void *run_device(void *unused) {
  (void)unused;
  pthread_mutex_lock(&disk.mutex);
  for (;;) {
    while (disk.first == disk.last && !disk.ending)
      pthread_cond_wait(&disk.work, &disk.mutex);
    if (disk.first == disk.last)
      break;
    const struct request next = disk.queue[disk.first++ % 256];
    pthread_mutex_unlock(&disk.mutex);
    do_request(&next);
    pthread_mutex_lock(&disk.mutex);
  }
  pthread_mutex_unlock(&disk.mutex);
  return NULL;
}

static int enqueue(const struct request *request) {
  pthread_mutex_lock(&disk.mutex);
  const int room = disk.last - disk.first < 256;
  if (room)
    disk.queue[disk.last++ % 256] = *request;
  pthread_cond_signal(&disk.work);
  pthread_mutex_unlock(&disk.mutex);
  return room;
}

static int in_range(uint64_t offset, uint32_t count) {
  return count <= LARGEST_IO && offset <= DISK_BYTES && count <= DISK_BYTES - offset;
}

/* ---- The program: handlers run on the reactor, and give their calls to the device ---- */

static void serve_size(rrdk_server_call *call, void *context) {
  (void)context;
  rrdk_put_u64(rrdk_server_call_results(call), DISK_BYTES);
  rrdk_server_call_reply(call);
}

static void serve_read(rrdk_server_call *call, void *context) {
  (void)context;
  rrdk_decoder *args = rrdk_server_call_args(call);
  struct request request = {.call = call};
  request.offset = rrdk_get_u64(args);
  request.count = rrdk_get_u32(args);
  if (!rrdk_decoder_at_end(args)) {
    rrdk_server_call_reject(call, RRDK_ACCEPT_GARBAGE_ARGS);
    return;
  }
  if (!in_range(request.offset, request.count)) {
    reply_status(call, STATUS_OUT_OF_RANGE);
    return;
  }
  request.to = rrdk_server_call_result_buffer(call, request.count);
  if (request.to == NULL || !enqueue(&request)) {
    rrdk_buffer_put(request.to);
    reply_status(call, STATUS_BUSY);
  }
}

static void serve_write(rrdk_server_call *call, void *context) {
  (void)context;
  rrdk_decoder *args = rrdk_server_call_args(call);
  struct request request = {.call = call};
  request.offset = rrdk_get_u64(args);
  request.from = rrdk_get_item(args, LARGEST_IO);
  request.count = request.from.length;
  if (!rrdk_decoder_at_end(args))
    rrdk_server_call_reject(call, RRDK_ACCEPT_GARBAGE_ARGS);
  else if (!in_range(request.offset, request.count))
    reply_status(call, STATUS_OUT_OF_RANGE);
  else if (!enqueue(&request))
    reply_status(call, STATUS_BUSY);
}

/* One table for both ends: the data of READ and WRITE moves by RDMA. */
static const rrdk_procedure procedures[] = {
    {.number = DISK_NULL, .name = "NULL"},
    {.number = DISK_SIZE, .name = "SIZE", .handler = serve_size, .fixed_results = 8},
    {.number = DISK_READ,
     .name = "READ",
     .handler = serve_read,
     .eligible_results = 1,
     .fixed_results = 8},
    {.number = DISK_WRITE,
     .name = "WRITE",
     .handler = serve_write,
     .eligible_args = 1,
     .fixed_results = 4},
};
static const rrdk_program_options program_options =
    RRDK_PROGRAM(DISK_PROGRAM, DISK_VERSION, "disk", procedures);

/* ---- serve ---- */

static void serve(rrdk_runtime *runtime, const rrdk_program *program, const char *uri) {
  rrdk_server *server;
  rrdk_error error;
  char bound[200];
  if (rrdk_server_create(runtime, NULL, &server, &error) != RRDK_OK ||
      rrdk_server_add_service(server, program, NULL, &error) != RRDK_OK ||
      rrdk_server_listen(server, uri, bound, sizeof bound, &error) != RRDK_OK)
    give_up(uri, &error);
  pthread_create(&disk.thread, NULL, run_device, NULL);
  printf("serving at %s\n", bound);
  fflush(stdout);
  run_reactor(runtime);

  rrdk_server_drain(server, 1000); /* answers what the device still has */
  pthread_mutex_lock(&disk.mutex);
  disk.ending = 1;
  pthread_cond_signal(&disk.work);
  pthread_mutex_unlock(&disk.mutex);
  pthread_join(disk.thread, NULL);
  rrdk_server_destroy(server);
}

/* ---- check: writes each piece, reads it back, and goes on with the next in the callbacks ---- */

struct check {
  rrdk_memory *memory;
  const rrdk_program *program;
  uint64_t size, offset;
  uint32_t piece;
  const char *wrong;
};

static unsigned char byte_at(uint64_t offset) {
  return (unsigned char)(offset * 31 + offset / 251);
}

static void fail(struct check *check, const char *what) {
  check->wrong = what;
  stopping = 1;
}

/* NULL if the call has succeeded, with this status. */
static const char *wrong_with(rrdk_call *call, uint32_t status, const char *what) {
  if (rrdk_call_status_of(call) != RRDK_CALL_OK)
    return rrdk_call_status_name(rrdk_call_status_of(call));
  return rrdk_get_u32(rrdk_call_results(call)) == status ? NULL : what;
}

static const char *wrong_with_read(rrdk_call *call, const struct check *check) {
  const char *wrong = wrong_with(call, STATUS_OK, "the disk does not read");
  if (wrong != NULL)
    return wrong;
  rrdk_view data = rrdk_get_item(rrdk_call_results(call), check->piece);
  if (data.length != check->piece || !rrdk_decoder_at_end(rrdk_call_results(call)))
    return "the disk reads something else than was asked for";
  uint32_t at = 0, length;
  for (const unsigned char *run; (run = rrdk_view_run(&data, at, &length)) != NULL; at += length)
    for (uint32_t i = 0; i < length; ++i)
      if (run[i] != byte_at(check->offset + at + i))
        return "the disk has other bytes than were written";
  return NULL;
}

static void write_piece(rrdk_call *call, struct check *check);

static void on_read(rrdk_call *call, void *argument) {
  struct check *check = argument;
  const char *wrong = wrong_with_read(call, check);
  check->offset += check->piece;
  if (wrong != NULL)
    fail(check, wrong);
  else if (check->offset < check->size)
    write_piece(call, check);
  else
    stopping = 1;
}

static void on_written(rrdk_call *call, void *argument) {
  struct check *check = argument;
  const char *wrong = wrong_with(call, STATUS_OK, "the disk does not write");
  if (wrong != NULL) {
    fail(check, wrong);
    return;
  }
  rrdk_encoder *args = rrdk_call_begin(call, check->program, DISK_READ);
  rrdk_put_u64(args, check->offset);
  rrdk_put_u32(args, check->piece);
  rrdk_call_offer_buffer(call, rrdk_buffer_get(check->memory, check->piece), check->piece);
  rrdk_call_submit(call, on_read, check);
}

static void write_piece(rrdk_call *call, struct check *check) {
  rrdk_buffer *data = rrdk_buffer_get(check->memory, check->piece);
  if (data == NULL) {
    fail(check, "no buffer is left");
    return;
  }
  unsigned char *bytes = rrdk_buffer_data(data);
  for (uint32_t i = 0; i < check->piece; ++i)
    bytes[i] = byte_at(check->offset + i);
  rrdk_encoder *args = rrdk_call_begin(call, check->program, DISK_WRITE);
  rrdk_put_u64(args, check->offset);
  rrdk_put_buffer(args, data, check->piece, RRDK_DDP_ELIGIBLE);
  rrdk_call_submit(call, on_written, check);
}

static void on_size(rrdk_call *call, void *argument) {
  struct check *check = argument;
  if (rrdk_call_status_of(call) != RRDK_CALL_OK) {
    fail(check, rrdk_call_status_name(rrdk_call_status_of(call)));
    return;
  }
  check->size = rrdk_get_u64(rrdk_call_results(call));
  write_piece(call, check);
}

static int check_disk(rrdk_memory *memory, rrdk_runtime *runtime, const rrdk_program *program,
                      const char *uri) {
  struct check check = {.memory = memory, .program = program, .piece = LARGEST_IO};
  rrdk_client *client;
  rrdk_connection *connection;
  rrdk_error error;
  if (rrdk_client_create(runtime, NULL, &client, &error) != RRDK_OK ||
      rrdk_connect_start(client, uri, NULL, &connection, &error) != RRDK_OK)
    give_up(uri, &error);
  rrdk_call *call = rrdk_call_create(rrdk_connection_caller(connection));
  rrdk_call_begin(call, program, DISK_SIZE);
  rrdk_call_submit(call, on_size, &check); /* it waits for the connection */
  run_reactor(runtime);

  if (check.wrong != NULL) {
    rrdk_connection_error(connection, &error);
    fprintf(stderr, "memory_disk: %s: %s. %s\n", uri, check.wrong, error.message);
  } else {
    printf("%llu bytes were written and read back\n", (unsigned long long)check.size);
  }
  rrdk_call_destroy(call);
  rrdk_connection_destroy(connection);
  rrdk_client_destroy(client);
  return check.wrong != NULL;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  const char *uri = argc > 2 ? argv[2] : "shm:/tmp/rrdk-disk.sock";
  const int serving = strcmp(mode, "serve") == 0;
  if (argc > 3 || (!serving && strcmp(mode, "check") != 0)) {
    fprintf(stderr, "usage: memory_disk serve|check [URI]\n");
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  signal(SIGINT, stop);
  signal(SIGTERM, stop);

  rrdk_error error;
  rrdk_memory *memory;
  rrdk_runtime *runtime;
  rrdk_program *program;
  if (rrdk_ensure_eal(NULL, 0, &error) != RRDK_OK ||
      rrdk_memory_create(NULL, &memory, &error) != RRDK_OK ||
      rrdk_runtime_create(memory, NULL, &runtime, &error) != RRDK_OK ||
      rrdk_program_create(&program_options, &program, &error) != RRDK_OK)
    give_up("start", &error);
  register_poller(poll_rrdk, runtime);
  int status = 0;
  if (serving)
    serve(runtime, program, uri);
  else
    status = check_disk(memory, runtime, program, uri);
  rrdk_program_destroy(program);
  rrdk_runtime_destroy(runtime);
  rrdk_memory_destroy(memory);
  return status;
}

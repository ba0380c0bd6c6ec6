/* appliance.cc in C: the same protocol, the same disk, the same reactor. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rrdk/rrdk.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>

#include "watch.h"

enum { APPEND = 1, WRITE, READ };
enum { BLOCK_BYTES = 64 << 10, BLOCKS = 256, WORKERS_OF_ONE = 4 };

static _Noreturn void give_up(const char* what, const char* why) {
  fprintf(stderr, "appliance: %s: %s\n", what, why);
  exit(1);
}

/* ---- The reactor ---- */

static struct {
  int epoll, signals;
  rrdk_memory* memory;
  rrdk_runtime* runtime;
  struct watch watched;
  bool done;
} reactor;

/* Wraps every call of the library, except those in its callbacks, which run in poll(). */
#define CALL(name, call)                           \
  do {                                             \
    const struct watch_point before = watch_now(); \
    call;                                          \
    watch_note(&reactor.watched, name, before);    \
  } while (0)

static void watch_fd(int fd) {
  struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
  epoll_ctl(reactor.epoll, EPOLL_CTL_ADD, fd, &event);
}

static void begin_reactor(void) {
  rrdk_error error;
  rrdk_memory_options options;
  rrdk_memory_options_init(&options, sizeof options);
  /* All memory is taken at the start, so that no call has to take more. */
  static const rrdk_size_class classes[] = {{4096, 4096}, {BLOCK_BYTES, 512}};
  options.classes = classes;
  options.num_classes = 2;
  if (rrdk_ensure_eal(NULL, 0, &error) || rrdk_memory_create(&options, &reactor.memory, &error) ||
      rrdk_runtime_create(reactor.memory, NULL, &reactor.runtime, &error))
    give_up("start", error.message);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  reactor.epoll = epoll_create1(EPOLL_CLOEXEC);
  reactor.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  watch_fd(reactor.signals);
  watch_fd(rrdk_runtime_wake_fd(reactor.runtime, 0));
}

static void end_reactor(void) {
  rrdk_runtime_destroy(reactor.runtime);
  rrdk_memory_destroy(reactor.memory);
  close(reactor.signals);
  close(reactor.epoll);
}

static void wait_for_events(void (*on_signal)(int signal), int timeout_ms) {
  struct epoll_event events[4];
  const int count = epoll_wait(reactor.epoll, events, 4, timeout_ms);
  for (int i = 0; i < count; ++i) {
    struct signalfd_siginfo info;
    if (events[i].data.fd == reactor.signals &&
        read(reactor.signals, &info, sizeof info) == sizeof info)
      on_signal((int)info.ssi_signo);
  }
}

static void run_reactor(void (*on_signal)(int signal)) {
  for (uint64_t passes = 0; !reactor.done; ++passes) {
    uint32_t work;
    bool idle = false;
    CALL("poll", work = rrdk_runtime_poll(reactor.runtime, 0));
    if (work == 0)
      CALL("arm_wake", idle = rrdk_runtime_arm_wake(reactor.runtime, 0));
    if (idle)
      wait_for_events(on_signal, -1);
    else if (passes % 64 == 0)
      wait_for_events(on_signal, 0);
  }
}

/* ---- The device: a thread that takes requests in order and answers them ---- */

struct request {
  rrdk_server_call* call;
  uint32_t procedure;
  uint64_t block;
  rrdk_view data;
  rrdk_buffer* room;
};

/* The disk is a mapped file, so it survives the process. */
struct disk {
  unsigned char blocks[BLOCKS][BLOCK_BYTES];
  uint64_t appends;
};

static struct {
  struct disk* disk;
  struct request queue[1024];
  _Atomic uint32_t first, last;
  _Atomic bool ending;
  int wake;
  pthread_t thread;
} device;

static void answer(struct request* request) {
  unsigned char* block = device.disk->blocks[request->block % BLOCKS];
  rrdk_encoder* results = rrdk_server_call_results(request->call);
  if (request->procedure == APPEND) {
    rrdk_put_u64(results, device.disk->appends++);
  } else if (request->procedure == WRITE) {
    rrdk_view_copy(&request->data, block);
  } else {
    memcpy(rrdk_buffer_data(request->room), block, BLOCK_BYTES);
    rrdk_put_buffer(results, request->room, BLOCK_BYTES, RRDK_DDP_ELIGIBLE);
  }
  rrdk_server_call_reply(request->call);
}

static void* run_device(void* unused) {
  eventfd_t count;
  while (!device.ending) {
    eventfd_read(device.wake, &count);
    while (device.first != device.last) {
      answer(&device.queue[device.first % 1024]);
      ++device.first;
    }
  }
  return unused;
}

/* Called by the reactor's thread. Returns false if its queue is full. */
static bool take(const struct request* request) {
  if (device.last - device.first == 1024)
    return false;
  device.queue[device.last % 1024] = *request;
  ++device.last;
  eventfd_write(device.wake, 1);
  return true;
}

static void begin_device(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* mapped = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, sizeof(struct disk)) == 0)
    mapped = mmap(NULL, sizeof(struct disk), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED)
    give_up(path, strerror(errno));
  close(fd);
  device.disk = mapped;
  device.wake = eventfd(0, EFD_CLOEXEC);
  pthread_create(&device.thread, NULL, run_device, NULL);
}

static void end_device(void) {
  device.ending = true;
  eventfd_write(device.wake, 1);
  pthread_join(device.thread, NULL);
  munmap(device.disk, sizeof(struct disk));
  close(device.wake);
}

/* ---- The program ---- */

static void serve_call(rrdk_server_call* call, void* context) {
  (void)context;
  rrdk_decoder* args = rrdk_server_call_args(call);
  struct request request = {.call = call, .procedure = rrdk_server_call_procedure(call)};
  request.block = rrdk_get_u64(args);
  if (request.procedure == WRITE)
    request.data = rrdk_get_item(args, BLOCK_BYTES);
  if (!rrdk_decoder_at_end(args) || (request.procedure != APPEND && request.block >= BLOCKS)) {
    rrdk_server_call_reject(call, RRDK_ACCEPT_GARBAGE_ARGS);
    return;
  }
  if (request.procedure == READ)
    request.room = rrdk_server_call_result_buffer(call, BLOCK_BYTES);
  if ((request.procedure == READ && request.room == NULL) || !take(&request)) {
    rrdk_buffer_put(request.room);
    rrdk_server_call_reject(call, RRDK_ACCEPT_SYSTEM_ERR);
  }
}

static const rrdk_procedure procedures[] = {
    {.number = APPEND,
     .name = "APPEND",
     .handler = serve_call,
     .not_idempotent = true,
     .fixed_results = 8},
    {.number = WRITE, .name = "WRITE", .handler = serve_call, .eligible_args = 1},
    {.number = READ,
     .name = "READ",
     .handler = serve_call,
     .eligible_results = 1,
     .fixed_results = 4},
};
static const rrdk_program_options program_options =
    RRDK_PROGRAM(0x20004150, 1, "appliance", procedures);
static rrdk_program* program;

/* ---- The server ---- */

static rrdk_server* server;

static void on_listening(const char* uri, const rrdk_error* error, void* unused) {
  (void)unused;
  if (uri == NULL)
    give_up("listen", error->message);
  printf("listening on %s\n", uri);
  fflush(stdout);
}

static void on_closed(void* unused) {
  (void)unused;
  reactor.done = true;
}

static void on_drained(uint32_t rest, void* unused) {
  (void)rest;
  rrdk_server_close_start(server, on_closed, unused);
}

static void close_one(const rrdk_connection_info* info, void* unused) {
  (void)unused;
  rrdk_server_close_connection(server, info->id, "the operator wants it", NULL);
}

static void on_server_signal(int signal) {
  if (signal == SIGUSR1)
    CALL("visit, close", rrdk_server_visit(server, close_one, NULL));
  else /* answers calls in progress, for up to a second */
    CALL("drain_start", rrdk_server_drain_start(server, 1000, on_drained, NULL));
}

static int serve(const char* disk, char** uris, int count) {
  rrdk_error error;
  begin_device(disk);
  if (rrdk_server_create(reactor.runtime, NULL, &server, &error) ||
      rrdk_server_add_service(server, program, NULL, &error))
    give_up("server", error.message);
  for (int i = 0; i < count; ++i)
    CALL("listen_start", rrdk_server_listen_start(server, uris[i], on_listening, NULL));
  run_reactor(on_server_signal);

  uint64_t counted[RRDK_COUNTERS];
  rrdk_server_counters(server, counted, RRDK_COUNTERS);
  printf("appends run: %llu, answered from the cache: %llu, refused: %llu\n",
         (unsigned long long)device.disk->appends,
         (unsigned long long)counted[RRDK_COUNTER_replay_answered],
         (unsigned long long)counted[RRDK_COUNTER_replay_refused]);
  CALL("server_destroy", rrdk_server_destroy(server));
  end_device();
  return 0;
}

/* ---- The client ---- */

/* One call after the other on a connection: an append; or a block that is written, and read again.
 */
struct worker {
  rrdk_call* call;
  uint64_t block, version; /* the worker's own block, and the version that it wrote last */
  uint32_t procedure;
};

static struct {
  rrdk_client* client;
  rrdk_connection** connections;
  struct worker* workers;
  uint32_t num_connections, num_workers, active, closed;
  uint64_t left, first_block;
  unsigned long long ok[4], failed, wrong, lost;
} load;

static unsigned char byte_of(const struct worker* worker) {
  return (unsigned char)(worker->block * 31 + worker->version * 7 + 1);
}

static void on_state(rrdk_connection* connection, rrdk_connection_state state,
                     const rrdk_error* reason, void* unused) {
  (void)connection, (void)reason, (void)unused;
  load.lost += state == RRDK_LOST;
  if (state == RRDK_CLOSED && ++load.closed == load.num_connections)
    reactor.done = true;
}

static void next(struct worker* worker);

static bool is_right(rrdk_call* call, const struct worker* worker) {
  rrdk_view data = rrdk_get_item(rrdk_call_results(call), BLOCK_BYTES);
  uint32_t at = 0, length;
  for (const unsigned char* run; (run = rrdk_view_run(&data, at, &length)) != NULL; at += length)
    if (run[0] != byte_of(worker) ||
        memcmp(run, run + 1, length - 1) != 0) /* all bytes are the same */
      return false;
  return at == BLOCK_BYTES;
}

static void ended(rrdk_call* call, void* argument) {
  struct worker* worker = argument;
  const rrdk_call_status status = rrdk_call_status_of(call);
  if (status != RRDK_CALL_OK) {
    if (load.failed++ == 0)
      fprintf(stderr, "appliance: %s\n", rrdk_call_status_name(status));
  } else {
    ++load.ok[worker->procedure];
    load.wrong += worker->procedure == READ && !is_right(call, worker);
  }
  next(worker);
}

static void next(struct worker* worker) {
  if (load.left == 0) {
    if (--load.active == 0)
      for (uint32_t i = 0; i < load.num_connections; ++i)
        rrdk_connection_drain_start(load.connections[i], 1000); /* on_state is called at the end */
    return;
  }
  --load.left;
  if (worker->procedure == WRITE)
    worker->procedure = READ;
  else
    worker->procedure = worker->block % 2 == 0 || worker->block >= BLOCKS ? APPEND : WRITE;
  rrdk_encoder* args = rrdk_call_begin(worker->call, program, worker->procedure);
  rrdk_put_u64(args, worker->block);
  if (worker->procedure == WRITE) {
    rrdk_buffer* data = rrdk_buffer_get(reactor.memory, BLOCK_BYTES);
    ++worker->version;
    if (data != NULL)
      memset(rrdk_buffer_data(data), byte_of(worker), BLOCK_BYTES);
    rrdk_put_buffer(args, data, BLOCK_BYTES, RRDK_DDP_ELIGIBLE); /* NULL: the call fails */
  } else if (worker->procedure == READ) {
    rrdk_call_offer_buffer(worker->call, rrdk_buffer_get(reactor.memory, BLOCK_BYTES), BLOCK_BYTES);
  }
  rrdk_call_submit(worker->call, ended, worker);
}

static void on_client_signal(int signal) {
  (void)signal;
  load.left = 0; /* calls in flight still end */
}

static void begin_load(const char* uri) {
  rrdk_error error;
  rrdk_client_options options;
  rrdk_client_options_init(&options, sizeof options);
  options.call_timeout_ms = 60000;
  options.retransmit = options.reconnect = true;
  options.reconnect_first_delay_ms = 5;
  options.reconnect_max_delay_ms = 100;
  if (rrdk_client_create(reactor.runtime, &options, &load.client, &error))
    give_up("client", error.message);
  rrdk_connect_options how;
  rrdk_connect_options_init(&how, sizeof how);
  how.on_state = on_state;
  load.num_workers = load.active = load.num_connections * WORKERS_OF_ONE;
  load.connections = calloc(load.num_connections, sizeof *load.connections);
  load.workers = calloc(load.num_workers, sizeof *load.workers);
  for (uint32_t i = 0; i < load.num_connections; ++i) {
    rrdk_errc begun;
    CALL("connect_start",
         begun = rrdk_connect_start(load.client, uri, &how, &load.connections[i], &error));
    if (begun != RRDK_OK)
      give_up(uri, error.message);
  }
  /* Calls may be made at once: they wait for the connection. */
  for (uint32_t i = 0; i < load.num_workers; ++i) {
    load.workers[i].block = load.first_block + i;
    load.workers[i].call =
        rrdk_call_create(rrdk_connection_caller(load.connections[i / WORKERS_OF_ONE]));
    CALL("submit", next(&load.workers[i]));
  }
}

/* Destroys objects that are closed, so that no call waits. */
static void end_load(void) {
  for (uint32_t i = 0; i < load.num_workers; ++i)
    CALL("call_destroy", rrdk_call_destroy(load.workers[i].call));
  for (uint32_t i = 0; i < load.num_connections; ++i)
    CALL("connection_destroy", rrdk_connection_destroy(load.connections[i]));
  CALL("client_destroy", rrdk_client_destroy(load.client));
  free(load.workers);
  free(load.connections);
}

static int run_load(const char* uri, uint32_t connections, uint64_t calls, uint64_t first_block) {
  load.num_connections = connections;
  load.left = calls;
  load.first_block = first_block;
  begin_load(uri);
  run_reactor(on_client_signal);
  end_load();
  printf("appends %llu, writes %llu, reads %llu, failed %llu, wrong %llu, reconnections %llu\n",
         load.ok[APPEND], load.ok[WRITE], load.ok[READ], load.failed, load.wrong, load.lost);
  return load.failed + load.wrong == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  const bool serving = strcmp(mode, "serve") == 0 && argc > 3;
  if (!serving && (strcmp(mode, "load") != 0 || (argc != 5 && argc != 6))) {
    fprintf(stderr,
            "usage: appliance serve DISK URI... | appliance load URI CONNECTIONS CALLS [BLOCK]\n");
    return 2;
  }
  rrdk_error error;
  begin_reactor();
  if (rrdk_program_create(&program_options, &program, &error))
    give_up("program", error.message);
  const int status = serving
                         ? serve(argv[2], argv + 3, argc - 3)
                         : run_load(argv[2], (uint32_t)atoi(argv[3]), strtoull(argv[4], NULL, 10),
                                    argc == 6 ? strtoull(argv[5], NULL, 10) : 0);
  watch_print(&reactor.watched);
  rrdk_program_destroy(program);
  end_reactor();
  return status;
}

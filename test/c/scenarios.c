#define _GNU_SOURCE
#include "scenarios.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rrdk/rrdk.h"

static char failure[1000];

#define CHECK(expression)                                                      \
  do {                                                                         \
    if (!(expression)) {                                                       \
      snprintf(failure, sizeof failure, "line %d: %s", __LINE__, #expression); \
      return failure;                                                          \
    }                                                                          \
  } while (0)
#define CHECK_OK(call)                                                                          \
  do {                                                                                          \
    if ((call) != RRDK_OK) {                                                                    \
      snprintf(failure, sizeof failure, "line %d: %s: %.500s", __LINE__, #call, error.message); \
      return failure;                                                                           \
    }                                                                                           \
  } while (0)
#define UNTIL(world, expression)                                                        \
  do {                                                                                  \
    const uint64_t deadline = rrdk_now_ns() + 60000000000u;                             \
    while (!(expression)) {                                                             \
      if (rrdk_now_ns() > deadline) {                                                   \
        snprintf(failure, sizeof failure, "line %d: never: %s", __LINE__, #expression); \
        return failure;                                                                 \
      }                                                                                 \
      if (rrdk_runtime_poll((world)->runtime, 0) == 0)                                  \
        sched_yield();                                                                  \
    }                                                                                   \
  } while (0)

enum { PROGRAM = 0x20005678, NULLPROC = 0, ECHO, READ, WRITE, KEEP, WORDS, WHO, TWICE, DENIED };
enum { LARGE = 300000 };

static rrdk_error error;

/* ---- The program ---- */

/* The context of the handlers. */
struct site {
  rrdk_server_call* _Atomic kept;
  _Atomic int released;
  rrdk_backward_client* subscriber;
  rrdk_auth_sys who;
};

static void echo(rrdk_server_call* call, void* context) {
  (void)context;
  rrdk_view text = rrdk_get_opaque(rrdk_server_call_args(call), LARGE);
  if (!rrdk_decoder_at_end(rrdk_server_call_args(call))) {
    rrdk_server_call_reject(call, RRDK_ACCEPT_GARBAGE_ARGS);
    return;
  }
  rrdk_put_view(rrdk_server_call_results(call), &text);
  rrdk_server_call_reply(call);
}

static void fill(unsigned char* to, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    to[i] = (unsigned char)(i * 7 + (i >> 8));
}

static bool is_filled(const unsigned char* bytes, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (bytes[i] != (unsigned char)(i * 7 + (i >> 8)))
      return false;
  }
  return true;
}

static void count_release(void* context) {
  atomic_fetch_add(&((struct site*)context)->released, 1);
}

static void read_bytes(rrdk_server_call* call, void* context) {
  const uint32_t count = rrdk_get_u32(rrdk_server_call_args(call));
  rrdk_buffer* data = rrdk_server_call_result_buffer(call, count);
  if (!rrdk_decoder_at_end(rrdk_server_call_args(call)) || data == NULL) {
    rrdk_buffer_put(data);
    rrdk_server_call_reject(call, RRDK_ACCEPT_SYSTEM_ERR);
    return;
  }
  fill(rrdk_buffer_data(data), count);
  rrdk_put_buffer(rrdk_server_call_results(call), data, count, RRDK_DDP_ELIGIBLE);
  rrdk_server_call_on_released(call, count_release, context);
  rrdk_server_call_reply(call);
}

static void write_bytes(rrdk_server_call* call, void* context) {
  (void)context;
  rrdk_view data = rrdk_get_item(rrdk_server_call_args(call), LARGE);
  /* Run by run, as a program that writes to a device does; and in one piece. */
  unsigned char *copy = malloc(LARGE), *whole = malloc(LARGE);
  uint32_t at = 0, length = 0;
  const void* run;
  while ((run = rrdk_view_run(&data, at, &length)) != NULL) {
    memcpy(copy + at, run, length);
    at += length;
  }
  rrdk_view_copy(&data, whole);
  const bool right = rrdk_decoder_at_end(rrdk_server_call_args(call)) && at == data.length &&
                     is_filled(copy, at) && is_filled(whole, at);
  free(copy);
  free(whole);
  rrdk_put_u32(rrdk_server_call_results(call), right ? at : 0);
  rrdk_server_call_reply(call);
}

static void keep(rrdk_server_call* call, void* context) {
  ((struct site*)context)->kept = call;
}

static void words(rrdk_server_call* call, void* context) {
  (void)context;
  rrdk_decoder* in = rrdk_server_call_args(call);
  rrdk_encoder* out = rrdk_server_call_results(call);
  char text[8];
  const uint32_t word = rrdk_get_u32(in);
  const uint64_t two = rrdk_get_u64(in);
  const bool truth = rrdk_get_bool(in);
  const rrdk_view fixed = rrdk_get_fixed(in, 5);
  char five[5] = "";
  if (fixed.length == sizeof five)
    rrdk_view_copy(&fixed, five);
  const size_t length = rrdk_get_string(in, text, sizeof text);
  if (!rrdk_decoder_at_end(in) || length != strlen(text)) {
    rrdk_server_call_reject(call, RRDK_ACCEPT_GARBAGE_ARGS);
    return;
  }
  const rrdk_mark begin = rrdk_encoder_mark(out);
  rrdk_put_string(out, "what is thought better of");
  rrdk_encoder_rewind(out, &begin);
  rrdk_put_u64(out, two + word);
  rrdk_put_bool(out, !truth);
  rrdk_put_fixed(out, five, sizeof five);
  rrdk_put_string(out, text);
  rrdk_server_call_reply(call);
}

static void who(rrdk_server_call* call, void* context) {
  struct site* site = context;
  const bool known = rrdk_server_call_auth_flavor(call) == 1 &&
                     rrdk_server_call_credential(call).length != 0 &&
                     rrdk_server_call_auth_sys(call, &site->who);
  if (!known)
    rrdk_server_call_deny(call, RRDK_AUTH_TOOWEAK);
  else
    rrdk_server_call_reply(call);
}

static void denied(rrdk_server_call* call, void* context) {
  (void)context;
  rrdk_server_call_drop(call);
}

static void subscribe(rrdk_server_call* call, void* context) {
  struct site* site = context;
  rrdk_error why;
  if (rrdk_server_call_backward_client(call, &site->subscriber, &why) != RRDK_OK)
    rrdk_server_call_reject(call, RRDK_ACCEPT_SYSTEM_ERR);
  else
    rrdk_server_call_reply_after(call, 1000);
}

static void any(rrdk_server_call* call, void* context) {
  (void)context;
  if (rrdk_server_call_procedure(call) < 2000) {
    rrdk_server_call_reject(call, RRDK_ACCEPT_PROC_UNAVAIL);
    return;
  }
  rrdk_put_u32(rrdk_server_call_results(call), rrdk_server_call_procedure(call));
  rrdk_server_call_reply(call);
}

static const rrdk_procedure kProcedures[] = {
    {.number = NULLPROC, .name = "NULL"},
    {.number = ECHO, .name = "ECHO", .handler = echo, .fixed_results = 4},
    {.number = READ,
     .name = "READ",
     .handler = read_bytes,
     .eligible_results = 1,
     .fixed_results = 4},
    {.number = WRITE,
     .name = "WRITE",
     .handler = write_bytes,
     .worker = true,
     .eligible_args = 1,
     .fixed_results = 4},
    {.number = KEEP, .name = "KEEP", .handler = keep, .not_idempotent = true, .fixed_results = 4},
    {.number = WORDS, .name = "WORDS", .handler = words, .fixed_results = 32},
    {.number = WHO, .name = "WHO", .handler = who},
    {.number = TWICE, .name = "SUBSCRIBE", .handler = subscribe},
    {.number = DENIED, .name = "DENIED", .handler = denied},
    {.number = RRDK_OTHER_PROCEDURES, .name = "OTHER", .handler = any, .fixed_results = 4},
};
static const rrdk_program_options kProgram = RRDK_PROGRAM(PROGRAM, 1, "c", kProcedures);

/* ---- A server and a client in one thread ---- */

struct world {
  rrdk_memory* memory;
  rrdk_runtime* runtime;
  rrdk_program* program;
  rrdk_server* server;
  rrdk_client* client;
  rrdk_connection* connection;
  rrdk_call* call;
  char uri[200];
  struct site site;
  int ended;
};

static const char* begin_memory(struct world* w) {
  memset(w, 0, sizeof *w);
  CHECK_OK(rrdk_ensure_eal(NULL, 0, &error));
  rrdk_memory_options options;
  rrdk_memory_options_init(&options, sizeof options);
  options.hugepages = RRDK_HUGEPAGES_NEVER;
  options.bytes = 64u << 20;
  CHECK_OK(rrdk_memory_create(&options, &w->memory, &error));
  CHECK_OK(rrdk_runtime_create(w->memory, NULL, &w->runtime, &error));
  return NULL;
}

static const char* begin_world_with(struct world* w, const char* uri,
                                    const rrdk_server_options* server_options,
                                    const rrdk_client_options* client_options) {
  const char* wrong = begin_memory(w);
  if (wrong != NULL)
    return wrong;
  CHECK_OK(rrdk_program_create(&kProgram, &w->program, &error));
  CHECK_OK(rrdk_server_create(w->runtime, server_options, &w->server, &error));
  CHECK_OK(rrdk_server_add_service(w->server, w->program, &w->site, &error));
  CHECK_OK(rrdk_server_listen(w->server, uri, w->uri, sizeof w->uri, &error));
  CHECK_OK(rrdk_client_create(w->runtime, client_options, &w->client, &error));
  return NULL;
}

static const char* begin_world(struct world* w, const char* uri) {
  const char* wrong = begin_world_with(w, uri, NULL, NULL);
  if (wrong != NULL)
    return wrong;
  CHECK_OK(rrdk_connect(w->client, w->uri, NULL, &w->connection, &error));
  w->call = rrdk_call_create(rrdk_connection_caller(w->connection));
  CHECK(w->call != NULL);
  return NULL;
}

static const char* end_world(struct world* w) {
  rrdk_call_destroy(w->call);
  rrdk_connection_destroy(w->connection);
  rrdk_client_destroy(w->client);
  rrdk_server_destroy(w->server);
  rrdk_program_destroy(w->program);
  rrdk_runtime_destroy(w->runtime);
  CHECK(rrdk_memory_whole(w->memory));
  rrdk_memory_destroy(w->memory);
  return NULL;
}

#define BEGIN(begun)             \
  do {                           \
    const char* wrong = (begun); \
    if (wrong != NULL)           \
      return wrong;              \
  } while (0)

static void count_end(rrdk_call* call, void* argument) {
  (void)call;
  ++*(int*)argument;
}

static rrdk_call_status run(struct world* w) {
  return rrdk_call_submit_and_wait(w->call);
}

/* ---- Scenarios ---- */

const char* calls_of_all_kinds(const char* uri) {
  struct world w;
  BEGIN(begin_world(&w, uri));
  unsigned char *bytes = malloc(LARGE), *back = malloc(LARGE);
  const uint32_t sizes[] = {0, 1, 1000, 5000, LARGE - 3};
  fill(bytes, LARGE);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const uint32_t size = sizes[i];
    rrdk_encoder* args = rrdk_call_begin(w.call, w.program, ECHO);
    const uint64_t begin = rrdk_encoder_position(args); /* behind the header */
    rrdk_put_opaque(args, bytes, size);
    CHECK(rrdk_encoder_ok(args));
    CHECK(rrdk_encoder_position(args) - begin == 4 + (size + 3) / 4 * 4);
    rrdk_call_expect_reply(w.call, size + 4);
    CHECK(run(&w) == RRDK_CALL_OK);
    rrdk_view view = rrdk_get_opaque(rrdk_call_results(w.call), size);
    CHECK(rrdk_decoder_at_end(rrdk_call_results(w.call)) && view.length == size);
    rrdk_view_copy(&view, back);
    CHECK(memcmp(back, bytes, size) == 0);

    /* A result that is placed directly. */
    rrdk_put_u32(rrdk_call_begin(w.call, w.program, READ), size);
    rrdk_buffer* room = rrdk_buffer_get(w.memory, LARGE);
    CHECK(room != NULL && rrdk_buffer_capacity(room) >= LARGE);
    rrdk_call_offer_buffer(w.call, room, size + 1);
    w.ended = 0;
    CHECK(rrdk_call_submit(w.call, count_end, &w.ended) && w.ended == 0);
    CHECK(rrdk_call_in_flight(w.call));
    UNTIL(&w, !rrdk_call_in_flight(w.call));
    CHECK(w.ended == 1 && rrdk_call_status_of(w.call) == RRDK_CALL_OK);
    view = rrdk_get_item(rrdk_call_results(w.call), size);
    CHECK(rrdk_decoder_ok(rrdk_call_results(w.call)) && view.length == size);
    rrdk_view_copy(&view, back);
    CHECK(is_filled(back, size));
    rrdk_buffer* mine = rrdk_call_take_offered(w.call, 0);
    CHECK(mine == room);
    CHECK(rrdk_call_take_offered(w.call, 0) == NULL);
    rrdk_buffer_put(mine);
    UNTIL(&w, w.site.released == (int)i + 1);

    /* An argument by reference. */
    rrdk_buffer* data = rrdk_buffer_get(w.memory, LARGE);
    CHECK(data != NULL);
    fill(rrdk_buffer_data(data), size);
    CHECK(rrdk_memory_contains(w.memory, rrdk_buffer_span(data, size)));
    rrdk_put_buffer(rrdk_call_begin(w.call, w.program, WRITE), data, size, RRDK_DDP_ELIGIBLE);
    CHECK(run(&w) == RRDK_CALL_OK);
    CHECK(rrdk_get_u32(rrdk_call_results(w.call)) == size);

    /* Out of two pieces, of which the first lies behind the second. */
    rrdk_buffer* turned = rrdk_buffer_get(w.memory, LARGE);
    CHECK(turned != NULL);
    const uint32_t first = size / 3, second = size - first;
    unsigned char* const at = rrdk_buffer_data(turned);
    fill(back, size);
    memcpy(at + second, back, first);
    memcpy(at, back + first, second);
    rrdk_span pieces[2] = {rrdk_buffer_span(turned, first), rrdk_buffer_span(turned, second)};
    pieces[0].data = at + second;
    rrdk_put_item_segments(rrdk_call_begin(w.call, w.program, WRITE), pieces, 2, RRDK_DDP_ELIGIBLE);
    CHECK(run(&w) == RRDK_CALL_OK);
    CHECK(rrdk_get_u32(rrdk_call_results(w.call)) == size);
    rrdk_buffer_put(turned);
  }
  rrdk_encoder* args = rrdk_call_begin(w.call, w.program, WORDS);
  rrdk_put_u32(args, 7);
  rrdk_put_u64(args, 1ull << 40);
  rrdk_put_bool(args, true);
  rrdk_put_fixed(args, "12345", 5);
  rrdk_put_string(args, "1234567");
  CHECK(run(&w) == RRDK_CALL_OK);
  rrdk_decoder* results = rrdk_call_results(w.call);
  char text[20];
  CHECK(rrdk_decoder_remaining(results) == 8 + 4 + 8 + 12);
  CHECK(rrdk_get_u64(results) == (1ull << 40) + 7 && !rrdk_get_bool(results));
  rrdk_view five = rrdk_get_fixed(results, 5);
  rrdk_view_copy(&five, text);
  CHECK(memcmp(text, "12345", 5) == 0);
  CHECK(rrdk_get_string(results, text, sizeof text) == 7 && strcmp(text, "1234567") == 0);
  CHECK(rrdk_decoder_at_end(results));
  free(bytes);
  free(back);
  return end_world(&w);
}

static void* answer(void* context) {
  struct site* site = context;
  while (site->kept == NULL)
    sched_yield();
  rrdk_server_call* call = atomic_exchange(&site->kept, NULL);
  rrdk_put_u32(rrdk_server_call_results(call), rrdk_get_u32(rrdk_server_call_args(call)) + 1);
  rrdk_server_call_reply(call);
  return NULL;
}

const char* answers_from_another_thread(const char* uri) {
  struct world w;
  pthread_t thread;
  BEGIN(begin_world(&w, uri));
  CHECK(pthread_create(&thread, NULL, answer, &w.site) == 0);
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, KEEP), 41);
  CHECK(run(&w) == RRDK_CALL_OK);
  CHECK(rrdk_get_u32(rrdk_call_results(w.call)) == 42);
  CHECK(pthread_join(thread, NULL) == 0);
  return end_world(&w);
}

static void note_room(void* argument) {
  ++*(int*)argument;
}

const char* calls_beyond_the_bound(const char* uri) {
  struct world w;
  rrdk_client_options options;
  rrdk_client_options_init(&options, sizeof options);
  CHECK(options.max_queued == UINT32_MAX);
  options.max_queued = 1;
  BEGIN(begin_world_with(&w, uri, NULL, &options));
  CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &w.connection, &error));
  rrdk_caller* caller = rrdk_connection_caller(w.connection);
  rrdk_call* calls[3];
  int told = 0;
  rrdk_caller_on_room(caller, 1, note_room, &told);
  CHECK(rrdk_caller_room(caller) == 2); /* one credit until the first reply, and one waits */
  for (int i = 0; i < 3; ++i) {
    calls[i] = rrdk_call_create(caller);
    rrdk_call_begin(calls[i], w.program, NULLPROC);
    CHECK(rrdk_call_submit(calls[i], count_end, &w.ended) == (i < 2));
  }
  CHECK(rrdk_call_status_of(calls[2]) == RRDK_CALL_FULL && rrdk_caller_room(caller) == 0);
  UNTIL(&w, told == 1);
  CHECK(rrdk_call_submit(calls[2], count_end, &w.ended));
  UNTIL(&w, w.ended == 3 && !rrdk_call_in_flight(calls[2]));
  CHECK(rrdk_call_status_of(calls[2]) == RRDK_CALL_OK && told == 1);
  CHECK(rrdk_caller_room(NULL) == 0);
  rrdk_caller_on_room(NULL, 1, note_room, &told);
  for (int i = 0; i < 3; ++i)
    rrdk_call_destroy(calls[i]);
  return end_world(&w);
}

/* What the interceptors of both ends have seen. */
struct watched {
  int asked, ended, made, over;
  uint32_t procedure, xid, made_xid, auth_stat;
  rrdk_call_status status, over_status;
  uint64_t note;
  bool right;
};

static rrdk_admission admit_call(const rrdk_server_call* call, uint64_t* note, void* context) {
  struct watched* w = context;
  rrdk_auth_sys user;
  ++w->asked;
  *note = 7;
  w->right = rrdk_server_call_program(call) == PROGRAM && rrdk_server_call_auth_sys(call, &user) &&
             user.uid == 42;
  const uint32_t procedure = rrdk_server_call_procedure(call);
  const rrdk_admission answer = {procedure == WHO     ? RRDK_DENY
                                 : procedure == WORDS ? RRDK_REJECT
                                                      : RRDK_ENTER,
                                 procedure == WHO ? RRDK_AUTH_TOOWEAK : RRDK_ACCEPT_SYSTEM_ERR};
  return answer;
}

static void note_end(const rrdk_server_call* call, rrdk_call_status status, uint32_t auth_stat,
                     uint64_t note, void* context) {
  struct watched* w = context;
  ++w->ended;
  w->procedure = rrdk_server_call_procedure(call);
  w->xid = rrdk_server_call_xid(call);
  w->status = status;
  w->auth_stat = auth_stat;
  w->note = note;
}

static rrdk_call_status ask_to_make(const rrdk_call_identity* call, uint64_t* note, void* context) {
  struct watched* w = context;
  ++w->made;
  *note = call->procedure;
  return call->procedure == TWICE ? RRDK_CALL_AUTH_ERROR : RRDK_CALL_OK;
}

static void note_made(const rrdk_call_identity* call, rrdk_call_status status, uint32_t auth_stat,
                      uint64_t note, void* context) {
  struct watched* w = context;
  (void)auth_stat;
  if (note == call->procedure && call->program == PROGRAM && call->auth_flavor == 1 &&
      call->credential_length != 0 && call->address[0] != '\0')
    ++w->over;
  w->made_xid = call->xid;
  w->over_status = status;
}

const char* calls_that_are_watched(const char* uri) {
  struct world w;
  struct watched seen = {0};
  rrdk_server_options server;
  rrdk_client_options client;
  rrdk_server_options_init(&server, sizeof server);
  rrdk_client_options_init(&client, sizeof client);
  CHECK(server.interceptor.before == NULL && client.interceptor.after == NULL);
  server.interceptor = (rrdk_service_interceptor){admit_call, note_end, &seen};
  client.interceptor = (rrdk_call_interceptor){ask_to_make, note_made, &seen};
  BEGIN(begin_world_with(&w, uri, &server, &client));
  CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &w.connection, &error));
  const rrdk_auth_sys user = {.uid = 42};
  CHECK_OK(rrdk_caller_set_auth_sys(rrdk_connection_caller(w.connection), &user, &error));
  w.call = rrdk_call_create(rrdk_connection_caller(w.connection));
  const struct {
    uint32_t procedure;
    rrdk_call_status status;
    uint32_t auth_stat;
  } cases[] = {{NULLPROC, RRDK_CALL_OK, 0},
               {ECHO, RRDK_CALL_OK, 0},
               {WHO, RRDK_CALL_AUTH_ERROR, RRDK_AUTH_TOOWEAK},
               {WORDS, RRDK_CALL_SYSTEM_ERR, 0}};
  for (int i = 0; i < 8; ++i) {
    const uint32_t procedure = cases[i % 4].procedure;
    rrdk_encoder* args = rrdk_call_begin(w.call, w.program, procedure);
    if (procedure == ECHO)
      rrdk_put_opaque(args, "abc", 3);
    CHECK(run(&w) == cases[i % 4].status);
    UNTIL(&w, seen.ended == i + 1);
    CHECK(seen.asked == i + 1 && seen.made == i + 1 && seen.over == i + 1 && seen.right);
    CHECK(seen.procedure == procedure && seen.xid == seen.made_xid && seen.note == 7);
    CHECK(seen.status == cases[i % 4].status && seen.auth_stat == cases[i % 4].auth_stat);
    CHECK(seen.over_status == seen.status);
  }
  rrdk_call_begin(w.call, w.program, TWICE);
  CHECK(run(&w) == RRDK_CALL_AUTH_ERROR && !rrdk_call_sent(w.call));
  CHECK(seen.ended == 8 && seen.over == 9 && seen.made_xid == 0);
  return end_world(&w);
}

const char* calls_in_the_other_direction(const char* uri) {
  struct world w;
  rrdk_server_options options;
  rrdk_server_options_init(&options, sizeof options);
  BEGIN(begin_world_with(&w, uri, &options, NULL));
  CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &w.connection, &error));
  w.call = rrdk_call_create(rrdk_connection_caller(w.connection));
  rrdk_call_begin(w.call, w.program, TWICE);
  CHECK(run(&w) == RRDK_CALL_SYSTEM_ERR); /* this server makes no calls */
  BEGIN(end_world(&w));

  options.backward_credits = 4;
  BEGIN(begin_world_with(&w, uri, &options, NULL));
  CHECK_OK(rrdk_client_add_service(w.client, w.program, &w.site, &error));
  CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &w.connection, &error));
  w.call = rrdk_call_create(rrdk_connection_caller(w.connection));
  rrdk_call_begin(w.call, w.program, TWICE);
  CHECK(run(&w) == RRDK_CALL_OK && w.site.subscriber != NULL);
  CHECK(rrdk_caller_alive(rrdk_backward_client_caller(w.site.subscriber)));
  CHECK(!rrdk_backward_client_takes_chunks(w.site.subscriber));
  rrdk_call* news = rrdk_call_create(rrdk_backward_client_caller(w.site.subscriber));
  rrdk_put_opaque(rrdk_call_begin(news, w.program, ECHO), "news", 4);
  rrdk_call_expect_reply(news, 8);
  CHECK(rrdk_call_submit_and_wait(news) == RRDK_CALL_OK);
  CHECK(rrdk_get_opaque(rrdk_call_results(news), 4).length == 4);
  rrdk_call_destroy(news);
  rrdk_backward_client_release(w.site.subscriber);
  return end_world(&w);
}

const char* calls_that_do_not_succeed(const char* uri) {
  struct world w;
  BEGIN(begin_world(&w, uri));
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, ECHO), 12); /* 12 bytes that are missing */
  CHECK(run(&w) == RRDK_CALL_GARBAGE_ARGS);
  /* Texts that do not fit, or have a NUL inside. */
  const char* const texts[] = {"12345678",
                               "12\0"
                               "4"};
  for (int i = 0; i < 2; ++i) {
    rrdk_encoder* args = rrdk_call_begin(w.call, w.program, WORDS);
    rrdk_put_fixed(args, "0000111122223333444455556666", 12); /* word, two */
    rrdk_put_bool(args, true);
    rrdk_put_fixed(args, "12345", 5);
    rrdk_put_opaque(args, texts[i], i == 0 ? 8 : 4);
    CHECK(run(&w) == RRDK_CALL_GARBAGE_ARGS);
  }
  rrdk_call_begin(w.call, w.program, 1000);
  CHECK(run(&w) == RRDK_CALL_PROC_UNAVAIL);
  const uint32_t numbers[] = {2000, 70000, UINT32_MAX};
  for (int i = 0; i < 3; ++i) {
    rrdk_call_begin(w.call, w.program, numbers[i]);
    CHECK(run(&w) == RRDK_CALL_OK);
    CHECK(rrdk_get_u32(rrdk_call_results(w.call)) == numbers[i]);
  }
  rrdk_call_begin(w.call, w.program, WHO);
  CHECK(run(&w) == RRDK_CALL_AUTH_ERROR);
  CHECK(rrdk_call_auth_stat(w.call) == RRDK_AUTH_TOOWEAK);
  rrdk_encoder_fail(rrdk_call_begin(w.call, w.program, ECHO));
  CHECK(run(&w) == RRDK_CALL_INVALID_CALL);
  rrdk_put_buffer(rrdk_call_begin(w.call, w.program, WRITE), NULL, 10, RRDK_DDP_ELIGIBLE);
  CHECK(run(&w) == RRDK_CALL_NO_MEMORY);
  rrdk_put_item_segments(rrdk_call_begin(w.call, w.program, WRITE), NULL, 1, RRDK_DDP_ELIGIBLE);
  CHECK(run(&w) == RRDK_CALL_INVALID_CALL);
  static rrdk_span gaps[RRDK_MAX_ITEM_SEGMENTS + 1];
  rrdk_buffer* from = rrdk_buffer_get(w.memory, LARGE);
  for (uint32_t i = 0; i <= RRDK_MAX_ITEM_SEGMENTS; ++i) {
    gaps[i] = rrdk_buffer_span(from, 1);
    gaps[i].data = (char*)gaps[i].data + 2 * i;
  }
  rrdk_put_item_segments(rrdk_call_begin(w.call, w.program, WRITE), gaps,
                         RRDK_MAX_ITEM_SEGMENTS + 1, RRDK_DDP_ELIGIBLE);
  CHECK(run(&w) == RRDK_CALL_TOO_LARGE);
  rrdk_put_item_segments(rrdk_call_begin(w.call, w.program, WRITE), NULL, 0, RRDK_DDP_ELIGIBLE);
  CHECK(run(&w) == RRDK_CALL_OK);
  CHECK(rrdk_get_u32(rrdk_call_results(w.call)) == 0);
  rrdk_buffer_put(from);
  const rrdk_span nowhere = {failure, 100, 12345};
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, READ), 100);
  rrdk_call_offer(w.call, &nowhere, 1);
  CHECK(run(&w) == RRDK_CALL_INVALID_MEMORY);
  rrdk_span many[100];
  rrdk_buffer* buffer = rrdk_buffer_get(w.memory, 100);
  for (size_t i = 0; i < sizeof many / sizeof many[0]; ++i)
    many[i] = rrdk_buffer_span(buffer, 1);
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, READ), 100);
  rrdk_call_offer(w.call, many, sizeof many / sizeof many[0]);
  CHECK(run(&w) == RRDK_CALL_TOO_LARGE);
  rrdk_buffer_put(buffer);

  rrdk_put_u32(rrdk_call_begin(w.call, w.program, KEEP), 1);
  rrdk_call_set_timeout_ms(w.call, 1);
  CHECK(run(&w) == RRDK_CALL_TIMEOUT);
  UNTIL(&w, w.site.kept != NULL);
  rrdk_server_call_reject(w.site.kept, RRDK_ACCEPT_SYSTEM_ERR);
  w.site.kept = NULL;
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, KEEP), 2);
  w.ended = 0;
  CHECK(rrdk_call_submit(w.call, count_end, &w.ended));
  UNTIL(&w, w.site.kept != NULL);
  rrdk_server_call_reject_versions(w.site.kept, 3, 7);
  UNTIL(&w, w.ended == 1);
  CHECK(rrdk_call_status_of(w.call) == RRDK_CALL_PROG_MISMATCH);
  CHECK(rrdk_call_mismatch_low(w.call) == 3 && rrdk_call_mismatch_high(w.call) == 7);
  w.site.kept = NULL;
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, KEEP), 1);
  w.ended = 0;
  CHECK(rrdk_call_submit(w.call, count_end, &w.ended));
  UNTIL(&w, w.site.kept != NULL);
  rrdk_call_cancel(w.call);
  UNTIL(&w, w.ended == 1);
  CHECK(rrdk_call_status_of(w.call) == RRDK_CALL_CANCELLED);
  rrdk_server_call_reply(w.site.kept);

  rrdk_transport_error none = {.size = sizeof none};
  CHECK(rrdk_call_transport_error(w.call, &none) && none.code == 0);
  rrdk_call_begin(w.call, w.program, DENIED);
  CHECK(run(&w) == RRDK_CALL_CONNECTION_LOST);
  CHECK(rrdk_connection_error(w.connection, &error) == RRDK_E_CONNECTION_LOST);
  CHECK(strstr(error.message, w.uri) != NULL);
  UNTIL(&w, rrdk_connection_state_of(w.connection) == RRDK_CLOSED);
  return end_world(&w);
}

static void submit_again(rrdk_call* call, void* argument) {
  struct world* w = argument;
  if (++w->ended < 3) {
    rrdk_call_begin(call, w->program, NULLPROC);
    rrdk_call_submit(call, submit_again, w);
  }
}

const char* a_call_submitted_twice(const char* uri) {
  struct world w;
  int other = 0;
  BEGIN(begin_world(&w, uri));
  /* It may be destroyed in its own callback. */
  rrdk_call_begin(w.call, w.program, NULLPROC);
  CHECK(rrdk_call_submit(w.call, submit_again, &w));
  UNTIL(&w, w.ended == 3 && !rrdk_call_in_flight(w.call));
  /* It may not in flight, and a waiting thread is told that it has ended. */
  w.ended = 0;
  rrdk_put_u32(rrdk_call_begin(w.call, w.program, KEEP), 1);
  CHECK(rrdk_call_submit(w.call, count_end, &w.ended));
  CHECK(!rrdk_call_submit(w.call, count_end, &other));
  CHECK(!rrdk_call_submit(w.call, count_end, &other));
  UNTIL(&w, w.site.kept != NULL);
  rrdk_server_call_reply(w.site.kept);
  UNTIL(&w, w.ended == 1);
  CHECK(other == 0);
  return end_world(&w);
}

struct lines {
  int count;
  char last[600];
};

static void take_line(rrdk_log_level level, const char* line, void* user) {
  struct lines* lines = user;
  if (level == RRDK_LOG_ERROR) {
    ++lines->count;
    snprintf(lines->last, sizeof lines->last, "%s", line);
  }
}

/* Until its handler has the call, and keeps it. */
static const char* submit_kept(struct world* w, rrdk_call* call, uint32_t argument) {
  w->site.kept = NULL;
  rrdk_put_u32(rrdk_call_begin(call, w->program, KEEP), argument);
  CHECK(rrdk_call_submit(call, NULL, NULL));
  UNTIL(w, w->site.kept != NULL);
  return NULL;
}

static const char* answered_is_empty(struct world* w, rrdk_server_call* call) {
  rrdk_auth_sys identity;
  rrdk_receive_sizes sizes = {.size = sizeof sizes};
  rrdk_backward_client* client = NULL;
  const rrdk_view nothing = {0};
  CHECK(rrdk_server_call_xid(call) == 0 && rrdk_server_call_program(call) == 0);
  CHECK(!rrdk_server_call_wanted(call));
  CHECK(rrdk_server_call_version(call) == 0 && rrdk_server_call_procedure(call) == 0);
  CHECK(rrdk_server_call_auth_flavor(call) == 0 && rrdk_server_call_credential(call).length == 0);
  CHECK(!rrdk_server_call_auth_sys(call, &identity));
  rrdk_call_security security = {.size = sizeof security};
  CHECK(!rrdk_server_call_security(call, &security));
  CHECK(rrdk_server_call_connection(call) == NULL);
  CHECK(rrdk_server_call_result_buffer(call, 1) == NULL);
  CHECK(!rrdk_server_call_receive_sizes(call, &sizes));
  CHECK(rrdk_server_call_backward_client(call, &client, NULL) == RRDK_E_INVALID_ARGUMENT);
  rrdk_server_call_on_released(call, count_release, &w->site);
  rrdk_server_call_request_receive_size(call, 8192);
  rrdk_server_call_raise_receive_size(call, 8192);
  rrdk_decoder* args = rrdk_server_call_args(call);
  CHECK(rrdk_get_u32(args) == 0 && rrdk_get_item(args, LARGE).length == 0);
  CHECK(!rrdk_decoder_ok(args) && rrdk_decoder_remaining(args) == 0);
  rrdk_encoder* results = rrdk_server_call_results(call);
  const rrdk_mark begin = rrdk_encoder_mark(results);
  rrdk_put_u32(results, 6666);
  rrdk_put_string(results, "another client's");
  rrdk_put_item(results, (rrdk_span){w, 8, 0}, RRDK_DDP_ELIGIBLE);
  rrdk_put_buffer(results, rrdk_buffer_get(w->memory, 100), 100, RRDK_DDP_ELIGIBLE);
  rrdk_put_view(results, &nothing);
  rrdk_encoder_rewind(results, &begin);
  rrdk_put_u32(results, 6666);
  CHECK(!rrdk_encoder_ok(results) && rrdk_encoder_position(results) == 0);
  return NULL;
}

static void (*const kEnds[])(rrdk_server_call*) = {rrdk_server_call_reply, rrdk_server_call_drop};
static void reply_late(rrdk_server_call* call) {
  rrdk_server_call_reply_after(call, 1000000);
}
static void reject_it(rrdk_server_call* call) {
  rrdk_server_call_reject(call, RRDK_ACCEPT_SYSTEM_ERR);
}
static void reject_versions(rrdk_server_call* call) {
  rrdk_server_call_reject_versions(call, 3, 7);
}
static void deny_it(rrdk_server_call* call) {
  rrdk_server_call_deny(call, RRDK_AUTH_TOOWEAK);
}

static void* reply_from_elsewhere(void* call) {
  rrdk_server_call_reply(call);
  return NULL;
}

/* An error of the program, which must not become another client's answer. */
const char* a_call_answered_twice(const char* uri) {
  struct world w;
  struct lines lines = {0};
  BEGIN(begin_world(&w, uri));
  rrdk_connection* other = NULL;
  CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &other, &error));
  rrdk_call* call = rrdk_call_create(rrdk_connection_caller(other));
  BEGIN(submit_kept(&w, w.call, 1));
  rrdk_server_call* const first = w.site.kept;
  rrdk_put_u32(rrdk_server_call_results(first), 1111);
  rrdk_server_call_reply(first);
  UNTIL(&w, !rrdk_call_in_flight(w.call));
  CHECK(rrdk_get_u32(rrdk_call_results(w.call)) == 1111);

  rrdk_set_log_sink(take_line, &lines);
  void (*const ends[])(rrdk_server_call*) = {kEnds[0],  kEnds[1],        reply_late,
                                             reject_it, reject_versions, deny_it};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; ++i) {
    BEGIN(submit_kept(&w, call, 2));
    rrdk_server_call* const second = w.site.kept;
    BEGIN(answered_is_empty(&w, first));
    ends[i](first);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reply_from_elsewhere, first) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int pass = 0; pass < 100; ++pass)
      rrdk_runtime_poll(w.runtime, 0);
    CHECK(rrdk_call_in_flight(call) && rrdk_get_u32(rrdk_server_call_args(second)) == 2);
    rrdk_put_u32(rrdk_server_call_results(second), 2222);
    rrdk_server_call_reply(second);
    rrdk_server_call_reply(second); /* at once, before the answer can have gone out */
    UNTIL(&w, !rrdk_call_in_flight(call));
    CHECK(rrdk_call_status_of(call) == RRDK_CALL_OK);
    CHECK(rrdk_get_u32(rrdk_call_results(call)) == 2222);
  }
  rrdk_set_log_sink(NULL, NULL);
  CHECK(lines.count > 0 && strstr(lines.last, "of a call that has been answered") != NULL);
  CHECK(w.site.released == 0);
  rrdk_call_destroy(call);
  rrdk_connection_destroy(other);
  BEGIN(end_world(&w));
  rrdk_set_log_sink(take_line, &lines); /* not even its server exists */
  rrdk_server_call_reply(first);
  CHECK(rrdk_server_call_xid(first) == 0);
  rrdk_server_call_reply(NULL);
  rrdk_set_log_sink(NULL, NULL);
  return NULL;
}

struct states {
  rrdk_connection_state seen[20];
  int count;
  rrdk_errc reason;
  char text[508];
  bool destroy;
};

static void on_state(rrdk_connection* connection, rrdk_connection_state state,
                     const rrdk_error* reason, void* argument) {
  struct states* states = argument;
  states->seen[states->count++] = state;
  if (reason != NULL) {
    states->reason = reason->code;
    strcpy(states->text, reason->message);
  }
  if (state == RRDK_CLOSED && states->destroy)
    rrdk_connection_destroy(connection);
}

static rrdk_errc admit(rrdk_server_connection* connection, rrdk_error* reason, void* argument) {
  rrdk_connection_info info = {.size = sizeof info};
  int* asked = argument;
  if (!rrdk_server_connection_get_info(connection, &info) || info.id == 0)
    return RRDK_E_SYSTEM;
  rrdk_server_connection_set_context(connection, asked);
  if (++*asked != 2)
    return RRDK_OK;
  memset(reason->message, 'x', sizeof reason->message); /* and no NUL */
  memcpy(reason->message, "not the second one ", 19);
  return RRDK_E_PERMISSION;
}

static void count_close(rrdk_server_connection* connection, const rrdk_error* reason,
                        void* argument) {
  int* asked = argument;
  if (reason->message[0] != '\0' && rrdk_server_connection_context(connection) == asked)
    *asked += 100;
}

const char* connections_that_come_and_go(const char* uri) {
  struct world w;
  struct states states = {.destroy = true};
  int asked = 0;
  rrdk_server_options options;
  rrdk_server_options_init(&options, sizeof options);
  options.on_open = admit;
  options.on_close = count_close;
  options.connection_argument = &asked;
  BEGIN(begin_world_with(&w, uri, &options, NULL));
  rrdk_connect_options how;
  rrdk_connect_options_init(&how, sizeof how);
  how.on_state = on_state;
  how.argument = &states;
  CHECK_OK(rrdk_connect_start(w.client, w.uri, &how, &w.connection, &error));
  UNTIL(&w, states.count == 2);
  CHECK(states.seen[0] == RRDK_CONNECTING && states.seen[1] == RRDK_UP);
  CHECK(strcmp(rrdk_connection_state_name(states.seen[1]), "up") == 0);
  CHECK(strcmp(rrdk_caller_address(rrdk_connection_caller(w.connection)), w.uri) == 0);
  CHECK(rrdk_connection_error(w.connection, NULL) == RRDK_OK);

  struct states second = {.destroy = true};
  rrdk_connection* refused = NULL;
  how.argument = &second;
  CHECK_OK(rrdk_connect_start(w.client, w.uri, &how, &refused, &error));
  UNTIL(&w, second.count == 2);
  CHECK(second.seen[1] == RRDK_CLOSED && second.reason == RRDK_E_REFUSED);
  CHECK(strstr(second.text, "not the second one") != NULL);

  rrdk_connection_drain_start(w.connection, 1000);
  UNTIL(&w, states.count == 3);
  CHECK(states.seen[2] == RRDK_CLOSED && states.reason == RRDK_E_SHUTDOWN);
  UNTIL(&w, asked == 102);
  w.connection = NULL;

  for (int destroy = 0; destroy < 2; ++destroy) { /* in the callback, before the function returns */
    struct states nowhere = {.destroy = destroy};
    how.argument = &nowhere;
    CHECK(rrdk_connect(w.client, "shm:/nowhere/at.all", &how, &refused, &error) ==
          RRDK_E_NOT_FOUND);
    CHECK(refused == NULL && error.code == RRDK_E_NOT_FOUND);
    CHECK(nowhere.seen[nowhere.count - 1] == RRDK_CLOSED);
  }
  CHECK(rrdk_connect_start(w.client, NULL, &how, &refused, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(rrdk_connect_start(w.client, "gopher:x", &how, &refused, &error) == RRDK_E_BAD_URI);
  CHECK(strstr(error.message, "gopher") != NULL);
  return end_world(&w);
}

enum { SESSIONS = 20 };
struct sessions {
  rrdk_server_connection* opened[SESSIONS];
  uint64_t ids[SESSIONS];
  int count, closed;
};

static rrdk_errc open_session(rrdk_server_connection* connection, rrdk_error* reason,
                              void* argument) {
  struct sessions* all = argument;
  (void)reason;
  rrdk_server_connection_set_context(connection, &all->ids[all->count]);
  all->ids[all->count] = rrdk_server_connection_id(connection);
  all->opened[all->count++] = connection;
  return RRDK_OK;
}

static void close_session(rrdk_server_connection* connection, const rrdk_error* reason,
                          void* argument) {
  struct sessions* all = argument;
  (void)reason;
  if (rrdk_server_connection_context(connection) == &all->ids[all->closed])
    ++all->closed;
}

/* Handles that a program has kept for too long do not lead to other clients' connections. */
const char* server_connections_that_have_gone(const char* uri) {
  struct world w;
  struct sessions all = {.count = 0};
  rrdk_connection_info info = {.size = sizeof info};
  rrdk_server_options options;
  rrdk_server_options_init(&options, sizeof options);
  options.on_open = open_session;
  options.on_close = close_session;
  options.connection_argument = &all;
  BEGIN(begin_world_with(&w, uri, &options, NULL));
  for (int i = 0; i < SESSIONS; ++i) {
    rrdk_connection* connection = NULL;
    CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &connection, &error));
    rrdk_call* call = rrdk_call_create(rrdk_connection_caller(connection));
    BEGIN(submit_kept(&w, call, 1));
    CHECK(rrdk_server_call_connection(w.site.kept) == all.opened[i]);
    CHECK(rrdk_server_connection_get_info(all.opened[i], &info) && info.id == all.ids[i]);
    for (int past = 0; past < i; ++past) {
      CHECK(all.opened[past] != all.opened[i]);
      CHECK(rrdk_server_connection_id(all.opened[past]) == 0);
      CHECK(rrdk_server_connection_context(all.opened[past]) == NULL);
      CHECK(!rrdk_server_connection_get_info(all.opened[past], &info));
      rrdk_server_connection_set_context(all.opened[past], &w);
    }
    CHECK(rrdk_server_connection_context(all.opened[i]) == &all.ids[i]);
    rrdk_call_cancel(call);
    UNTIL(&w, !rrdk_call_in_flight(call));
    rrdk_call_destroy(call);
    rrdk_connection_destroy(connection);
    UNTIL(&w, all.closed == i + 1);
    /* Its call has not ended, and tells from which peer it came. */
    CHECK(rrdk_server_call_connection(w.site.kept) == all.opened[i]);
    CHECK(rrdk_server_connection_context(all.opened[i]) == &all.ids[i]);
    rrdk_server_call_reply(w.site.kept);
    UNTIL(&w, rrdk_server_connection_id(all.opened[i]) == 0);
  }
  return end_world(&w);
}

static void note(void* argument) {
  ++*(int*)argument;
}

static void note_rest(uint32_t rest, void* argument) {
  *(int*)argument += 1 + (int)rest;
}

static void note_listening(const char* uri, const rrdk_error* why, void* argument) {
  if (uri != NULL && why == NULL)
    snprintf(argument, 200, "%s", uri);
  else if (uri == NULL && why != NULL)
    snprintf(argument, 200, "%s", rrdk_errc_name(why->code));
}

const char* a_server_that_is_asked_to_end(const char* uri) {
  struct world w;
  char other[200] = "";
  int removed = 0, drained = 0, closed = 0;
  BEGIN(begin_world(&w, uri));
  rrdk_server_listen_start(w.server, "shm:/nowhere/at.all", note_listening, other);
  UNTIL(&w, other[0] != '\0');
  CHECK(strcmp(other, "not found") == 0);
  other[0] = '\0';
  rrdk_server_listen_start(w.server, "iwarp://127.0.0.1:0", note_listening, other);
  UNTIL(&w, other[0] != '\0');
  CHECK(strncmp(other, "iwarp://127.0.0.1:", 18) == 0 && strcmp(other + 18, "0") != 0);
  char little[5];
  CHECK(rrdk_server_listen(w.server, "iwarp://127.0.0.1:0", little, sizeof little, &error) ==
        RRDK_E_LIMIT);

  CHECK_OK(rrdk_server_remove_service_start(w.server, PROGRAM, 1, note, &removed, &error));
  UNTIL(&w, removed == 1);
  CHECK(rrdk_server_remove_service(w.server, PROGRAM, 1, &error) == RRDK_E_NOT_FOUND);
  rrdk_call_begin(w.call, w.program, ECHO);
  CHECK(run(&w) == RRDK_CALL_PROG_UNAVAIL);
  CHECK_OK(rrdk_server_add_service(w.server, w.program, &w.site, &error));
  rrdk_call_begin(w.call, w.program, NULLPROC);
  CHECK(run(&w) == RRDK_CALL_OK);

  rrdk_put_u32(rrdk_call_begin(w.call, w.program, KEEP), 1);
  CHECK(rrdk_call_submit(w.call, count_end, &w.ended));
  UNTIL(&w, w.site.kept != NULL);
  rrdk_server_drain_start(w.server, 60000, note_rest, &drained);
  CHECK(drained == 0);
  rrdk_server_call_reply(w.site.kept);
  UNTIL(&w, drained != 0 && w.ended == 1);
  CHECK(drained == 1 && rrdk_call_status_of(w.call) == RRDK_CALL_OK);
  rrdk_server_close_start(w.server, note, &closed);
  UNTIL(&w, closed == 1);
  CHECK(rrdk_server_listen(w.server, uri, NULL, 0, &error) == RRDK_E_SHUTDOWN);
  return end_world(&w);
}

struct visit {
  int count;
  rrdk_connection_info last;
};

static void visit(const rrdk_connection_info* info, void* argument) {
  struct visit* seen = argument;
  ++seen->count;
  seen->last = *info;
}

#define CHECK_MISSING(call, what)                       \
  do {                                                  \
    error.message[0] = '\0';                            \
    CHECK((call) == RRDK_E_INVALID_ARGUMENT);           \
    CHECK(strcmp(error.message, what " is NULL") == 0); \
    CHECK(error.code == RRDK_E_INVALID_ARGUMENT);       \
  } while (0)

static void visit_none(const rrdk_connection_info* info, void* argument) {
  (void)info;
  (void)argument;
}

/* Set-up functions check their arguments. */
static const char* nothing_is_missed(struct world* w) {
  rrdk_connection* none[1] = {NULL};
  rrdk_server* no_server[1] = {NULL};
  rrdk_runtime* runtime = w->runtime;
  rrdk_server* server = w->server;
  rrdk_client* client = w->client;
  rrdk_registered_memory* registered = NULL;
  rrdk_timer* timer = NULL;
  rrdk_telemetry* telemetry = NULL;
  rrdk_credential* credential = NULL;
  const rrdk_auth_sys identity = {.uid = 1};
  CHECK_MISSING(rrdk_ensure_eal(NULL, 1, &error), "the array of EAL's arguments");
  CHECK_MISSING(rrdk_memory_create(NULL, NULL, &error), "where the handle is to go");
  CHECK_MISSING(rrdk_memory_allocate(NULL, 4096, &registered, &error), "the memory");
  CHECK_MISSING(rrdk_memory_adopt(NULL, w, 4096, -1, 0, &registered, &error), "the memory");
  CHECK_MISSING(rrdk_runtime_create(NULL, NULL, &runtime, &error), "the memory");
  CHECK_MISSING(rrdk_runtime_run_aside(NULL, count_release, w, &error), "the runtime");
  CHECK(rrdk_runtime_run_aside(w->runtime, NULL, w, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK_MISSING(rrdk_timer_create(NULL, 0, NULL, NULL, &timer, &error), "the runtime");
  CHECK_MISSING(rrdk_telemetry_create(NULL, NULL, NULL, 0, NULL, 0, &telemetry, &error),
                "the name of a telemetry");
  CHECK_MISSING(rrdk_telemetry_create("c", NULL, NULL, 1, NULL, 0, &telemetry, &error),
                "an array of a telemetry's sources");
  CHECK(rrdk_telemetry_create("c", NULL, no_server, 1, NULL, 0, &telemetry, &error) ==
        RRDK_E_INVALID_ARGUMENT);
  CHECK(rrdk_telemetry_create("c", NULL, NULL, 0, none, 1, &telemetry, &error) ==
        RRDK_E_INVALID_ARGUMENT);
  CHECK_MISSING(rrdk_program_create(NULL, &w->program, &error), "rrdk_program_options");
  CHECK(w->program == NULL);
  CHECK_OK(rrdk_program_create(&kProgram, &w->program, &error));
  CHECK_MISSING(rrdk_client_create(NULL, NULL, &client, &error), "the runtime");
  CHECK_MISSING(rrdk_client_add_service(w->client, NULL, NULL, &error), "the program");
  CHECK_MISSING(rrdk_client_set_auth(NULL, 0, NULL, 0, &error), "the client");
  CHECK_MISSING(rrdk_client_set_auth_sys(w->client, NULL, &error), "the identity");
  CHECK_MISSING(rrdk_caller_set_auth_sys(NULL, &identity, &error), "the caller");
  CHECK_MISSING(rrdk_caller_set_auth(NULL, 0, NULL, 0, &error), "the caller");
  CHECK_MISSING(rrdk_credential_create_auth_sys(NULL, &credential, &error), "the identity");
  CHECK_MISSING(rrdk_connect(NULL, w->uri, NULL, none, &error), "the client");
  CHECK_MISSING(rrdk_connect_start(w->client, NULL, NULL, none, &error), "the URI to connect to");
  CHECK_MISSING(rrdk_server_create(NULL, NULL, &server, &error), "the runtime");
  CHECK(server == NULL && client == NULL && runtime == NULL && none[0] == NULL);
  CHECK_MISSING(rrdk_server_add_service(w->server, NULL, NULL, &error), "the program");
  CHECK_MISSING(rrdk_server_remove_service(NULL, 1, 1, &error), "the server");
  CHECK_MISSING(rrdk_server_remove_service_start(NULL, 1, 1, NULL, NULL, &error), "the server");
  CHECK_MISSING(rrdk_server_listen(NULL, w->uri, NULL, 0, &error), "the server");
  CHECK_MISSING(rrdk_server_close_connection(NULL, 1, NULL, &error), "the server");
  CHECK_MISSING(rrdk_server_set_limits(NULL, NULL, &error), "the server");
  rrdk_server_visit(w->server, NULL, NULL);
  rrdk_server_visit(w->server, visit_none, NULL);
  CHECK(rrdk_call_create(NULL) == NULL);
  rrdk_encoder* args = rrdk_call_begin(w->call, w->program, ECHO);
  rrdk_put_string(args, NULL);
  CHECK(!rrdk_encoder_ok(args));
  CHECK(run(w) == RRDK_CALL_INVALID_CALL);
  return NULL;
}

static const char* a_connection_is_gone(struct world* w, rrdk_connection* gone) {
  rrdk_connection_info info = {.size = sizeof info};
  uint64_t counted[1] = {77};
  rrdk_receive_sizes sizes = {.size = sizeof sizes};
  struct lines lines = {0};
  CHECK(rrdk_connection_state_of(gone) == RRDK_CLOSED);
  CHECK(rrdk_connection_error(gone, &error) == RRDK_E_SHUTDOWN);
  CHECK(rrdk_connection_caller(gone) == NULL);
  CHECK(!rrdk_connection_get_info(gone, &info));
  CHECK(rrdk_connection_counters(gone, counted, 1) == 0 && counted[0] == 0);
  CHECK(rrdk_connection_version(gone) == 0);
  CHECK(!rrdk_connection_receive_sizes(gone, &sizes));
  CHECK(rrdk_connection_drain(gone, 1) == 0);
  rrdk_connection_close_start(gone);
  rrdk_connection_drain_start(gone, 1);
  rrdk_connection_request_receive_size(gone, 8192);
  rrdk_connection_raise_receive_size(gone, 8192);
  rrdk_set_log_sink(take_line, &lines);
  rrdk_connection_destroy(gone);
  rrdk_set_log_sink(NULL, NULL);
  CHECK(lines.count == 1 && strstr(lines.last, "rrdk_connection_destroy()") != NULL);
  rrdk_call_begin(w->call, w->program, NULLPROC);
  CHECK(run(w) == RRDK_CALL_OK);
  return NULL;
}

const char* missing_and_gone_objects(const char* uri) {
  struct world w;
  BEGIN(begin_world(&w, uri));
  rrdk_program* const first = w.program;
  BEGIN(nothing_is_missed(&w));
  rrdk_connection* gone[4];
  for (int i = 0; i < 4; ++i) {
    CHECK_OK(rrdk_connect(w.client, w.uri, NULL, &gone[i], &error));
    rrdk_connection_destroy(gone[i]);
    for (int k = 0; k <= i; ++k)
      BEGIN(a_connection_is_gone(&w, gone[k]));
  }
  /* The program is destroyed before its server and its call, which keep what they need. */
  rrdk_program_destroy(first);
  rrdk_put_opaque(rrdk_call_begin(w.call, w.program, ECHO), "text", 4);
  rrdk_call_expect_reply(w.call, 8);
  rrdk_program_destroy(w.program);
  w.program = NULL;
  CHECK(run(&w) == RRDK_CALL_OK);
  return end_world(&w);
}

const char* counters_and_stats(const char* uri) {
  struct world w;
  BEGIN(begin_world(&w, uri));
  for (int i = 0; i < 5; ++i) {
    rrdk_call_begin(w.call, w.program, NULLPROC);
    CHECK(run(&w) == RRDK_CALL_OK);
  }
  uint64_t server[RRDK_COUNTERS], client[RRDK_COUNTERS], core[RRDK_COUNTERS];
  rrdk_connection_info info = {.size = sizeof info};
  rrdk_receive_sizes sizes = {.size = sizeof sizes};
  CHECK(rrdk_server_counters(w.server, server, RRDK_COUNTERS) == RRDK_COUNTERS);
  CHECK(server[RRDK_COUNTER_calls_received] == 5 && server[RRDK_COUNTER_replies_sent] == 5);
  CHECK(server[RRDK_COUNTER_connections] == 1 && server[RRDK_COUNTER_connections_accepted] == 1);
  CHECK(rrdk_connection_counters(w.connection, client, RRDK_COUNTERS) == RRDK_COUNTERS);
  CHECK(client[RRDK_COUNTER_calls_ok] == 5 && rrdk_connection_version(w.connection) != 0);
  CHECK(rrdk_runtime_core_counters(w.runtime, 0, core, RRDK_COUNTERS) == RRDK_COUNTERS);
  CHECK(core[RRDK_COUNTER_completions] >= 10);
  CHECK(rrdk_runtime_core_counters(w.runtime, 1, core, RRDK_COUNTERS) == 0);
  CHECK(core[RRDK_COUNTER_completions] == 0);
  CHECK(rrdk_connection_get_info(w.connection, &info) && info.calls == 5 && info.id != 0);
  CHECK(rrdk_connection_receive_sizes(w.connection, &sizes));
  struct visit seen = {0};
  rrdk_server_visit(w.server, visit, &seen);
  CHECK(seen.count == 1 && seen.last.calls == 5 && seen.last.peer[0] != '\0');
  const bool local = seen.last.driver[0] == 's';
  CHECK(seen.last.pid == (local ? getpid() : 0));
  CHECK(seen.last.uid == (local ? getuid() : RRDK_NO_ID));
  CHECK(strncmp(uri, seen.last.driver, strlen(seen.last.driver)) == 0);

  rrdk_server_limits limits = {.size = sizeof limits};
  CHECK(rrdk_server_get_limits(w.server, &limits) && limits.max_connections == 65536);
  limits.max_connections = 3;
  CHECK_OK(rrdk_server_set_limits(w.server, &limits, &error));
  limits.max_connections = 0;
  CHECK(rrdk_server_set_limits(w.server, &limits, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(rrdk_server_get_limits(w.server, &limits) && limits.max_connections == 3);

  rrdk_telemetry* telemetry;
  char* text = malloc(1 << 20);
  CHECK_OK(
      rrdk_telemetry_create("c", w.runtime, &w.server, 1, &w.connection, 1, &telemetry, &error));
  const size_t length = rrdk_telemetry_openmetrics(telemetry, text, 1 << 20);
  CHECK(length == strlen(text) && strstr(text, "rrdk_server_calls_received_total") != NULL);
  CHECK(rrdk_telemetry_openmetrics(telemetry, text, 10) >= 10 && strlen(text) == 9);
  const char* type = NULL;
  CHECK(rrdk_telemetry_answer(telemetry, NULL, text, 1 << 20, &type) == strlen(text) &&
        strstr(type, "text/plain") != NULL && strstr(text, "# EOF") == NULL);
  CHECK(rrdk_telemetry_answer(telemetry, "application/openmetrics-text", text, 1 << 20, &type) ==
            strlen(text) &&
        strstr(type, "openmetrics") != NULL && strstr(text, "# EOF") != NULL);
  CHECK(rrdk_telemetry_content_type("Application/OpenMetrics-Text;q=0.5") == type);
  CHECK(rrdk_telemetry_content_type(NULL) == rrdk_telemetry_content_type("text/plain"));
  free(text);
  rrdk_telemetry_destroy(telemetry);

  CHECK(rrdk_server_close_connection(w.server, seen.last.id + 1, "no", &error) == RRDK_E_NOT_FOUND);
  CHECK_OK(rrdk_server_close_connection(w.server, seen.last.id, NULL, &error));
  UNTIL(&w, rrdk_connection_state_of(w.connection) == RRDK_CLOSED);
  return end_world(&w);
}

const char* captures(const char* uri) {
  struct world w;
  BEGIN(begin_world(&w, uri));
  char file[] = "rrdk-c-test-XXXXXX";
  const int descriptor = mkstemp(file);
  CHECK(descriptor >= 0);
  rrdk_capture_options options;
  rrdk_capture_options_init(&options, sizeof options);
  CHECK(options.message_bytes == 65536);
  options.message_bytes = 100;
  CHECK_OK(rrdk_runtime_start_capture(w.runtime, file, &options, &error));
  CHECK(rrdk_runtime_start_capture(w.runtime, file, NULL, &error) == RRDK_E_INVALID_ARGUMENT);
  rrdk_call_begin(w.call, w.program, NULLPROC);
  CHECK(run(&w) == RRDK_CALL_OK);
  rrdk_capture_counts counts = {.size = 1};
  CHECK(!rrdk_runtime_capture_counts(w.runtime, &counts));
  CHECK(!rrdk_runtime_stop_capture(w.runtime, &counts));
  counts.size = sizeof counts;
  CHECK(rrdk_runtime_capture_counts(w.runtime, &counts) && counts.captured > 0);
  CHECK(rrdk_runtime_stop_capture(w.runtime, &counts) && counts.captured > 0 && counts.lost == 0);
  unsigned char magic[4] = {0};
  CHECK(read(descriptor, magic, sizeof magic) == sizeof magic && magic[0] == 0x0a); /* pcapng */
  close(descriptor);
  unlink(file);
  CHECK(rrdk_runtime_stop_capture(w.runtime, NULL));
  CHECK(rrdk_runtime_capture_counts(w.runtime, &counts) && counts.captured == 0);

  options.file_bytes = 1;
  CHECK(rrdk_runtime_start_capture(w.runtime, file, &options, &error) == RRDK_E_INVALID_ARGUMENT);
  options.size = 3;
  CHECK(rrdk_runtime_start_capture(w.runtime, file, &options, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK_MISSING(rrdk_runtime_start_capture(w.runtime, NULL, NULL, &error), "the file of a capture");
  return end_world(&w);
}

const char* credentials(const char* uri) {
  struct world w;
  BEGIN(begin_world(&w, uri));
  rrdk_auth_sys me = {.stamp = 1, .uid = 2, .gid = 3, .num_gids = 2, .gids = {4, 5}};
  strcpy(me.machine_name, "here");
  rrdk_caller* caller = rrdk_connection_caller(w.connection);
  CHECK_OK(rrdk_caller_set_auth_sys(caller, &me, &error));
  rrdk_call_begin(w.call, w.program, WHO);
  CHECK(run(&w) == RRDK_CALL_OK);
  CHECK(w.site.who.uid == 2 && w.site.who.gid == 3 && w.site.who.num_gids == 2);
  CHECK(w.site.who.gids[1] == 5 && strcmp(w.site.who.machine_name, "here") == 0);
  rrdk_credential* other;
  me.uid = 9;
  CHECK_OK(rrdk_credential_create_auth_sys(&me, &other, &error));
  CHECK(rrdk_call_set_credential(w.call, other));
  rrdk_credential_destroy(other);
  rrdk_call_begin(w.call, w.program, WHO);
  CHECK(run(&w) == RRDK_CALL_OK && w.site.who.uid == 9);
  CHECK(rrdk_call_reset_credential(w.call));
  rrdk_call_begin(w.call, w.program, WHO);
  CHECK(run(&w) == RRDK_CALL_OK && w.site.who.uid == 2);
  CHECK(rrdk_credential_create(7, "", 401, &other, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(rrdk_credential_create(7, NULL, 4, &other, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(other == NULL && rrdk_call_set_credential(w.call, other)); /* no user's */
  rrdk_call_begin(w.call, w.program, WHO);
  CHECK(run(&w) == RRDK_CALL_AUTH_ERROR);
  CHECK(rrdk_call_reset_credential(w.call));
  CHECK_OK(rrdk_credential_create(0, NULL, 0, &other, &error));
  rrdk_credential_destroy(other);
  CHECK_OK(rrdk_client_set_auth_sys(w.client, &me, &error));
  CHECK_OK(rrdk_client_set_auth(w.client, 0, NULL, 0, &error));
  CHECK(rrdk_client_set_auth(w.client, 7, NULL, 401, &error) == RRDK_E_INVALID_ARGUMENT);
  me.num_gids = 17;
  CHECK(rrdk_caller_set_auth_sys(caller, &me, &error) == RRDK_E_INVALID_ARGUMENT);
  me.num_gids = 0;
  memset(me.machine_name, 'x', sizeof me.machine_name);
  CHECK(rrdk_client_set_auth_sys(w.client, &me, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK_OK(rrdk_caller_set_auth(caller, 7, "body", 4, &error));
  rrdk_call_begin(w.call, w.program, WHO);
  CHECK(run(&w) == RRDK_CALL_AUTH_ERROR);
  return end_world(&w);
}

/* ---- Kerberos, in the realm of test/gss/realm.py ---- */

enum { NAME = 1, OPEN, SECRET };

/* What the handler was told of its caller. */
struct caller {
  uint32_t flavor;
  rrdk_gss_protection protection;
  char principal[100];
  int runs;
};

static void note_caller(rrdk_server_call* call, void* context) {
  struct caller* caller = context;
  rrdk_call_security security = {.size = 1};
  const bool is_refused = !rrdk_server_call_security(call, &security) && security.size == 1;
  security.size = sizeof security;
  if (!is_refused || !rrdk_server_call_security(call, &security)) {
    rrdk_server_call_reject(call, RRDK_ACCEPT_SYSTEM_ERR);
    return;
  }
  ++caller->runs;
  caller->flavor = security.flavor;
  caller->protection = security.protection;
  snprintf(caller->principal, sizeof caller->principal, "%s", security.principal);
  rrdk_server_call_reply(call);
}

static const rrdk_procedure kSecured[] = {
    {.number = NAME, .name = "NAME", .handler = note_caller},
    {.number = OPEN,
     .name = "OPEN",
     .handler = note_caller,
     .accepts = RRDK_ACCEPTS_NONE | RRDK_ACCEPTS_SYS},
    {.number = SECRET, .name = "SECRET", .handler = note_caller, .accepts = RRDK_ACCEPTS_PRIVACY}};

/* A server that demands krb5i or better. */
static const char* begin_secured(struct world* w, const char* uri, struct caller* caller,
                                 rrdk_gss_acceptor** acceptor) {
  BEGIN(begin_memory(w));
  rrdk_gss_acceptor_options keys;
  rrdk_gss_acceptor_options_init(&keys, sizeof keys);
  keys.service = "nfs@localhost";
  keys.tcp = "127.0.0.1:0";
  CHECK_OK(rrdk_gss_acceptor_create(&keys, acceptor, &error));
  rrdk_server_options options;
  rrdk_server_options_init(&options, sizeof options);
  options.gss = *acceptor;
  rrdk_program_options program = RRDK_PROGRAM(PROGRAM, 1, "secured", kSecured);
  program.accepts = RRDK_ACCEPTS_INTEGRITY | RRDK_ACCEPTS_PRIVACY;
  CHECK_OK(rrdk_program_create(&program, &w->program, &error));
  CHECK_OK(rrdk_server_create(w->runtime, &options, &w->server, &error));
  CHECK_OK(rrdk_server_add_service(w->server, w->program, caller, &error));
  CHECK_OK(rrdk_server_listen(w->server, uri, w->uri, sizeof w->uri, &error));
  CHECK_OK(rrdk_client_create(w->runtime, NULL, &w->client, &error));
  CHECK_OK(rrdk_connect(w->client, w->uri, NULL, &w->connection, &error));
  w->call = rrdk_call_create(rrdk_connection_caller(w->connection));
  CHECK(w->call != NULL);
  return NULL;
}

static bool is_taken(struct world* w, uint32_t procedure) {
  rrdk_call_begin(w->call, w->program, procedure);
  return run(w) == RRDK_CALL_OK;
}

static bool is_too_weak(struct world* w, uint32_t procedure) {
  rrdk_call_begin(w->call, w->program, procedure);
  return run(w) == RRDK_CALL_AUTH_ERROR && rrdk_call_auth_stat(w->call) == RRDK_AUTH_TOOWEAK;
}

static const char* use_context(struct world* w, rrdk_gss_protection protection) {
  rrdk_credential* alice = NULL;
  CHECK_OK(rrdk_credential_create_gss(rrdk_connection_caller(w->connection), w->program,
                                      "nfs@localhost", protection, NULL, &alice, &error));
  rrdk_caller_set_credential(rrdk_connection_caller(w->connection), alice);
  rrdk_credential_destroy(alice);
  return NULL;
}

static const char* what_an_acceptor_tells(const rrdk_gss_acceptor* acceptor) {
  rrdk_gss_acceptor_stats stats = {.size = 5};
  CHECK(!rrdk_gss_acceptor_get_stats(acceptor, &stats) && stats.established == 0);
  stats.size = sizeof stats;
  CHECK(rrdk_gss_acceptor_get_stats(acceptor, &stats));
  CHECK(stats.contexts + stats.destroyed == 3 && stats.established == 3 && stats.refused == 0);
  CHECK(stats.expired == 0 && stats.evicted == 0);
  CHECK(stats.tcp_refused == 0);
  CHECK(rrdk_gss_acceptor_tcp_port(acceptor) != 0);
  CHECK(!rrdk_gss_acceptor_get_stats(NULL, &stats) && rrdk_gss_acceptor_tcp_port(NULL) == 0);
  return NULL;
}

const char* a_server_that_demands_kerberos(const char* uri) {
  struct world w;
  struct caller caller = {0};
  rrdk_gss_acceptor* acceptor;
  BEGIN(begin_secured(&w, uri, &caller, &acceptor));
  char alice[100];
  snprintf(alice, sizeof alice, "alice@%s", getenv("RRDK_TEST_REALM"));
  const rrdk_auth_sys root = {.uid = 0};
  rrdk_caller* const own = rrdk_connection_caller(w.connection);
  CHECK(is_taken(&w, NULLPROC) && is_too_weak(&w, NAME) && is_too_weak(&w, SECRET));
  CHECK_OK(rrdk_caller_set_auth_sys(own, &root, &error));
  CHECK(is_too_weak(&w, NAME) && is_too_weak(&w, SECRET));
  CHECK(caller.runs == 0 && is_taken(&w, OPEN) && caller.flavor == 1);
  CHECK(caller.protection == RRDK_GSS_NONE && caller.principal[0] == '\0');
  BEGIN(use_context(&w, RRDK_GSS_NONE));
  CHECK(is_too_weak(&w, NAME) && is_too_weak(&w, OPEN) && is_taken(&w, NULLPROC));
  CHECK(caller.runs == 1);
  BEGIN(use_context(&w, RRDK_GSS_INTEGRITY));
  CHECK(is_taken(&w, NAME) && caller.flavor == 6 && caller.protection == RRDK_GSS_INTEGRITY);
  CHECK(strcmp(caller.principal, alice) == 0);
  CHECK(is_too_weak(&w, SECRET) && is_too_weak(&w, OPEN));
  BEGIN(use_context(&w, RRDK_GSS_PRIVACY));
  CHECK(is_taken(&w, SECRET) && caller.protection == RRDK_GSS_PRIVACY);
  CHECK(is_taken(&w, NAME) && strcmp(caller.principal, alice) == 0);
  BEGIN(what_an_acceptor_tells(acceptor));
  BEGIN(end_world(&w));
  rrdk_gss_acceptor_destroy(acceptor);
  return NULL;
}

static rrdk_errc make_acceptor(const rrdk_gss_acceptor_options* options) {
  rrdk_gss_acceptor* acceptor = (rrdk_gss_acceptor*)failure;
  const rrdk_errc code = rrdk_gss_acceptor_create(options, &acceptor, &error);
  if (code == RRDK_OK)
    rrdk_gss_acceptor_destroy(acceptor);
  return acceptor != NULL && code != RRDK_OK ? RRDK_OK : code;
}

const char* acceptors_that_cannot_be_made(void) {
  struct {
    rrdk_gss_acceptor_options options;
    uint64_t more;
  } later;
  rrdk_gss_acceptor_options_init(&later.options, sizeof later);
  CHECK(make_acceptor(&later.options) == RRDK_E_UNSUPPORTED);
  CHECK(rrdk_gss_acceptor_create(NULL, NULL, &error) == RRDK_E_INVALID_ARGUMENT);
  rrdk_gss_acceptor_options usual, odd;
  rrdk_gss_acceptor_options_init(&usual, sizeof usual);
  CHECK(usual.max_contexts == 4096 && usual.max_unfinished == 64 && usual.tcp == NULL);
  CHECK(make_acceptor(&usual) == RRDK_OK && make_acceptor(NULL) == RRDK_OK);
  odd = usual;
  odd.size = 3;
  CHECK(make_acceptor(&odd) == RRDK_E_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "rrdk_gss_acceptor_options::size is 3") != NULL);
  odd = usual;
  odd.max_contexts = 0;
  CHECK(make_acceptor(&odd) == RRDK_E_INVALID_ARGUMENT);
  odd = usual;
  odd.max_unfinished = 0;
  CHECK(make_acceptor(&odd) == RRDK_E_INVALID_ARGUMENT);
  odd = usual;
  odd.max_protected_bytes = 1023;
  CHECK(make_acceptor(&odd) == RRDK_E_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "max_protected_bytes") != NULL);
  odd = usual;
  odd.key_table = "/nonexistent/keys";
  CHECK(make_acceptor(&odd) == RRDK_E_NOT_FOUND);
  CHECK(strstr(error.message, "/nonexistent/keys") != NULL);
  odd = usual;
  odd.service = "other@localhost";
  CHECK(make_acceptor(&odd) == RRDK_E_NOT_FOUND);
  CHECK(strstr(error.message, "'other@localhost'") != NULL);
  odd = usual;
  odd.tcp = "localhost:2049";
  CHECK(make_acceptor(&odd) == RRDK_E_INVALID_ARGUMENT);
  usual.tcp = "127.0.0.1:0";
  rrdk_gss_acceptor* first;
  CHECK_OK(rrdk_gss_acceptor_create(&usual, &first, &error));
  char taken[40];
  snprintf(taken, sizeof taken, "127.0.0.1:%d", rrdk_gss_acceptor_tcp_port(first));
  usual.tcp = taken;
  CHECK(make_acceptor(&usual) == RRDK_E_ADDRESS_IN_USE);
  rrdk_gss_acceptor_destroy(first);
  CHECK(make_acceptor(&usual) == RRDK_OK);
  rrdk_gss_acceptor_destroy(NULL);
  return NULL;
}

struct beats {
  int count;
  rrdk_timer* timer;
};

static void beat(rrdk_timer* timer, void* argument) {
  struct beats* beats = argument;
  if (++beats->count < 3 && timer == beats->timer)
    rrdk_timer_start(timer, rrdk_now_ns());
}

static void aside(void* argument) {
  atomic_store((_Atomic int*)argument, 1);
}

const char* timers_and_tasks(void) {
  struct world w;
  struct beats beats = {0};
  _Atomic int done = 0;
  BEGIN(begin_memory(&w));
  CHECK(rrdk_timer_create(w.runtime, 9, beat, &beats, &beats.timer, &error) ==
        RRDK_E_INVALID_ARGUMENT);
  CHECK(rrdk_timer_create(w.runtime, 0, NULL, &beats, &beats.timer, &error) ==
        RRDK_E_INVALID_ARGUMENT);
  CHECK_OK(rrdk_timer_create(w.runtime, 0, beat, &beats, &beats.timer, &error));
  rrdk_timer_start(beats.timer, rrdk_now_ns());
  UNTIL(&w, beats.count == 3);
  rrdk_timer_start(beats.timer, rrdk_now_ns() + 3600000000000u);
  rrdk_timer_stop(beats.timer);
  rrdk_timer_destroy(beats.timer);
  CHECK_OK(rrdk_runtime_run_aside(w.runtime, aside, &done, &error));
  UNTIL(&w, done == 1);
  CHECK(rrdk_runtime_num_cores(w.runtime) == 1 && rrdk_runtime_num_workers(w.runtime) == 0);
  CHECK(rrdk_runtime_wake_fd(w.runtime, 0) >= 0 && rrdk_runtime_wake_fd(w.runtime, 1) == -1);
  UNTIL(&w, rrdk_runtime_arm_wake(w.runtime, 0));
  return end_world(&w);
}

/* Takes longer than the smallest budget. */
static void slow(rrdk_timer* timer, void* argument) {
  (void)timer;
  const uint64_t end = rrdk_now_ns() + 2000;
  while (rrdk_now_ns() < end) {
  }
  ++*(int*)argument;
}

const char* a_pass_has_a_budget(void) {
  struct world w;
  BEGIN(begin_memory(&w));
  rrdk_runtime_options smallest;
  rrdk_runtime_options_init(&smallest, sizeof smallest);
  CHECK(smallest.pass_budget_us == 100);
  smallest.pass_budget_us = 1;
  rrdk_runtime* runtime = NULL;
  CHECK_OK(rrdk_runtime_create(w.memory, &smallest, &runtime, &error));
  rrdk_runtime_poll(runtime, 0); /* so that timers are started at once */
  int fired = 0;
  rrdk_timer* timers[3];
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(rrdk_timer_create(runtime, 0, slow, &fired, &timers[i], &error));
    rrdk_timer_start(timers[i], rrdk_now_ns());
  }
  for (int passes = 0; fired < 3;) {
    const int before = fired;
    rrdk_runtime_poll(runtime, 0);
    CHECK(fired <= before + 1);
    CHECK(++passes < 1000000);
  }
  for (int i = 0; i < 3; ++i)
    rrdk_timer_destroy(timers[i]);
  rrdk_runtime_destroy(runtime);
  return end_world(&w);
}

/* Its structures and the entries of its table end before `accepts`. */
static const char* a_program_of_an_earlier_release(struct world* w) {
  enum { FORMER = offsetof(rrdk_procedure, accepts) };
  unsigned char table[3 * FORMER];
  for (uint32_t i = 0; i < 3; ++i) {
    const rrdk_procedure procedure = {.number = i, .name = "P", .handler = echo, .accepts = 64};
    memcpy(table + i * FORMER, &procedure, FORMER);
  }
  rrdk_program_options program = kProgram;
  program.size = offsetof(rrdk_program_options, accepts);
  program.procedure_size = FORMER;
  program.procedures = (const rrdk_procedure*)(const void*)table;
  program.num_procedures = 3;
  program.accepts = 64;
  CHECK_OK(rrdk_program_create(&program, &w->program, &error));
  return NULL;
}

const char* options_of_other_releases(void) {
  struct world w;
  BEGIN(begin_memory(&w));
  /* An impossible size: it ends within a member, or is that of a pointer. */
  rrdk_client_options odd;
  rrdk_client_options_init(&odd, sizeof odd);
  odd.size = offsetof(rrdk_client_options, inline_size) + 2;
  CHECK(rrdk_client_create(w.runtime, &odd, &w.client, &error) == RRDK_E_INVALID_ARGUMENT);
  rrdk_client_options_init(&odd, sizeof(rrdk_client_options*));
  CHECK(rrdk_client_create(w.runtime, &odd, &w.client, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "rrdk_client_options_init(&options, sizeof options)") != NULL);
  CHECK_OK(rrdk_client_create(w.runtime, NULL, &w.client, &error));
  CHECK_OK(rrdk_server_create(w.runtime, NULL, &w.server, &error));
  /* A program of an earlier release: members that it does not know are left alone. */
  rrdk_server_options fewer;
  memset(&fewer, 0xee, sizeof fewer);
  rrdk_server_options_init(&fewer, offsetof(rrdk_server_options, replay_min_window_ms));
  CHECK(fewer.replay_min_window_ms == 0xeeeeeeeeu);
  rrdk_server* of_fewer = NULL;
  CHECK_OK(rrdk_server_create(w.runtime, &fewer, &of_fewer, &error));
  uint64_t some[3] = {77, 77, 77};
  CHECK(rrdk_server_counters(of_fewer, some, 2) == rrdk_counter_count());
  CHECK(some[0] == 0 && some[1] == 0 && some[2] == 77);
  rrdk_server_destroy(of_fewer);
  rrdk_server_options_init(&fewer, offsetof(rrdk_server_options, backward_max_queued));
  CHECK_OK(rrdk_server_create(w.runtime, &fewer, &of_fewer, &error));
  rrdk_server_destroy(of_fewer);
  memset(&fewer, 0xee, sizeof fewer);
  rrdk_server_options_init(&fewer, offsetof(rrdk_server_options, gss));
  CHECK_OK(rrdk_server_create(w.runtime, &fewer, &of_fewer, &error));
  rrdk_server_destroy(of_fewer);
  BEGIN(a_program_of_an_earlier_release(&w));
  rrdk_client_options_init(&odd, offsetof(rrdk_client_options, max_queued));
  rrdk_client* of_older = NULL;
  CHECK_OK(rrdk_client_create(w.runtime, &odd, &of_older, &error));
  rrdk_client_destroy(of_older);
  /* A program of the future. */
  struct {
    rrdk_client_options options;
    uint64_t more;
  } later;
  rrdk_client* none = w.client;
  later.more = 5;
  rrdk_client_options_init(&later.options, sizeof later);
  CHECK(later.more == 0 && later.options.credits == 64);
  CHECK(rrdk_client_create(w.runtime, &later.options, &none, &error) == RRDK_E_UNSUPPORTED);
  CHECK(none == NULL && strstr(error.message, "rrdk_client_options::size") != NULL);
  uint64_t more[RRDK_COUNTERS + 1];
  more[RRDK_COUNTERS] = 77;
  CHECK(rrdk_server_counters(w.server, more, RRDK_COUNTERS + 1) == RRDK_COUNTERS);
  CHECK(more[RRDK_COUNTERS] == 0 && rrdk_counter_name(RRDK_COUNTERS) == NULL);
  return end_world(&w);
}

const char* options_that_are_wrong(void) {
  struct world w;
  BEGIN(begin_memory(&w));
  rrdk_client_options client = {0};
  CHECK(rrdk_client_create(w.runtime, &client, &w.client, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "rrdk_client_options_init(") != NULL);
  rrdk_client_options_init(&client, sizeof client);
  client.credits = 0;
  CHECK(rrdk_client_create(w.runtime, &client, &w.client, NULL) == RRDK_E_INVALID_ARGUMENT);
  CHECK(w.client == NULL);
  client.credits = 1;
  client.version = (rrdk_rpc_rdma_version)3;
  CHECK(rrdk_client_create(w.runtime, &client, &w.client, &error) == RRDK_E_UNSUPPORTED);
  CHECK(strstr(error.message, "rrdk_client_options::version") != NULL);
  rrdk_server_options server;
  rrdk_server_options_init(&server, sizeof server);
  server.draft = (rrdk_draft)2;
  CHECK(rrdk_server_create(w.runtime, &server, &w.server, &error) == RRDK_E_UNSUPPORTED);
  server.draft = RRDK_DRAFT_04;
  server.version_one = server.version_two = false;
  CHECK(rrdk_server_create(w.runtime, &server, &w.server, &error) == RRDK_E_INVALID_ARGUMENT);
  rrdk_runtime* runtime;
  rrdk_runtime_options cores;
  rrdk_runtime_options_init(&cores, sizeof cores);
  cores.ring_size = 3;
  CHECK(rrdk_runtime_create(w.memory, &cores, &runtime, &error) == RRDK_E_INVALID_ARGUMENT);
  rrdk_runtime_options_init(&cores, sizeof cores);
  cores.num_worker_cpus = 2;
  CHECK(rrdk_runtime_create(w.memory, &cores, &runtime, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "worker_cpus is NULL") != NULL);
  rrdk_runtime_options_init(&cores, sizeof cores);
  cores.idle = (rrdk_idle_policy)9;
  CHECK(rrdk_runtime_create(w.memory, &cores, &runtime, &error) == RRDK_E_UNSUPPORTED);
  const int nowhere = -2;
  rrdk_runtime_options_init(&cores, sizeof cores);
  cores.poll_cpus = &nowhere;
  cores.num_poll_cpus = 1;
  CHECK(rrdk_runtime_create(w.memory, &cores, &runtime, &error) == RRDK_E_INVALID_ARGUMENT);
  const rrdk_size_class odd = {5, 5};
  rrdk_memory* memory;
  rrdk_memory_options options;
  rrdk_memory_options_init(&options, sizeof options);
  options.classes = &odd;
  options.num_classes = 1;
  CHECK(rrdk_memory_create(&options, &memory, &error) == RRDK_E_INVALID_ARGUMENT);
  options.classes = NULL;
  CHECK(rrdk_memory_create(&options, &memory, &error) == RRDK_E_INVALID_ARGUMENT);
  rrdk_telemetry* telemetry;
  CHECK(rrdk_telemetry_create(NULL, w.runtime, NULL, 0, NULL, 0, &telemetry, &error) ==
        RRDK_E_INVALID_ARGUMENT);

  rrdk_program_options program = kProgram;
  CHECK(rrdk_program_create(NULL, &w.program, &error) == RRDK_E_INVALID_ARGUMENT);
  program.name = NULL;
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_INVALID_ARGUMENT);
  program = kProgram;
  program.procedure_size = sizeof(rrdk_procedure) + 8;
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_UNSUPPORTED);
  program.procedure_size = 0;
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_INVALID_ARGUMENT);
  const rrdk_procedure twice[] = {{.number = 1, .name = "A"}, {.number = 1, .name = "B"}};
  const rrdk_procedure nameless[] = {{.number = 7}};
  program = kProgram;
  program.procedures = twice;
  program.num_procedures = 2;
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_INVALID_ARGUMENT);
  program.procedures = nameless;
  program.num_procedures = 1;
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "procedure 7 has no name") != NULL && w.program == NULL);
  program = kProgram;
  program.accepts = 32; /* a later release's: whom it takes must not become anyone */
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_UNSUPPORTED);
  CHECK(strstr(error.message, "rrdk_program_options::accepts has a value") != NULL);
  const rrdk_procedure later[] = {
      {.number = 1, .name = "LATER", .accepts = RRDK_ACCEPTS_SYS | (uint64_t)1 << 40}};
  program = (rrdk_program_options)RRDK_PROGRAM(PROGRAM, 1, "c", later);
  CHECK(rrdk_program_create(&program, &w.program, &error) == RRDK_E_UNSUPPORTED);
  CHECK(strstr(error.message, "c: LATER: rrdk_procedure::accepts has a value") != NULL);
  CHECK(w.program == NULL);
  return end_world(&w);
}

const char* errors_have_names(void) {
  CHECK(strcmp(rrdk_errc_name(RRDK_OK), "ok") == 0 && rrdk_errc_errno(RRDK_OK) == 0);
  CHECK(strcmp(rrdk_errc_name(RRDK_E_ADDRESS_IN_USE), "address in use") == 0);
  CHECK(rrdk_errc_errno(RRDK_E_ADDRESS_IN_USE) == EADDRINUSE);
  for (int code = RRDK_E_INVALID_ARGUMENT; code <= RRDK_E_SYSTEM + 1; ++code)
    CHECK(rrdk_errc_name((rrdk_errc)code)[0] != '\0' && rrdk_errc_errno((rrdk_errc)code) > 0);
  CHECK(rrdk_errc_of(RRDK_CALL_OK) == RRDK_OK);
  for (int status = RRDK_CALL_TIMEOUT; status <= RRDK_CALL_FULL; ++status) {
    CHECK(rrdk_call_status_name((rrdk_call_status)status)[0] != '\0');
    CHECK(rrdk_errc_of((rrdk_call_status)status) != RRDK_OK);
  }
  CHECK(rrdk_errc_of(RRDK_CALL_TIMEOUT) == RRDK_E_TIMEOUT);
  CHECK(strcmp(rrdk_call_status_name(RRDK_CALL_CONNECTION_LOST), "connection lost") == 0);
  return NULL;
}

const char* memory_of_all_kinds(void) {
  struct world w;
  BEGIN(begin_memory(&w));
  CHECK(rrdk_eal_running() && rrdk_register_thread());
  rrdk_registered_memory* registered;
  CHECK_OK(rrdk_memory_allocate(w.memory, 100000, &registered, &error));
  CHECK(rrdk_registered_memory_size(registered) >= 100000);
  rrdk_span span = rrdk_registered_memory_span(registered, 4096, 1000);
  CHECK(span.data == (char*)rrdk_registered_memory_data(registered) + 4096);
  CHECK(rrdk_memory_contains(w.memory, span));
  rrdk_registered_memory_destroy(registered);
  CHECK(!rrdk_memory_contains(w.memory, span));
  CHECK(rrdk_memory_allocate(w.memory, 0, &registered, &error) == RRDK_E_INVALID_ARGUMENT);
  void* mine = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_OK(rrdk_memory_adopt(w.memory, mine, 8192, -1, 0, &registered, &error));
  CHECK(rrdk_registered_memory_data(registered) == mine);
  rrdk_registered_memory_destroy(registered);
  munmap(mine, 8192);
  CHECK(rrdk_memory_largest_buffer(w.memory) == 1u << 20);
  CHECK(rrdk_buffer_get(w.memory, 1u << 30) == NULL);
  rrdk_memory_destroy(NULL);
  rrdk_runtime_destroy(NULL);
  rrdk_registered_memory_destroy(NULL);
  rrdk_connection_destroy(NULL);
  rrdk_telemetry_destroy(NULL);
  rrdk_buffer_put(NULL);
  return end_world(&w);
}

const char* lines_of_the_log(void) {
  struct world w;
  struct lines lines = {0};
  rrdk_set_log_level(RRDK_LOG_ERROR);
  rrdk_set_log_sink(take_line, &lines);
  BEGIN(begin_world(&w, "shm:@rrdk-c-test-log"));
  CHECK(run(&w) == RRDK_CALL_INVALID_CALL); /* nothing was begun */
  BEGIN(end_world(&w));
  CHECK(lines.count == 1 && strstr(lines.last, "begin()") != NULL);
  rrdk_set_log_sink(NULL, NULL);
  rrdk_set_log_level(RRDK_LOG_INFO);
  return NULL;
}

/**
 * The C API (C11) of RRDK: clients and servers of RPC programs, in both directions. It is the same
 * library as the C++ headers beside this one, under the same names: what they say of rrdk::Client
 * applies to rrdk_client, and so on; this header says what is different in C. It needs no C++
 * compiler or runtime; programs link with librrdk.
 *
 *   void on_read(rrdk_call *call, void *site) {
 *     if (rrdk_call_status_of(call) == RRDK_CALL_OK)
 *       use(rrdk_call_results(call));
 *   }
 *   ...
 *   rrdk_encoder *args = rrdk_call_begin(call, program, READ);
 *   rrdk_put_u64(args, offset);
 *   rrdk_put_u32(args, length);
 *   rrdk_call_offer_buffer(call, rrdk_buffer_get(memory, length), length);  // for the result
 *   rrdk_call_submit(call, on_read, site);
 *
 * Errors: set-up functions return RRDK_OK or a kind of error, and write it with a line of text into
 * `error`, which may be NULL. The object that they would have made is then NULL. The data path has
 * no such errors: calls end with an rrdk_call_status, and encoders and decoders that failed stay
 * failed. rrdk_errc_errno() and rrdk_errc_of() convert.
 *
 * Options: the first field, `size`, says how much of the structure the program knows, so that it
 * runs with later releases. rrdk_..._options_init(&options, sizeof options) sets the defaults; NULL
 * for an options argument means all defaults. For structures that functions fill in
 * (rrdk_connection_info, ...), set `size` to sizeof the structure; with a size that no release had,
 * these functions return false and write nothing. In options such a size is
 * RRDK_E_INVALID_ARGUMENT; a larger one, or an enumeration value that this release does not know,
 * is RRDK_E_UNSUPPORTED. Arrays and strings in options are copied.
 *
 * NULL is allowed for `error`, options, the argument of ..._destroy() and rrdk_buffer_put(), and
 * for completions and callbacks except a timer's. Elsewhere set-up functions return
 * RRDK_E_INVALID_ARGUMENT and name what is missing.
 *
 * Lifetime: a program owns its handles from ..._create() to ..._destroy(), and destroys them in the
 * opposite order: memory > runtime > server > server call and backward client; memory > buffers and
 * registered memory; memory and connection > call; runtime > client, connection and timer;
 * rrdk_gss_acceptor > server; runtime, servers and connections > telemetry. A program
 * (rrdk_program) may be destroyed at any time: objects that were given it keep its table. The
 * library owns the handles that callbacks get, and every `const char*` that is returned.
 *
 * Threads: the rules, also on what callbacks and handlers may do, are those of rrdk/runtime.h,
 * rrdk/client.h, rrdk/server.h, rrdk/service.h and rrdk/timer.h.
 *
 * Waiting: a reactor with one thread makes an embedded runtime, calls rrdk_runtime_poll(), and uses
 * no function that waits while it serves: rrdk_connect(), rrdk_call_submit_and_wait(),
 * rrdk_connection_drain(), rrdk_server_listen(), rrdk_server_drain(), rrdk_server_remove_service(),
 * rrdk_runtime_start_capture(), rrdk_runtime_stop_capture(), rrdk_credential_create_gss(),
 * rrdk_gss_acceptor_create(), rrdk_gss_acceptor_destroy(); rrdk_connection_destroy() before
 * RRDK_CLOSED, rrdk_server_destroy() before it has closed, rrdk_call_destroy() in flight; and, on
 * other threads than the core's, rrdk_call_abandon(), rrdk_timer_stop() and rrdk_timer_destroy().
 *
 * C++ only: captures that begin and end without waiting, fault injection, rpcbind and calls over
 * TCP, statistics of procedures and stages of sampled calls, audits of the pools, network addresses
 * in numbers, extensions of version 2, and RFC 5666's compatibility mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rrdk/release.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
/* NOLINTBEGIN(readability-identifier-naming): names as they are in C */

/* ---- Errors (rrdk/error.h) and how calls end (rrdk/call_status.h) ---- */

/** The kind of an error. Later releases may have more. */
typedef enum rrdk_errc {
  RRDK_OK = 0,
  RRDK_E_INVALID_ARGUMENT, /**< an option or argument is out of range or contradictory */
  RRDK_E_BAD_URI,          /**< an address does not parse, or its scheme has no driver */
  RRDK_E_ADDRESS_IN_USE,   /**< another server has the address */
  RRDK_E_NOT_FOUND,        /**< nothing at the address; no such service or connection */
  RRDK_E_REFUSED,          /**< the peer exists and refused */
  RRDK_E_NOT_A_PEER,       /**< something there does not speak our protocol */
  RRDK_E_PERMISSION,       /**< the operating system forbids it */
  RRDK_E_NO_MEMORY,        /**< memory, hugepages, locked memory or a pool is exhausted */
  RRDK_E_TIMEOUT,          /**< no answer in time */
  RRDK_E_CONNECTION_LOST,  /**< the peer closed, died or broke the protocol */
  RRDK_E_UNSUPPORTED,      /**< this driver, device, build or release cannot do it */
  RRDK_E_LIMIT,            /**< a configured limit forbids it */
  RRDK_E_SHUTDOWN,         /**< the object is being closed */
  RRDK_E_SYSTEM,           /**< a system call failed; the message has its name and reason */
} rrdk_errc;

/**
 * The kind of an error, and a line that says what was at fault and what to do. A longer line is
 * cut.
 */
typedef struct rrdk_error {
  rrdk_errc code;
  char message[508];
} rrdk_error;

/** A description such as "address in use"; "ok" for RRDK_OK. Never NULL. */
const char* rrdk_errc_name(rrdk_errc code);
/** The nearest value of errno.h, positive: EINVAL, EADDRINUSE, ...; 0 for RRDK_OK. */
int rrdk_errc_errno(rrdk_errc code);

/**
 * How a call ended. rrdk/call_status.h says what each value means for the call. Later releases may
 * have more.
 */
typedef enum rrdk_call_status {
  RRDK_CALL_OK = 0,
  RRDK_CALL_TIMEOUT,
  RRDK_CALL_CONNECTION_LOST,
  RRDK_CALL_CANCELLED,
  RRDK_CALL_SHUTDOWN,
  RRDK_CALL_PROG_UNAVAIL,
  RRDK_CALL_PROG_MISMATCH,
  RRDK_CALL_PROC_UNAVAIL,
  RRDK_CALL_GARBAGE_ARGS,
  RRDK_CALL_SYSTEM_ERR,
  RRDK_CALL_RPC_MISMATCH,
  RRDK_CALL_AUTH_ERROR,
  RRDK_CALL_CHUNK_ERROR,
  RRDK_CALL_VERSION_ERROR,
  RRDK_CALL_REMOTE_ERROR,
  RRDK_CALL_MALFORMED_REPLY,
  RRDK_CALL_TOO_LARGE,
  RRDK_CALL_NO_MEMORY,
  RRDK_CALL_INVALID_MEMORY,
  RRDK_CALL_INVALID_CALL,
  RRDK_CALL_FULL,
} rrdk_call_status;

/** A description such as "connection lost". Never NULL. */
const char* rrdk_call_status_name(rrdk_call_status status);
/**
 * The kind of error that corresponds to a status, so that a program can treat both in one place.
 */
rrdk_errc rrdk_errc_of(rrdk_call_status status);

/* ---- Counters (rrdk/counters.h): what is counted, by id and by name ---- */

/**
 * The ids of all counters and gauges, refusals included, as RRDK_COUNTER_waits_share and so on; ids
 * never change. The names are those of the metrics; rrdk_counter_text() says what each counts.
 * Counters of buffers and of procedures (RRDK_COUNTER_calls and those after it) are in the metrics
 * only; here they are 0.
 */
typedef enum rrdk_counter {
#define RRDK_COUNTER(id, enumerator, name, owners, text) RRDK_COUNTER_##name = id,
#define RRDK_GAUGE(id, enumerator, name, owners, text) RRDK_COUNTER_##name = id,
#include "rrdk/counter_table.h"
} rrdk_counter;
/** The number of ids in this header, which are 0 to RRDK_COUNTERS - 1. */
enum {
  RRDK_COUNTERS = 0
#define RRDK_COUNTER(id, enumerator, name, owners, text) +1
#define RRDK_GAUGE(id, enumerator, name, owners, text) +1
#include "rrdk/counter_table.h"
};

/** The number of ids in the library, which may be a later release and have more. */
uint32_t rrdk_counter_count(void);
/**
 * Such as "waits_share"; refusals begin with "refusal_". NULL, here and below, if the id does not
 * exist.
 */
const char* rrdk_counter_name(uint32_t id);
/** "bytes", or "" for counts of what the text says. */
const char* rrdk_counter_unit(uint32_t id);
const char* rrdk_counter_text(uint32_t id); /**< a sentence */
/** Returns true for a gauge: a current value, which may fall. */
bool rrdk_counter_is_gauge(uint32_t id);
/** The id of a name; UINT32_MAX if it does not exist. */
uint32_t rrdk_counter_find(const char* name);

/* ---- EAL (rrdk/eal.h) and the log (rrdk/log.h) ---- */

/**
 * Adopts the running EAL, or starts one with quiet defaults, which the `count` arguments override
 * (EalArguments::kOverDefaults). Must be called in the main thread, before memory is made; a second
 * call does nothing. Errors: RRDK_E_INVALID_ARGUMENT (EAL refused them), RRDK_E_SYSTEM.
 */
rrdk_errc rrdk_ensure_eal(const char* const* arguments, size_t count, rrdk_error* error);
bool rrdk_eal_running(void);
/** Gives the calling thread a cache of buffers. Returns false if EAL has no identity left. */
bool rrdk_register_thread(void);

/** The values of rrdk::LogLevel. */
typedef enum rrdk_log_level {
  RRDK_LOG_ERROR = 0,
  RRDK_LOG_WARNING,
  RRDK_LOG_INFO,
  RRDK_LOG_DEBUG,
} rrdk_log_level;

/** Receives a line without a newline. Must not block; what it logs itself is dropped. */
typedef void (*rrdk_log_sink)(rrdk_log_level level, const char* line, void* user);
/** Sets the sink; NULL restores stderr. */
void rrdk_set_log_sink(rrdk_log_sink sink, void* user);
void rrdk_set_log_level(rrdk_log_level most_verbose);

/* ---- Memory (rrdk/memory.h) ---- */

typedef struct rrdk_memory rrdk_memory;
/** A pool buffer, owned through its handle; rrdk_buffer_put() returns it. */
typedef struct rrdk_buffer rrdk_buffer;
/** Memory that the application sized or mapped, registered for its whole life. */
typedef struct rrdk_registered_memory rrdk_registered_memory;

/** A run of bytes in a buffer or registered memory. Does not own. */
typedef struct rrdk_span {
  void* data;
  uint32_t length;
  uint32_t region;
} rrdk_span;

typedef enum rrdk_hugepages {
  RRDK_HUGEPAGES_PREFER = 0, /**< otherwise ordinary pages, with a log line */
  RRDK_HUGEPAGES_REQUIRE,
  RRDK_HUGEPAGES_NEVER,
} rrdk_hugepages;

/** rrdk::SizeClass. The structure will never grow. */
typedef struct rrdk_size_class {
  uint32_t buffer_size; /**< a power of two of at least 64 */
  uint32_t count;       /**< 0: elastic, as many as needed out of the budget */
} rrdk_size_class;

/** rrdk::MemoryOptions. */
typedef struct rrdk_memory_options {
  size_t size;
  uint64_t bytes;                 /**< the budget; 0: a share of what is free */
  const rrdk_size_class* classes; /**< NULL: 4 KiB, 64 KiB, 256 KiB and 1 MiB, all elastic */
  size_t num_classes;
  const int* numa_nodes; /**< NULL: the node of the calling thread */
  size_t num_numa_nodes;
  rrdk_hugepages hugepages;
  bool prefault;
} rrdk_memory_options;

void rrdk_memory_options_init(rrdk_memory_options* options, size_t size);
/** Errors: as for rrdk::Memory::create(). */
rrdk_errc rrdk_memory_create(const rrdk_memory_options* options, rrdk_memory** memory,
                             rrdk_error* error);
void rrdk_memory_destroy(rrdk_memory* memory);
/**
 * Returns true if every buffer is back in its pool; not to be expected while the runtime exists.
 */
bool rrdk_memory_whole(const rrdk_memory* memory);
/** Returns true if the span is empty or lies inside this memory. Any thread. */
bool rrdk_memory_contains(const rrdk_memory* memory, rrdk_span span);

/** The size of the largest buffer, in bytes. */
uint32_t rrdk_memory_largest_buffer(const rrdk_memory* memory);

/**
 * Returns a buffer of at least `size` bytes, or NULL if the pools are exhausted. Never blocks. Any
 * thread.
 */
rrdk_buffer* rrdk_buffer_get(rrdk_memory* memory, uint32_t size);
/** Returns the buffer to its pool; does nothing for NULL. Any thread. */
void rrdk_buffer_put(rrdk_buffer* buffer);
void* rrdk_buffer_data(const rrdk_buffer* buffer);
uint32_t rrdk_buffer_capacity(const rrdk_buffer* buffer);
/** The buffer's first `length` bytes. */
rrdk_span rrdk_buffer_span(const rrdk_buffer* buffer, uint32_t length);

/** Errors: RRDK_E_INVALID_ARGUMENT (0 bytes), RRDK_E_NO_MEMORY, RRDK_E_SYSTEM. */
rrdk_errc rrdk_memory_allocate(rrdk_memory* memory, size_t bytes,
                               rrdk_registered_memory** registered, rrdk_error* error);
/** As rrdk::Memory::adopt(), which says what descriptor `fd` must be; -1: no descriptor. */
rrdk_errc rrdk_memory_adopt(rrdk_memory* memory, void* address, size_t bytes, int fd,
                            uint64_t fd_offset, rrdk_registered_memory** registered,
                            rrdk_error* error);
void rrdk_registered_memory_destroy(rrdk_registered_memory* registered);
void* rrdk_registered_memory_data(const rrdk_registered_memory* registered);
size_t rrdk_registered_memory_size(const rrdk_registered_memory* registered);
/** A sub-range, which must lie inside the size. */
rrdk_span rrdk_registered_memory_span(const rrdk_registered_memory* registered, size_t offset,
                                      uint32_t length);

/* ---- Cores (rrdk/runtime.h) and timers (rrdk/timer.h) ---- */

typedef struct rrdk_runtime rrdk_runtime;
typedef struct rrdk_timer rrdk_timer;

typedef enum rrdk_idle_policy {
  RRDK_IDLE_BUSY = 0,
  RRDK_IDLE_YIELD,
  RRDK_IDLE_ADAPTIVE,
} rrdk_idle_policy;

/** rrdk::RuntimeOptions. */
typedef struct rrdk_runtime_options {
  size_t size;
  const int* poll_cpus; /**< CPUs of poll threads, -1: not pinned; NULL: the program polls */
  size_t num_poll_cpus;
  const int* worker_cpus; /**< CPUs of worker threads */
  size_t num_worker_cpus;
  uint32_t embedded_cores;
  rrdk_idle_policy idle;
  uint32_t adaptive_us;
  uint32_t ring_size;
  uint32_t stamp_every;
  uint32_t pass_budget_us;
} rrdk_runtime_options;

void rrdk_runtime_options_init(rrdk_runtime_options* options, size_t size);
/** Errors: as for rrdk::Runtime::create(). */
rrdk_errc rrdk_runtime_create(rrdk_memory* memory, const rrdk_runtime_options* options,
                              rrdk_runtime** runtime, rrdk_error* error);
void rrdk_runtime_destroy(rrdk_runtime* runtime);
/**
 * Makes one pass of an embedded core; returns the number of things done. Never blocks. Poll again
 * before anything long (Runtime::poll() in rrdk/runtime.h).
 */
uint32_t rrdk_runtime_poll(rrdk_runtime* runtime, uint32_t core);
/**
 * Readable when the core has work, after rrdk_runtime_arm_wake() returned true. The runtime owns
 * it.
 */
int rrdk_runtime_wake_fd(const rrdk_runtime* runtime, uint32_t core);
/** Prepares to sleep. Returns false if the program must poll instead. */
bool rrdk_runtime_arm_wake(rrdk_runtime* runtime, uint32_t core);
uint32_t rrdk_runtime_num_cores(const rrdk_runtime* runtime);
uint32_t rrdk_runtime_num_workers(const rrdk_runtime* runtime);
/** As rrdk_server_counters(), for one poll core. Returns 0 if there is no such core. Any thread. */
size_t rrdk_runtime_core_counters(const rrdk_runtime* runtime, uint32_t core, uint64_t* values,
                                  size_t count);
/**
 * Runs the task on the helper thread, where it may block. Any thread. Errors:
 * RRDK_E_INVALID_ARGUMENT (no task), RRDK_E_SYSTEM.
 */
rrdk_errc rrdk_runtime_run_aside(rrdk_runtime* runtime, void (*task)(void* argument),
                                 void* argument, rrdk_error* error);

/** rrdk::CaptureOptions (rrdk/capture.h). */
typedef struct rrdk_capture_options {
  size_t size;
  uint32_t message_bytes; /**< kept of each message, Write or Read, 64 to 1048576 */
  uint64_t file_bytes;    /**< the largest size of the file, at least 65536 */
} rrdk_capture_options;
/** rrdk::CaptureCounts. */
typedef struct rrdk_capture_counts {
  size_t size;
  uint64_t captured, lost;
} rrdk_capture_counts;

void rrdk_capture_options_init(rrdk_capture_options* options, size_t size);
/**
 * Writes what the runtime's connections send and receive into `file`, as rrdk/capture.h describes.
 * Waits for the file. Any thread, but not in a handler or callback. Errors: as for
 * Runtime::start_capture().
 */
rrdk_errc rrdk_runtime_start_capture(rrdk_runtime* runtime, const char* file,
                                     const rrdk_capture_options* options, rrdk_error* error);
/**
 * Ends the capture, and waits for the file. Any thread, but not in a handler or callback. Writes
 * its counts, zeros if there was no capture, to `counts`, which may be NULL. Returns false, and
 * goes on, if the size of `counts` is invalid.
 */
bool rrdk_runtime_stop_capture(rrdk_runtime* runtime, rrdk_capture_counts* counts);
/**
 * The counts of the capture in progress; zeros if there is no capture. Any thread. Returns
 * false if `size` is invalid.
 */
bool rrdk_runtime_capture_counts(const rrdk_runtime* runtime, rrdk_capture_counts* counts);
/** Monotonic nanoseconds, the clock of every time in this API. */
uint64_t rrdk_now_ns(void);

/** Called during a pass of the core. May start or stop the timer, but not destroy it. */
typedef void (*rrdk_timer_fire)(rrdk_timer* timer, void* argument);
/** Errors: RRDK_E_INVALID_ARGUMENT (no such core, no `fire`). */
rrdk_errc rrdk_timer_create(rrdk_runtime* runtime, uint32_t core, rrdk_timer_fire fire,
                            void* argument, rrdk_timer** timer, rrdk_error* error);
void rrdk_timer_destroy(rrdk_timer* timer);
void rrdk_timer_start(rrdk_timer* timer, uint64_t due_ns);
void rrdk_timer_stop(rrdk_timer* timer);

/* ---- XDR (rrdk/xdr.h) ---- */

/**
 * Writes a message in order: arguments at a caller, results in a handler. Once failed, it stays
 * failed.
 */
typedef struct rrdk_encoder rrdk_encoder;
/** Reads a message in order: after a failure all values are zeros and all views are empty. */
typedef struct rrdk_decoder rrdk_decoder;

/**
 * Bytes of a message, in place, usually in one run and otherwise in several. Valid until the call
 * has ended (arguments), or until it is begun again (results); those of a placed result, as long as
 * their buffer. All fields but `length` are the library's.
 */
typedef struct rrdk_view {
  const void* fragments;
  size_t num_fragments;
  uint32_t offset;
  uint32_t length;
} rrdk_view;

/**
 * Returns the contiguous bytes from `offset` on, and their number in *length; NULL if none are
 * left.
 */
const void* rrdk_view_run(const rrdk_view* view, uint32_t offset, uint32_t* length);
/** Copies view->length bytes. */
void rrdk_view_copy(const rrdk_view* view, void* to);

/** Whether bulk data may move in a chunk of its own, if the procedure's entry allows it. */
typedef enum rrdk_ddp {
  RRDK_DDP_NO = 0,
  RRDK_DDP_ELIGIBLE,
} rrdk_ddp;

bool rrdk_encoder_ok(const rrdk_encoder* encoder);
/** The number of bytes written so far. */
uint64_t rrdk_encoder_position(const rrdk_encoder* encoder);
void rrdk_encoder_fail(rrdk_encoder* encoder);
/**
 * A position in the stream to return to, for a handler that fails with half its results written.
 */
typedef struct rrdk_mark {
  uint64_t inside[9];
} rrdk_mark;
rrdk_mark rrdk_encoder_mark(const rrdk_encoder* encoder);
/** `mark` must be of this encoder, with no return to an earlier mark since. */
void rrdk_encoder_rewind(rrdk_encoder* encoder, const rrdk_mark* mark);
void rrdk_put_u32(rrdk_encoder* encoder, uint32_t value);
void rrdk_put_u64(rrdk_encoder* encoder, uint64_t value);
void rrdk_put_bool(rrdk_encoder* encoder, bool value);
/** opaque<>: count, a copy of the bytes, pad. */
void rrdk_put_opaque(rrdk_encoder* encoder, const void* bytes, size_t length);
/** opaque[n]: a copy of the bytes and pad, no count. */
void rrdk_put_fixed(rrdk_encoder* encoder, const void* bytes, size_t length);
/** string<>, up to its NUL. */
void rrdk_put_string(rrdk_encoder* encoder, const char* text);
/** opaque<> by reference: the bytes must not change for as long as Encoder::put_item() says. */
void rrdk_put_item(rrdk_encoder* encoder, rrdk_span bytes, rrdk_ddp ddp);
/** The most segments of one item, after empty ones were left out and adjacent ones joined. */
enum { RRDK_MAX_ITEM_SEGMENTS = 1024 };
/**
 * As rrdk_put_item(), out of several pieces of memory, which are one item to the peer. The array is
 * copied. With more than RRDK_MAX_ITEM_SEGMENTS the encoder fails, as Encoder::put_item() says; the
 * call then ends with RRDK_CALL_TOO_LARGE, or is answered SYSTEM_ERR. NULL with pieces makes it
 * fail, too.
 *
 *   rrdk_span pages[256];
 *   size_t count = cache_find(file, offset, length, pages);
 *   rrdk_put_item_segments(results, pages, count, RRDK_DDP_ELIGIBLE);
 */
void rrdk_put_item_segments(rrdk_encoder* encoder, const rrdk_span* segments, size_t num_segments,
                            rrdk_ddp ddp);
/** As rrdk_put_item(), but the message takes the buffer over, in any case. NULL makes it fail. */
void rrdk_put_buffer(rrdk_encoder* encoder, rrdk_buffer* buffer, uint32_t length, rrdk_ddp ddp);
/** opaque<> from another message, without a copy if possible. */
void rrdk_put_view(rrdk_encoder* encoder, const rrdk_view* view);

bool rrdk_decoder_ok(const rrdk_decoder* decoder);
/**
 * Returns true if nothing failed and nothing is left, as must be the case after a procedure's
 * arguments.
 */
bool rrdk_decoder_at_end(const rrdk_decoder* decoder);
uint64_t rrdk_decoder_remaining(const rrdk_decoder* decoder);
void rrdk_decoder_fail(rrdk_decoder* decoder);
uint32_t rrdk_get_u32(rrdk_decoder* decoder);
uint64_t rrdk_get_u64(rrdk_decoder* decoder);
bool rrdk_get_bool(rrdk_decoder* decoder);
/** opaque<max>. */
rrdk_view rrdk_get_opaque(rrdk_decoder* decoder, uint32_t max);
/** opaque[length]. */
rrdk_view rrdk_get_fixed(rrdk_decoder* decoder, uint32_t length);
/** opaque<max> that is DDP-eligible: the placed bytes, if it was placed. */
rrdk_view rrdk_get_item(rrdk_decoder* decoder, uint32_t max);
/**
 * Copies a string<> into `to` with a NUL at its end, and returns its length. A string that does not
 * fit in `size` bytes, or contains a NUL, makes the decoder fail; `to` is then empty.
 */
size_t rrdk_get_string(rrdk_decoder* decoder, char* to, size_t size);

/* ---- Programs (rrdk/service.h, rrdk/binding.h): one table for both ends ---- */

/** The right, and the duty, to answer one call; see below. */
typedef struct rrdk_server_call rrdk_server_call;
typedef struct rrdk_program rrdk_program;

/** May be called by several threads at once. */
typedef void (*rrdk_handler)(rrdk_server_call* call, void* context);

/**
 * The number of an entry that stands for every procedure without one, except 0; it must be the last
 * in the table. These calls are counted together, and the handler asks rrdk_server_call_procedure()
 * which procedure was called. Without such an entry they are refused with PROC_UNAVAIL (RFC 5531
 * section 9). See rrdk::kOtherProcedures in rrdk/binding.h.
 */
#define RRDK_OTHER_PROCEDURES UINT32_MAX

/**
 * Which callers a program or a procedure takes: these values, combined by |, as rrdk::Acceptance in
 * rrdk/gss.h, which says what they mean and what becomes of other calls. Later releases may have
 * more.
 */
typedef enum rrdk_acceptance {
  RRDK_ACCEPTS_ANY = 0,       /**< any flavour; of a procedure: what its program takes */
  RRDK_ACCEPTS_NONE = 1,      /**< AUTH_NONE */
  RRDK_ACCEPTS_SYS = 2,       /**< AUTH_SYS: who the client says its user is */
  RRDK_ACCEPTS_AUTHENTIC = 4, /**< RPCSEC_GSS with RRDK_GSS_NONE, "krb5" */
  RRDK_ACCEPTS_INTEGRITY = 8, /**< with RRDK_GSS_INTEGRITY, "krb5i" */
  RRDK_ACCEPTS_PRIVACY = 16,  /**< with RRDK_GSS_PRIVACY, "krb5p" */
  RRDK_ACCEPTS_GSS = 28,      /**< RPCSEC_GSS, whatever the protection */
} rrdk_acceptance;

/** Describes one procedure. If all but number and name are zero, it is inline and idempotent. */
typedef struct rrdk_procedure {
  uint32_t number;      /**< or RRDK_OTHER_PROCEDURES */
  const char* name;     /**< for statistics and messages */
  rrdk_handler handler; /**< NULL: this program only calls it */
  void* context;       /**< for the handler, in place of the context of rrdk_server_add_service() */
  bool worker;         /**< true: the handler runs on a worker */
  bool not_idempotent; /**< true: running it twice differs from running it once */
  bool no_long_calls;  /**< rrdk::ProcedureBinding describes these four */
  uint8_t eligible_args;
  uint8_t eligible_results;
  uint32_t fixed_results; /**< bytes of results without the variable parts; a multiple of four */
  uint64_t accepts;       /**< rrdk_acceptance, in place of the program's; procedure 0 takes all */
} rrdk_procedure;

typedef struct rrdk_program_options {
  size_t size;
  size_t procedure_size; /**< sizeof (rrdk_procedure), which RRDK_PROGRAM sets */
  uint32_t program, version;
  const char* name;
  const rrdk_procedure* procedures; /**< in ascending order of their numbers, each once */
  size_t num_procedures;
  bool chunk_breach_is_transport_error; /**< rrdk::BreachAnswer */
  /** rrdk_acceptance: whose calls are served. A client cannot verify Kerberos: a program that it
      offers and that takes RPCSEC_GSS only denies all but procedure 0. */
  uint64_t accepts;
} rrdk_program_options;

/** An initializer for rrdk_program_options; `procedures` is an array. */
#define RRDK_PROGRAM(number, version_, name_, procedures_) \
  {sizeof(rrdk_program_options),                           \
   sizeof(rrdk_procedure),                                 \
   (number),                                               \
   (version_),                                             \
   (name_),                                                \
   (procedures_),                                          \
   sizeof(procedures_) / sizeof((procedures_)[0]),         \
   false,                                                  \
   RRDK_ACCEPTS_ANY}

/**
 * Copies the options. Errors: RRDK_E_INVALID_ARGUMENT, with a message that names the procedure;
 * RRDK_E_UNSUPPORTED (a larger `size`, or a bit of `accepts`, that this release does not know).
 */
rrdk_errc rrdk_program_create(const rrdk_program_options* options, rrdk_program** program,
                              rrdk_error* error);
/**
 * Objects that use the program keep its table, whose memory is kept until the process ends; so make
 * programs once, not for each connection.
 */
void rrdk_program_destroy(rrdk_program* program);

/* ---- Who may call (rrdk/rpc.h), who is there (rrdk/connection.h) ---- */

/** An AUTH_SYS credential (RFC 5531 appendix A). */
typedef struct rrdk_auth_sys {
  uint32_t stamp, uid, gid;
  uint32_t num_gids; /**< at most 16 */
  uint32_t gids[16];
  char machine_name[256];
} rrdk_auth_sys;

/** accept_stat and auth_stat of RFC 5531 section 9, with the numbers used there. */
typedef enum rrdk_accept_stat {
  RRDK_ACCEPT_PROG_UNAVAIL = 1,
  RRDK_ACCEPT_PROG_MISMATCH = 2,
  RRDK_ACCEPT_PROC_UNAVAIL = 3,
  RRDK_ACCEPT_GARBAGE_ARGS = 4,
  RRDK_ACCEPT_SYSTEM_ERR = 5,
} rrdk_accept_stat;
typedef enum rrdk_auth_stat {
  RRDK_AUTH_OK = 0,
  RRDK_AUTH_BADCRED = 1,
  RRDK_AUTH_REJECTEDCRED = 2,
  RRDK_AUTH_BADVERF = 3,
  RRDK_AUTH_REJECTEDVERF = 4,
  RRDK_AUTH_TOOWEAK = 5,
  RRDK_AUTH_INVALIDRESP = 6,
  RRDK_AUTH_FAILED = 7,
  RRDK_RPCSEC_GSS_CREDPROBLEM = 13, /**< RFC 2203 */
  RRDK_RPCSEC_GSS_CTXPROBLEM = 14,
} rrdk_auth_stat;

/** No user or group id: the peer is not a process of this host. */
#define RRDK_NO_ID UINT32_MAX

/** rrdk::EndedBy: what ended a connection. */
typedef enum rrdk_ended_by {
  RRDK_ENDED_BY_NOBODY, /**< it has not ended */
  RRDK_ENDED_BY_PEER,
  RRDK_ENDED_BY_PROGRAM,
  RRDK_ENDED_BY_LIMIT,
  RRDK_ENDED_BY_NETWORK
} rrdk_ended_by;

/** One word, such as "peer". Never NULL. */
const char* rrdk_ended_by_name(rrdk_ended_by by);

/** rrdk::ConnectionInfo: a snapshot of one connection. */
typedef struct rrdk_connection_info {
  size_t size;
  uint64_t id;       /**< 0: there is no connection */
  char peer[128];    /**< "pid 4711 (uid 1000)", "10.0.0.1:52114" */
  char driver[16];   /**< "shm", "iwarp" or "verbs" */
  int32_t pid;       /**< 0: not a process of this host, or not visible */
  uint32_t uid, gid; /**< of a process of this host (shm); otherwise RRDK_NO_ID */
  uint32_t core, version, send_size, receive_size, credits, in_progress;
  uint64_t calls, replies, calls_rejected, transport_errors, rdma_read_bytes, rdma_written_bytes,
      protocol_breaches, age_ns, idle_ns;
  /** rrdk::Ending: what ended it, and why. */
  rrdk_ended_by ended_by;
  rrdk_errc ending_code;      /**< RRDK_OK: it has not ended */
  const char* ending_refusal; /**< what the peer did, such as "no answers", or NULL */
  char ending[256];           /**< in words; "" while the connection is up */
} rrdk_connection_info;

/* ---- Calls (rrdk/call.h) ---- */

/** The end of a connection through which calls are made; see the functions that return one. */
typedef struct rrdk_caller rrdk_caller;
/** One call at a time; reusable. */
typedef struct rrdk_call rrdk_call;

bool rrdk_caller_alive(const rrdk_caller* caller);
const char* rrdk_caller_address(const rrdk_caller* caller);
uint32_t rrdk_caller_core(const rrdk_caller* caller);
/** Errors: RRDK_E_INVALID_ARGUMENT (more than 16 groups, no NUL in the name). */
rrdk_errc rrdk_caller_set_auth_sys(rrdk_caller* caller, const rrdk_auth_sys* identity,
                                   rrdk_error* error);
/** Errors: RRDK_E_INVALID_ARGUMENT (more than 400 bytes, or `body` is NULL and `length` is not 0).
 */
rrdk_errc rrdk_caller_set_auth(rrdk_caller* caller, uint32_t flavor, const void* body,
                               size_t length, rrdk_error* error);
/** As rrdk::Caller::room(): how many more calls are taken. 0 if `caller` is NULL. Any thread. */
uint32_t rrdk_caller_room(rrdk_caller* caller);
/**
 * As rrdk::Caller::on_room(): `callback` is called once after a refusal, when there is room for
 * `mark` calls. NULL ends it. Does nothing if `caller` is NULL.
 */
void rrdk_caller_on_room(rrdk_caller* caller, uint32_t mark, void (*callback)(void* argument),
                         void* argument);

/**
 * A credential that any number of calls share (rrdk::SharedCredential). Any thread. It refers to
 * nothing else, so it may be destroyed at any time; calls that were given it keep its contents.
 */
typedef struct rrdk_credential rrdk_credential;
/** AUTH_SYS. Errors: RRDK_E_INVALID_ARGUMENT (more than 16 groups, no NUL in the name). */
rrdk_errc rrdk_credential_create_auth_sys(const rrdk_auth_sys* identity,
                                          rrdk_credential** credential, rrdk_error* error);
/**
 * Any flavour; `body` is copied, and is defined by the flavour. Flavour 0 without a body is
 * AUTH_NONE. The verifier of calls stays AUTH_NONE. Errors: RRDK_E_INVALID_ARGUMENT (more than 400
 * bytes, or `body` is NULL and `length` is not 0).
 */
rrdk_errc rrdk_credential_create(uint32_t flavor, const void* body, size_t length,
                                 rrdk_credential** credential, rrdk_error* error);
void rrdk_credential_destroy(rrdk_credential* credential);

/** rrdk::GssProtection: what RPCSEC_GSS protects. */
typedef enum rrdk_gss_protection {
  RRDK_GSS_NONE = 1,      /**< who calls, and which procedure; "krb5" in NFS */
  RRDK_GSS_INTEGRITY = 2, /**< also arguments and results, against changes; "krb5i" */
  RRDK_GSS_PRIVACY = 3    /**< also hides them; "krb5p" */
} rrdk_gss_protection;
/**
 * A security context of RPCSEC_GSS with Kerberos, as rrdk::establish_context() in
 * rrdk/gss_context.h: it is made by calls of procedure 0 of `program` through `caller`, and waited
 * for. Any number of calls, connections and threads may use it then. `target` is the service as
 * "service@host"; `principal` says whose ticket is used, and NULL is the default one.
 *
 *   rrdk_credential* alice;
 *   if (rrdk_credential_create_gss(caller, program, "nfs@server.example.org", RRDK_GSS_PRIVACY,
 *                                  NULL, &alice, &error) != RRDK_OK)
 *     return refuse(error.message);
 *   rrdk_caller_set_credential(caller, alice);
 *
 * Once the server has forgotten the context, another one is established while calls wait. Destroy
 * it by rrdk_credential_destroy(). When no connection, client and call has it any more either, the
 * server is told to forget the context (rrdk/gss_context.h).
 *
 * Errors: RRDK_E_INVALID_ARGUMENT (no such protection, or called on a poll core),
 * RRDK_E_NOT_FOUND (no ticket, or the KDC knows no such service), RRDK_E_REFUSED (by the server),
 * RRDK_E_NOT_A_PEER (it takes no RPCSEC_GSS), RRDK_E_UNSUPPORTED (no MIT Kerberos here), and what a
 * call with a token may end with, such as RRDK_E_TIMEOUT and RRDK_E_CONNECTION_LOST.
 */
rrdk_errc rrdk_credential_create_gss(rrdk_caller* caller, const rrdk_program* program,
                                     const char* target, rrdk_gss_protection protection,
                                     const char* principal, rrdk_credential** credential,
                                     rrdk_error* error);
/**
 * For all calls of the caller that set none of their own. NULL is AUTH_NONE. Does nothing if
 * `caller` is NULL. Any thread.
 */
void rrdk_caller_set_credential(rrdk_caller* caller, const rrdk_credential* credential);

/** Called during a pass of the connection's core; the call may be begun again, or destroyed. */
typedef void (*rrdk_completion)(rrdk_call* call, void* argument);

/** Returns NULL if the heap has no memory for it, or `caller` is NULL. */
rrdk_call* rrdk_call_create(rrdk_caller* caller);
/**
 * The call must not be in flight, except in its completion. Otherwise it is cancelled, and the
 * mistake is logged.
 */
void rrdk_call_destroy(rrdk_call* call);
/** Returns the encoder of the arguments, valid until rrdk_call_submit(). */
rrdk_encoder* rrdk_call_begin(rrdk_call* call, const rrdk_program* program, uint32_t procedure);
/**
 * As rrdk::Call::set_credential(). NULL, which a create function that failed leaves, is AUTH_NONE:
 * no user's.
 */
bool rrdk_call_set_credential(rrdk_call* call, const rrdk_credential* credential);
/** As rrdk::Call::reset_credential(): the connection's credential holds again. */
bool rrdk_call_reset_credential(rrdk_call* call);

/**
 * For use between begin and submit, as the functions of rrdk::Call with these names. The peer may
 * access memory that is offered, and what rrdk_put_item() refers to, until the call has ended or,
 * if rrdk_call_on_released() is used, until its callback, which may come later.
 */
void rrdk_call_offer(rrdk_call* call, const rrdk_span* segments, size_t num_segments);
/** Takes the buffer over. NULL makes the call end with RRDK_CALL_NO_MEMORY. */
void rrdk_call_offer_buffer(rrdk_call* call, rrdk_buffer* buffer, uint32_t length);
void rrdk_call_expect_reply(rrdk_call* call, uint64_t bytes);
void rrdk_call_forbid_ddp(rrdk_call* call, uint32_t growth);
void rrdk_call_set_timeout_ms(rrdk_call* call, uint32_t timeout);
void rrdk_call_set_retransmit(rrdk_call* call, bool retransmit);
void rrdk_call_on_released(rrdk_call* call, void (*released)(void* argument), void* argument);

/**
 * Returns false if the call is refused, and `completion` is not called. rrdk_call_status_of() is
 * RRDK_CALL_FULL when as many calls wait as max_queued allows: submit it again later, without
 * beginning it again; RRDK_CALL_NO_MEMORY when others must end first: begin it again later;
 * rrdk_caller_on_room() says when. Other reasons are mistakes, which are logged.
 */
bool rrdk_call_submit(rrdk_call* call, rrdk_completion completion, void* argument);
/** Waits until the call has ended. */
rrdk_call_status rrdk_call_submit_and_wait(rrdk_call* call);
/**
 * Ends the call with RRDK_CALL_CANCELLED; the completion still comes. Memory offered to the server
 * may stay lent to it, or cost the connection; Call::cancel() says when. Any thread.
 */
void rrdk_call_cancel(rrdk_call* call);
/** As rrdk_call_cancel(), but the completion does not come any more once this has returned. */
void rrdk_call_abandon(rrdk_call* call);
/** Any thread. */
bool rrdk_call_in_flight(const rrdk_call* call);
/** Valid in its completion and afterwards, until it is submitted again. */
rrdk_call_status rrdk_call_status_of(const rrdk_call* call);
/**
 * After the call has ended: returns true if the server may have seen it. If it returns false, the
 * server never saw the call, so it may be made again.
 */
bool rrdk_call_sent(const rrdk_call* call);
/** The results, after RRDK_CALL_OK, until the call is begun again. */
rrdk_decoder* rrdk_call_results(rrdk_call* call);
/** Returns the buffer of the k-th offer, from 0, to the caller; NULL if there is no such buffer. */
rrdk_buffer* rrdk_call_take_offered(rrdk_call* call, uint32_t k);
/**
 * The versions that the server speaks, after RRDK_CALL_PROG_MISMATCH and RRDK_CALL_RPC_MISMATCH.
 */
uint32_t rrdk_call_mismatch_low(const rrdk_call* call);
uint32_t rrdk_call_mismatch_high(const rrdk_call* call);
/** After RRDK_CALL_AUTH_ERROR: an rrdk_auth_stat, or another number that the server sent. */
uint32_t rrdk_call_auth_stat(const rrdk_call* call);

/** rrdk::TransportError. */
typedef struct rrdk_transport_error {
  size_t size;
  uint32_t version, code, low, high, maximum, write_chunk, length;
} rrdk_transport_error;
/**
 * The server's error, after RRDK_CALL_CHUNK_ERROR, RRDK_CALL_VERSION_ERROR and
 * RRDK_CALL_REMOTE_ERROR. Returns false if `size` is invalid.
 */
bool rrdk_call_transport_error(const rrdk_call* call, rrdk_transport_error* error);

/* ---- Interceptors (rrdk/interceptor.h) ---- */

/** rrdk::Admission: what `before` decides about a call that came in. */
typedef enum rrdk_admission_kind {
  RRDK_ENTER = 0, /**< the handler is entered */
  RRDK_REJECT,    /**< `reason` is an rrdk_accept_stat */
  RRDK_DENY,      /**< `reason` is an rrdk_auth_stat */
  RRDK_DROP,      /**< the connection is closed */
} rrdk_admission_kind;
typedef struct rrdk_admission {
  rrdk_admission_kind kind;
  uint32_t reason;
} rrdk_admission;

/**
 * rrdk::ServiceInterceptor. Either function may be NULL. In both, `call` is valid until the
 * function returns, for the functions that take a const rrdk_server_call. `auth_stat` goes with
 * RRDK_CALL_AUTH_ERROR.
 */
typedef struct rrdk_service_interceptor {
  rrdk_admission (*before)(const rrdk_server_call* call, uint64_t* note, void* context);
  void (*after)(const rrdk_server_call* call, rrdk_call_status status, uint32_t auth_stat,
                uint64_t note, void* context);
  void* context;
} rrdk_service_interceptor;

/** rrdk::CallIdentity, valid until the function that gets it returns. */
typedef struct rrdk_call_identity {
  const char* address;
  uint32_t core, program, version, procedure, xid;
  uint32_t auth_flavor;
  const void* credential; /**< the body */
  size_t credential_length;
} rrdk_call_identity;

/** rrdk::CallInterceptor. Either function may be NULL. */
typedef struct rrdk_call_interceptor {
  rrdk_call_status (*before)(const rrdk_call_identity* call, uint64_t* note, void* context);
  void (*after)(const rrdk_call_identity* call, rrdk_call_status status, uint32_t auth_stat,
                uint64_t note, void* context);
  void* context;
} rrdk_call_interceptor;

/* ---- Clients (rrdk/client.h) ---- */

typedef struct rrdk_client rrdk_client;
typedef struct rrdk_connection rrdk_connection;

/** Versions of RPC-over-RDMA (rrdk/version.h). */
typedef enum rrdk_rpc_rdma_version {
  RRDK_RPC_RDMA_ONE = 0,
  RRDK_RPC_RDMA_TWO,
  RRDK_RPC_RDMA_AUTO,
} rrdk_rpc_rdma_version;
typedef enum rrdk_draft {
  RRDK_DRAFT_04 = 0,
  RRDK_DRAFT_00,
} rrdk_draft;

/** rrdk::ClientOptions and Version2ClientOptions, which describe each field. */
typedef struct rrdk_client_options {
  size_t size;
  rrdk_rpc_rdma_version version;
  rrdk_draft draft;
  uint32_t version_memory_ms;
  uint32_t credits;
  uint32_t inline_size;
  bool properties;
  uint32_t max_receive_size;
  uint64_t max_call, max_reply;
  uint32_t connect_timeout_ms;
  uint32_t call_timeout_ms;
  uint32_t lend_ms;
  uint32_t starved_ms;
  uint32_t chunk_threshold;
  bool pad_write_chunks, one_segment;
  bool reconnect;
  uint32_t reconnect_first_delay_ms, reconnect_max_delay_ms, reconnect_give_up_ms;
  bool retransmit;
  uint32_t keepalive_ms, keepalive_patience;
  const rrdk_program* keepalive_program;
  uint32_t backward_credits;
  bool backward_chunks;
  uint64_t max_backward_chunk_bytes;
  uint32_t max_queued;
  rrdk_call_interceptor interceptor;            /**< kept until the process ends, like a program: */
  rrdk_service_interceptor service_interceptor; /**< use few different ones */
} rrdk_client_options;

void rrdk_client_options_init(rrdk_client_options* options, size_t size);
/** Errors: RRDK_E_INVALID_ARGUMENT, RRDK_E_UNSUPPORTED. */
rrdk_errc rrdk_client_create(rrdk_runtime* runtime, const rrdk_client_options* options,
                             rrdk_client** client, rrdk_error* error);
/** Its connections may outlive it. */
void rrdk_client_destroy(rrdk_client* client);
/** Offers a program that servers may call on its connections; must precede the first connection. */
rrdk_errc rrdk_client_add_service(rrdk_client* client, const rrdk_program* program, void* context,
                                  rrdk_error* error);
/** Sets the credential that later connections begin with. */
rrdk_errc rrdk_client_set_auth(rrdk_client* client, uint32_t flavor, const void* body,
                               size_t length, rrdk_error* error);
rrdk_errc rrdk_client_set_auth_sys(rrdk_client* client, const rrdk_auth_sys* identity,
                                   rrdk_error* error);
/** For later connections. NULL is AUTH_NONE. Does nothing if `client` is NULL. */
void rrdk_client_set_credential(rrdk_client* client, const rrdk_credential* credential);

/** Later releases may have more. */
typedef enum rrdk_connection_state {
  RRDK_CONNECTING = 0,
  RRDK_UP,
  RRDK_LOST,
  RRDK_RECONNECTING,
  RRDK_CLOSED,
} rrdk_connection_state;

/** A name such as "reconnecting". Never NULL. */
const char* rrdk_connection_state_name(rrdk_connection_state state);
/** `reason` is NULL for RRDK_CONNECTING and RRDK_UP, and valid until the callback returns. */
typedef void (*rrdk_on_state)(rrdk_connection* connection, rrdk_connection_state state,
                              const rrdk_error* reason, void* argument);

/** rrdk::ConnectOptions. */
typedef struct rrdk_connect_options {
  size_t size;
  int core; /**< -1: the least loaded one */
  rrdk_on_state on_state;
  void* argument;
} rrdk_connect_options;

void rrdk_connect_options_init(rrdk_connect_options* options, size_t size);
/**
 * Starts to connect, and returns at once: calls may be made, and wait for the connection. At
 * RRDK_CLOSED `on_state` may destroy the connection, even before this has returned, which is then
 * RRDK_E_SHUTDOWN. Errors: RRDK_E_INVALID_ARGUMENT, RRDK_E_BAD_URI; others are reported to
 * `on_state`.
 */
rrdk_errc rrdk_connect_start(rrdk_client* client, const char* uri,
                             const rrdk_connect_options* options, rrdk_connection** connection,
                             rrdk_error* error);
/**
 * As rrdk_connect_start(), and waits until the connection is up. If it fails, the handle that
 * `on_state` was given is no longer valid when this returns. Errors: as for
 * rrdk::Client::connect().
 */
rrdk_errc rrdk_connect(rrdk_client* client, const char* uri, const rrdk_connect_options* options,
                       rrdk_connection** connection, rrdk_error* error);
/**
 * Closes; waits at most 5 seconds, and not at all after RRDK_CLOSED. Destroying it again only logs
 * an error. Other functions then treat it as closed: no caller (NULL), no information (false), no
 * counters and no version (0). The handle is never reused for another connection.
 */
void rrdk_connection_destroy(rrdk_connection* connection);
/** Ends all calls with RRDK_CALL_SHUTDOWN, and closes; `on_state` reports it. Any thread. */
void rrdk_connection_close_start(rrdk_connection* connection);
/** Closes when all calls have ended, at the latest after `timeout_ms`. Any thread. */
void rrdk_connection_drain_start(rrdk_connection* connection, uint32_t timeout_ms);
/** As rrdk_connection_drain_start(), and waits. Returns the number of calls that had not ended. */
uint32_t rrdk_connection_drain(rrdk_connection* connection, uint32_t timeout_ms);
rrdk_connection_state rrdk_connection_state_of(const rrdk_connection* connection);
/** Why the connection broke, or why the last attempt failed; RRDK_OK if neither happened. */
rrdk_errc rrdk_connection_error(const rrdk_connection* connection, rrdk_error* error);
/** For calls on the connection; valid as long as the connection. */
rrdk_caller* rrdk_connection_caller(rrdk_connection* connection);
/** Returns false if `size` is invalid. */
bool rrdk_connection_get_info(const rrdk_connection* connection, rrdk_connection_info* info);
/** As request_receive_size() and raise_receive_size() in rrdk/version2.h. Any thread. */
void rrdk_connection_request_receive_size(rrdk_connection* connection, uint32_t bytes);
void rrdk_connection_raise_receive_size(rrdk_connection* connection, uint32_t bytes);

/** rrdk::ReceiveSizes. */
typedef struct rrdk_receive_sizes {
  size_t size;
  uint32_t own, peer;
  uint64_t asked, ended, refused, own_changes, peer_changes;
} rrdk_receive_sizes;
/** Returns false if `size` is invalid. */
bool rrdk_connection_receive_sizes(const rrdk_connection* connection, rrdk_receive_sizes* sizes);

/**
 * The version of RPC-over-RDMA in which calls are sent. With RRDK_RPC_RDMA_AUTO, 2 is certain only
 * after a call has ended successfully. 0: not known yet. Any thread.
 */
uint32_t rrdk_connection_version(const rrdk_connection* connection);
/** As rrdk_server_counters(). Returns 0 if the connection has been destroyed. Any thread. */
size_t rrdk_connection_counters(const rrdk_connection* connection, uint64_t* values, size_t count);

/* ---- Kerberos at a server (rrdk/gss.h) ---- */

/**
 * Verifies calls with RPCSEC_GSS. It refuses nothing by itself: `accepts` of a program and of its
 * procedures says which callers are taken, and handlers ask rrdk_server_call_security() who calls.
 *
 *   rrdk_gss_acceptor_options keys;
 *   rrdk_gss_acceptor_options_init(&keys, sizeof keys);
 *   keys.service = "nfs@server.example.org";
 *   rrdk_gss_acceptor *acceptor;
 *   if (rrdk_gss_acceptor_create(&keys, &acceptor, &error) != RRDK_OK)
 *     return refuse(error.message);
 *   server_options.gss = acceptor;
 *   program_options.accepts = RRDK_ACCEPTS_INTEGRITY | RRDK_ACCEPTS_PRIVACY;  // krb5i or better
 *
 * One may serve several servers; destroy it after them. Create and destroy it on any thread, but
 * not in a handler or callback, since that reads files and waits, and not in a child of fork().
 */
typedef struct rrdk_gss_acceptor rrdk_gss_acceptor;

/** rrdk::GssAcceptorOptions, which describe each field. A string may be NULL, which is "". */
typedef struct rrdk_gss_acceptor_options {
  size_t size;
  const char* service;   /**< "nfs@server.example.org"; NULL: each one in the key table */
  const char* key_table; /**< a path; NULL: what KRB5_KTNAME names, or /etc/krb5.keytab */
  uint32_t max_contexts, max_unfinished, max_protected_bytes;
  const char* tcp; /**< where contexts can be made by TCP, too, "0.0.0.0:2049"; NULL: nowhere */
} rrdk_gss_acceptor_options;

void rrdk_gss_acceptor_options_init(rrdk_gss_acceptor_options* options, size_t size);
/**
 * Finds the keys, which reads files, and starts the thread that checks new contexts. Errors:
 * RRDK_E_NOT_FOUND (no key table, or no key of that service), RRDK_E_INVALID_ARGUMENT (a limit, the
 * name of the service, or `tcp`), RRDK_E_UNSUPPORTED (no MIT Kerberos here), RRDK_E_SYSTEM; with
 * `tcp` also RRDK_E_ADDRESS_IN_USE and RRDK_E_PERMISSION.
 */
rrdk_errc rrdk_gss_acceptor_create(const rrdk_gss_acceptor_options* options,
                                   rrdk_gss_acceptor** acceptor, rrdk_error* error);
/** Waits until all tokens that have come are checked, which may take as long as reading files. */
void rrdk_gss_acceptor_destroy(rrdk_gss_acceptor* acceptor);

/** rrdk::GssAcceptorStats, which describe each field. */
typedef struct rrdk_gss_acceptor_stats {
  size_t size;
  uint64_t contexts, established, refused, expired, evicted, destroyed, tcp_refused;
} rrdk_gss_acceptor_stats;
/** Returns false if `size` is invalid, or `acceptor` is NULL. Any thread. */
bool rrdk_gss_acceptor_get_stats(const rrdk_gss_acceptor* acceptor, rrdk_gss_acceptor_stats* stats);
/** The port of `tcp`; 0 if contexts are not made by TCP. Any thread. */
uint16_t rrdk_gss_acceptor_tcp_port(const rrdk_gss_acceptor* acceptor);

/* ---- Servers (rrdk/server.h) ---- */

typedef struct rrdk_server rrdk_server;
/**
 * A connection on which calls come in. The library owns it; it is valid from on_open to on_close,
 * and while a call that came on it has not been answered. The handle is never reused for another
 * connection: used later it gives 0, NULL or false.
 */
typedef struct rrdk_server_connection rrdk_server_connection;

/**
 * rrdk::ServerOptions, which describe each field, rrdk::ReplayOptions (replay_...) and
 * Version2ServerOptions.
 */
typedef struct rrdk_server_options {
  size_t size;
  bool version_one, version_two;
  rrdk_draft draft;
  uint32_t credits, first_credits;
  bool private_receives;
  uint32_t inline_size;
  bool properties;
  uint32_t max_receive_size;
  uint64_t max_call, max_reply, max_chunk_bytes;
  uint32_t backward_credits;
  bool backward_chunks;
  uint32_t backward_timeout_ms, backward_lend_ms;
  uint32_t max_connections, max_connections_per_client;
  uint32_t first_call_timeout_ms, idle_timeout_ms, send_timeout_ms;
  uint32_t replay_entries, replay_bytes, replay_clients, replay_max_reply, replay_window_ms;
  bool replay_always;
  uint64_t replay_total_bytes;
  /**
   * Decides whether a client gets a connection. Any value other than RRDK_OK refuses, and the
   * client is sent `reason->message`, if something is written there. If NULL, all are accepted.
   */
  rrdk_errc (*on_open)(rrdk_server_connection* connection, rrdk_error* reason, void* argument);
  /**
   * `reason` has the code and the text, and is valid until the callback returns.
   * rrdk_server_connection_get_info() has what ended the connection, and the refusal; call it here
   * at the latest.
   */
  void (*on_close)(rrdk_server_connection* connection, const rrdk_error* reason, void* argument);
  void* connection_argument;
  uint32_t replay_min_window_ms;
  uint8_t replay_ipv4_prefix;
  bool replay_run_unprotected;
  uint32_t backward_max_queued;
  rrdk_service_interceptor interceptor;       /**< kept until the process ends, like a program: */
  rrdk_call_interceptor backward_interceptor; /**< use few different ones */
  rrdk_gss_acceptor* gss; /**< must outlive the server; NULL: RPCSEC_GSS is not verified */
} rrdk_server_options;

void rrdk_server_options_init(rrdk_server_options* options, size_t size);
/** Errors: RRDK_E_INVALID_ARGUMENT, RRDK_E_UNSUPPORTED. */
rrdk_errc rrdk_server_create(rrdk_runtime* runtime, const rrdk_server_options* options,
                             rrdk_server** server, rrdk_error* error);
/** Closes; waits at most 5 seconds, and not at all once it has closed. */
void rrdk_server_destroy(rrdk_server* server);
/** `context` is passed to handlers of procedures without a context of their own. */
rrdk_errc rrdk_server_add_service(rrdk_server* server, const rrdk_program* program, void* context,
                                  rrdk_error* error);
/**
 * Waits for the passes in progress, and for handlers of this service in workers. Errors:
 * RRDK_E_NOT_FOUND, RRDK_E_INVALID_ARGUMENT.
 */
rrdk_errc rrdk_server_remove_service(rrdk_server* server, uint32_t program, uint32_t version,
                                     rrdk_error* error);
/**
 * As rrdk_server_remove_service(), without waiting: `removed` is called once, on core 0. Errors:
 * RRDK_E_NOT_FOUND.
 */
rrdk_errc rrdk_server_remove_service_start(rrdk_server* server, uint32_t program, uint32_t version,
                                           void (*removed)(void* argument), void* argument,
                                           rrdk_error* error);
/** Bytes that suffice for any URI that rrdk_server_listen() writes. */
#define RRDK_URI_BYTES 512
/**
 * Listens; waits for name look-ups and drivers. Writes the URI with what the system chose to
 * `bound`, which has `bound_size` bytes; NULL if it is not wanted. Errors: as for
 * rrdk::Server::listen(); RRDK_E_LIMIT: the server listens, but the URI does not fit.
 */
rrdk_errc rrdk_server_listen(rrdk_server* server, const char* uri, char* bound, size_t bound_size,
                             rrdk_error* error);
/** Exactly one of `uri` and `error` is NULL; the other is valid until the callback returns. */
typedef void (*rrdk_listening)(const char* uri, const rrdk_error* error, void* argument);
void rrdk_server_listen_start(rrdk_server* server, const char* uri, rrdk_listening listening,
                              void* argument);
/** Existing connections stay. */
void rrdk_server_stop_listening(rrdk_server* server);
/**
 * Drains, and waits. Returns the number of connections that were closed before they had finished; 0
 * means a clean end.
 */
uint32_t rrdk_server_drain(rrdk_server* server, uint32_t timeout_ms);
/** As rrdk_server_drain(), without waiting: `drained` is called once, on core 0. */
void rrdk_server_drain_start(rrdk_server* server, uint32_t timeout_ms,
                             void (*drained)(uint32_t rest, void* argument), void* argument);
/**
 * Closes all connections. `closed` is called once, on core 0, where the server may be destroyed.
 */
void rrdk_server_close_start(rrdk_server* server, void (*closed)(void* argument), void* argument);
/**
 * Ends one connection, which its on_close reports. `reason` may be NULL. Errors: RRDK_E_NOT_FOUND.
 */
rrdk_errc rrdk_server_close_connection(rrdk_server* server, uint64_t id, const char* reason,
                                       rrdk_error* error);
/**
 * Calls `visitor` with a snapshot of every connection. `info` is valid until it returns, which may
 * take time.
 */
void rrdk_server_visit(const rrdk_server* server,
                       void (*visitor)(const rrdk_connection_info* info, void* argument),
                       void* argument);

/** rrdk::ServerLimits: what can be changed while calls are served. */
typedef struct rrdk_server_limits {
  size_t size;
  uint32_t max_connections, max_connections_per_client;
  uint32_t first_call_timeout_ms, idle_timeout_ms, send_timeout_ms;
} rrdk_server_limits;
/** Returns false if `size` is invalid. */
bool rrdk_server_get_limits(const rrdk_server* server, rrdk_server_limits* limits);
/** Errors: RRDK_E_INVALID_ARGUMENT, RRDK_E_UNSUPPORTED; then no limit has changed. */
rrdk_errc rrdk_server_set_limits(rrdk_server* server, const rrdk_server_limits* limits,
                                 rrdk_error* error);

/**
 * Writes what the server has counted, as Server::stats(), into the program's array: `values[id]`
 * for the first `count` ids, 0 for those that the server does not count or the library does not
 * know. Returns the number of ids in the library. Any thread.
 *
 *   uint64_t values[RRDK_COUNTERS];
 *   rrdk_server_counters(server, values, RRDK_COUNTERS);
 *   printf("%" PRIu64 " calls\n", values[RRDK_COUNTER_calls_received]);
 */
size_t rrdk_server_counters(const rrdk_server* server, uint64_t* values, size_t count);

uint64_t rrdk_server_connection_id(const rrdk_server_connection* connection);
/** Returns false if `size` is invalid. */
bool rrdk_server_connection_get_info(const rrdk_server_connection* connection,
                                     rrdk_connection_info* info);
void* rrdk_server_connection_context(const rrdk_server_connection* connection);
void rrdk_server_connection_set_context(rrdk_server_connection* connection, void* context);

/* ---- Answering (rrdk::ServerCall in rrdk/service.h) ---- */

/**
 * A handler gets the call and answers it exactly once: by rrdk_server_call_reply(),
 * ..._reply_after(), ..._reject(), ..._reject_versions(), ..._deny() or ..._drop(), at once or
 * later, on any thread. The arguments stay valid until then. The answer ends the handle, which is
 * never reused for another call. A second answer, on any thread, only logs an error; the other
 * functions then return 0, NULL, false or empty, or an encoder or decoder that has failed.
 * Encoders, decoders and views obtained before the answer must not be used after it.
 */
uint32_t rrdk_server_call_program(const rrdk_server_call* call);
uint32_t rrdk_server_call_version(const rrdk_server_call* call);
uint32_t rrdk_server_call_procedure(const rrdk_server_call* call);
uint32_t rrdk_server_call_xid(const rrdk_server_call* call);
/** As rrdk::ServerCall::wanted(): false once an answer cannot reach the caller any more. */
bool rrdk_server_call_wanted(const rrdk_server_call* call);
/** The credential's flavour (RFC 5531 section 8.2), and its body. */
uint32_t rrdk_server_call_auth_flavor(const rrdk_server_call* call);
rrdk_view rrdk_server_call_credential(const rrdk_server_call* call);
/** Returns false if the flavour is not AUTH_SYS, or the credential is malformed. */
bool rrdk_server_call_auth_sys(const rrdk_server_call* call, rrdk_auth_sys* identity);
/** rrdk::CallSecurity. Only a `principal` that is not empty was proven. */
typedef struct rrdk_call_security {
  size_t size;
  uint32_t flavor;                /**< as rrdk_server_call_auth_flavor() */
  rrdk_gss_protection protection; /**< RRDK_GSS_NONE unless there is a principal */
  const char* principal; /**< "alice@EXAMPLE.ORG", or ""; never NULL. Valid until the answer */
} rrdk_call_security;
/** Returns false if `size` is invalid. Any thread. */
bool rrdk_server_call_security(const rrdk_server_call* call, rrdk_call_security* security);
rrdk_server_connection* rrdk_server_call_connection(const rrdk_server_call* call);
rrdk_decoder* rrdk_server_call_args(rrdk_server_call* call);
rrdk_encoder* rrdk_server_call_results(rrdk_server_call* call);
/**
 * A buffer for rrdk_put_buffer(), which counts as the client's; NULL if the pools are exhausted.
 */
rrdk_buffer* rrdk_server_call_result_buffer(rrdk_server_call* call, uint32_t size);
/**
 * `released` is called once, on the connection's poll core, when nothing refers to memory of the
 * results any more, possibly before rrdk_server_call_reply() returns. Without it, memory that was
 * given to rrdk_put_item() must not change until the connection has ended.
 */
void rrdk_server_call_on_released(rrdk_server_call* call, void (*released)(void* argument),
                                  void* argument);
/** As request_receive_size() and raise_receive_size() in rrdk/version2.h. */
void rrdk_server_call_request_receive_size(rrdk_server_call* call, uint32_t bytes);
void rrdk_server_call_raise_receive_size(rrdk_server_call* call, uint32_t bytes);
/** Returns false if `size` is invalid. */
bool rrdk_server_call_receive_sizes(const rrdk_server_call* call, rrdk_receive_sizes* sizes);

/**
 * The six functions that answer. `status` is an rrdk_accept_stat, and `reason` an rrdk_auth_stat;
 * any other number is sent as SYSTEM_ERR, or as TOOWEAK.
 */
void rrdk_server_call_reply(rrdk_server_call* call);
/** `delay_ns` is at most 60 s. */
void rrdk_server_call_reply_after(rrdk_server_call* call, uint64_t delay_ns);
void rrdk_server_call_reject(rrdk_server_call* call, uint32_t status);
/**
 * Answers PROG_MISMATCH (RFC 5531 section 9) with these versions, unchecked; what was written to
 * the results is dropped. rrdk_server_call_reject() sends the versions that are offered here.
 */
void rrdk_server_call_reject_versions(rrdk_server_call* call, uint32_t low, uint32_t high);
void rrdk_server_call_deny(rrdk_server_call* call, uint32_t reason);
/** Does not answer, and closes the connection. */
void rrdk_server_call_drop(rrdk_server_call* call);

/* ---- The other direction (rrdk::BackwardClient in rrdk/server.h) ---- */

/** A client as its server calls it. The caller must release it. */
typedef struct rrdk_backward_client rrdk_backward_client;
/** Errors: RRDK_E_UNSUPPORTED, RRDK_E_CONNECTION_LOST, RRDK_E_NO_MEMORY. */
rrdk_errc rrdk_server_call_backward_client(rrdk_server_call* call, rrdk_backward_client** client,
                                           rrdk_error* error);
void rrdk_backward_client_release(rrdk_backward_client* client);
/** For calls to the client; valid until it is released. */
rrdk_caller* rrdk_backward_client_caller(rrdk_backward_client* client);
bool rrdk_backward_client_takes_chunks(const rrdk_backward_client* client);

/* ---- Metrics (rrdk/telemetry.h) ---- */

typedef struct rrdk_telemetry rrdk_telemetry;
/**
 * The objects given must outlive it. `runtime` may be NULL, which omits cores and buffers. Errors:
 * RRDK_E_INVALID_ARGUMENT (the name, or a server or connection that is NULL or gone).
 */
rrdk_errc rrdk_telemetry_create(const char* name, rrdk_runtime* runtime,
                                rrdk_server* const* servers, size_t num_servers,
                                rrdk_connection* const* connections, size_t num_connections,
                                rrdk_telemetry** telemetry, rrdk_error* error);
void rrdk_telemetry_destroy(rrdk_telemetry* telemetry);
/**
 * Writes all metrics in OpenMetrics' text format, with a NUL at the end. Returns their length
 * without the NUL; if that is not less than `size`, the text was cut, and a larger `to` is needed.
 */
size_t rrdk_telemetry_openmetrics(const rrdk_telemetry* telemetry, char* to, size_t size);
/**
 * As rrdk_telemetry_openmetrics(), in the format that an HTTP reader asks for: `accept` is the
 * value of its Accept header, or NULL. Sets *content_type, unless it is NULL, to the value of the
 * answer's header, a constant.
 */
size_t rrdk_telemetry_answer(const rrdk_telemetry* telemetry, const char* accept, char* to,
                             size_t size, const char** content_type);
/**
 * The content type that rrdk_telemetry_answer() has for `accept`, a constant: one of a few. An HTTP
 * server that has several readers at once makes one answer for each.
 */
const char* rrdk_telemetry_content_type(const char* accept);

/* NOLINTEND(readability-identifier-naming) */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

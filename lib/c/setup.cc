// What a program sets up first, from C: EAL, the log, memory, cores, timers; and metrics, the
// release, and error messages.
#include <mutex>

#include "c/handles.h"
#include "rrdk/eal.h"
#include "rrdk/log.h"
#include "rrdk/release.h"
#include "rrdk/telemetry.h"
#include "rrdk/timer.h"

struct rrdk_timer {
  std::unique_ptr<rrdk::Timer> timer;
  rrdk_timer_fire fire;
  void* argument;
};

struct rrdk_telemetry {
  std::unique_ptr<rrdk::Telemetry> telemetry;
};

namespace rrdk::c {
namespace {

static_assert(static_cast<int>(LogLevel::kError) == RRDK_LOG_ERROR &&
              static_cast<int>(LogLevel::kDebug) == RRDK_LOG_DEBUG &&
              static_cast<int>(HugepagePolicy::kNever) == RRDK_HUGEPAGES_NEVER &&
              static_cast<int>(IdlePolicy::kAdaptive) == RRDK_IDLE_ADAPTIVE);

static_assert(static_cast<int>(CallStatus::kOk) == RRDK_CALL_OK &&
              static_cast<int>(CallStatus::kSystemErr) == RRDK_CALL_SYSTEM_ERR &&
              static_cast<int>(CallStatus::kMalformedReply) == RRDK_CALL_MALFORMED_REPLY &&
              static_cast<int>(CallStatus::kFull) == RRDK_CALL_FULL);

struct Sink {
  rrdk_log_sink sink;
  void* user;
};

// The sink in use. One that was replaced is freed when it no longer runs, and the last one never,
// since threads may log while the process ends.
void replace_sink(rrdk_log_sink sink, void* user) {
  static std::mutex mutex;
  static auto& current = *new std::unique_ptr<Sink>;
  std::lock_guard lock(mutex);
  std::unique_ptr<Sink> next;
  if (sink != nullptr) {
    next = std::make_unique<Sink>(Sink{sink, user});
    set_log_sink(
        [](LogLevel level, const char* line, void* to) {
          auto& mine = *static_cast<Sink*>(to);
          mine.sink(static_cast<rrdk_log_level>(level), line, mine.user);
        },
        next.get());
  } else {
    set_log_sink(nullptr);
  }
  current = std::move(next);
}

Result<void> check(const rrdk_memory_options& o) {
  if (!knows(o.hugepages, RRDK_HUGEPAGES_NEVER))
    return tl::unexpected(unknown("rrdk_memory_options::hugepages"));
  if (o.classes == nullptr && o.num_classes != 0)
    return tl::unexpected(missing("rrdk_memory_options::classes"));
  if (o.numa_nodes == nullptr && o.num_numa_nodes != 0)
    return tl::unexpected(missing("rrdk_memory_options::numa_nodes"));
  return {};
}

Result<void> check(const rrdk_runtime_options& o) {
  if (!knows(o.idle, RRDK_IDLE_ADAPTIVE))
    return tl::unexpected(unknown("rrdk_runtime_options::idle"));
  if (o.poll_cpus == nullptr && o.num_poll_cpus != 0)
    return tl::unexpected(missing("rrdk_runtime_options::poll_cpus"));
  if (o.worker_cpus == nullptr && o.num_worker_cpus != 0)
    return tl::unexpected(missing("rrdk_runtime_options::worker_cpus"));
  return {};
}

template <typename From, typename To>
void copy_array(const From* from, size_t count, std::vector<To>& to) {
  if (from != nullptr)
    to.assign(from, from + count);
}

rrdk_memory_options memory_defaults() {
  const MemoryOptions d;
  return {.size = sizeof(rrdk_memory_options),
          .bytes = d.bytes,
          .classes = nullptr,
          .num_classes = 0,
          .numa_nodes = nullptr,
          .num_numa_nodes = 0,
          .hugepages = static_cast<rrdk_hugepages>(d.hugepages),
          .prefault = d.prefault};
}

MemoryOptions options_of(const rrdk_memory_options& o) {
  MemoryOptions options = {.bytes = o.bytes,
                           .hugepages = static_cast<HugepagePolicy>(o.hugepages),
                           .prefault = o.prefault};
  if (o.classes != nullptr) {
    options.classes.clear();
    for (size_t i = 0; i < o.num_classes; ++i)
      options.classes.push_back({o.classes[i].buffer_size, o.classes[i].count});
  }
  copy_array(o.numa_nodes, o.num_numa_nodes, options.numa_nodes);
  return options;
}

rrdk_runtime_options runtime_defaults() {
  const RuntimeOptions d;
  return {.size = sizeof(rrdk_runtime_options),
          .poll_cpus = nullptr,
          .num_poll_cpus = 0,
          .worker_cpus = nullptr,
          .num_worker_cpus = 0,
          .embedded_cores = d.embedded_cores,
          .idle = static_cast<rrdk_idle_policy>(d.idle),
          .adaptive_us = d.adaptive_us,
          .ring_size = d.ring_size,
          .stamp_every = d.stamp_every,
          .pass_budget_us = d.pass_budget_us};
}

RuntimeOptions options_of(const rrdk_runtime_options& o) {
  RuntimeOptions options = {.embedded_cores = o.embedded_cores,
                            .idle = static_cast<IdlePolicy>(o.idle),
                            .adaptive_us = o.adaptive_us,
                            .ring_size = o.ring_size,
                            .stamp_every = o.stamp_every,
                            .pass_budget_us = o.pass_budget_us};
  copy_array(o.poll_cpus, o.num_poll_cpus, options.poll_cpus);
  copy_array(o.worker_cpus, o.num_worker_cpus, options.worker_cpus);
  return options;
}

rrdk_capture_options capture_defaults() {
  const CaptureOptions d;
  return {.size = sizeof(rrdk_capture_options),
          .message_bytes = d.message_bytes,
          .file_bytes = d.file_bytes};
}

rrdk_capture_counts counts_of(const CaptureCounts& counts) {
  return {.size = sizeof(rrdk_capture_counts), .captured = counts.captured, .lost = counts.lost};
}

rrdk_errc give_registered(Result<RegisteredMemory>&& made, rrdk_registered_memory** to,
                          rrdk_error* error) {
  return give(std::move(made), to, error, [](RegisteredMemory memory) {
    return handle_of(new RegisteredMemory(std::move(memory)));
  });
}

// Returns null if there is no such counter.
const CounterInfo* counter_of(uint32_t id) noexcept {
  return id < counter_count() ? counter_info(static_cast<Counter>(id)) : nullptr;
}

}  // namespace
}  // namespace rrdk::c

using namespace rrdk;
using c::of;

rrdk_errc rrdk_ensure_eal(const char* const* arguments, size_t count, rrdk_error* error) {
  if (arguments == nullptr && count != 0)
    return c::tell(c::missing("the array of EAL's arguments"), error);
  if (std::any_of(arguments, arguments + count, [](const char* word) { return word == nullptr; }))
    return c::tell(c::missing("one of EAL's arguments"), error);
  const std::vector<std::string> words(arguments, arguments + count);
  return c::give(ensure_eal(words, EalArguments::kOverDefaults), error);
}

bool rrdk_eal_running() {
  return eal_running();
}

bool rrdk_register_thread() {
  return register_thread();
}

void rrdk_set_log_sink(rrdk_log_sink sink, void* user) {
  c::replace_sink(sink, user);
}

void rrdk_set_log_level(rrdk_log_level most_verbose) {
  set_log_level(static_cast<LogLevel>(most_verbose));
}

void rrdk_memory_options_init(rrdk_memory_options* options, size_t size) {
  c::copy_defaults(c::memory_defaults(), options, size);
}

rrdk_errc rrdk_memory_create(const rrdk_memory_options* options, rrdk_memory** memory,
                             rrdk_error* error) {
  if (c::lacks(memory, {}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_memory_options all = c::memory_defaults();
  if (auto known = c::copy_in(options, all, "rrdk_memory_options"); !known)
    return c::tell(known.error(), error);
  if (auto right = c::check(all); !right)
    return c::tell(right.error(), error);
  return c::give(Memory::create(c::options_of(all)), memory, error);
}

void rrdk_memory_destroy(rrdk_memory* memory) {
  if (memory != nullptr)  // its operator delete uses the object
    delete c::behind(memory);
}

uint32_t rrdk_memory_largest_buffer(const rrdk_memory* memory) {
  return of(memory).largest_buffer();
}

bool rrdk_memory_whole(const rrdk_memory* memory) {
  return of(memory).whole();
}

bool rrdk_memory_contains(const rrdk_memory* memory, rrdk_span span) {
  return of(memory).contains(c::span_of(span));
}

rrdk_errc rrdk_memory_allocate(rrdk_memory* memory, size_t bytes,
                               rrdk_registered_memory** registered, rrdk_error* error) {
  if (c::lacks(registered, {{memory, "the memory"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give_registered(of(memory).allocate(bytes), registered, error);
}

rrdk_errc rrdk_memory_adopt(rrdk_memory* memory, void* address, size_t bytes, int fd,
                            uint64_t fd_offset, rrdk_registered_memory** registered,
                            rrdk_error* error) {
  if (c::lacks(registered, {{memory, "the memory"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give_registered(of(memory).adopt(address, bytes, fd, fd_offset), registered, error);
}

void rrdk_registered_memory_destroy(rrdk_registered_memory* registered) {
  delete c::behind(registered);
}

void* rrdk_registered_memory_data(const rrdk_registered_memory* registered) {
  return of(registered).data();
}

size_t rrdk_registered_memory_size(const rrdk_registered_memory* registered) {
  return of(registered).size();
}

rrdk_span rrdk_registered_memory_span(const rrdk_registered_memory* registered, size_t offset,
                                      uint32_t length) {
  return c::span_of(of(registered).span(offset, length));
}

void rrdk_runtime_options_init(rrdk_runtime_options* options, size_t size) {
  c::copy_defaults(c::runtime_defaults(), options, size);
}

rrdk_errc rrdk_runtime_create(rrdk_memory* memory, const rrdk_runtime_options* options,
                              rrdk_runtime** runtime, rrdk_error* error) {
  if (c::lacks(runtime, {{memory, "the memory"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_runtime_options all = c::runtime_defaults();
  if (auto known = c::copy_in(options, all, "rrdk_runtime_options"); !known)
    return c::tell(known.error(), error);
  if (auto right = c::check(all); !right)
    return c::tell(right.error(), error);
  return c::give(Runtime::create(of(memory), c::options_of(all)), runtime, error);
}

void rrdk_runtime_destroy(rrdk_runtime* runtime) {
  delete c::behind(runtime);
}

uint32_t rrdk_runtime_poll(rrdk_runtime* runtime, uint32_t core) {
  return of(runtime).poll(core);
}

int rrdk_runtime_wake_fd(const rrdk_runtime* runtime, uint32_t core) {
  return of(runtime).wake_fd(core);
}

bool rrdk_runtime_arm_wake(rrdk_runtime* runtime, uint32_t core) {
  return of(runtime).arm_wake(core);
}

uint32_t rrdk_runtime_num_cores(const rrdk_runtime* runtime) {
  return of(runtime).num_cores();
}

uint32_t rrdk_runtime_num_workers(const rrdk_runtime* runtime) {
  return of(runtime).num_workers();
}

size_t rrdk_runtime_core_counters(const rrdk_runtime* runtime, uint32_t core, uint64_t* values,
                                  size_t count) {
  std::optional<Stats> stats;
  if (core < of(runtime).num_cores())
    stats = of(runtime).stats(core);
  return c::copy_out(stats, values, count);
}

rrdk_errc rrdk_runtime_run_aside(rrdk_runtime* runtime, void (*task)(void* argument),
                                 void* argument, rrdk_error* error) {
  if (c::lacks({{runtime, "the runtime"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(of(runtime).run_aside(task, argument), error);
}

void rrdk_capture_options_init(rrdk_capture_options* options, size_t size) {
  c::copy_defaults(c::capture_defaults(), options, size);
}

rrdk_errc rrdk_runtime_start_capture(rrdk_runtime* runtime, const char* file,
                                     const rrdk_capture_options* options, rrdk_error* error) {
  if (c::lacks({{runtime, "the runtime"}, {file, "the file of a capture"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_capture_options all = c::capture_defaults();
  if (auto known = c::copy_in(options, all, "rrdk_capture_options"); !known)
    return c::tell(known.error(), error);
  return c::give(of(runtime).start_capture(
                     file, {.message_bytes = all.message_bytes, .file_bytes = all.file_bytes}),
                 error);
}

bool rrdk_runtime_stop_capture(rrdk_runtime* runtime, rrdk_capture_counts* counts) {
  if (counts != nullptr && !c::is_size_of<rrdk_capture_counts>(counts->size))
    return false;
  const rrdk_capture_counts all = c::counts_of(of(runtime).stop_capture());
  return counts == nullptr || c::copy_out(all, counts);
}

bool rrdk_runtime_capture_counts(const rrdk_runtime* runtime, rrdk_capture_counts* counts) {
  return c::copy_out(c::counts_of(of(runtime).capture_counts()), counts);
}

uint64_t rrdk_now_ns() {
  return Runtime::now_ns();
}

rrdk_errc rrdk_timer_create(rrdk_runtime* runtime, uint32_t core, rrdk_timer_fire fire,
                            void* argument, rrdk_timer** timer, rrdk_error* error) {
  if (c::lacks(timer, {{runtime, "the runtime"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  auto made = std::make_unique<rrdk_timer>(rrdk_timer{nullptr, fire, argument});
  auto run = [](Timer&, void* self) {
    auto* mine = static_cast<rrdk_timer*>(self);
    mine->fire(mine, mine->argument);
  };
  return c::give(Timer::create(of(runtime), core, fire != nullptr ? +run : nullptr, made.get()),
                 timer, error, [&](std::unique_ptr<Timer> inner) {
                   made->timer = std::move(inner);
                   return made.release();
                 });
}

void rrdk_timer_destroy(rrdk_timer* timer) {
  delete timer;
}

void rrdk_timer_start(rrdk_timer* timer, uint64_t due_ns) {
  timer->timer->start(due_ns);
}

void rrdk_timer_stop(rrdk_timer* timer) {
  timer->timer->stop();
}

rrdk_errc rrdk_telemetry_create(const char* name, rrdk_runtime* runtime,
                                rrdk_server* const* servers, size_t num_servers,
                                rrdk_connection* const* connections, size_t num_connections,
                                rrdk_telemetry** telemetry, rrdk_error* error) {
  if (c::lacks(telemetry, {{name, "the name of a telemetry"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  if ((servers == nullptr && num_servers != 0) || (connections == nullptr && num_connections != 0))
    return c::tell(c::missing("an array of a telemetry's sources"), error);
  TelemetrySources sources = {.runtime = runtime != nullptr ? &of(runtime) : nullptr};
  for (size_t i = 0; i < num_servers; ++i)
    sources.servers.push_back(servers[i] != nullptr ? servers[i]->server.get() : nullptr);
  for (size_t i = 0; i < num_connections; ++i)
    sources.clients.push_back(c::find(connections[i]));
  return c::give(
      Telemetry::create(name, sources), telemetry, error,
      [](std::unique_ptr<Telemetry> made) { return new rrdk_telemetry{std::move(made)}; });
}

void rrdk_telemetry_destroy(rrdk_telemetry* telemetry) {
  delete telemetry;
}

static size_t put_text(const std::string& text, char* to, size_t size) {
  if (size != 0) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
  }
  return text.size();
}

size_t rrdk_telemetry_openmetrics(const rrdk_telemetry* telemetry, char* to, size_t size) {
  return put_text(telemetry->telemetry->openmetrics(), to, size);
}

size_t rrdk_telemetry_answer(const rrdk_telemetry* telemetry, const char* accept, char* to,
                             size_t size, const char** content_type) {
  const MetricsAnswer answer = telemetry->telemetry->answer(accept != nullptr ? accept : "");
  if (content_type != nullptr)
    *content_type = answer.content_type;
  return put_text(answer.text, to, size);
}

const char* rrdk_telemetry_content_type(const char* accept) {
  return Telemetry::content_type(accept != nullptr ? accept : "");
}

uint32_t rrdk_version(void) {
  return RRDK_VERSION;
}

const char* rrdk_version_string(void) {
  return RRDK_VERSION_STRING;
}

const char* rrdk_errc_name(rrdk_errc code) {
  return code == RRDK_OK ? "ok" : to_string(c::code_of(code));
}

int rrdk_errc_errno(rrdk_errc code) {
  return code == RRDK_OK ? 0 : errno_of(c::code_of(code));
}

const char* rrdk_call_status_name(rrdk_call_status status) {
  return to_string(static_cast<CallStatus>(status));
}

uint32_t rrdk_counter_count(void) {
  return static_cast<uint32_t>(counter_count());
}

const char* rrdk_counter_name(uint32_t id) {
  const CounterInfo* const info = c::counter_of(id);
  return info != nullptr ? info->name : nullptr;
}

const char* rrdk_counter_unit(uint32_t id) {
  const CounterInfo* const info = c::counter_of(id);
  return info != nullptr ? info->unit : nullptr;
}

const char* rrdk_counter_text(uint32_t id) {
  const CounterInfo* const info = c::counter_of(id);
  return info != nullptr ? info->text : nullptr;
}

bool rrdk_counter_is_gauge(uint32_t id) {
  const CounterInfo* const info = c::counter_of(id);
  return info != nullptr && info->is_gauge;
}

uint32_t rrdk_counter_find(const char* name) {
  const std::optional<Counter> found = find_counter(name);
  return found ? static_cast<uint32_t>(*found) : UINT32_MAX;
}

rrdk_errc rrdk_errc_of(rrdk_call_status status) {
  const std::optional<Errc> kind = errc_of(static_cast<CallStatus>(status));
  return kind ? c::code_of(*kind) : RRDK_OK;
}

// Servers from C, and the programs that they serve: a table, from which the library's binding and
// its procedures are made.
#include <algorithm>
#include <deque>
#include <mutex>

#include "base/lifetime.h"
#include "c/handles.h"

namespace rrdk::c {
namespace {

constexpr rrdk_program_options kNoProgram = {.size = sizeof(rrdk_program_options),
                                             .procedure_size = sizeof(rrdk_procedure),
                                             .program = 0,
                                             .version = 0,
                                             .name = nullptr,
                                             .procedures = nullptr,
                                             .num_procedures = 0,
                                             .chunk_breach_is_transport_error = false,
                                             .accepts = RRDK_ACCEPTS_ANY};

// Reads an entry of an array whose entries have the size that the program knows.
rrdk_procedure procedure_at(const rrdk_program_options& options, size_t i) noexcept {
  rrdk_procedure procedure = {};
  std::memcpy(&procedure,
              reinterpret_cast<const std::byte*>(options.procedures) + i * options.procedure_size,
              options.procedure_size);
  return procedure;
}

// A bit of a later release must not be dropped: it may be all that a program takes.
bool knows_callers(uint64_t accepts) noexcept {
  constexpr uint64_t kKnown = kAcceptNone | kAcceptSys | kAcceptGss;
  return (accepts & ~kKnown) == 0;
}
static_assert(RRDK_ACCEPTS_NONE == kAcceptNone && RRDK_ACCEPTS_SYS == kAcceptSys &&
              RRDK_ACCEPTS_AUTHENTIC == kAcceptAuthentic && RRDK_ACCEPTS_GSS == kAcceptGss &&
              RRDK_ACCEPTS_INTEGRITY == kAcceptIntegrity && RRDK_ACCEPTS_PRIVACY == kAcceptPrivacy);

Result<void> check_options(const rrdk_program_options& o) {
  if (o.name == nullptr || (o.procedures == nullptr && o.num_procedures != 0))
    return fail(Errc::kInvalidArgument, "rrdk_program_options: a program has a name and a table");
  if (o.procedure_size > sizeof(rrdk_procedure))
    return fail(Errc::kUnsupported,
                "rrdk_program_options::procedure_size is more than this release of librrdk knows: "
                "run a later one");
  if (!is_size_of<rrdk_procedure>(o.procedure_size))
    return fail(Errc::kInvalidArgument,
                "rrdk_program_options::procedure_size is not sizeof (rrdk_procedure): use "
                "RRDK_PROGRAM()");
  if (!knows_callers(o.accepts))
    return tl::unexpected(unknown("rrdk_program_options::accepts"));
  return {};
}

void add(rrdk_program& program, const rrdk_procedure& p) {
  program.bindings.push_back({.procedure = p.number,
                              .name = program.procedure_names.back().c_str(),
                              .eligible_args = p.eligible_args,
                              .eligible_results = p.eligible_results,
                              .fixed_results = p.fixed_results,
                              .no_long_calls = p.no_long_calls});
  if (p.handler == nullptr)
    return;
  program.served.push_back({.number = p.number,
                            .handler = enter,
                            .dispatch = p.worker ? Dispatch::kWorker : Dispatch::kInline,
                            .idempotent = !p.not_idempotent,
                            .context = p.context,
                            .accepts = static_cast<Acceptance>(p.accepts)});
  program.handlers.push_back(p.handler);
}

Result<std::unique_ptr<rrdk_program>> make(const rrdk_program_options* given) {
  if (given == nullptr)
    return fail(Errc::kInvalidArgument, "rrdk_program_create() needs options");
  rrdk_program_options o = kNoProgram;
  if (auto known = copy_in(given, o, "rrdk_program_options"); !known)
    return tl::unexpected(known.error());
  if (auto right = check_options(o); !right)
    return tl::unexpected(right.error());
  auto program = std::make_unique<rrdk_program>();
  program->name_text = o.name;
  program->accepts = static_cast<Acceptance>(o.accepts);
  program->procedure_names.reserve(o.num_procedures);  // the bindings point to the names
  for (size_t i = 0; i < o.num_procedures; ++i) {
    const rrdk_procedure procedure = procedure_at(o, i);
    if (procedure.name == nullptr)
      return fail(Errc::kInvalidArgument, program->name_text + ": procedure " +
                                              std::to_string(procedure.number) + " has no name");
    if (!knows_callers(procedure.accepts))
      return tl::unexpected(unknown(
          (program->name_text + ": " + procedure.name + ": rrdk_procedure::accepts").c_str()));
    program->procedure_names.emplace_back(procedure.name);
    add(*program, procedure);
  }
  static_cast<Binding&>(*program) = {.program = o.program,
                                     .version = o.version,
                                     .name = program->name_text.c_str(),
                                     .procedures = program->bindings,
                                     .on_breach = o.chunk_breach_is_transport_error
                                                      ? BreachAnswer::kTransportError
                                                      : BreachAnswer::kGarbageArgs};
  if (auto right = check(*program); !right)
    return tl::unexpected(right.error());
  return program;
}

}  // namespace

namespace {

// One object for each different interceptor, which refers to what the program gave.
template <typename Cpp, typename Given>
const Cpp* kept(const Given& given, decltype(Cpp::before) before, decltype(Cpp::after) after) {
  struct Both {
    Given given;
    Cpp interceptor;
  };
  if (given.before == nullptr && given.after == nullptr)
    return nullptr;
  static std::mutex mutex;
  static auto& all = *new std::deque<Both>;
  const std::lock_guard lock(mutex);
  auto found = std::ranges::find_if(all, [&](const Both& one) {
    return one.given.before == given.before && one.given.after == given.after &&
           one.given.context == given.context;
  });
  if (found != all.end())
    return &found->interceptor;
  Both& made = all.emplace_back(Both{given, {}});
  made.interceptor = {.before = given.before != nullptr ? before : nullptr,
                      .after = given.after != nullptr ? after : nullptr,
                      .context = &made.given};
  return &made.interceptor;
}

}  // namespace

const ServiceInterceptor* interceptor_of(const rrdk_service_interceptor& given) {
  return kept<ServiceInterceptor>(given, ask_before, tell_after);
}

const CallInterceptor* interceptor_of(const rrdk_call_interceptor& given) {
  return kept<CallInterceptor>(given, ask_before_call, tell_after_call);
}

Service service_of(const rrdk_program& program, void* context) noexcept {
  program.note_use();
  return {.binding = &program,
          .procedures = program.served,
          .context = context,
          .accepts = program.accepts};
}

namespace {

rrdk_server_options server_defaults() {
  const ServerOptions d;
  return {.size = sizeof(rrdk_server_options),
          .version_one = d.versions.one,
          .version_two = d.versions.two,
          .draft = static_cast<rrdk_draft>(d.versions.draft),
          .credits = d.credits,
          .first_credits = d.first_credits,
          .private_receives = d.private_receives,
          .inline_size = d.inline_size,
          .properties = d.version2.properties,
          .max_receive_size = d.version2.max_receive_size,
          .max_call = d.max_call,
          .max_reply = d.max_reply,
          .max_chunk_bytes = d.max_chunk_bytes,
          .backward_credits = d.backward_credits,
          .backward_chunks = d.version2.backward_chunks,
          .backward_timeout_ms = d.backward_timeout_ms,
          .backward_lend_ms = d.backward_lend_ms,
          .max_connections = d.max_connections,
          .max_connections_per_client = d.max_connections_per_client,
          .first_call_timeout_ms = d.first_call_timeout_ms,
          .idle_timeout_ms = d.idle_timeout_ms,
          .send_timeout_ms = d.send_timeout_ms,
          .replay_entries = d.replay.entries,
          .replay_bytes = d.replay.bytes,
          .replay_clients = d.replay.clients,
          .replay_max_reply = d.replay.max_reply,
          .replay_window_ms = d.replay.window_ms,
          .replay_always = d.replay.always,
          .replay_total_bytes = d.replay.total_bytes,
          .on_open = nullptr,
          .on_close = nullptr,
          .connection_argument = nullptr,
          .replay_min_window_ms = d.replay.min_window_ms,
          .replay_ipv4_prefix = d.replay.ipv4_prefix,
          .replay_run_unprotected = d.replay.run_unprotected,
          .backward_max_queued = d.backward_max_queued,
          .interceptor = {},
          .backward_interceptor = {},
          .gss = nullptr};
}

Result<void> ask_on_open(ServerConnection& connection, void* argument) {
  auto& server = *static_cast<rrdk_server*>(argument);
  rrdk_error reason = {RRDK_OK, ""};
  const rrdk_errc code = server.on_open(
      handle_of(static_cast<const service::Dispatcher&>(connection)), &reason, server.argument);
  if (code == RRDK_OK)
    return {};
  reason.message[sizeof reason.message - 1] = '\0';
  return fail(code_of(code), reason.message[0] != '\0' ? reason.message : rrdk_errc_name(code));
}

void tell_on_close(ServerConnection& connection, const Ending& ending, void* argument) {
  auto& server = *static_cast<rrdk_server*>(argument);
  rrdk_error reason;
  tell({ending.code, ending.text}, &reason);
  server.on_close(handle_of(static_cast<const service::Dispatcher&>(connection)), &reason,
                  server.argument);
}

ServerOptions options_of(const rrdk_server_options& o, rrdk_server& server) {
  return {.versions = {.one = o.version_one,
                       .two = o.version_two,
                       .draft = static_cast<RpcRdmaDraft>(o.draft)},
          .credits = o.credits,
          .first_credits = o.first_credits,
          .private_receives = o.private_receives,
          .inline_size = o.inline_size,
          .max_call = o.max_call,
          .max_reply = o.max_reply,
          .max_chunk_bytes = o.max_chunk_bytes,
          .backward_credits = o.backward_credits,
          .backward_timeout_ms = o.backward_timeout_ms,
          .backward_lend_ms = o.backward_lend_ms,
          .max_connections = o.max_connections,
          .max_connections_per_client = o.max_connections_per_client,
          .first_call_timeout_ms = o.first_call_timeout_ms,
          .idle_timeout_ms = o.idle_timeout_ms,
          .send_timeout_ms = o.send_timeout_ms,
          .replay = {.entries = o.replay_entries,
                     .bytes = o.replay_bytes,
                     .clients = o.replay_clients,
                     .max_reply = o.replay_max_reply,
                     .window_ms = o.replay_window_ms,
                     .always = o.replay_always,
                     .total_bytes = o.replay_total_bytes,
                     .min_window_ms = o.replay_min_window_ms,
                     .ipv4_prefix = o.replay_ipv4_prefix,
                     .run_unprotected = o.replay_run_unprotected},
          .on_open = o.on_open != nullptr ? ask_on_open : nullptr,
          .on_close = o.on_close != nullptr ? tell_on_close : nullptr,
          .connection_argument = &server,
          .version2 = {.properties = o.properties,
                       .max_receive_size = o.max_receive_size,
                       .backward_chunks = o.backward_chunks},
          .backward_max_queued = o.backward_max_queued,
          .interceptor = interceptor_of(o.interceptor),
          .backward_interceptor = interceptor_of(o.backward_interceptor),
          .gss = behind(o.gss)};
}

rrdk_gss_acceptor_options acceptor_defaults() {
  const GssAcceptorOptions d;
  return {.size = sizeof(rrdk_gss_acceptor_options),
          .service = nullptr,
          .key_table = nullptr,
          .max_contexts = d.max_contexts,
          .max_unfinished = d.max_unfinished,
          .max_protected_bytes = d.max_protected_bytes,
          .tcp = nullptr};
}

GssAcceptorOptions options_of(const rrdk_gss_acceptor_options& o) {
  const auto text = [](const char* given) { return std::string(given != nullptr ? given : ""); };
  return {.service = text(o.service),
          .key_table = text(o.key_table),
          .max_contexts = o.max_contexts,
          .max_unfinished = o.max_unfinished,
          .max_protected_bytes = o.max_protected_bytes,
          .tcp = text(o.tcp)};
}

rrdk_gss_acceptor_stats stats_of(const GssAcceptorStats& s) noexcept {
  return {.size = sizeof(rrdk_gss_acceptor_stats),
          .contexts = s.contexts,
          .established = s.established,
          .refused = s.refused,
          .expired = s.expired,
          .evicted = s.evicted,
          .destroyed = s.destroyed,
          .tcp_refused = s.tcp_refused};
}

rrdk_server_limits limits_of(const ServerLimits& l) {
  return {.size = sizeof(rrdk_server_limits),
          .max_connections = l.max_connections,
          .max_connections_per_client = l.max_connections_per_client,
          .first_call_timeout_ms = l.first_call_timeout_ms,
          .idle_timeout_ms = l.idle_timeout_ms,
          .send_timeout_ms = l.send_timeout_ms};
}

struct Listening {
  rrdk_listening listening;
  void* argument;
};

void tell_listening(Result<std::string>&& uri, void* argument) {
  std::unique_ptr<Listening> told(static_cast<Listening*>(argument));
  if (uri)
    return told->listening(uri->c_str(), nullptr, told->argument);
  rrdk_error error;
  tell(uri.error(), &error);
  told->listening(nullptr, &error, told->argument);
}

}  // namespace
}  // namespace rrdk::c

using namespace rrdk;

rrdk_errc rrdk_program_create(const rrdk_program_options* options, rrdk_program** program,
                              rrdk_error* error) {
  if (c::lacks(program, {{options, "rrdk_program_options"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(c::make(options), program, error,
                 [](std::unique_ptr<rrdk_program> made) { return made.release(); });
}

// A program that has been used may still be in use: by a server or a connection that is destroyed
// later, or through its address.
void rrdk_program_destroy(rrdk_program* program) {
  if (program == nullptr)
    return;
  if (program->is_used.load(std::memory_order_relaxed))
    base::keep_for_good(std::unique_ptr<rrdk_program>(program));
  else
    delete program;
}
using c::of;

void rrdk_gss_acceptor_options_init(rrdk_gss_acceptor_options* options, size_t size) {
  c::copy_defaults(c::acceptor_defaults(), options, size);
}

rrdk_errc rrdk_gss_acceptor_create(const rrdk_gss_acceptor_options* options,
                                   rrdk_gss_acceptor** acceptor, rrdk_error* error) {
  if (c::lacks(acceptor, {}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_gss_acceptor_options all = c::acceptor_defaults();
  if (auto known = c::copy_in(options, all, "rrdk_gss_acceptor_options"); !known)
    return c::tell(known.error(), error);
  return c::give(GssAcceptor::create(c::options_of(all)), acceptor, error);
}

void rrdk_gss_acceptor_destroy(rrdk_gss_acceptor* acceptor) {
  delete c::behind(acceptor);
}

bool rrdk_gss_acceptor_get_stats(const rrdk_gss_acceptor* acceptor,
                                 rrdk_gss_acceptor_stats* stats) {
  return acceptor != nullptr && c::copy_out(c::stats_of(of(acceptor).stats()), stats);
}

uint16_t rrdk_gss_acceptor_tcp_port(const rrdk_gss_acceptor* acceptor) {
  return acceptor != nullptr ? of(acceptor).tcp_port() : 0;
}

void rrdk_server_options_init(rrdk_server_options* options, size_t size) {
  c::copy_defaults(c::server_defaults(), options, size);
}

rrdk_errc rrdk_server_create(rrdk_runtime* runtime, const rrdk_server_options* options,
                             rrdk_server** server, rrdk_error* error) {
  if (c::lacks(server, {{runtime, "the runtime"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_server_options all = c::server_defaults();
  if (auto known = c::copy_in(options, all, "rrdk_server_options"); !known)
    return c::tell(known.error(), error);
  if (!c::knows(all.draft, RRDK_DRAFT_00))
    return c::tell(c::unknown("rrdk_server_options::draft"), error);
  auto handle = std::make_unique<rrdk_server>();
  handle->on_open = all.on_open;
  handle->on_close = all.on_close;
  handle->argument = all.connection_argument;
  return c::give(Server::create(of(runtime), c::options_of(all, *handle)), server, error,
                 [&](std::unique_ptr<Server> made) {
                   handle->server = std::move(made);
                   return handle.release();
                 });
}

void rrdk_server_destroy(rrdk_server* server) {
  delete server;
}

rrdk_errc rrdk_server_add_service(rrdk_server* server, const rrdk_program* program, void* context,
                                  rrdk_error* error) {
  if (c::lacks({{server, "the server"}, {program, "the program"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(server->server->add_service(c::service_of(*program, context)), error);
}

rrdk_errc rrdk_server_remove_service(rrdk_server* server, uint32_t program, uint32_t version,
                                     rrdk_error* error) {
  if (c::lacks({{server, "the server"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(server->server->remove_service(program, version), error);
}

rrdk_errc rrdk_server_remove_service_start(rrdk_server* server, uint32_t program, uint32_t version,
                                           void (*removed)(void* argument), void* argument,
                                           rrdk_error* error) {
  if (c::lacks({{server, "the server"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(server->server->remove_service_start(program, version, removed, argument), error);
}

rrdk_errc rrdk_server_listen(rrdk_server* server, const char* uri, char* bound, size_t bound_size,
                             rrdk_error* error) {
  if (bound != nullptr && bound_size != 0)
    bound[0] = '\0';
  if (c::lacks({{server, "the server"}, {uri, "the URI to listen at"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  auto listening = server->server->listen(uri);
  if (!listening)
    return c::tell(listening.error(), error);
  if (bound == nullptr)
    return c::tell_ok(error);
  if (listening->size() >= bound_size)
    return c::fill(error, RRDK_E_LIMIT,
                   "it listens at " + *listening + ", for which `bound` has no room");
  std::memcpy(bound, listening->c_str(), listening->size() + 1);
  return c::tell_ok(error);
}

void rrdk_server_listen_start(rrdk_server* server, const char* uri, rrdk_listening listening,
                              void* argument) {
  const char* where = uri != nullptr ? uri : "";  // null is reported like any other wrong address
  if (listening == nullptr)
    server->server->listen_start(where, nullptr, nullptr);
  else
    server->server->listen_start(where, c::tell_listening, new c::Listening{listening, argument});
}

void rrdk_server_stop_listening(rrdk_server* server) {
  server->server->stop_listening();
}

uint32_t rrdk_server_drain(rrdk_server* server, uint32_t timeout_ms) {
  return server->server->drain(timeout_ms);
}

void rrdk_server_drain_start(rrdk_server* server, uint32_t timeout_ms,
                             void (*drained)(uint32_t rest, void* argument), void* argument) {
  server->server->drain_start(timeout_ms, drained, argument);
}

void rrdk_server_close_start(rrdk_server* server, void (*closed)(void* argument), void* argument) {
  server->server->close_start(closed, argument);
}

rrdk_errc rrdk_server_close_connection(rrdk_server* server, uint64_t id, const char* reason,
                                       rrdk_error* error) {
  if (c::lacks({{server, "the server"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(server->server->close(id, reason != nullptr ? reason : ""), error);
}

void rrdk_server_visit(const rrdk_server* server,
                       void (*visitor)(const rrdk_connection_info* info, void* argument),
                       void* argument) {
  if (visitor == nullptr)
    return;
  server->server->visit([&](const ConnectionInfo& seen) {
    const rrdk_connection_info info = c::info_of(seen);
    visitor(&info, argument);
  });
}

bool rrdk_server_get_limits(const rrdk_server* server, rrdk_server_limits* limits) {
  return c::copy_out(c::limits_of(server->server->limits()), limits);
}

rrdk_errc rrdk_server_set_limits(rrdk_server* server, const rrdk_server_limits* limits,
                                 rrdk_error* error) {
  if (c::lacks({{server, "the server"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_server_limits all = c::limits_of(server->server->limits());
  if (auto known = c::copy_in(limits, all, "rrdk_server_limits"); !known)
    return c::tell(known.error(), error);
  return c::give(
      server->server->set_limits({.max_connections = all.max_connections,
                                  .max_connections_per_client = all.max_connections_per_client,
                                  .first_call_timeout_ms = all.first_call_timeout_ms,
                                  .idle_timeout_ms = all.idle_timeout_ms,
                                  .send_timeout_ms = all.send_timeout_ms}),
      error);
}

size_t rrdk_server_counters(const rrdk_server* server, uint64_t* values, size_t count) {
  return c::copy_out(server->server->stats(), values, count);
}

bool rrdk_server_connection_get_info(const rrdk_server_connection* connection,
                                     rrdk_connection_info* info) {
  const ServerConnection* const known = c::find(connection);
  return known != nullptr && c::copy_out(c::info_of(known->info()), info);
}

rrdk_errc rrdk_server_call_backward_client(rrdk_server_call* call, rrdk_backward_client** client,
                                           rrdk_error* error) {
  if (c::lacks(client, {}, error))
    return RRDK_E_INVALID_ARGUMENT;
  const engine::ServedCall* const known = c::find(call);
  Result<std::shared_ptr<BackwardClient>> found =
      known != nullptr
          ? known->dispatcher->backward_client()
          : fail(Errc::kInvalidArgument, "the call has been answered: ask for it before that");
  return c::give(std::move(found), client, error, [](std::shared_ptr<BackwardClient> shared) {
    return new rrdk_backward_client{std::move(shared)};
  });
}

void rrdk_backward_client_release(rrdk_backward_client* client) {
  delete client;
}

rrdk_caller* rrdk_backward_client_caller(rrdk_backward_client* client) {
  return c::handle_of(static_cast<Caller*>(client->client.get()));
}

bool rrdk_backward_client_takes_chunks(const rrdk_backward_client* client) {
  return client->client->takes_chunks();
}

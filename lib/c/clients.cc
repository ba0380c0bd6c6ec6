// Clients and their connections from C, and the parts of their calls that are not on the data path.
#include "base/log.h"
#include "c/handles.h"
#include "rrdk/gss_context.h"

namespace rrdk::c {
namespace {

static_assert(static_cast<int>(GssProtection::kNone) == RRDK_GSS_NONE &&
              static_cast<int>(GssProtection::kPrivacy) == RRDK_GSS_PRIVACY);
static_assert(static_cast<int>(RpcRdmaVersion::kAuto) == RRDK_RPC_RDMA_AUTO &&
              static_cast<int>(RpcRdmaDraft::kDraft00) == RRDK_DRAFT_00 &&
              static_cast<int>(ConnectionState::kClosed) == RRDK_CLOSED &&
              static_cast<int>(EndedBy::kNetwork) == RRDK_ENDED_BY_NETWORK);

rrdk_client_options client_defaults() {
  const ClientOptions d;
  return {.size = sizeof(rrdk_client_options),
          .version = static_cast<rrdk_rpc_rdma_version>(d.version),
          .draft = static_cast<rrdk_draft>(d.version2.draft),
          .version_memory_ms = d.version2.version_memory_ms,
          .credits = d.credits,
          .inline_size = d.inline_size,
          .properties = d.version2.properties,
          .max_receive_size = d.version2.max_receive_size,
          .max_call = d.max_call,
          .max_reply = d.max_reply,
          .connect_timeout_ms = d.connect_timeout_ms,
          .call_timeout_ms = d.call_timeout_ms,
          .lend_ms = d.lend_ms,
          .starved_ms = d.starved_ms,
          .chunk_threshold = d.chunk_threshold,
          .pad_write_chunks = d.pad_write_chunks,
          .one_segment = d.one_segment,
          .reconnect = d.reconnect.enabled,
          .reconnect_first_delay_ms = d.reconnect.first_delay_ms,
          .reconnect_max_delay_ms = d.reconnect.max_delay_ms,
          .reconnect_give_up_ms = d.reconnect.give_up_ms,
          .retransmit = d.retransmit,
          .keepalive_ms = d.keepalive_ms,
          .keepalive_patience = d.keepalive_patience,
          .keepalive_program = nullptr,
          .backward_credits = d.backward_credits,
          .backward_chunks = d.version2.backward_chunks,
          .max_backward_chunk_bytes = d.version2.max_backward_chunk_bytes,
          .max_queued = d.max_queued,
          .interceptor = {},
          .service_interceptor = {}};
}

ClientOptions options_of(const rrdk_client_options& o) {
  return {.version = static_cast<RpcRdmaVersion>(o.version),
          .credits = o.credits,
          .inline_size = o.inline_size,
          .max_call = o.max_call,
          .max_reply = o.max_reply,
          .connect_timeout_ms = o.connect_timeout_ms,
          .call_timeout_ms = o.call_timeout_ms,
          .lend_ms = o.lend_ms,
          .starved_ms = o.starved_ms,
          .chunk_threshold = o.chunk_threshold,
          .pad_write_chunks = o.pad_write_chunks,
          .one_segment = o.one_segment,
          .reconnect = {.enabled = o.reconnect,
                        .first_delay_ms = o.reconnect_first_delay_ms,
                        .max_delay_ms = o.reconnect_max_delay_ms,
                        .give_up_ms = o.reconnect_give_up_ms},
          .retransmit = o.retransmit,
          .keepalive_ms = o.keepalive_ms,
          .keepalive_patience = o.keepalive_patience,
          .keepalive_binding = o.keepalive_program,
          .backward_credits = o.backward_credits,
          .version2 = {.draft = static_cast<RpcRdmaDraft>(o.draft),
                       .version_memory_ms = o.version_memory_ms,
                       .properties = o.properties,
                       .max_receive_size = o.max_receive_size,
                       .backward_chunks = o.backward_chunks,
                       .max_backward_chunk_bytes = o.max_backward_chunk_bytes},
          .max_queued = o.max_queued,
          .interceptor = interceptor_of(o.interceptor),
          .service_interceptor = interceptor_of(o.service_interceptor)};
}

Result<void> check(const rrdk_client_options& o) {
  if (!knows(o.version, RRDK_RPC_RDMA_AUTO))
    return tl::unexpected(unknown("rrdk_client_options::version"));
  if (!knows(o.draft, RRDK_DRAFT_00))
    return tl::unexpected(unknown("rrdk_client_options::draft"));
  return {};
}

constexpr rrdk_connect_options kAnyCore = {
    .size = sizeof(rrdk_connect_options), .core = -1, .on_state = nullptr, .argument = nullptr};

void tell_state(ClientConnection& connection, ConnectionState state, const Error* reason,
                void* argument) {
  auto* own = static_cast<Connection*>(argument);
  own->connection.store(&connection, std::memory_order_release);
  rrdk_error error;
  if (reason != nullptr)
    tell(*reason, &error);
  own->on_state(own->handle(), static_cast<rrdk_connection_state>(state),
                reason != nullptr ? &error : nullptr, own->argument);
}

using Connect = Result<std::unique_ptr<ClientConnection>> (Client::*)(const std::string&,
                                                                      const ConnectOptions&);

rrdk_errc connect_by(Connect connect, rrdk_client* client, const char* uri,
                     const rrdk_connect_options* options, rrdk_connection** connection,
                     rrdk_error* error) {
  if (lacks(connection, {{client, "the client"}, {uri, "the URI to connect to"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_connect_options o = kAnyCore;
  if (auto known = copy_in(options, o, "rrdk_connect_options"); !known)
    return tell(known.error(), error);
  auto own = std::make_unique<Connection>();
  if (own->slot == nullptr)
    return tell({Errc::kLimit, "there are four million connections"}, error);
  own->on_state = o.on_state;
  own->argument = o.argument;
  auto made = (of(client).*connect)(uri, {.core = o.core,
                                          .on_state = o.on_state != nullptr ? tell_state : nullptr,
                                          .argument = own.get()});
  if (!made)
    return tell(made.error(), error);
  own->connection.store(made->get(), std::memory_order_release);
  // Once the program has it, a callback on another thread may delete both.
  auto maker = Connection::Owner::kMaker;
  ClientConnection* const raw = made->release();
  Connection* const given = own.release();
  *connection = given->handle();
  if (given->owner.compare_exchange_strong(maker, Connection::Owner::kProgram))
    return tell_ok(error);
  delete raw;
  delete given;
  *connection = nullptr;
  return fill(error, RRDK_E_SHUTDOWN, std::string(uri) + ": `on_state` has destroyed it");
}

// The error for a connection that has been destroyed.
Error destroyed() {
  return {Errc::kShutdown, "the connection has been destroyed"};
}

}  // namespace

Connection::Connection()
    : slot(connections.take(*this)), number(slot != nullptr ? slot->open() : 0) {}
Connection::~Connection() {
  connections.give_back(slot);
}

Result<AuthSys> auth_sys_of(const rrdk_auth_sys& identity) {
  AuthSys to;
  to.stamp = identity.stamp;
  to.uid = identity.uid;
  to.gid = identity.gid;
  if (identity.num_gids > std::size(identity.gids) ||
      !to.set_gids({identity.gids, identity.num_gids}))
    return fail(Errc::kInvalidArgument, "rrdk_auth_sys::num_gids is more than 16");
  const size_t length = strnlen(identity.machine_name, sizeof identity.machine_name);
  if (length == sizeof identity.machine_name ||
      !to.set_machine_name({identity.machine_name, length}))
    return fail(Errc::kInvalidArgument, "rrdk_auth_sys::machine_name has no NUL at its end");
  return to;
}

rrdk_connection_info info_of(const ConnectionInfo& i) noexcept {
  rrdk_connection_info info = {};
  info.size = sizeof info;
  info.id = i.id;
  copy_text(info.peer, i.peer.to_string());
  copy_text(info.driver, i.peer.driver);
  if (i.peer.process) {
    info.pid = i.peer.process->pid;
    info.uid = i.peer.process->uid;
    info.gid = i.peer.process->gid;
  } else {
    info.uid = info.gid = RRDK_NO_ID;
  }
  info.core = i.core;
  info.version = i.version;
  info.send_size = i.send_size;
  info.receive_size = i.receive_size;
  info.credits = i.credits;
  info.in_progress = i.in_progress;
  info.calls = i.calls;
  info.replies = i.replies;
  info.calls_rejected = i.calls_rejected;
  info.transport_errors = i.transport_errors;
  info.rdma_read_bytes = i.rdma_read_bytes;
  info.rdma_written_bytes = i.rdma_written_bytes;
  info.protocol_breaches = i.protocol_breaches;
  info.age_ns = i.age_ns;
  info.idle_ns = i.idle_ns;
  info.ended_by = static_cast<rrdk_ended_by>(i.ending.by);
  info.ending_code = i.ending.ended() ? code_of(i.ending.code) : RRDK_OK;
  info.ending_refusal = i.ending.refusal ? to_string(*i.ending.refusal) : nullptr;
  copy_text(info.ending, i.ending.text);
  return info;
}

rrdk_receive_sizes sizes_of(const ReceiveSizes& s) noexcept {
  return {.size = sizeof(rrdk_receive_sizes),
          .own = s.own,
          .peer = s.peer,
          .asked = s.asked,
          .ended = s.ended,
          .refused = s.refused,
          .own_changes = s.own_changes,
          .peer_changes = s.peer_changes};
}

}  // namespace rrdk::c

using namespace rrdk;
using c::of;

void rrdk_client_options_init(rrdk_client_options* options, size_t size) {
  c::copy_defaults(c::client_defaults(), options, size);
}

rrdk_errc rrdk_client_create(rrdk_runtime* runtime, const rrdk_client_options* options,
                             rrdk_client** client, rrdk_error* error) {
  if (c::lacks(client, {{runtime, "the runtime"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  rrdk_client_options all = c::client_defaults();
  if (auto known = c::copy_in(options, all, "rrdk_client_options"); !known)
    return c::tell(known.error(), error);
  if (auto right = c::check(all); !right)
    return c::tell(right.error(), error);
  if (all.keepalive_program != nullptr)
    all.keepalive_program->note_use();
  return c::give(Client::create(of(runtime), c::options_of(all)), client, error);
}

void rrdk_client_destroy(rrdk_client* client) {
  delete c::behind(client);
}

rrdk_errc rrdk_client_add_service(rrdk_client* client, const rrdk_program* program, void* context,
                                  rrdk_error* error) {
  if (c::lacks({{client, "the client"}, {program, "the program"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(of(client).add_service(c::service_of(*program, context)), error);
}

rrdk_errc rrdk_client_set_auth(rrdk_client* client, uint32_t flavor, const void* body,
                               size_t length, rrdk_error* error) {
  if (c::lacks({{client, "the client"}, {length == 0 ? "" : body, "the body"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(of(client).set_auth(static_cast<AuthFlavor>(flavor),
                                     {static_cast<const std::byte*>(body), length}),
                 error);
}

rrdk_errc rrdk_client_set_auth_sys(rrdk_client* client, const rrdk_auth_sys* identity,
                                   rrdk_error* error) {
  if (c::lacks({{client, "the client"}, {identity, "the identity"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  auto sys = c::auth_sys_of(*identity);
  if (!sys)
    return c::tell(sys.error(), error);
  of(client).set_auth_sys(*sys);
  return c::tell_ok(error);
}

void rrdk_client_set_credential(rrdk_client* client, const rrdk_credential* credential) {
  if (client != nullptr)
    of(client).set_credential(rrdk_credential::of(credential));
}

const char* rrdk_ended_by_name(rrdk_ended_by by) {
  return to_string(static_cast<EndedBy>(by));
}

const char* rrdk_connection_state_name(rrdk_connection_state state) {
  return to_string(static_cast<ConnectionState>(state));
}

void rrdk_connect_options_init(rrdk_connect_options* options, size_t size) {
  c::copy_defaults(c::kAnyCore, options, size);
}

rrdk_errc rrdk_connect_start(rrdk_client* client, const char* uri,
                             const rrdk_connect_options* options, rrdk_connection** connection,
                             rrdk_error* error) {
  return c::connect_by(&Client::connect_start, client, uri, options, connection, error);
}

rrdk_errc rrdk_connect(rrdk_client* client, const char* uri, const rrdk_connect_options* options,
                       rrdk_connection** connection, rrdk_error* error) {
  return c::connect_by(&Client::connect, client, uri, options, connection, error);
}

void rrdk_connection_destroy(rrdk_connection* connection) {
  if (connection == nullptr)
    return;
  c::Connection* const own = c::connections.close(reinterpret_cast<uintptr_t>(connection));
  if (own == nullptr)
    return base::log_error("rrdk_connection_destroy() of a destroyed connection does nothing");
  auto maker = c::Connection::Owner::kMaker;
  if (own->owner.compare_exchange_strong(maker, c::Connection::Owner::kNobody))
    return own->get().close_start();
  delete &own->get();
  delete own;
}

void rrdk_connection_close_start(rrdk_connection* connection) {
  if (ClientConnection* const known = c::find(connection))
    known->close_start();
}

void rrdk_connection_drain_start(rrdk_connection* connection, uint32_t timeout_ms) {
  if (ClientConnection* const known = c::find(connection))
    known->drain_start(timeout_ms);
}

uint32_t rrdk_connection_drain(rrdk_connection* connection, uint32_t timeout_ms) {
  ClientConnection* const known = c::find(connection);
  return known != nullptr ? known->drain(timeout_ms) : 0;
}

rrdk_connection_state rrdk_connection_state_of(const rrdk_connection* connection) {
  const ClientConnection* const known = c::find(connection);
  return known != nullptr ? static_cast<rrdk_connection_state>(known->state()) : RRDK_CLOSED;
}

rrdk_errc rrdk_connection_error(const rrdk_connection* connection, rrdk_error* error) {
  const ClientConnection* const known = c::find(connection);
  if (known == nullptr)
    return c::tell(c::destroyed(), error);
  const std::optional<Error> why = known->error();
  return why ? c::tell(*why, error) : c::tell_ok(error);
}

rrdk_caller* rrdk_connection_caller(rrdk_connection* connection) {
  ClientConnection* const known = c::find(connection);
  return known != nullptr ? c::handle_of(static_cast<Caller*>(known)) : nullptr;
}

bool rrdk_connection_get_info(const rrdk_connection* connection, rrdk_connection_info* info) {
  const ClientConnection* const known = c::find(connection);
  return known != nullptr && c::copy_out(c::info_of(known->info()), info);
}

void rrdk_connection_request_receive_size(rrdk_connection* connection, uint32_t bytes) {
  if (ClientConnection* const known = c::find(connection))
    request_receive_size(*known, bytes);
}

void rrdk_connection_raise_receive_size(rrdk_connection* connection, uint32_t bytes) {
  if (ClientConnection* const known = c::find(connection))
    raise_receive_size(*known, bytes);
}

bool rrdk_connection_receive_sizes(const rrdk_connection* connection, rrdk_receive_sizes* sizes) {
  const ClientConnection* const known = c::find(connection);
  return known != nullptr && c::copy_out(c::sizes_of(receive_sizes(*known)), sizes);
}

uint32_t rrdk_connection_version(const rrdk_connection* connection) {
  const ClientConnection* const known = c::find(connection);
  return known != nullptr ? known->version() : 0;
}

size_t rrdk_connection_counters(const rrdk_connection* connection, uint64_t* values, size_t count) {
  const ClientConnection* const known = c::find(connection);
  std::optional<Stats> stats;
  if (known != nullptr)
    stats = known->stats();
  return c::copy_out(stats, values, count);
}

const char* rrdk_caller_address(const rrdk_caller* caller) {
  return of(caller).address().c_str();
}

rrdk_errc rrdk_caller_set_auth_sys(rrdk_caller* caller, const rrdk_auth_sys* identity,
                                   rrdk_error* error) {
  if (c::lacks({{caller, "the caller"}, {identity, "the identity"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  auto sys = c::auth_sys_of(*identity);
  if (!sys)
    return c::tell(sys.error(), error);
  of(caller).set_auth_sys(*sys);
  return c::tell_ok(error);
}

rrdk_errc rrdk_caller_set_auth(rrdk_caller* caller, uint32_t flavor, const void* body,
                               size_t length, rrdk_error* error) {
  if (c::lacks({{caller, "the caller"}, {length == 0 ? "" : body, "the body"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(of(caller).set_auth(static_cast<AuthFlavor>(flavor),
                                     {static_cast<const std::byte*>(body), length}),
                 error);
}

void rrdk_caller_set_credential(rrdk_caller* caller, const rrdk_credential* credential) {
  if (caller != nullptr)
    of(caller).set_credential(rrdk_credential::of(credential));
}

void rrdk_caller_on_room(rrdk_caller* caller, uint32_t mark, void (*callback)(void* argument),
                         void* argument) {
  if (caller != nullptr)
    of(caller).on_room(mark, callback, argument);
}

rrdk_errc rrdk_credential_create_auth_sys(const rrdk_auth_sys* identity,
                                          rrdk_credential** credential, rrdk_error* error) {
  if (c::lacks(credential, {{identity, "the identity"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(c::auth_sys_of(*identity), credential, error,
                 [](const AuthSys& sys) { return new rrdk_credential{SharedCredential(sys)}; });
}

rrdk_errc rrdk_credential_create(uint32_t flavor, const void* body, size_t length,
                                 rrdk_credential** credential, rrdk_error* error) {
  if (c::lacks(credential, {{length == 0 ? "" : body, "the body"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  return c::give(SharedCredential::make(static_cast<AuthFlavor>(flavor),
                                        {static_cast<const std::byte*>(body), length}),
                 credential, error,
                 [](SharedCredential made) { return new rrdk_credential{std::move(made)}; });
}

rrdk_errc rrdk_credential_create_gss(rrdk_caller* caller, const rrdk_program* program,
                                     const char* target, rrdk_gss_protection protection,
                                     const char* principal, rrdk_credential** credential,
                                     rrdk_error* error) {
  if (c::lacks(credential,
               {{caller, "the caller"}, {program, "the program"}, {target, "the target"}}, error))
    return RRDK_E_INVALID_ARGUMENT;
  GssContextOptions options;
  options.target = target;
  options.protection = static_cast<GssProtection>(protection);
  options.principal = principal != nullptr ? principal : "";
  program->note_use();
  return c::give(establish_context(of(caller), *program, options), credential, error,
                 [](SharedCredential made) { return new rrdk_credential{std::move(made)}; });
}

void rrdk_credential_destroy(rrdk_credential* credential) {
  delete credential;
}

rrdk_call* rrdk_call_create(rrdk_caller* caller) {
  if (caller == nullptr)  // its connection has been destroyed
    return nullptr;
  try {
    return new rrdk_call(of(caller));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void rrdk_call_destroy(rrdk_call* call) {
  delete call;
}

rrdk_call_status rrdk_call_submit_and_wait(rrdk_call* call) {
  return static_cast<rrdk_call_status>(call->call.submit_and_wait());
}

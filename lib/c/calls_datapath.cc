// Calls from C: at a client from begin to the completion (clients.cc makes them), and at a server
// while a handler in C has them.
#include <bit>

#include "c/handles.h"

using namespace rrdk;
using c::of;

bool rrdk_caller_alive(const rrdk_caller* caller) {
  return of(caller).alive();
}

uint32_t rrdk_caller_core(const rrdk_caller* caller) {
  return of(caller).core();
}

uint32_t rrdk_caller_room(rrdk_caller* caller) {
  return caller != nullptr ? of(caller).room() : 0;
}

rrdk_encoder* rrdk_call_begin(rrdk_call* call, const rrdk_program* program, uint32_t procedure) {
  program->note_use();
  return c::handle_of(&call->call.begin(*program, procedure));
}

void rrdk_call_offer(rrdk_call* call, const rrdk_span* segments, size_t num_segments) {
  call->call.offer({reinterpret_cast<const MemorySpan*>(segments), num_segments});
}

void rrdk_call_offer_buffer(rrdk_call* call, rrdk_buffer* buffer, uint32_t length) {
  call->call.offer(buffer != nullptr ? Buffer(&of(buffer)) : Buffer(), length);
}

void rrdk_call_expect_reply(rrdk_call* call, uint64_t bytes) {
  call->call.expect_reply(bytes);
}

void rrdk_call_forbid_ddp(rrdk_call* call, uint32_t growth) {
  call->call.forbid_ddp(growth);
}

bool rrdk_call_set_credential(rrdk_call* call, const rrdk_credential* credential) {
  return call->call.set_credential(rrdk_credential::of(credential));
}

bool rrdk_call_reset_credential(rrdk_call* call) {
  return call->call.reset_credential();
}

void rrdk_call_set_timeout_ms(rrdk_call* call, uint32_t timeout) {
  call->call.set_timeout_ms(timeout);
}

void rrdk_call_set_retransmit(rrdk_call* call, bool retransmit) {
  call->call.set_retransmit(retransmit);
}

void rrdk_call_on_released(rrdk_call* call, void (*released)(void* argument), void* argument) {
  call->call.on_released(released, argument);
}

bool rrdk_call_submit(rrdk_call* call, rrdk_completion completion, void* argument) {
  if (completion == nullptr)
    return call->call.submit(nullptr, nullptr);
  const uint32_t before = call->current;
  call->current = 1 - before;
  rrdk_call::Told& told = call->told[call->current];
  told.completion = completion;
  told.argument = argument;
  const bool accepted = call->call.submit(
      [](Call&, void* place) {
        const rrdk_call::Told ended = *static_cast<rrdk_call::Told*>(place);
        ended.completion(ended.call, ended.argument);
      },
      &told);
  if (!accepted)
    call->current = before;
  return accepted;
}

void rrdk_call_cancel(rrdk_call* call) {
  call->call.cancel();
}

void rrdk_call_abandon(rrdk_call* call) {
  call->call.abandon();
}

bool rrdk_call_in_flight(const rrdk_call* call) {
  return call->call.in_flight();
}

rrdk_call_status rrdk_call_status_of(const rrdk_call* call) {
  return static_cast<rrdk_call_status>(call->call.status());
}

bool rrdk_call_sent(const rrdk_call* call) {
  return call->call.sent();
}

rrdk_decoder* rrdk_call_results(rrdk_call* call) {
  return c::handle_of(&call->call.results());
}

rrdk_buffer* rrdk_call_take_offered(rrdk_call* call, uint32_t k) {
  return c::handle_of(call->call.take_offered(k).release());
}

uint32_t rrdk_call_mismatch_low(const rrdk_call* call) {
  return call->call.mismatch_low();
}

uint32_t rrdk_call_mismatch_high(const rrdk_call* call) {
  return call->call.mismatch_high();
}

uint32_t rrdk_call_auth_stat(const rrdk_call* call) {
  return static_cast<uint32_t>(call->call.auth_stat());
}

bool rrdk_call_transport_error(const rrdk_call* call, rrdk_transport_error* error) {
  const TransportError e = call->call.transport_error();
  return c::copy_out({.size = sizeof *error,
                      .version = e.version,
                      .code = e.code,
                      .low = e.low,
                      .high = e.high,
                      .maximum = e.maximum,
                      .write_chunk = e.write_chunk,
                      .length = e.length},
                     error);
}

// Handlers in C, and what they do with a call until they answer it.

namespace rrdk::c {
namespace {

using engine::ServedCall;

// Stands in for a call that has been answered.
struct Nothing {
  Nothing() noexcept {
    args.fail();
    results.fail();
  }
  // An encoder that fails before it has written anything never uses its Memory.
  alignas(Memory) std::byte no_memory[sizeof(Memory)];
  Message message;
  Decoder args;
  Encoder results{message, reinterpret_cast<Memory&>(no_memory), 0, 0};
};

// Each thread has its own, since it is written to.
Nothing& nothing() noexcept {
  static thread_local Nothing mine;
  return mine;
}

// A ServerCall for the duration of one function. The duty to answer stays with the handle. Empty if
// the call has been answered.
class Borrowed {
 public:
  explicit Borrowed(const rrdk_server_call* call) noexcept {
    if (ServedCall* const context = find(call)) [[likely]]
      call_ = service::CallAccess::handle(*context);
  }
  ~Borrowed() {
    if (call_)
      service::CallAccess::take(std::move(call_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  explicit operator bool() const noexcept { return static_cast<bool>(call_); }
  ServerCall* operator->() noexcept { return &call_; }
  ServerCall& operator*() noexcept { return call_; }

 private:
  ServerCall call_;
};

// Numbers that a program cannot mean become the most general refusal.
AcceptStat accept_stat_of(uint32_t status) noexcept {
  const bool known = status >= RRDK_ACCEPT_PROG_UNAVAIL && status <= RRDK_ACCEPT_SYSTEM_ERR;
  return known ? static_cast<AcceptStat>(status) : AcceptStat::kSystemErr;
}
AuthStat auth_stat_of(uint32_t reason) noexcept {
  const bool known = reason > RRDK_AUTH_OK && reason <= RRDK_RPCSEC_GSS_CTXPROBLEM;
  return known ? static_cast<AuthStat>(reason) : AuthStat::kTooWeak;
}

// For the function that answers. Empty if the call has been answered, which that function logs.
ServerCall ending(rrdk_server_call* call) noexcept {
  ServedCall* const context = engine::call_handles.close(reinterpret_cast<uintptr_t>(call));
  return context != nullptr ? service::CallAccess::handle(*context) : ServerCall();
}

}  // namespace

void enter(ServerCall call, void* context) {
  ServedCall& taken = service::CallAccess::of(call);
  if (taken.slot == nullptr) [[unlikely]]  // four million calls are in progress
    return std::move(call).reject(AcceptStat::kSystemErr);
  service::CallAccess::take(std::move(call));
  const auto& program = static_cast<const rrdk_program&>(*taken.service->binding);
  program.handlers[taken.service->index_of(taken.procedure) - taken.service->null_added](
      reinterpret_cast<rrdk_server_call*>(taken.slot->open()), context);
}

namespace {

// The handle that an interceptor sees; it is no longer valid when that returns.
class Shown {
 public:
  explicit Shown(const ServerCall& call) noexcept {
    ServedCall& served = service::CallAccess::of(call);
    if (served.slot != nullptr) [[likely]]
      handle_ = served.slot->open();
  }
  ~Shown() {
    if (handle_ != 0)
      engine::call_handles.close(handle_);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  const rrdk_server_call* get() const noexcept {
    return reinterpret_cast<const rrdk_server_call*>(handle_);
  }

 private:
  uintptr_t handle_ = 0;  // there are too many calls: the functions find none
};

rrdk_call_identity identity_of(const CallIdentity& i) noexcept {
  return {.address = i.address,
          .core = i.core,
          .program = i.program,
          .version = i.version,
          .procedure = i.procedure,
          .xid = i.xid,
          .auth_flavor = static_cast<uint32_t>(i.flavor),
          .credential = i.credential.data(),
          .credential_length = i.credential.size()};
}

}  // namespace

Admission ask_before(const ServerCall& call, uint64_t& note, void* context) {
  const auto& own = *static_cast<const rrdk_service_interceptor*>(context);
  const Shown shown(call);
  const rrdk_admission said = own.before(shown.get(), &note, own.context);
  switch (said.kind) {
    case RRDK_ENTER:
      return {};
    case RRDK_DENY:
      return Admission::deny(auth_stat_of(said.reason));
    case RRDK_DROP:
      return Admission::drop();
    case RRDK_REJECT:
      break;
  }
  return Admission::reject(accept_stat_of(said.reason));  // and what is no rrdk_admission_kind
}

void tell_after(const ServerCall& call, const CallOutcome& outcome, uint64_t note, void* context) {
  const auto& own = *static_cast<const rrdk_service_interceptor*>(context);
  const Shown shown(call);
  own.after(shown.get(), static_cast<rrdk_call_status>(outcome.status),
            static_cast<uint32_t>(outcome.auth_stat), note, own.context);
}

CallStatus ask_before_call(const CallIdentity& call, uint64_t& note, void* context) {
  const auto& own = *static_cast<const rrdk_call_interceptor*>(context);
  const rrdk_call_identity identity = identity_of(call);
  const rrdk_call_status said = own.before(&identity, &note, own.context);
  return knows(said, RRDK_CALL_FULL) ? static_cast<CallStatus>(said) : CallStatus::kCancelled;
}

void tell_after_call(const CallIdentity& call, const CallOutcome& outcome, uint64_t note,
                     void* context) {
  const auto& own = *static_cast<const rrdk_call_interceptor*>(context);
  const rrdk_call_identity identity = identity_of(call);
  own.after(&identity, static_cast<rrdk_call_status>(outcome.status),
            static_cast<uint32_t>(outcome.auth_stat), note, own.context);
}

}  // namespace rrdk::c

using c::Borrowed;

uint32_t rrdk_server_call_program(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr ? known->header.program : 0;
}

uint32_t rrdk_server_call_version(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr ? known->header.version : 0;
}

uint32_t rrdk_server_call_procedure(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr ? known->header.procedure : 0;
}

uint32_t rrdk_server_call_xid(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr ? known->header.xid : 0;
}

bool rrdk_server_call_wanted(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr && !known->dispatcher->link().is_over();
}

uint32_t rrdk_server_call_auth_flavor(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr ? static_cast<uint32_t>(known->header.credential.flavor) : 0;
}

rrdk_view rrdk_server_call_credential(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return std::bit_cast<rrdk_view>(known != nullptr ? known->header.credential.body : ItemView());
}

bool rrdk_server_call_auth_sys(const rrdk_server_call* call, rrdk_auth_sys* identity) {
  const auto* const known = c::find(call);
  AuthSys sys;
  if (known == nullptr || !decode(known->header.credential, sys))
    return false;
  identity->stamp = sys.stamp;
  identity->uid = sys.uid;
  identity->gid = sys.gid;
  identity->num_gids = static_cast<uint32_t>(sys.gids().size());
  std::copy(sys.gids().begin(), sys.gids().end(), identity->gids);
  c::copy_text(identity->machine_name, sys.machine_name());
  return true;
}

bool rrdk_server_call_security(const rrdk_server_call* call, rrdk_call_security* security) {
  Borrowed known(call);
  if (!known)
    return false;
  const CallSecurity found = known->security();
  return c::copy_out({.size = sizeof *security,
                      .flavor = static_cast<uint32_t>(found.flavor),
                      .protection = static_cast<rrdk_gss_protection>(found.protection),
                      .principal = found.principal.empty() ? "" : found.principal.data()},
                     security);
}

rrdk_server_connection* rrdk_server_call_connection(const rrdk_server_call* call) {
  const auto* const known = c::find(call);
  return known != nullptr ? c::handle_of(*known->dispatcher) : nullptr;
}

uint64_t rrdk_server_connection_id(const rrdk_server_connection* connection) {
  const auto* const known = c::find(connection);
  return known != nullptr ? static_cast<const ServerConnection*>(known)->id() : 0;
}

void* rrdk_server_connection_context(const rrdk_server_connection* connection) {
  const auto* const known = c::find(connection);
  return known != nullptr ? known->context() : nullptr;
}

void rrdk_server_connection_set_context(rrdk_server_connection* connection, void* context) {
  if (auto* const known = c::find(connection))
    known->set_context(context);
}

rrdk_decoder* rrdk_server_call_args(rrdk_server_call* call) {
  auto* const known = c::find(call);
  return c::handle_of(known != nullptr ? &known->args : &c::nothing().args);
}

rrdk_encoder* rrdk_server_call_results(rrdk_server_call* call) {
  auto* const known = c::find(call);
  return c::handle_of(known != nullptr ? &*known->results : &c::nothing().results);
}

rrdk_buffer* rrdk_server_call_result_buffer(rrdk_server_call* call, uint32_t size) {
  Borrowed known(call);
  return known ? c::handle_of(known->result_buffer(size).release()) : nullptr;
}

void rrdk_server_call_on_released(rrdk_server_call* call, void (*released)(void* argument),
                                  void* argument) {
  if (Borrowed known(call); known)
    known->on_released(released, argument);
}

void rrdk_server_call_request_receive_size(rrdk_server_call* call, uint32_t bytes) {
  if (Borrowed known(call); known)
    request_receive_size(*known, bytes);
}

void rrdk_server_call_raise_receive_size(rrdk_server_call* call, uint32_t bytes) {
  if (Borrowed known(call); known)
    raise_receive_size(*known, bytes);
}

bool rrdk_server_call_receive_sizes(const rrdk_server_call* call, rrdk_receive_sizes* sizes) {
  Borrowed known(call);
  return known && c::copy_out(c::sizes_of(receive_sizes(*known)), sizes);
}

void rrdk_server_call_reply(rrdk_server_call* call) {
  c::ending(call).reply();
}

void rrdk_server_call_reply_after(rrdk_server_call* call, uint64_t delay_ns) {
  c::ending(call).reply_after(delay_ns);
}

void rrdk_server_call_reject(rrdk_server_call* call, uint32_t status) {
  c::ending(call).reject(c::accept_stat_of(status));
}

void rrdk_server_call_reject_versions(rrdk_server_call* call, uint32_t low, uint32_t high) {
  c::ending(call).reject_versions(low, high);
}

void rrdk_server_call_deny(rrdk_server_call* call, uint32_t reason) {
  c::ending(call).deny(c::auth_stat_of(reason));
}

void rrdk_server_call_drop(rrdk_server_call* call) {
  c::ending(call).drop();
}

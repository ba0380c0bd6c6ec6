// The types of the handles of rrdk/rrdk.h. Most are pointers to the objects of the C++ API under
// another name; a few have some data of their own.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/gss.h"
#include "rrdk/rrdk.h"
#include "rrdk/server.h"
#include "service/dispatcher.h"

static_assert(sizeof(uintptr_t) == sizeof(uint64_t));

struct rrdk_credential {
  rrdk::SharedCredential shared;

  // Null is AUTH_NONE.
  static rrdk::SharedCredential of(const rrdk_credential* credential) {
    return credential != nullptr ? credential->shared : rrdk::SharedCredential();
  }
};

// A Call, and the callback for its end. There are two places for the callback: a submit() that is
// refused, because the call is in flight, has written to the place that the call in flight does not
// use.
struct rrdk_call {
  struct Told {
    rrdk_call* call;
    rrdk_completion completion = nullptr;
    void* argument = nullptr;
  };

  explicit rrdk_call(rrdk::Caller& caller) : call(caller), told{{this}, {this}} {}
  rrdk_call(const rrdk_call&) = delete;
  rrdk_call& operator=(const rrdk_call&) = delete;

  rrdk::Call call;
  Told told[2];
  uint32_t current = 0;
};

// The table of a program, in the two forms that the library needs. Constant once it is made.
struct rrdk_program : rrdk::Binding {
  // A server, a client or a call has been given it, and may use it for as long as it exists.
  mutable std::atomic<bool> is_used = false;
  void note_use() const noexcept {
    if (!is_used.load(std::memory_order_relaxed)) [[unlikely]]
      is_used.store(true, std::memory_order_relaxed);
  }
  std::string name_text;
  std::vector<std::string> procedure_names;
  std::vector<rrdk::ProcedureBinding> bindings;
  std::vector<rrdk::Procedure> served;  // those with handlers, in ascending order
  std::vector<rrdk_handler> handlers;   // the handlers of these
  rrdk::Acceptance accepts = rrdk::kAcceptAny;
};

namespace rrdk::c {

// The object of a rrdk_connection. on_state may run before connect() or connect_start() has
// returned the connection. If the program destroys the connection that early, the function that
// makes it deletes it.
struct Connection {
  enum class Owner : uint8_t { kMaker, kProgram, kNobody };

  Connection();
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::atomic<ClientConnection*> connection = nullptr;
  std::atomic<Owner> owner = Owner::kMaker;
  rrdk_on_state on_state = nullptr;
  void* argument = nullptr;
  base::Handles<Connection>::Slot* const slot;  // null: there are too many
  const uint64_t number;                        // remains in the handle when it is closed

  ClientConnection& get() const noexcept { return *connection.load(std::memory_order_acquire); }
  rrdk_connection* handle() const noexcept { return reinterpret_cast<rrdk_connection*>(number); }
};

inline constinit base::Handles<Connection> connections;

}  // namespace rrdk::c

struct rrdk_server {
  std::unique_ptr<rrdk::Server> server;
  decltype(rrdk_server_options::on_open) on_open = nullptr;
  decltype(rrdk_server_options::on_close) on_close = nullptr;
  void* argument = nullptr;
};

struct rrdk_backward_client {
  std::shared_ptr<rrdk::BackwardClient> client;
};

namespace rrdk::c {

// Maps handles that are the object itself to its type. Only declared.
Memory* object_type(rrdk_memory*);
mem::BufferSlot* object_type(rrdk_buffer*);
RegisteredMemory* object_type(rrdk_registered_memory*);
Runtime* object_type(rrdk_runtime*);
Encoder* object_type(rrdk_encoder*);
Decoder* object_type(rrdk_decoder*);
Caller* object_type(rrdk_caller*);
Client* object_type(rrdk_client*);
GssAcceptor* object_type(rrdk_gss_acceptor*);
rrdk_memory* handle_type(Memory*);
rrdk_buffer* handle_type(mem::BufferSlot*);
rrdk_registered_memory* handle_type(RegisteredMemory*);
rrdk_runtime* handle_type(Runtime*);
rrdk_encoder* handle_type(Encoder*);
rrdk_decoder* handle_type(Decoder*);
rrdk_caller* handle_type(Caller*);
rrdk_client* handle_type(Client*);
rrdk_gss_acceptor* handle_type(GssAcceptor*);

template <typename Handle>
auto* behind(Handle* handle) noexcept {  // may be null
  return reinterpret_cast<decltype(object_type(handle))>(handle);
}
template <typename Handle>
auto& of(Handle* handle) noexcept {
  return *behind(handle);
}
template <typename Handle>
const auto& of(const Handle* handle) noexcept {
  return *behind(const_cast<Handle*>(handle));
}
template <typename Object>
auto* handle_of(Object* object) noexcept {
  return reinterpret_cast<decltype(handle_type(object))>(object);
}

// For handles that are numbers, since their objects are used again. Returns null if the handle is
// no longer valid.
inline engine::ServedCall* find(const rrdk_server_call* call) noexcept {
  return engine::call_handles.find(reinterpret_cast<uintptr_t>(call));
}
inline service::Dispatcher* find(const rrdk_server_connection* connection) noexcept {
  return service::connection_handles.find(reinterpret_cast<uintptr_t>(connection));
}
inline ClientConnection* find(const rrdk_connection* connection) noexcept {
  const Connection* const known = connections.find(reinterpret_cast<uintptr_t>(connection));
  return known != nullptr ? &known->get() : nullptr;
}
inline rrdk_server_connection* handle_of(const service::Dispatcher& connection) noexcept {
  return reinterpret_cast<rrdk_server_connection*>(connection.handle());
}

static_assert(sizeof(rrdk_span) == sizeof(MemorySpan) &&
              offsetof(rrdk_span, length) == offsetof(MemorySpan, length) &&
              offsetof(rrdk_span, region) == offsetof(MemorySpan, region));
inline rrdk_span span_of(const MemorySpan& span) noexcept {
  return {span.data, span.length, span.region};
}
inline MemorySpan span_of(const rrdk_span& span) noexcept {
  return {static_cast<std::byte*>(span.data), span.length, span.region};
}

// ---- Errors ----

inline rrdk_errc code_of(Errc code) noexcept {
  return static_cast<rrdk_errc>(static_cast<int>(code) + 1);
}
static_assert(static_cast<int>(Errc::kInvalidArgument) + 1 == RRDK_E_INVALID_ARGUMENT &&
              static_cast<int>(Errc::kSystem) + 1 == RRDK_E_SYSTEM);
// Converts an error that a program states; values that it cannot mean become a refusal.
inline Errc code_of(rrdk_errc code) noexcept {
  return code >= RRDK_E_INVALID_ARGUMENT && code <= RRDK_E_SYSTEM ? static_cast<Errc>(code - 1)
                                                                  : Errc::kRefused;
}

// Cuts the text if it is too long, and always ends it with a NUL.
template <size_t N>
void copy_text(char (&to)[N], std::string_view text) noexcept {
  to[text.copy(to, N - 1)] = '\0';
}

inline rrdk_errc fill(rrdk_error* to, rrdk_errc code, std::string_view message) noexcept {
  if (to != nullptr) {
    to->code = code;
    copy_text(to->message, message);
  }
  return code;
}
inline rrdk_errc tell(const Error& error, rrdk_error* to) noexcept {
  return fill(to, code_of(error.code), error.message);
}
inline rrdk_errc tell_ok(rrdk_error* to) noexcept {
  return fill(to, RRDK_OK, "");
}

// Passes on what a set-up function has made, or the reason why it failed.
template <typename Value, typename Handle, typename Wrap>
rrdk_errc give(Result<Value>&& made, Handle** to, rrdk_error* error, Wrap&& wrap) noexcept {
  *to = nullptr;
  if (!made)
    return tell(made.error(), error);
  *to = wrap(std::move(*made));
  return tell_ok(error);
}
template <typename Value, typename Handle>
rrdk_errc give(Result<std::unique_ptr<Value>>&& made, Handle** to, rrdk_error* error) noexcept {
  return give(std::move(made), to, error,
              [](std::unique_ptr<Value> value) { return handle_of(value.release()); });
}
inline rrdk_errc give(const Result<void>& done, rrdk_error* error) noexcept {
  return done ? tell_ok(error) : tell(done.error(), error);
}

// ---- Structures that begin with their size ----

// Sizes that a structure had in some release. A structure grows by members after its former size,
// never in what was padding there; that size is then listed here.
template <typename Structure>
constexpr std::array<size_t, 0> kFormerSizes;
template <>
inline constexpr std::array<size_t, 1> kFormerSizes<rrdk_client_options> = {
    offsetof(rrdk_client_options, max_queued)};
template <>
inline constexpr std::array<size_t, 3> kFormerSizes<rrdk_server_options> = {
    160, offsetof(rrdk_server_options, backward_max_queued), offsetof(rrdk_server_options, gss)};
template <>
inline constexpr std::array<size_t, 1> kFormerSizes<rrdk_program_options> = {
    offsetof(rrdk_program_options, accepts)};
template <>
inline constexpr std::array<size_t, 1> kFormerSizes<rrdk_procedure> = {
    offsetof(rrdk_procedure, accepts)};
template <>
inline constexpr std::array<size_t, 1> kFormerSizes<rrdk_connection_info> = {272};

template <typename Structure>
constexpr bool is_size_of(size_t size) noexcept {
  return size == sizeof(Structure) || std::ranges::count(kFormerSizes<Structure>, size) != 0;
}

// Without a value, writes zeros, as for an object that is gone. Returns how many ids there are.
inline size_t copy_out(const std::optional<Stats>& stats, uint64_t* values, size_t count) noexcept {
  for (size_t id = 0; id < count; ++id)
    values[id] = stats && id < counter_count() ? (*stats)[static_cast<Counter>(id)] : 0;
  return stats ? counter_count() : 0;
}

// Returns false if the program states a size that the structure never had.
template <typename Structure>
bool copy_out(const Structure& all, Structure* to) noexcept {
  const size_t size = to->size;
  if (!is_size_of<Structure>(size))
    return false;
  std::memcpy(to, &all, size);
  to->size = size;
  return true;
}
// For the defaults of options; `size` is what the program has.
template <typename Structure>
void copy_defaults(Structure all, Structure* to, size_t size) noexcept {
  if (size > sizeof all)
    std::memset(to, 0, size);
  std::memcpy(to, &all, std::min(size, sizeof all));
  to->size = size;
}
// `all` has the defaults; what the program has replaces them. Null changes nothing.
template <typename Structure>
Result<void> copy_in(const Structure* given, Structure& all, const char* name) {
  if (given == nullptr)
    return {};
  const std::string size = std::string(name) + "::size is " + std::to_string(given->size);
  if (given->size > sizeof all)
    return fail(Errc::kUnsupported, size + ", and this release of librrdk knows " +
                                        std::to_string(sizeof all) + " bytes: run a later release");
  if (!is_size_of<Structure>(given->size))
    return fail(Errc::kInvalidArgument, size + ", which no release had: set it by " + name +
                                            "_init(&options, sizeof options)");
  std::memcpy(&all, given, given->size);
  return {};
}

// Enumerations begin at 0. `last` is the last value that this release knows; a larger value must
// not be taken for one of the known ones.
template <typename Enum>
bool knows(const Enum& value, Enum last) noexcept {
  uint32_t number;
  static_assert(sizeof value == sizeof number);
  std::memcpy(&number, &value, sizeof number);
  return number <= static_cast<uint32_t>(last);
}
inline Error unknown(const char* what) {
  return {Errc::kUnsupported,
          std::string(what) + " has a value that this release of librrdk does not know"};
}
inline Error missing(const char* what) {
  return {Errc::kInvalidArgument, std::string(what) + " is NULL"};
}

// Pointers that were passed to a set-up function, with their names. Returns true if one is null,
// which is reported in `error`.
struct Given {
  const void* pointer;
  const char* what;
};
inline bool lacks(std::initializer_list<Given> all, rrdk_error* error) {
  for (const Given& given : all) {
    if (given.pointer == nullptr) {
      tell(missing(given.what), error);
      return true;
    }
  }
  return false;
}
// The same for functions that make something: sets the result to null.
template <typename Handle>
bool lacks(Handle** made, std::initializer_list<Given> all, rrdk_error* error) {
  if (made == nullptr)
    return lacks({{nullptr, "where the handle is to go"}}, error);
  *made = nullptr;
  return lacks(all, error);
}

rrdk_connection_info info_of(const ConnectionInfo& info) noexcept;
rrdk_receive_sizes sizes_of(const ReceiveSizes& sizes) noexcept;
Result<AuthSys> auth_sys_of(const rrdk_auth_sys& identity);
Service service_of(const rrdk_program& program, void* context) noexcept;
// The library's interceptors for those of a C program; null if these are empty. They live on, since
// nothing tells when the last connection is gone.
const ServiceInterceptor* interceptor_of(const rrdk_service_interceptor& given);
const CallInterceptor* interceptor_of(const rrdk_call_interceptor& given);
Admission ask_before(const ServerCall& call, uint64_t& note, void* context);
void tell_after(const ServerCall& call, const CallOutcome& outcome, uint64_t note, void* context);
CallStatus ask_before_call(const CallIdentity& call, uint64_t& note, void* context);
void tell_after_call(const CallIdentity& call, const CallOutcome& outcome, uint64_t note,
                     void* context);
// The handler that the library has for each procedure of a C program: it enters the program's own.
void enter(ServerCall call, void* context);

}  // namespace rrdk::c

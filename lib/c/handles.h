// What the handles of rrdk/rrdk.h are: most of them pointers to the objects of the C++ API, under
// another name. A few have something of their own beside that.
#pragma once

#include <algorithm>
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
#include "rrdk/rrdk.h"
#include "rrdk/server.h"
#include "service/dispatcher.h"

static_assert(sizeof(uintptr_t) == sizeof(uint64_t));

// A Call, and whom to tell of its end. There are two places for that: a submit() that is refused,
// because the call is in flight, has written to the one that the call in flight does not use.
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

// The table of a program, in the two forms that the library wants. Fixed once it is made.
struct rrdk_program : rrdk::Binding {
  // A server, a client or a call has been given it, and may look at it for as long as it lives.
  mutable std::atomic<bool> is_used = false;
  void note_use() const noexcept {
    if (!is_used.load(std::memory_order_relaxed)) [[unlikely]]
      is_used.store(true, std::memory_order_relaxed);
  }
  std::string name_text;
  std::vector<std::string> procedure_names;
  std::vector<rrdk::ProcedureBinding> bindings;
  std::vector<rrdk::Procedure> served;  // those with handlers, in ascending order
  std::vector<rrdk_handler> handlers;   // theirs
};

namespace rrdk::c {

// What a rrdk_connection stands for. on_state may run before connect() or connect_start() has
// returned the connection. If the program destroys it that early, the function that makes it
// deletes it.
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
  const uint64_t number;                        // which stays in it when it is closed

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

// Handles that are the object itself: which is which. Only declared.
Memory* object_type(rrdk_memory*);
mem::BufferSlot* object_type(rrdk_buffer*);
RegisteredMemory* object_type(rrdk_registered_memory*);
Runtime* object_type(rrdk_runtime*);
Encoder* object_type(rrdk_encoder*);
Decoder* object_type(rrdk_decoder*);
Caller* object_type(rrdk_caller*);
Client* object_type(rrdk_client*);
rrdk_memory* handle_type(Memory*);
rrdk_buffer* handle_type(mem::BufferSlot*);
rrdk_registered_memory* handle_type(RegisteredMemory*);
rrdk_runtime* handle_type(Runtime*);
rrdk_encoder* handle_type(Encoder*);
rrdk_decoder* handle_type(Decoder*);
rrdk_caller* handle_type(Caller*);
rrdk_client* handle_type(Client*);

template <typename Handle>
auto* behind(Handle* handle) noexcept {  // or null
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

// Handles that are numbers, since what they stand for is used again. Null: it is too late.
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
// Of an error that a program states; what it cannot mean is a refusal.
inline Errc code_of(rrdk_errc code) noexcept {
  return code >= RRDK_E_INVALID_ARGUMENT && code <= RRDK_E_SYSTEM ? static_cast<Errc>(code - 1)
                                                                  : Errc::kRefused;
}

// Cut where there is no room, with a NUL behind it in any case.
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

// What a set-up function has made, or why not.
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

// Sizes that a structure had in some release. It grows by members behind its former size, never in
// what was padding there; that size is then listed here.
template <typename Structure>
constexpr size_t kFormerSize = SIZE_MAX;  // none
template <>
inline constexpr size_t kFormerSize<rrdk_server_options> = 160;
template <>
inline constexpr size_t kFormerSize<rrdk_connection_info> = 272;

template <typename Structure>
constexpr bool is_size_of(size_t size) noexcept {
  return size == sizeof(Structure) || size == kFormerSize<Structure>;
}

// Nothing: zeros, as of what is gone. Returns how many ids there are.
inline size_t copy_out(const std::optional<Stats>& stats, uint64_t* values, size_t count) noexcept {
  for (size_t id = 0; id < count; ++id)
    values[id] = stats && id < counter_count() ? (*stats)[static_cast<Counter>(id)] : 0;
  return stats ? counter_count() : 0;
}

// False: the program says a size that the structure never had.
template <typename Structure>
bool copy_out(const Structure& all, Structure* to) noexcept {
  const size_t size = to->size;
  if (!is_size_of<Structure>(size))
    return false;
  std::memcpy(to, &all, size);
  to->size = size;
  return true;
}
// Of options' defaults; `size` is what the program has.
template <typename Structure>
void copy_defaults(Structure all, Structure* to, size_t size) noexcept {
  if (size > sizeof all)
    std::memset(to, 0, size);
  std::memcpy(to, &all, std::min(size, sizeof all));
  to->size = size;
}
// `all` has the defaults; what the program has replaces them. Null: nothing.
template <typename Structure>
Result<void> copy_in(const Structure* given, Structure& all, const char* name) {
  if (given == nullptr)
    return {};
  const std::string size = std::string(name) + "::size is " + std::to_string(given->size);
  if (given->size > sizeof all)
    return fail(Errc::kUnsupported, size + ", and this release of librrdk knows " +
                                        std::to_string(sizeof all) +
                                        " bytes of it: run a later one");
  if (!is_size_of<Structure>(given->size))
    return fail(Errc::kInvalidArgument, size + ", which no release had: set it by " + name +
                                            "_init(&options, sizeof options)");
  std::memcpy(&all, given, given->size);
  return {};
}

// Enumerations begin at 0. `last` is the last one that this release knows. A value beyond those
// must not be read as one of them.
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

// Pointers that a set-up function was given, and what they are. True: one is null, which `error`
// is told.
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
// The same where something is to be made: nothing yet.
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
// The handler that the library knows of each procedure of C's: it enters the program's own.
void enter(ServerCall call, void* context);

}  // namespace rrdk::c

/**
 * Errors of the control path. Set-up functions (creating memory, listening, connecting,
 * registering) return Result<T>: a value, or an Error that says in words what is at fault and what
 * to do.
 *
 *   auto memory = rrdk::Memory::create({});
 *   if (!memory) return complain(memory.error().message);
 *
 * Nothing here throws. The data path never makes an Error: a call's outcome is a CallStatus
 * (rrdk/call_status.h), and errc_of() there gives its kind of error.
 *
 * Functions that return a Result are [[nodiscard]], since a listen() whose result is ignored may be
 * a server that does not listen. A program that cannot continue without the value uses must();
 * Result::value() would throw an exception without Error::message.
 *
 *   auto memory = rrdk::must(rrdk::Memory::create({}));
 */
#pragma once

#include <string>
#include <system_error>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "rrdk/language.h"

namespace rrdk {

/** The kind of an error, for programs; Error::message is for people. */
enum class Errc {
  kInvalidArgument,  ///< an option or argument is out of range or contradictory
  kBadUri,           ///< an address does not parse, or its scheme has no driver
  kAddressInUse,     ///< another server has the address, or something else is there
  kNotFound,         ///< nothing at the address (no such socket, host or program)
  kRefused,          ///< the peer exists and refused
  kNotAPeer,         ///< the answer at the address is not in our protocol
  kPermission,       ///< the operating system forbids it
  kNoMemory,         ///< memory, hugepages, locked memory or a pool is exhausted
  kTimeout,          ///< no answer in time
  kConnectionLost,   ///< the peer closed, died or broke the protocol
  kUnsupported,      ///< this driver, device or build cannot do it
  kLimit,            ///< a configured limit forbids it
  kShutdown,         ///< the object is being closed
  kSystem,           ///< a system call failed; the message has its name and reason
};

/** The name of a kind, such as "address in use". Never null. */
const char* to_string(Errc code);

/**
 * The corresponding errno, for interfaces that have nothing else: ETIMEDOUT for kTimeout, EIO for
 * kSystem. Never 0.
 */
int errno_of(Errc code) noexcept;

/**
 * The kind as a std::error_code. It compares with std::errc as errno_of() does; its value is not 0,
 * which would be success.
 *
 *   std::error_code code = connection.error().code;
 *   if (code == std::errc::timed_out) ...;
 */
std::error_code make_error_code(Errc code) noexcept;

struct Error {
  Errc code;
  std::string message;  ///< names the thing at fault and what to do; one line, no newline
};

/** The return type of set-up functions: a value, or an error. */
template <typename T>
using Result = tl::expected<T, Error>;

/** Shorthand for returning an error: `return fail(Errc::kLimit, "...")`. */
inline tl::unexpected<Error> fail(Errc code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

/**
 * Prints "PROGRAM: MESSAGE" to stderr and ends the process by std::exit(EXIT_FAILURE): static
 * objects are destroyed, those on the stack are not, and other threads run on until the end.
 */
[[noreturn]] void exit_with(const Error& error);

/**
 * Returns the value, or ends the process by exit_with(): for main() and tools. A program that
 * serves others, or has something to save, should handle the error instead. Any thread.
 *
 *   std::string uri = rrdk::must(server->listen("shm:/run/perf.sock"));
 */
template <typename T>
T must(Result<T> result) {
  if (!result)
    exit_with(result.error());
  if constexpr (!std::is_void_v<T>)
    return std::move(*result);
}

}  // namespace rrdk

namespace std {

/** Lets a rrdk::Errc convert to std::error_code. */
template <>
struct is_error_code_enum<rrdk::Errc> : true_type {};

}  // namespace std

#include "rrdk/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace rrdk {

const char* to_string(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return "invalid argument";
    case Errc::kBadUri:
      return "bad address";
    case Errc::kAddressInUse:
      return "address in use";
    case Errc::kNotFound:
      return "not found";
    case Errc::kRefused:
      return "refused";
    case Errc::kNotAPeer:
      return "not a peer";
    case Errc::kPermission:
      return "permission denied";
    case Errc::kNoMemory:
      return "out of memory";
    case Errc::kTimeout:
      return "timeout";
    case Errc::kConnectionLost:
      return "connection lost";
    case Errc::kUnsupported:
      return "unsupported";
    case Errc::kLimit:
      return "limit reached";
    case Errc::kShutdown:
      return "shutting down";
    case Errc::kSystem:
      return "system error";
  }
  return "unknown error";
}

int errno_of(Errc code) noexcept {
  switch (code) {
    case Errc::kInvalidArgument:
    case Errc::kBadUri:
      return EINVAL;
    case Errc::kAddressInUse:
      return EADDRINUSE;
    case Errc::kNotFound:
      return ENOENT;
    case Errc::kRefused:
      return ECONNREFUSED;
    case Errc::kNotAPeer:
      return EPROTO;
    case Errc::kPermission:
      return EACCES;
    case Errc::kNoMemory:
      return ENOMEM;
    case Errc::kTimeout:
      return ETIMEDOUT;
    case Errc::kConnectionLost:
      return ECONNRESET;
    case Errc::kUnsupported:
      return EOPNOTSUPP;
    case Errc::kLimit:
      return ENOBUFS;
    case Errc::kShutdown:
      return ESHUTDOWN;
    case Errc::kSystem:
      return EIO;
  }
  return EIO;
}

namespace {

// A code's value is that of the Errc plus one: 0 is success.
class ErrcCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "rrdk"; }
  std::string message(int value) const override { return to_string(errc(value)); }
  std::error_condition default_error_condition(int value) const noexcept override {
    return {errno_of(errc(value)), std::generic_category()};
  }

 private:
  static Errc errc(int value) noexcept { return static_cast<Errc>(value - 1); }
};

}  // namespace

std::error_code make_error_code(Errc code) noexcept {
  static const ErrcCategory category;
  return {static_cast<int>(code) + 1, category};
}

void exit_with(const Error& error) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.message.c_str());
  std::exit(EXIT_FAILURE);
}

}  // namespace rrdk

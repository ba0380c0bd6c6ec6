// Addresses: shm:/run/rrdk.sock, iwarp://127.0.0.1:20049, verbs://[fe80::1%eth0]:20049.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rrdk/error.h"

namespace rrdk::base {

// The generic syntax of RFC 3986 without percent-decoding: paths are file names as they are, and an
// IPv6 zone is written with a plain "%".
struct Uri {
  std::string scheme;            // in lower case
  std::string host;              // without the brackets of IPv6; empty if there is no "//"
  std::optional<uint16_t> port;  // not set: the driver's default; 0: the system's choice
  std::string path;              // with its leading slash, if it has one
  std::vector<std::pair<std::string, std::string>> query;  // in order; "?a=1&b" gives b ""
};

// Errors: kBadUri, which names the fault, not the address.
Result<Uri> parse_uri(std::string_view text);

// The option "timeout" of every driver's addresses: the time after which an attempt to connect has
// failed.
constexpr std::string_view kTimeoutOption = "timeout";
// Returns its value, in seconds, 1 to 3600.
std::optional<std::chrono::seconds> parse_timeout(std::string_view value);
// Returns that of an address; empty if it has none, or if the number is invalid.
std::optional<std::chrono::seconds> timeout_of(std::string_view uri);

// Returns `error` with the address that it is about before its message. Functions that get an
// address from a user add it once; the layers below leave it out.
Error about(std::string_view address, const Error& error);

}  // namespace rrdk::base

#include "directory.h"

#include <charconv>
#include <cstdio>
#include <utility>

#include "perf_program.h"

namespace rrdk::testrpc {
namespace {

RpcService perf() {
  return {perf_binding().program, perf_binding().version};
}

struct Parts {
  std::string scheme;  // with "://"
  std::string host;    // without brackets
  std::string port;    // may be empty
  std::string rest;    // options
};

Result<Parts> split_uri(const std::string& uri) {
  size_t start = uri.find("://");
  if (start == std::string::npos)
    return fail(Errc::kBadUri,
                "--rpcbind is for addresses with a host, such as "
                "iwarp://127.0.0.1, not for " +
                    uri);
  start += 3;
  Parts parts;
  parts.scheme = uri.substr(0, start);
  size_t end = std::min(uri.find_first_of("/?", start), uri.size());
  std::string authority = uri.substr(start, end - start);
  parts.rest = uri.substr(end);
  size_t bracket = authority.find(']');
  size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  parts.host = authority.substr(0, colon);
  if (colon != std::string::npos)
    parts.port = authority.substr(colon + 1);
  if (parts.host.starts_with('[') && parts.host.ends_with(']'))
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (parts.host.empty())
    return fail(Errc::kBadUri, "--rpcbind: the address " + uri + " has no host");
  return parts;
}

}  // namespace

Result<std::string> with_listed_port(const std::string& uri) {
  Result<Parts> parts = split_uri(uri);
  if (!parts)
    return tl::unexpected(parts.error());
  if (!parts->port.empty())
    return fail(Errc::kInvalidArgument,
                "--rpcbind looks for the port; leave that of " + uri + " out, or the option");
  return rpcbind_locate(perf(), {.host = parts->host}).map([&](const HostAndPort& at) {
    return parts->scheme + at.to_string() + parts->rest;
  });
}

Result<Listing> Listing::enter(const std::string& uri) {
  Result<Parts> parts = split_uri(uri);
  if (!parts)
    return tl::unexpected(parts.error());
  uint16_t port = 0;
  const char* end = parts->port.data() + parts->port.size();
  if (std::from_chars(parts->port.data(), end, port).ptr != end || port == 0)
    return fail(Errc::kBadUri, "--rpcbind: the address " + uri + " has no port");
  Listing listing;
  Result<std::unique_ptr<RpcbindListing>> entered =
      RpcbindListing::enter(perf(), parts->host, port);
  if (!entered)
    return tl::unexpected(entered.error());
  listing.entries_ = std::move(*entered);
  return listing;
}

Listing& Listing::operator=(Listing&& other) noexcept {
  std::swap(entries_, other.entries_);
  return *this;
}

Listing::~Listing() {
  if (entries_ == nullptr)
    return;
  if (Result<void> gone = entries_->end(); !gone)
    std::fprintf(stderr, "testrpc: %s\n", gone.error().message.c_str());
}

}  // namespace rrdk::testrpc

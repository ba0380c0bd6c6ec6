// Addresses of the driver: iwarp://127.0.0.1:20049, iwarp://[fe80::1%eth0], iwarp://host?crc=1.
//
// Options, joined by "&". For both ends:
//
//   timeout=S  seconds after which an attempt to connect has failed, 1 to 3600; for a listener:
//              seconds in which a peer must have sent its whole request
//   silence=S  seconds without anything from the peer's host, including its TCP, after which a
//              connection has ended, 3 to 3600
//   congestion=NAME
//              TCP's congestion control, as in net.ipv4.tcp_available_congestion_control
//
// For a client:
//
//   crc=1      asks for CRC32C; either end can insist on it, and a listener agrees
//   mpa=1      asks as RFC 5044 says, for servers that do not know RFC 6581: Read depths are not
//              negotiated then
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "drivers/common/endpoint.h"
#include "rrdk/error.h"

namespace rrdk::iwarp {

// NFS over RDMA's (RFC 8267 section 7).
constexpr uint16_t kDefaultPort = 20049;
constexpr std::string_view kScheme = "iwarp";

// The default. TCP's keepalive counts in seconds, and asks twice.
constexpr std::chrono::seconds kSilence{30};
constexpr std::chrono::seconds kLeastSilence{3};

using drivers::Endpoint4Or6;
using drivers::group_of;
using drivers::host_of;
using drivers::identity_of;
using drivers::to_text;

struct Address {
  std::string host;
  uint16_t port = kDefaultPort;
  bool crc = false;  // RFC 5044 section 5
  uint8_t mpa_revision = 2;
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::seconds silence = kSilence;
  std::string congestion;  // empty: congestion.h
};

// Resolves no name. Errors: kBadUri.
Result<Address> parse_address(const std::string& uri);

// The location of a server.
struct Place final : fabric::Place {
  void begin_with(const NetworkAddress& served) override {
    drivers::begin_with(host.endpoints, served);
  }

  Address address;
  drivers::Host host;  // its endpoints are tried in turn
};

// fabric::Driver::find.
Result<std::unique_ptr<fabric::Place>> find(const std::string& uri, fabric::Names names);

Endpoint4Or6 local_end(int socket);
Endpoint4Or6 far_end(int socket);

// Sets the options of every connection's socket.
void tune(int socket, std::chrono::seconds silence = kSilence);

}  // namespace rrdk::iwarp

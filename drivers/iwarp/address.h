// Addresses of the driver: iwarp://127.0.0.1:20049, iwarp://[fe80::1%eth0], iwarp://host?crc=1.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "fabric/device.h"
#include "rrdk/error.h"

namespace rrdk::iwarp {

// NFS over RDMA's (RFC 8267 section 7).
constexpr uint16_t kDefaultPort = 20049;

struct Endpoint4Or6 {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

struct Address {
  Endpoint4Or6 endpoint;
  bool crc = false;  // asks for CRC32C (RFC 5044 section 5), which either end can insist on
};

// Names are looked up, which can take a while. Errors: kBadUri, kNotFound.
Result<Address> parse_address(const std::string& uri);

// As in "10.0.0.1:20049", "[::1]:20049".
std::string to_text(const Endpoint4Or6& endpoint);
// Without the port: the same whenever this host connects.
std::string host_of(const Endpoint4Or6& endpoint);

// The same in numbers; not known when there is no address.
fabric::Identity identity_of(const Endpoint4Or6& endpoint);

Endpoint4Or6 local_end(int socket);
Endpoint4Or6 far_end(int socket);

// Options of every connection's socket.
void tune(int socket);

}  // namespace rrdk::iwarp

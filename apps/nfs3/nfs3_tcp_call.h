// One ONC RPC over TCP (RFC 5531 sections 9 and 11), blocking: for what precedes the data path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rrdk/error.h"

namespace rrdk::nfs3 {

struct TcpCall {
  std::string host;
  uint16_t port;
  uint32_t program;
  uint32_t version;
  uint32_t procedure;
  std::vector<std::byte> args;  // in XDR
  uint32_t timeout_ms;
};

void put_u32(std::vector<std::byte>& to, uint32_t value);
void put_string(std::vector<std::byte>& to, std::string_view text);

// Connects, calls with AUTH_SYS as this process's user, and closes: the results' XDR. Errors as
// mount_export() says; kUnsupported when the server has no such program, version or procedure.
Result<std::vector<std::byte>> call_over_tcp(const TcpCall& call);

}  // namespace rrdk::nfs3

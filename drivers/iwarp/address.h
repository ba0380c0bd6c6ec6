// Addresses of the driver: iwarp://127.0.0.1:20049, iwarp://[fe80::1%eth0], iwarp://host?crc=1.
//
// Options, joined by "&", for whoever connects:
//   crc=1      asks for CRC32C; either end can insist on it, and a listener agrees
//   mpa=1      asks as RFC 5044 says, for servers that do not know RFC 6581: Read depths are not
//              negotiated then
//   timeout=S  seconds until a connection that is not made has failed, 1 to 3600; 30 unless told
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/common/endpoint.h"
#include "rrdk/error.h"

namespace rrdk::iwarp {

// NFS over RDMA's (RFC 8267 section 7).
constexpr uint16_t kDefaultPort = 20049;
constexpr std::string_view kScheme = "iwarp";

using drivers::Endpoint4Or6;
using drivers::host_of;
using drivers::identity_of;
using drivers::to_text;

struct Address {
  std::string host;
  uint16_t port = kDefaultPort;
  bool crc = false;  // RFC 5044 section 5
  uint8_t mpa_revision = 2;
  std::chrono::seconds timeout{30};
};

// Looks nothing up. Errors: kBadUri.
Result<Address> parse_address(const std::string& uri);

// Where that is. A name can have several places, and takes a while: `numeric` looks at numbers
// alone, at once. Errors: kNotFound; of `numeric` also for names.
enum class Lookup : uint8_t { kNumeric, kNames };
Result<std::vector<Endpoint4Or6>> look_up(const Address& address, Lookup how);

// The same without holding up whoever asks: the resolver blocks, so it has a thread of its own,
// which outlives the asker if need be.
class NameLookup {
 public:
  static std::shared_ptr<NameLookup> start(const Address& address);

  // Null: it is still under way.
  const Result<std::vector<Endpoint4Or6>>* result() const {
    return done_.load(std::memory_order_acquire) ? &*result_ : nullptr;
  }

 private:
  std::optional<Result<std::vector<Endpoint4Or6>>> result_;
  std::atomic<bool> done_{false};
};

Endpoint4Or6 local_end(int socket);
Endpoint4Or6 far_end(int socket);

// Options of every connection's socket.
void tune(int socket);

}  // namespace rrdk::iwarp

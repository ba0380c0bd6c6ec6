// What the ends tell each other about themselves apart from message headers: in the connection
// manager's private data, and by the protocol that RFC 5666 has for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rrdk::proto {

// The contents of the connection manager's private data: our sizes (RFC 8797), and why a connection
// is rejected.

// RFC 8797: eight octets that tell the peer our sizes.
constexpr uint32_t kPrivateDataLength = 8;

// What one end states about itself. The defaults are those of a peer that states nothing (section
// 4).
struct PrivateData {
  bool remote_invalidation = false;  // the R bit
  uint32_t send_size = 1024;         // bytes, a multiple of 1024 in 1024..262144
  uint32_t receive_size = 1024;
};

// Sizes are rounded down to a multiple of 1024 and capped at 262144 (PD-13).
std::array<std::byte, kPrivateDataLength> encode(const PrivateData& data);

// Searches every offset (section 4, PD-15); without a valid message, returns the defaults.
PrivateData decode_private_data(std::span<const std::byte> field);

// Why a server does not accept a connection, in the private data of its rejection: eight octets of
// our own format, and a text of its program. No specification defines any, so other implementations
// treat it like any private data.
constexpr uint32_t kRejectionLength = 8;    // without the text
constexpr uint32_t kMaxRejectionText = 48;  // bytes

enum class Rejection : uint8_t {
  kConnections = 1,  // it has as many as it takes
  kClient,           // it has as many from this client as it takes
  kBuffers,          // it has no buffers for another one
  kNotAdmitted,
  kClosing,
};

// For people, as in "the server rejected the connection: ...". Never null.
const char* to_string(Rejection why) noexcept;
// The text is sent in ASCII: characters that are not printable become '?', and a text that is too
// long ends in "...".
std::vector<std::byte> encode(Rejection why, std::string_view text = {});

struct Rejected {
  Rejection why;
  std::string text;  // at most kMaxRejectionText printable characters, whatever was received

  // The to_string() of `why`, and the text if there is one.
  std::string to_string() const;
};
// Empty if the data is something else, or empty.
std::optional<Rejected> decode_rejection(std::span<const std::byte> private_data);

}  // namespace rrdk::proto

namespace rrdk::proto::ccp {

// The Connection Configuration Protocol (RFC 5666 section 6.2): an ONC RPC program with one
// procedure by which the ends tell each other their sizes. No later document keeps it.

constexpr uint32_t kProgram = 100417;  // rpc.rdmaconfig
constexpr uint32_t kVersion = 1;
constexpr uint32_t kConfRdma = 1;  // the procedure; 0 is NULL, as in every program

// Arguments and results have the same length: three words.
constexpr uint32_t kBodyBytes = 12;

// config_rdma_req: what the client states. Sizes are those of whole Sends (V1-CCP-21).
struct Request {
  uint32_t max_call = 0;   // the largest inline call that it wants to send
  uint32_t max_reply = 0;  // the largest inline reply that it accepts
  uint32_t max_reads = 0;  // RDMA Reads that it can serve at once
  bool operator==(const Request&) const = default;
};

// config_rdma_reply: what the server states.
struct Reply {
  uint32_t max_call = 0;   // the largest inline call that it accepts
  uint32_t align = 0;      // of its Receives, in bytes; 0: no preference
  uint32_t max_reads = 0;  // RDMA Reads that it can serve at once
  bool operator==(const Reply&) const = default;
};

std::array<std::byte, kBodyBytes> encode(const Request& request);
std::array<std::byte, kBodyBytes> encode(const Reply& reply);
// Every three words are a valid body.
Request decode_request(std::span<const std::byte, kBodyBytes> body);
Reply decode_reply(std::span<const std::byte, kBodyBytes> body);

}  // namespace rrdk::proto::ccp

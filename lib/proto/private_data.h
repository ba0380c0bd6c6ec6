// What goes into the connection manager's private data: our sizes (RFC 8797), and why a connection
// is rejected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rrdk::proto {

// RFC 8797: eight octets that tell the peer our sizes.
constexpr uint32_t kPrivateDataLength = 8;

// What one end says of itself. The defaults are those of a peer that says nothing (section 4).
struct PrivateData {
  bool remote_invalidation = false;  // the R bit
  uint32_t send_size = 1024;         // bytes, a multiple of 1024 in 1024..262144
  uint32_t receive_size = 1024;
};

// Sizes are rounded down to a multiple of 1024 and capped at 262144 (PD-13).
std::array<std::byte, kPrivateDataLength> encode(const PrivateData& data);

// Searches every offset (section 4, PD-15); without a valid message, the defaults.
PrivateData decode_private_data(std::span<const std::byte> field);

// Why a server does not accept a connection, in the private data of its rejection: eight octets of
// our own making. No specification has any, so other ends see them as they see any private data.
constexpr uint32_t kRejectionLength = 8;

enum class Rejection : uint8_t {
  kConnections = 1,  // as many as the server takes
  kClient,           // as many as it takes of this client
  kBuffers,          // it has no buffers for another
  kNotAdmitted,
  kClosing,
};

// For people, as in "the server rejected the connection: ...". Never null.
const char* to_string(Rejection why) noexcept;
std::array<std::byte, kRejectionLength> encode(Rejection why) noexcept;
// Nothing: it says something else, or nothing.
std::optional<Rejection> decode_rejection(std::span<const std::byte> private_data) noexcept;

}  // namespace rrdk::proto

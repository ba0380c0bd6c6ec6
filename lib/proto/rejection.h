// Why a server does not accept a connection, in the private data of its rejection: eight octets of
// our own making. No specification has any, so other ends see them as they see any private data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rrdk::proto {

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

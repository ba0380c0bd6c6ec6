// RFC 8797: eight octets in the connection manager's private data that tell the peer our sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rrdk::proto {

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

}  // namespace rrdk::proto

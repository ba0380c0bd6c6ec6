#include "proto/private_data.h"

#include <algorithm>

#include "rrdk/xdr.h"

namespace rrdk::proto {

namespace {

constexpr uint32_t kFormatId = 0xf6ab0e18;
constexpr std::byte kFormatVersion{1};
constexpr std::byte kRemoteInvalidation{0x01};  // the lowest bit of the flags (PD-05)
constexpr uint32_t kSizeUnit = 1024;
constexpr uint32_t kLargestSize = 256 * kSizeUnit;

// Rounded down, as more would promise what no buffer holds (PD-13).
std::byte size_octet(uint32_t size) {
  return std::byte(std::clamp(size, kSizeUnit, kLargestSize) / kSizeUnit - 1);
}

uint32_t size_from(std::byte octet) {
  return (std::to_integer<uint32_t>(octet) + 1) * kSizeUnit;
}

}  // namespace

std::array<std::byte, kPrivateDataLength> encode(const PrivateData& data) {
  std::array<std::byte, kPrivateDataLength> out{};
  xdr::store_u32(out.data(), kFormatId);
  out[4] = kFormatVersion;
  out[5] = data.remote_invalidation ? kRemoteInvalidation : std::byte{0};
  out[6] = size_octet(data.send_size);
  out[7] = size_octet(data.receive_size);
  return out;
}

// A hit of another version may be another layer's octets by chance: the search goes on (PD-20).
PrivateData decode_private_data(std::span<const std::byte> field) {
  for (; field.size() >= kPrivateDataLength; field = field.subspan(1)) {
    if (xdr::load_u32(field.data()) != kFormatId || field[4] != kFormatVersion)
      continue;
    return {(field[5] & kRemoteInvalidation) != std::byte{0}, size_from(field[6]),
            size_from(field[7])};
  }
  return {};
}

}  // namespace rrdk::proto

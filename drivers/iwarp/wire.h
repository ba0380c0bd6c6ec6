// Big-endian integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rrdk::iwarp {

inline uint16_t load_u16(const std::byte* p) {
  return static_cast<uint16_t>(static_cast<uint32_t>(p[0]) << 8 | static_cast<uint32_t>(p[1]));
}
inline uint32_t load_u32(const std::byte* p) {
  return uint32_t{load_u16(p)} << 16 | load_u16(p + 2);
}
inline uint64_t load_u64(const std::byte* p) {
  return uint64_t{load_u32(p)} << 32 | load_u32(p + 4);
}
inline void store_u16(std::byte* p, uint16_t value) {
  p[0] = static_cast<std::byte>(value >> 8);
  p[1] = static_cast<std::byte>(value);
}
inline void store_u32(std::byte* p, uint32_t value) {
  store_u16(p, static_cast<uint16_t>(value >> 16));
  store_u16(p + 2, static_cast<uint16_t>(value));
}
inline void store_u64(std::byte* p, uint64_t value) {
  store_u32(p, static_cast<uint32_t>(value >> 32));
  store_u32(p + 4, static_cast<uint32_t>(value));
}

}  // namespace rrdk::iwarp

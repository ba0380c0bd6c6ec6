// Big-endian integers, anywhere in memory.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rrdk::iwarp {

inline uint16_t load_u16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return be16toh(value);
}
inline uint32_t load_u32(const std::byte* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return be32toh(value);
}
inline uint64_t load_u64(const std::byte* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return be64toh(value);
}
inline void store_u16(std::byte* p, uint16_t value) {
  value = htobe16(value);
  std::memcpy(p, &value, sizeof(value));
}
inline void store_u32(std::byte* p, uint32_t value) {
  value = htobe32(value);
  std::memcpy(p, &value, sizeof(value));
}
inline void store_u64(std::byte* p, uint64_t value) {
  value = htobe64(value);
  std::memcpy(p, &value, sizeof(value));
}

}  // namespace rrdk::iwarp

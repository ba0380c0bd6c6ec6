#include "perf_data.h"

void perf_fill(char* to, uint32_t count, uint64_t offset) {
  uint32_t i;
  for (i = 0; i < count; i++) {
    const uint64_t x = offset + i;
    to[i] = (char)((x ^ (x >> 8) ^ (x >> 16)) * 167 + 13);
  }
}

uint32_t perf_crc32c(const char* bytes, uint32_t count) {
  static uint32_t table[256];
  uint32_t crc = 0xffffffff;
  uint32_t i, bit;
  if (table[1] == 0) {
    for (i = 0; i < 256; i++) {
      table[i] = i;
      for (bit = 0; bit < 8; bit++)
        table[i] = (table[i] >> 1) ^ ((table[i] & 1) ? 0x82f63b78 : 0);
    }
  }
  for (i = 0; i < count; i++)
    crc = table[(crc ^ (uint8_t)bytes[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

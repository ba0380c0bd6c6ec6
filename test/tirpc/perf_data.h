/* The bytes and the checksum of testrpc's program. */
#pragma once

#include <stdint.h>

#define PERF_VERIFY 1u

/* The byte at offset x is (x ^ (x >> 8) ^ (x >> 16)) * 167 + 13. */
void perf_fill(char* to, uint32_t count, uint64_t offset);
/* CRC-32C (Castagnoli). */
uint32_t perf_crc32c(const char* bytes, uint32_t count);

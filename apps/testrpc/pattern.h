// The perf program's data pattern and checksum, fast enough not to dominate measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rrdk/xdr.h"

namespace rrdk::testrpc {

// The byte at absolute offset x (64 bit, wrapping) is (x ^ (x >> 8) ^ (x >> 16)) * 167 + 13, modulo
// 256.
void fill_pattern(std::span<std::byte> bytes, uint64_t offset) noexcept;

// Returns how many of `bytes` differ from the pattern at `offset`.
uint64_t count_wrong(std::span<const std::byte> bytes, uint64_t offset) noexcept;
uint64_t count_wrong(const ItemView& bytes, uint64_t offset) noexcept;

// CRC-32C (Castagnoli), initial value and final xor 0xffffffff.
uint32_t crc32c(std::span<const std::byte> bytes) noexcept;
uint32_t crc32c(const ItemView& bytes) noexcept;

// Reads every byte and discards them.
void touch(std::span<const std::byte> bytes) noexcept;
void touch(const ItemView& bytes) noexcept;

}  // namespace rrdk::testrpc

// SipHash-2-4 (Aumasson and Bernstein, 2012): a checksum of 64 bits that only who has the key can
// foresee, for tables whose keys are a peer's choice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rrdk::base {

using SipKey = std::array<uint64_t, 2>;

uint64_t sip_hash(const SipKey& key, std::span<const std::byte> bytes) noexcept;

}  // namespace rrdk::base

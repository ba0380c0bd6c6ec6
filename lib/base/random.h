// What a peer cannot predict: random words, for remote keys and the first XID, and a checksum under
// a random key, for tables whose keys a peer can choose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rrdk::base {

// Unpredictable 32-bit words, for remote keys and the first XID.
//
// A peer sees many keys and must not be able to predict the next one. That rules out the usual fast
// generators, whose state can be computed from their output. A system call for each key is too
// slow. So each object is a ChaCha20 stream (RFC 8439) under a key from getrandom(). Each refill
// replaces the key by the first words of the new output, so that an attacker who reads our memory
// later cannot compute what was drawn before.

// The ChaCha20 block function: key, block counter, nonce (RFC 8439 section 2.3).
std::array<uint32_t, 16> chacha20_block(const std::array<uint32_t, 8>& key, uint32_t counter,
                                        const std::array<uint32_t, 3>& nonce) noexcept;

// One thread at a time. Must not be used on both sides of a fork().
class Random {
 public:
  Random();  // seeded by the system

  uint32_t next() noexcept {
    if (drawn_ == words_.size())
      refill();
    const uint32_t word = words_[drawn_];
    words_[drawn_++] = 0;
    return word;
  }

 private:
  static constexpr size_t kBlocks = 8;
  static constexpr uint32_t kKeyWords = 8;

  void refill() noexcept;

  std::array<uint32_t, kKeyWords> key_;
  std::array<uint32_t, kBlocks * 16> words_;
  uint32_t drawn_;
};

// SipHash-2-4 (Aumasson and Bernstein, 2012): a checksum of 64 bits that cannot be predicted
// without the key, for tables whose keys a peer can choose.
using SipKey = std::array<uint64_t, 2>;

uint64_t sip_hash(const SipKey& key, std::span<const std::byte> bytes) noexcept;

}  // namespace rrdk::base

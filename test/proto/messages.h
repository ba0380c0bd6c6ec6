// Messages written down as their 32-bit words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "proto/codec.h"
#include "rrdk/xdr.h"
#include "version1_only.h"

namespace rrdk::proto {

using Bytes = std::vector<std::byte>;
using Words = std::vector<uint32_t>;

inline Bytes to_bytes(const Words& words) {
  Bytes out(4 * words.size());
  for (size_t i = 0; i < words.size(); ++i)
    xdr::store_u32(&out[4 * i], words[i]);
  return out;
}

inline Words join(std::initializer_list<Words> parts) {
  Words out;
  for (const Words& part : parts)
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

inline Words zeros(size_t n) {
  return Words(n, 0);
}

constexpr uint32_t kXid = 0xabcd0123;
constexpr uint32_t kMsgProc = 0;
constexpr uint32_t kNoMsgProc = 1;
constexpr uint32_t kMsgpProc = 2;
constexpr uint32_t kDoneProc = 3;
constexpr uint32_t kErrorProc = 4;

inline Words fixed(uint32_t proc, uint32_t version = 1) {
  return {kXid, version, 32, proc};
}

// One entry of the Read list: its discriminator, Position, and a segment.
inline Words read_entry(uint32_t position, uint32_t length, uint32_t handle = 7) {
  return {1, position, handle, length, 0, 0x1000};
}

// A Write chunk with its discriminator, or the Reply chunk.
inline Words chunk(const std::vector<uint32_t>& lengths) {
  Words out = {1, static_cast<uint32_t>(lengths.size())};
  for (uint32_t length : lengths)
    out.insert(out.end(), {9, length, 0, 0x2000});
  return out;
}

// A whole message of version 1, and the result of decoding it.
struct Decoding {
  explicit Decoding(const Words& words, Direction role = Direction::kCall,
                    const Limits& limits = {})
      : Decoding(to_bytes(words), role, limits) {}
  explicit Decoding(const Bytes& message, Direction role = Direction::kCall,
                    const Limits& limits = {})
      : decoded(decode(message, role, version1_only(limits), header)) {}

  Verdict verdict() const { return decoded.verdict; }

  Header header;
  Decoded decoded;
};

inline Bytes encoded(const Header& header) {
  Bytes out(encoded_length(header));
  out.resize(encode(header, out));
  return out;
}

}  // namespace rrdk::proto

#include <bit>
#include <cstring>

#include "base/random.h"

namespace rrdk::base {

namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  explicit State(const SipKey& key) noexcept
      : v0(key[0] ^ 0x736f6d6570736575),
        v1(key[1] ^ 0x646f72616e646f6d),
        v2(key[0] ^ 0x6c7967656e657261),
        v3(key[1] ^ 0x7465646279746573) {}

  void round() noexcept {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(uint64_t word) noexcept {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  uint64_t finish() noexcept {
    v2 ^= 0xff;
    for (int i = 0; i < 4; ++i)
      round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

uint64_t sip_hash(const SipKey& key, std::span<const std::byte> bytes) noexcept {
  State state(key);
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    state.take(word);
  }
  uint64_t last = uint64_t{bytes.size()} << 56;
  if (at != bytes.size())
    std::memcpy(&last, bytes.data() + at, bytes.size() - at);
  state.take(last);
  return state.finish();
}

}  // namespace rrdk::base

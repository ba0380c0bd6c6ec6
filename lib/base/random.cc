#include "base/random.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/log.h"

namespace rrdk::base {

namespace {

using Block = std::array<uint32_t, 16>;

void quarter_round(Block& x, size_t a, size_t b, size_t c, size_t d) {
  x[a] += x[b];
  x[d] = std::rotl(x[d] ^ x[a], 16);
  x[c] += x[d];
  x[b] = std::rotl(x[b] ^ x[c], 12);
  x[a] += x[b];
  x[d] = std::rotl(x[d] ^ x[a], 8);
  x[c] += x[d];
  x[b] = std::rotl(x[b] ^ x[c], 7);
}

}  // namespace

std::array<uint32_t, 16> chacha20_block(const std::array<uint32_t, 8>& key, uint32_t counter,
                                        const std::array<uint32_t, 3>& nonce) noexcept {
  Block start{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  std::copy(key.begin(), key.end(), start.begin() + 4);
  start[12] = counter;
  std::copy(nonce.begin(), nonce.end(), start.begin() + 13);
  Block x = start;
  for (int twice = 0; twice < 10; ++twice) {
    for (size_t column = 0; column < 4; ++column)
      quarter_round(x, column, column + 4, column + 8, column + 12);
    for (size_t i = 0; i < 4; ++i)
      quarter_round(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  for (size_t i = 0; i < x.size(); ++i)
    x[i] += start[i];
  return x;
}

Random::Random() {
  // So few bytes come whole or not at all; not at all is a kernel or a sandbox without the call.
  if (getrandom(key_.data(), sizeof(key_), 0) != static_cast<ssize_t>(sizeof(key_))) {
    log_error("getrandom() gives no random bytes, and remote keys must not be guessable");
    std::abort();
  }
  refill();
}

void Random::refill() noexcept {
  auto words = words_.begin();
  for (uint32_t block = 0; block < kBlocks; ++block) {
    const Block output = chacha20_block(key_, block, {});
    words = std::copy(output.begin(), output.end(), words);
  }
  std::copy_n(words_.begin(), kKeyWords, key_.begin());
  std::fill_n(words_.begin(), kKeyWords, 0);
  drawn_ = kKeyWords;
}

}  // namespace rrdk::base

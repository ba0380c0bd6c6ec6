#include "base/random.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace rrdk::base {

namespace {

using Block = std::array<uint32_t, 16>;

// The same word of eight blocks, which are computed side by side.
using Lanes [[gnu::vector_size(32)]] = uint32_t;

template <typename Word>
Word rotated(Word word, int by) {
  return word << by | word >> (32 - by);
}

template <typename Word>
void quarter_round(std::array<Word, 16>& x, size_t a, size_t b, size_t c, size_t d) {
  x[a] += x[b];
  x[d] = rotated(x[d] ^ x[a], 16);
  x[c] += x[d];
  x[b] = rotated(x[b] ^ x[c], 12);
  x[a] += x[b];
  x[d] = rotated(x[d] ^ x[a], 8);
  x[c] += x[d];
  x[b] = rotated(x[b] ^ x[c], 7);
}

// Turns the initial state of a block into its final state.
template <typename Word>
std::array<Word, 16> scrambled(const std::array<Word, 16>& start) {
  std::array<Word, 16> x = start;
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

constexpr Block kStart = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};

}  // namespace

std::array<uint32_t, 16> chacha20_block(const std::array<uint32_t, 8>& key, uint32_t counter,
                                        const std::array<uint32_t, 3>& nonce) noexcept {
  Block start = kStart;
  std::copy(key.begin(), key.end(), start.begin() + 4);
  start[12] = counter;
  std::copy(nonce.begin(), nonce.end(), start.begin() + 13);
  return scrambled(start);
}

Random::Random() {
  // This few bytes come completely or not at all; the latter means a kernel or a sandbox without
  // the call.
  if (getrandom(key_.data(), sizeof(key_), 0) != static_cast<ssize_t>(sizeof(key_))) {
    log_error("getrandom() gives no random bytes, and remote keys must not be guessable");
    std::abort();
  }
  refill();
}

// Blocks 0 to 7 with a nonce of zeros; word i of block k is words_[8 * i + k].
void Random::refill() noexcept {
  static_assert(kBlocks * sizeof(uint32_t) == sizeof(Lanes));
  std::array<Lanes, 16> start = {};
  for (size_t i = 0; i < start.size(); ++i)
    start[i] += i >= 4 && i < 12 ? key_[i - 4] : kStart[i];
  start[12] = Lanes{0, 1, 2, 3, 4, 5, 6, 7};
  const std::array<Lanes, 16> blocks = scrambled(start);
  std::memcpy(words_.data(), blocks.data(), sizeof words_);
  std::copy_n(words_.begin(), kKeyWords, key_.begin());
  std::fill_n(words_.begin(), kKeyWords, 0);
  drawn_ = kKeyWords;
}

}  // namespace rrdk::base

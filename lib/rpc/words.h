// Headers' constant words in wire form, so that they are compared and copied at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rrdk::rpc {

template <typename... Values>
constexpr std::array<std::byte, 4 * sizeof...(Values)> words(Values... values) {
  std::array<std::byte, 4 * sizeof...(Values)> bytes = {};
  size_t i = 0;
  for (uint32_t value : {static_cast<uint32_t>(values)...}) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes[i++] = static_cast<std::byte>(value >> shift);
  }
  return bytes;
}

}  // namespace rrdk::rpc

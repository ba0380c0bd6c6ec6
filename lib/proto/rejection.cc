#include "proto/rejection.h"

#include <algorithm>

namespace rrdk::proto {

namespace {
// "RRDKrej", and the reason.
constexpr std::array<std::byte, kRejectionLength - 1> kMagic = {
    std::byte{'R'}, std::byte{'R'}, std::byte{'D'}, std::byte{'K'},
    std::byte{'r'}, std::byte{'e'}, std::byte{'j'}};
}  // namespace

const char* to_string(Rejection why) noexcept {
  switch (why) {
    case Rejection::kConnections:
      return "it has as many connections as it takes";
    case Rejection::kClient:
      return "it has as many connections of this client as it takes";
    case Rejection::kBuffers:
      return "it has no buffers for another connection";
    case Rejection::kNotAdmitted:
      return "it does not admit this client";
    case Rejection::kClosing:
      return "it takes no more calls";
  }
  return "for a reason that is not known here";
}

std::array<std::byte, kRejectionLength> encode(Rejection why) noexcept {
  std::array<std::byte, kRejectionLength> data;
  std::ranges::copy(kMagic, data.begin());
  data.back() = static_cast<std::byte>(why);
  return data;
}

// A driver may have added zeros (Capabilities::exact_private_data).
std::optional<Rejection> decode_rejection(std::span<const std::byte> private_data) noexcept {
  if (private_data.size() < kRejectionLength ||
      !std::ranges::equal(private_data.first(kMagic.size()), kMagic))
    return std::nullopt;
  return static_cast<Rejection>(private_data[kMagic.size()]);
}

}  // namespace rrdk::proto

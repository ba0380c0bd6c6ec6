#include <algorithm>
#include <cstring>

#include "proto/version1.h"
#include "xprt/header_copy.h"

namespace rrdk::xprt {

void HeaderCopy::reserve(uint32_t largest) {
  // datapath-allow: when a connection begins
  room_.resize(std::max<size_t>({room_.size(), largest, proto::version1::kMinHeader}));
}

std::span<const std::byte> HeaderCopy::take(std::span<const std::byte> message) noexcept {
  constexpr size_t kFirst = proto::version1::kMinHeader;
  std::byte* room = room_.data();
  std::span<const std::byte> copy(room, message.size());
  if (message.size() >= kFirst) [[likely]] {
    std::memcpy(room, message.data(), kFirst);
    if (!proto::version1::is_plain(copy))
      std::memcpy(room + kFirst, message.data() + kFirst, message.size() - kFirst);
  } else if (!message.empty()) {
    std::memcpy(room, message.data(), message.size());
  }
  return copy;
}

}  // namespace rrdk::xprt

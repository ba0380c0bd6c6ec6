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
  std::byte* room = room_.data();
  size_t first = std::min<size_t>(message.size(), proto::version1::kMinHeader);
  std::memcpy(room, message.data(), first);
  std::span<const std::byte> copy(room, message.size());
  if (!proto::version1::is_plain(copy))
    std::memcpy(room + first, message.data() + first, message.size() - first);
  return copy;
}

}  // namespace rrdk::xprt

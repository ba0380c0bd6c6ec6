#include <algorithm>
#include <cstring>

#include "proto/codec.h"
#include "xprt/header_copy.h"

namespace rrdk::xprt {

void HeaderCopy::reserve(uint32_t largest) {
  // datapath-allow: when a connection begins
  room_.resize(std::max<size_t>({room_.size(), largest, proto::kPlainBytes}));
}

std::span<const std::byte> HeaderCopy::take(std::span<const std::byte> message,
                                            const proto::Versions& versions) noexcept {
  constexpr size_t kFirst = proto::kPlainBytes;
  std::byte* room = room_.data();
  std::span<const std::byte> copy(room, message.size());
  if (message.size() >= kFirst) [[likely]] {
    std::memcpy(room, message.data(), kFirst);
    if (!proto::is_plain(copy, versions))
      std::memcpy(room + kFirst, message.data() + kFirst, message.size() - kFirst);
  } else if (!message.empty()) {
    std::memcpy(room, message.data(), message.size());
  }
  return copy;
}

}  // namespace rrdk::xprt

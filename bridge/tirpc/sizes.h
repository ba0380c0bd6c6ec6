// Sizes of the bridge's connections, in bytes.
#pragma once

#include <cstdint>

namespace rrdk::tirpc {

// What goes inline: most messages of most programs, in one Send, without a key or another trip.
constexpr uint32_t kInlineSize = 16384;
// Of calls and replies: what ClientOptions and ServerOptions have unless told.
constexpr uint32_t kMostBytes = 8u << 20;
constexpr uint32_t kUsualReply = 1u << 20;
// Memory that decoding one message may take, unless told.
constexpr uint32_t kUsualDecoded = 64u << 20;

}  // namespace rrdk::tirpc

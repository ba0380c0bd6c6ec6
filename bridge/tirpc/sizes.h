// Sizes of the bridge's connections, in bytes.
#pragma once

#include <cstdint>

namespace rrdk::tirpc {

// The limit for inline messages: most messages of most programs fit into one Send, without a key or
// another round trip.
constexpr uint32_t kInlineSize = 16384;
// For calls and replies: the defaults of ClientOptions and ServerOptions.
constexpr uint32_t kMostBytes = 8u << 20;
constexpr uint32_t kUsualReply = 1u << 20;
// Default limit of the memory that decoding one message may take.
constexpr uint32_t kUsualDecoded = 64u << 20;

}  // namespace rrdk::tirpc

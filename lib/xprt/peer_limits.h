// How many chunks and segments the peer takes: what it has said in errors (draft-04 section 6.2.4),
// from then on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/header.h"

namespace rrdk::xprt {

struct PeerLimits {
  uint32_t read_chunks = UINT32_MAX;
  uint32_t write_chunks = UINT32_MAX;
  uint32_t segments = UINT32_MAX;  // of one chunk

  void learn(const proto::ErrorBody& error) noexcept {
    if (error.code == proto::ErrorCode::kReadChunks)
      read_chunks = std::min(read_chunks, error.maximum);
    else if (error.code == proto::ErrorCode::kWriteChunks)
      write_chunks = std::min(write_chunks, error.maximum);
    else if (error.code == proto::ErrorCode::kSegments)
      segments = std::min(segments, error.maximum);
  }
};

}  // namespace rrdk::xprt

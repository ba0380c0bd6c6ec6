// How many chunks and segments the peer takes: what it has said in errors (draft-04 section 6.2.4),
// from then on.
#pragma once

#include <cstdint>

#include "proto/header.h"

namespace rrdk::xprt {

struct PeerLimits {
  uint32_t read_chunks = UINT32_MAX;
  uint32_t write_chunks = UINT32_MAX;
  uint32_t segments = UINT32_MAX;  // of one chunk

  // False: the error says nothing new.
  bool learn(const proto::ErrorBody& error) noexcept {
    switch (error.code) {
      case proto::ErrorCode::kReadChunks:
        return lower(read_chunks, error.maximum);
      case proto::ErrorCode::kWriteChunks:
        return lower(write_chunks, error.maximum);
      case proto::ErrorCode::kSegments:
        return lower(segments, error.maximum);
      default:
        return false;
    }
  }

 private:
  static bool lower(uint32_t& limit, uint32_t to) noexcept {
    if (to >= limit)
      return false;
    limit = to;
    return true;
  }
};

}  // namespace rrdk::xprt

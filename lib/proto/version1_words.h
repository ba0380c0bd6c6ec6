// Sizes and numbers of the version 1 header (RFC 5666 section 4.3), shared by its two codecs.
#pragma once

#include <cstdint>

namespace rrdk::proto::version1 {

constexpr uint32_t kWord = 4;
constexpr uint32_t kFixedBytes = 16;
constexpr uint32_t kSegmentBytes = 16;
constexpr uint32_t kReadEntryBytes = 24;  // discriminator, Position, segment
constexpr uint32_t kMsgpBytes = 8;        // rdma_align and rdma_thresh
constexpr uint32_t kMinError = 20;
constexpr uint32_t kErrVersBytes = 28;

// MessageType has the values of rdma_proc.
constexpr uint32_t kLastProc = 4;

constexpr uint32_t kErrVers = 1;
constexpr uint32_t kErrChunk = 2;

}  // namespace rrdk::proto::version1

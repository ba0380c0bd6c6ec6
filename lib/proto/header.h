// Transport headers: the bytes of each version, and the version-neutral form of one header, which
// every codec fills and writes and the engine works with. Lists are bounded and hold no pointer
// into the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include "rrdk/counters.h"
#include "rrdk/version.h"

namespace rrdk::proto {

// Two drafts share the version number 2 and are not compatible. Configuration says which of the two
// is meant; it is never guessed (V2X-01, V2X-02).
enum class Wire : uint8_t {
  kVersion1,  // RFC 5666 section 4.3; same bytes in RFC 8166
  kDraft00,   // draft-cel-nfsv4-rpcrdma-version-two-00
  kDraft04,   // draft-cel-nfsv4-rpcrdma-version-two-04
};

constexpr uint32_t version_of(Wire wire) noexcept {
  return wire == Wire::kVersion1 ? 1 : 2;
}

// The four words that all versions share.
constexpr uint32_t kFixedBytes = 16;
// An RDMA_MSG without chunks: three empty lists, in draft-04 after direction and handle.
constexpr uint32_t kMinHeader = 28;
constexpr uint32_t kMinHeader04 = 36;

constexpr uint32_t min_header(Wire wire) noexcept {
  return wire == Wire::kDraft04 ? kMinHeader04 : kMinHeader;
}

// The smallest inline threshold, version 1's default (RFC 8797 section 3.1), and version 2's
// default (section 2.3 of both drafts), in bytes.
constexpr uint32_t kInlineThreshold = 1024;
constexpr uint32_t kInlineThreshold2 = 4096;

// What one end accepts.
struct Versions {
  bool one = true;
  std::optional<Wire> two = Wire::kDraft04;

  std::optional<Wire> wire_of(uint32_t version) const noexcept {
    if (version == 1 && one)
      return Wire::kVersion1;
    return version == 2 ? two : std::nullopt;
  }
  uint32_t low() const noexcept { return one ? 1 : 2; }
  uint32_t high() const noexcept { return two ? 2 : 1; }
};

// Receives have the size that version 2 allows from the start, so that no message finds too small a
// Receive once the version is settled (V2D0-INL-05).
constexpr uint32_t receive_bytes(uint32_t inline_size, const Versions& versions) noexcept {
  return versions.two && inline_size < kInlineThreshold2 ? kInlineThreshold2 : inline_size;
}

constexpr Versions versions_of(const RpcRdmaVersions& versions) noexcept {
  Wire draft = versions.draft == RpcRdmaDraft::kDraft00 ? Wire::kDraft00 : Wire::kDraft04;
  return {versions.one, versions.two ? std::optional(draft) : std::nullopt};
}

// RFC 5666 section 4.3: handle, length and offset of one registered memory range.
struct Segment {
  uint32_t handle;
  uint32_t length;
  uint64_t offset;
  bool operator==(const Segment&) const = default;
};

// Read segments of one Position, `count` of them from segments[first] on.
struct ReadChunk {
  uint32_t position;  // in the unreduced stream; 0: the call itself
  uint16_t first;
  uint16_t count;
  uint64_t length;  // sum of its segments
};

// A Write chunk, or the Reply chunk.
struct WriteChunk {
  uint16_t first;
  uint16_t count;  // zero is legal: a placeholder
  uint64_t length;
};

// The capacity of a decoded header. A header that needs more is refused, never truncated. The
// segment limit is above what a 4096-byte Send can hold (255 in a single list).
constexpr uint16_t kMaxSegments = 256;
constexpr uint16_t kMaxReadChunks = 64;
constexpr uint16_t kMaxWriteChunks = 64;

// What one end accepts, at most the constants above; a breach is refused.
struct Limits {
  uint16_t read_segments = 128;
  uint16_t read_chunks = 16;  // distinct Positions, without the message's own (V2D4-ERR-19)
  uint16_t write_chunks = 16;
  uint16_t segments = 256;  // in all lists together
  // Sum of segment lengths, per list, in bytes. Checked before memory is taken (V1-CHUNK-12).
  uint64_t read_bytes = 64u << 20;
  uint64_t write_bytes = 1u << 30;
  uint16_t chunk_segments = 256;  // in one chunk
  Versions versions = {};
};

// The three lists. Segments of all lists share one array: first the Read list's, sorted by Position
// (stable within one), then those of the Write chunks, then those of the Reply chunk.
struct ChunkLists {
  uint16_t num_segments = 0;
  uint16_t num_reads = 0;
  uint16_t num_writes = 0;
  bool has_reply = false;
  WriteChunk reply = {};
  uint64_t read_length = 0;             // sum over all Read chunks
  ReadChunk reads[kMaxReadChunks + 1];  // items, and the message itself
  WriteChunk writes[kMaxWriteChunks];
  Segment segments[kMaxSegments];

  std::span<const Segment> of(const ReadChunk& c) const { return {segments + c.first, c.count}; }
  std::span<const Segment> of(const WriteChunk& c) const { return {segments + c.first, c.count}; }
  void clear() {
    num_segments = num_reads = num_writes = 0;
    has_reply = false;
    reply = {};
    read_length = 0;
  }
};

// What a message is, in any version; the values are those of rdma_proc.
enum class MessageType : uint8_t {
  kMsg,    // the RPC message follows the header
  kNoMsg,  // the RPC message is in a chunk
  kMsgp,   // version 1's padded form (RFC 5666 section 3.9); treated as kMsg on receipt
  kDone,   // RFC 5666 section 3.8; ignored on receipt
  kError,
  kOptional,  // version 2: a message of an extension
  kConnProp,  // from here on draft-04 only: transport properties, see proto/properties.h
  kReqProp,
  kRespProp,
  kUpdProp,
};

// Whether the message belongs to a call by its sender or by its receiver. The first two have the
// values of msg_type (RFC 5531 section 9) and of rdma_direction.
enum class Direction : uint8_t {
  kCall,
  kReply,
  kUnknown,  // the message ends before its direction, or states neither
};

// Version 1 and draft-00 have one code for all errors in a header or its chunks. Codes that they
// lack are written as kBadHeader too.
enum class ErrorCode : uint8_t {
  kVersion,        // ERR_VERS: low and high are what the peer speaks
  kBadHeader,      // ERR_CHUNK, BAD_HEADER, BAD_XDR
  kBadProc,        // INVAL_PROC
  kReadChunks,     // more than `maximum` of these
  kWriteChunks,    // more than `maximum` of these
  kSegments,       // a chunk with more than `maximum`
  kWriteResource,  // Write chunk `index` (from 1; 0: unknown) needs `length` bytes
  kReplyResource,  // the Reply chunk needs `length` bytes
  kBadOption,      // INVAL_OPTION
  kSystem,
  kOther,  // a code that this version does not define; it is in `raw`
};

struct ErrorBody {
  ErrorCode code;
  uint32_t raw = 0;
  uint32_t low = 0, high = 0;
  uint32_t maximum = 0;
  uint32_t index = 0, length = 0;
};

// An extension's message: its data is `length` bytes from message[offset] on.
struct OptionBody {
  uint32_t type;
  uint32_t offset;
  uint32_t length;
};

struct Header {
  uint32_t xid = 0;
  uint32_t version = 1;
  uint32_t credits = 0;  // requested by a call, granted by a reply
  Wire wire = Wire::kVersion1;
  MessageType type = MessageType::kMsg;
  Direction direction = Direction::kCall;
  uint32_t invalidate = 0;   // draft-04: the handle that a reply may invalidate; 0: none
  uint32_t msgp_align = 0;   // kMsgp only
  uint32_t msgp_thresh = 0;  // kMsgp only
  ErrorBody error = {};      // kError only
  OptionBody option = {};    // kOptional only
  ChunkLists lists;          // kMsg, kNoMsg, kMsgp
};

// The four words that all versions share (RFC 5666 section 4.1), readable before anything else.
struct FixedWords {
  uint32_t xid;
  uint32_t version;
  uint32_t credits;
  uint32_t proc;
};

// Why a header is refused; kOk means that it is complete.
enum class Verdict : uint8_t {
  kOk,
#define RRDK_HEADER_REFUSAL(id, reason, name, breach, title, text) k##reason,
#include "rrdk/counter_table.h"
};

// Without kOk, in the same order.
constexpr Refusal kHeaderRefusals[] = {
#define RRDK_HEADER_REFUSAL(id, reason, name, breach, title, text) Refusal::k##reason,
#include "rrdk/counter_table.h"
};

// The reason to count for a header that is not complete.
constexpr Refusal refusal_of(Verdict verdict) noexcept {
  return kHeaderRefusals[static_cast<size_t>(verdict) - 1];
}
inline const char* to_string(Verdict verdict) noexcept {
  if (verdict == Verdict::kOk)
    return "ok";
  return static_cast<size_t>(verdict) <= std::size(kHeaderRefusals)
             ? rrdk::to_string(refusal_of(verdict))
             : "unknown verdict";
}

// The result of decoding. With kOk it says where the RPC message starts in the Send.
struct Decoded {
  Verdict verdict;
  uint32_t header_length;  // bytes used by the transport header
};

}  // namespace rrdk::proto

// RFC 5666's compatibility mode: its options, what it changes on one connection, and the padding of
// inline data (RFC 5666 section 3.9), RDMA_MSGP. doc/compat-rfc5666.md defines what that document
// leaves open.
#pragma once

#include <cstdint>
#include <span>

#include "engine/stream_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

struct Rfc5666Options {
  bool enabled = false;
  uint32_t max_reads = 16;  // RDMA Reads by the peer that can be served at once
  // A requester's.
  uint32_t pad_threshold = 64;
  bool read_replies = false;  // no memory is offered for results
  // A responder's.
  uint32_t align = 0;  // what it advises; 0: nothing
  uint32_t exposed_replies = 32;
  uint64_t exposed_bytes = 32u << 20;
  uint64_t total_exposed_bytes = 64u << 20;  // of all peers of the Memory
  uint64_t done_wait_ns = 5'000'000'000;
};

class ReplyExposer;
class ReplyReader;

// What the mode changes on one connection. Outside the mode all members keep these values.
struct Rfc5666State {
  uint32_t align = 0;              // alignment to which calls are padded (CONF_RDMA); 0: none
  bool we_serve_no_reads = false;  // nothing of ours is offered for reading
  bool peer_serves_no_reads = false;
  bool reads_replies = false;       // no memory is offered for results: the requester reads them
  bool configured = false;          // CONF_RDMA has taken effect
  uint32_t config_calls = 0;        // calls of the Connection Configuration Protocol
  uint32_t spare_receives = 0;      // Common::done_receives()
  ReplyExposer* exposer = nullptr;  // the responder's part in Read-Read; may be null
  ReplyReader* reader = nullptr;    // the requester's part; may be null
};

constexpr uint32_t kMsgpWords = 8;  // bytes of rdma_align and rdma_thresh
constexpr uint32_t kLargestAlign = 4096;

// Valid alignments; all others count as no alignment (V1-CCP-16).
constexpr bool is_alignment(uint32_t align) noexcept {
  return align > 4 && align <= kLargestAlign && (align & (align - 1)) == 0;
}

struct Padding {
  uint32_t threshold = 0;  // rdma_thresh; 0: nothing is padded
  uint32_t bytes = 0;      // of all pads
};

// Returns the padding for a call whose whole stream is inline, `header_length` bytes into the Send.
// Items of at least `smallest` bytes are padded, if the receiver can tell them from data that was
// copied into the stream.
Padding plan_padding(std::span<const Piece> pieces, uint32_t align, uint32_t smallest,
                     uint32_t header_length) noexcept;

// Adds the stream of `length` bytes with its pads to the plan, as a copy; the plan already has the
// header. Returns false if there is no buffer.
bool gather_padded(SendPlan& plan, std::span<const Piece> pieces, uint32_t align,
                   const Padding& padding, uint32_t length, Memory& memory) noexcept;

}  // namespace rrdk::engine

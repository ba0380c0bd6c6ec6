// One call that a peer made of us: the engine's side of an IncomingCall.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/list.h"
#include "proto/header.h"
#include "xprt/connection.h"
#include "xprt/send_queue.h"
#include "xprt/stream_datapath.h"

namespace rrdk::xprt {

class Responder;
struct Exposure;

// Runs of pool memory into which the Read chunks of one call are read.
constexpr uint32_t kMaxSinks = 128;
// Sinks, the pieces of the inline part between them, and a pad after each chunk.
constexpr uint32_t kMaxFragments = kMaxSinks + 2 * (proto::kMaxReadChunks + 1) + 1;
// Registered bytes that every call has for its reply's header; the last four are zeros for pads.
constexpr uint32_t kHeaderRoom = 256;
constexpr uint32_t kZeros = 4;

enum class CallState : uint8_t {
  kFree,            // in the pool
  kWaitingTurn,     // for its connection's turn, or for earlier calls to end (max_chunk_bytes)
  kWaitingBuffers,  // for pool buffers to read its chunks into
  kReading,         // for the RDMA Reads of its chunks, some perhaps not yet posted (ORD)
  kAbove,           // with the upper layer, until reply() or drop()
  kWaitingRoom,     // answered; for a buffer that the reply's header needs
  kReplying,        // for slots of the send queue and the completion of the reply's Send
  kExposed,         // RFC 5666's compatibility mode: for the peer to read the reply, RDMA_DONE
  kRevoking,        // the same: for the invalidation of the keys that it had for that
};

// How far the RDMA Reads of a call, or the RDMA Writes of its reply, have been posted.
struct MoveCursor {
  uint16_t chunk = 0;
  uint16_t segment = 0;
  uint32_t segment_offset = 0;
  uint16_t local = 0;  // Reads: the sink. Writes: the piece
  uint32_t local_offset = 0;
};

struct Incoming final : IncomingCall {
  Incoming() = default;

  // Touched by every call.
  CallState state = CallState::kFree;
  bool is_error = false;      // answered by an RDMA_ERROR
  uint16_t reads_posted = 0;  // not yet completed
  uint16_t item_chunks = 0;   // Positions other than zero
  uint32_t inline_length = 0;
  uint64_t chunk_bytes = 0;     // what it counts for against max_chunk_bytes
  uint64_t waits_since_ns = 0;  // for buffers, as the first of its queue; 0: no tick has seen it so
  const std::byte* inline_data = nullptr;
  Responder* responder = nullptr;
  Incoming* next = nullptr;     // in the pool, or in the queue that the state names
  base::Links<Incoming> links;  // all calls of one connection, newest first
  Buffer receive;               // the Send's bytes; `message` points into it
  std::span<const Fragment> message;
  Fragment whole;  // the message, when it lies in one piece
  MemorySpan room;
  Message reply;
  Job job{{WorkKind::kReply, this}};
  WorkTag read_tag{WorkKind::kRead, this};
  SendPlan plan;
  Exposure* exposure = nullptr;  // of its reply, in RFC 5666's compatibility mode
  proto::Header header;          // of the call; then of its reply

  // Touched by calls with chunks.
  MoveCursor cursor;
  StreamCursor long_reply;
  uint16_t num_sinks = 0;
  uint16_t num_buffers = 0;
  std::array<MemorySpan, kMaxSinks> sinks;
  std::array<Buffer, kMaxSinks> buffers;
  std::array<Fragment, kMaxFragments> fragments;

  MemorySpan header_room() const noexcept { return {room.data, kHeaderRoom - kZeros, room.region}; }
  MemorySpan zeros() const noexcept {
    return {room.data + kHeaderRoom - kZeros, kZeros, room.region};
  }
};

}  // namespace rrdk::xprt

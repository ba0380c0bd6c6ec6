// The Read-Read model (RFC 5666 section 3.8): replies stay in the responder's memory until the
// requester has read them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/list.h"
#include "engine/common.h"
#include "engine/outgoing_call.h"
#include "engine/send_queue.h"
#include "engine/served_call.h"
#include "proto/header.h"
#include "rrdk/call_status.h"
#include "rrdk/memory.h"

namespace rrdk::engine {

// The responder's part in the Read-Read model (RFC 5666 section 3.8): a reply whose items fit
// neither inline nor in the memory that the call offers is sent with a Read list. The peer may read
// the reply's memory until RDMA_DONE.
//
//   kReplying   the keys are bound, then the reply is sent
//   kExposed    until RDMA_DONE, or until done_wait_ns have passed, which ends the connection
//   kRevoking   the keys are invalidated; then the call ends and its memory is free

// Runs of memory of one reply's items, mostly one each; proto::Limits::read_chunks of most peers.
constexpr uint32_t kMaxExposedRuns = 16;

// One reply that the peer is to read. A key covers one run, is valid on this connection only, and
// permits only reading.
struct Exposure {
  ServedCall* call;
  uint32_t xid;
  uint64_t bytes;
  uint64_t since_ns;  // 0: no tick has seen it sent
  bool acknowledged;  // RDMA_DONE has arrived
  uint16_t num_runs;
  uint16_t bound;    // runs whose binds were posted
  uint16_t revoked;  // runs whose invalidations were posted
  base::Links<Exposure> links;
  std::array<MemorySpan, kMaxExposedRuns> runs;
  std::array<uint32_t, kMaxExposedRuns> keys;
};

// The exposures of one connection, and the plan for the reply that is being sent.
class ReplyExposer {
 public:
  explicit ReplyExposer(Common& common);

  // Decides which items of the reply the peer reads: the first ones, as many as must move for the
  // rest to fit. `placed` ones are in Write chunks. Returns false if it is impossible.
  bool draft(ServedCall& call, MovedItems placed, uint32_t threshold) noexcept;
  MovedItems left_out() const noexcept { return left_out_; }  // including the placed ones
  uint64_t reduced() const noexcept { return reduced_; }
  uint32_t header_length() const noexcept { return header_length_; }

  // Returns an exposure for what was drafted, with its keys taken and put into the header's Read
  // list. Null if it must wait.
  Exposure* take(ServedCall& call) noexcept;
  void give(Exposure& exposure) noexcept;
  uint32_t taken() const noexcept { return taken_; }

 private:
  struct Run {
    MemorySpan bytes;
    uint64_t position;  // of its item
  };

  Common& common_;
  std::vector<Exposure> exposures_;
  base::List<Exposure, &Exposure::links> free_;
  uint32_t taken_ = 0;
  uint64_t bytes_ = 0;  // exposed now

  // The draft.
  uint32_t num_runs_ = 0;
  std::array<Run, kMaxExposedRuns> runs_;
  MovedItems left_out_ = 0;
  uint64_t reduced_ = 0;
  uint64_t item_bytes_ = 0;
  uint32_t header_length_ = 0;
};

// The requester's part in the Read-Read model (RFC 5666 sections 3.5 and 3.8): a reply with a Read
// list is read from the responder, then RDMA_DONE is sent.
//
//   kFree
//   kWaiting   for RDMA Reads; some may not have been posted yet (ORD)
//   kDone      for the completion of the Send of RDMA_DONE
//
// If a call is given up, its reading continues until RDMA_DONE.

class Requester;

class ReplyReader {
 public:
  static constexpr uint32_t kMostSegments = 64;  // of one reply
  static constexpr uint32_t kMostChunks = 16;
  static constexpr uint32_t kMostBuffers = 32;

  enum class Stage : uint8_t { kFree, kWaiting, kDone };

  struct Reading {
    Stage stage = Stage::kFree;
    uint32_t xid = 0;
    WorkTag read_tag{WorkKind::kReplyRead, this};
    Job done_job{{WorkKind::kDone, this}};
    MemorySpan room;            // for RDMA_DONE
    Reading* next = nullptr;    // free, or with Reads to be posted
    uint32_t reads_posted = 0;  // and not completed
    uint16_t num_chunks = 0;
    uint16_t num_segments = 0;
    uint16_t num_buffers = 0;
    uint16_t segment = 0;  // position up to which Reads were posted: in this segment,
    uint16_t buffer = 0;   // into this buffer
    uint32_t segment_offset = 0;
    uint32_t buffer_offset = 0;
    std::array<proto::ReadChunk, kMostChunks> chunks;
    std::array<proto::Segment, kMostSegments> segments;
    std::array<Buffer, kMostBuffers> buffers;
    std::array<uint32_t, kMostBuffers> lengths;  // how much of each buffer is used
  };

  ReplyReader(Common& common, Requester& requester);  // control path
  bool prepare();                                     // takes memory for headers; false: no buffers

  // Starts to read what the reply to `call` has in its Read list. Returns another status than kOk
  // if that is impossible.
  CallStatus begin(const OutgoingCall& call, const proto::ChunkLists& lists,
                   uint32_t inline_bytes) noexcept;
  void on_read_completed(Reading& reading) noexcept;
  void on_done_completed(Reading& reading) noexcept;
  bool emit_done(Reading& reading) noexcept;  // false: the send queue is full
  void pump() noexcept;                       // posts as many Reads as it can
  void on_dead() noexcept;

  // The credits that RDMA_DONEs use are free again when a later call has been answered.
  void note_call(uint32_t slot) noexcept { marks_[slot] = dones_sent_; }
  void note_answer(uint32_t slot) noexcept {
    auto fresh = static_cast<int32_t>(marks_[slot] - dones_returned_);
    if (fresh <= 0)
      return;
    dones_returned_ = marks_[slot];
    hold(-fresh);
  }

 private:
  bool take_buffers(Reading& reading) noexcept;
  void post_read(Reading& reading) noexcept;
  void finish(Reading& reading) noexcept;
  static CallStatus deliver(Reading& reading, OutgoingCall& call) noexcept;
  void acknowledge(Reading& reading) noexcept;
  void hold(int32_t more) noexcept;
  void retire(Reading& reading) noexcept;

  Common& common_;
  Requester& requester_;
  std::vector<Reading> readings_;
  Buffer rooms_;
  base::Stack<Reading, &Reading::next> free_;
  base::Queue<Reading, &Reading::next> queued_;
  std::vector<uint32_t> marks_;  // for each slot: dones_sent_ when its call was sent
  uint32_t dones_sent_ = 0;      // wraps
  uint32_t dones_returned_ = 0;
  uint32_t held_ = 0;  // credits that RDMA_DONEs use, or will use
};

}  // namespace rrdk::engine

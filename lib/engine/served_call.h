// The record of a call that a peer made of us, and the pool in which a core keeps these records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/handles.h"
#include "base/list.h"
#include "base/work_item.h"
#include "engine/send_queue.h"
#include "engine/stage_log_datapath.h"
#include "engine/stream_datapath.h"
#include "proto/header.h"
#include "rpc/headers_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/rpc.h"
#include "rrdk/xdr.h"

// Types of the layers above, used only as pointers.
namespace rrdk {
struct Procedure;
}
namespace rrdk::service {
class Dispatcher;
struct OnceRecord;
struct ProcedureCounters;
struct SecuredCall;
struct ServiceEntry;
enum class Answer : uint8_t;
}  // namespace rrdk::service

namespace rrdk::engine {

class Connection;
class Responder;
struct Exposure;

// Runs of pool memory into which the Read chunks of one call are read.
constexpr uint32_t kMaxSinks = 128;
// Sinks, the pieces of the inline part between them, and a pad after each chunk.
constexpr uint32_t kMaxFragments = kMaxSinks + 2 * (proto::kMaxReadChunks + 1) + 1;
// Registered bytes that every call has for its reply's header. The last four are zeros for pads.
constexpr uint32_t kHeaderRoom = 256;
constexpr uint32_t kZeros = 4;

enum class CallState : uint8_t {
  kFree,         // in the pool
  kProcessing,   // its message is being processed
  kWaitingTurn,  // waits for its connection's turn, or for earlier calls to end (max_chunk_bytes)
  kWaitingBuffers,  // waits for pool buffers to read its chunks into
  kReading,      // waits for the RDMA Reads of its chunks; some may not have been posted yet (ORD)
  kAbove,        // with the upper layer, until reply() or drop()
  kWaitingRoom,  // answered; waits for a buffer that the reply's header needs
  kReplying,     // waits for slots of the send queue and the completion of the reply's Send
  kExposed,      // RFC 5666's compatibility mode: waits until the peer has read the reply, for
                 // RDMA_DONE
  kRevoking,  // the same mode: waits for the invalidation of the keys that the peer used for that
};

// How far the RDMA Reads of a call, or the RDMA Writes of its reply, have been posted.
struct MoveCursor {
  uint16_t chunk = 0;
  uint16_t segment = 0;
  uint32_t segment_offset = 0;
  uint16_t local = 0;  // Reads: index of the sink. Writes: index of the item's run
  uint32_t local_offset = 0;
};

// The part of a call that is needed only if its header or its reply is not plain: the chunk lists,
// the memory into which Read chunks are read, the progress of Reads and Writes, and the plan of the
// reply.
struct ChunkPart {
  proto::Header header;  // of the call; then of its reply
  SendPlan plan;
  MoveCursor cursor;
  StreamCursor long_reply;
  uint16_t num_sinks = 0;
  uint16_t num_buffers = 0;
  std::array<MemorySpan, kMaxSinks> sinks;
  std::array<Buffer, kMaxSinks> buffers;
  std::array<Fragment, kMaxFragments> fragments;
  ChunkPart* next = nullptr;  // in the pool
  bool in_use = false;

  void release_sinks() noexcept {
    while (num_buffers != 0)
      buffers[--num_buffers].reset();
  }
};

// One call that a peer made of us, from its Receive to the completion of its reply's Send: the
// engine's part, and what the service above knows about it. The engine has it from the Receive on.
// A handler, on the core or in a worker, has it from Upcalls::on_call() until it ends its
// ServerCall.
//
//   state        where it is                    waits for
//   kAbove       with its handler               one of ServerCall's six ends
//   kAbove       in the core's inbox            the core's next pass
//   kAbove       in the core's timers           reply_after()'s time, or the connection's end
//   kAbove       with its Dispatcher            the call that it repeats, or the connection's end
//   the others   the engine's                   as CallState says
struct ServedCall : base::WorkItem, base::Timer {
  ServedCall() = default;
  ServedCall(const ServedCall&) = delete;
  ServedCall& operator=(const ServedCall&) = delete;

  // The transport header as received.
  uint32_t xid = 0;
  uint32_t credits = 0;
  uint32_t version = 1;
  proto::Wire wire = proto::Wire::kVersion1;
  proto::MessageType type = proto::MessageType::kMsg;
  CallState state = CallState::kFree;
  bool is_error = false;      // answered with an RDMA_ERROR
  ChunkPart* part = nullptr;  // null: header and reply are plain

  // The engine's.
  Responder* responder = nullptr;
  ServedCall* next_call = nullptr;  // in the pool, or in the queue that the state names
  base::Links<ServedCall> links;    // all calls of one connection, newest first
  Buffer receive;                   // the Send's bytes; `message` points into it
  // The RPC call message, with the chunks in their places.
  std::span<const Fragment> message;
  Fragment whole;  // the message, if it lies in one piece
  MemorySpan room;
  Message reply;  // the RPC reply message is written here
  Job job{{WorkKind::kReply, this}};
  StageRecord* stages = nullptr;  // null if the call is not sampled; valid until the call has ended

  // The service's (service/dispatcher.h).
  service::Dispatcher* dispatcher = nullptr;
  const service::ServiceEntry* service = nullptr;
  const Procedure* procedure = nullptr;
  service::ProcedureCounters* counters = nullptr;  // of this core; null: not counted
  rpc::CallHeader header;
  Decoder args;
  std::optional<Encoder> results;
  service::Answer answer = {};
  AcceptStat accept_stat = AcceptStat::kSuccess;
  AuthStat auth_stat = AuthStat::kOk;
  uint64_t not_before_ns = 0;  // time of reply_after(); 0: at once
  // Called with `user` when nothing refers to the reply's memory any more, which is when the call
  // has ended. It may reply to other calls.
  void (*on_ended)(void* user) = nullptr;
  void* user = nullptr;

  // Few calls touch the members below.
  // of a call that must run only once; null: it need not, or no longer needs to
  service::OnceRecord* replay = nullptr;
  service::SecuredCall* secured = nullptr;  // null: not by RPCSEC_GSS
  union {
    ServedCall* next_waiter = nullptr;  // a call that waits for the one that it repeats
    uint64_t note;                      // of the interceptor, for a call that is entered
  };
  base::Links<ServedCall> waiting;  // in the dispatcher's list of delayed calls, or of waiting ones
  base::Handles<ServedCall>::Slot* slot = nullptr;  // for programs in C; null: there are too many
  uint32_t low = 0, high = 0;  // PROG_MISMATCH: the versions that are reported to the client
  bool plain = false;          // its handler runs in a burst of plain calls,
  bool answered = false;       // and has answered it
  bool intercepted = false;    // its interceptor is to be told of its end
  bool is_early = false;       // among the first calls of its connection that must run only once
  uint16_t reads_posted = 0;   // not yet completed
  uint16_t item_chunks = 0;    // distinct Positions other than zero (V1-LONG-11)
  uint32_t inline_length = 0;  // of what follows the header in the Send
  uint32_t error_length = 0;   // is_error: of what was written to `room`
  const std::byte* inline_data = nullptr;
  uint64_t chunk_bytes = 0;     // charged against max_chunk_bytes
  uint64_t waits_since_ns = 0;  // for buffers, as the first of its queue; 0: no tick has seen it
  WorkTag read_tag{WorkKind::kRead, this};
  Exposure* exposure = nullptr;  // of its reply, in RFC 5666's compatibility mode

  bool is_long() const noexcept { return type == proto::MessageType::kNoMsg; }
  uint32_t inline_size() const noexcept;  // a good size for the first buffer of the reply
  uint64_t max_reply() const noexcept;
  Connection& connection() const noexcept;
  // Its peer, to which the buffers of its results are charged.
  mem::Borrower& borrower() const noexcept;
  bool is_padded() const noexcept;  // RDMA_MSGP, in RFC 5666's compatibility mode
  // In the message, without the RPC header; valid until reply().
  OpaquePadding padding() const noexcept;

  void take_header(const proto::Header& came) noexcept {
    type = came.type;
    wire = came.wire;
    xid = came.xid;
    version = came.version;
    credits = came.credits;
  }
  // The buffers into which its Read chunks were read.
  std::span<Buffer> sink_buffers() noexcept {
    return part != nullptr ? std::span(part->buffers).first(part->num_buffers)
                           : std::span<Buffer>();
  }
  std::span<const Buffer> sink_buffers() const noexcept {
    return const_cast<ServedCall*>(this)->sink_buffers();
  }
  // Whether the peer has offered memory for a result, or for the whole reply.
  bool offers_room() const noexcept {
    return part != nullptr && (part->header.lists.num_writes != 0 || part->header.lists.has_reply);
  }
  bool has_chunks() const noexcept {
    return part != nullptr && part->header.lists.num_segments != 0;
  }
  uint64_t read_length() const noexcept {
    return part != nullptr ? part->header.lists.read_length : 0;
  }
  uint32_t write_chunks() const noexcept {
    return part != nullptr ? part->header.lists.num_writes : 0;
  }
  MemorySpan header_room() const noexcept { return {room.data, kHeaderRoom - kZeros, room.region}; }
  MemorySpan zeros() const noexcept {
    return {room.data + kHeaderRoom - kZeros, kZeros, room.region};
  }
};
static_assert(sizeof(ServedCall) <= 720 && sizeof(ChunkPart) <= 13848);

// The handles that programs in C have for calls (lib/c): open while a handler in C owes the answer.
inline constinit base::Handles<ServedCall> call_handles;

// What all connections of one poll core share: the ServedCall objects (an idle connection holds
// none), and memory for what is about to be sent. Grows on demand up to a limit, by 64 calls, or by
// 16 if memory is short. In the steady state it allocates nothing.
class CallPool {
 public:
  static constexpr uint32_t kMostCalls = 8192;

  // Takes a 4096-byte buffer of `memory` for each 16 calls; those of 256 calls are kept until
  // destruction. There are as many chunk parts as calls needed at once. The pool and its
  // connections must be used on the thread that `owner` names; null: on one thread.
  explicit CallPool(Memory& memory, uint32_t max_calls = kMostCalls,
                    const base::OwnedByThread* owner = nullptr);
  ~CallPool();  // all calls must be back
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  // Returns null if the limit is reached or memory is exhausted.
  ServedCall* get() noexcept {
    RRDK_ON_CORE(*this);
    if (free_.empty() && !grow()) [[unlikely]]
      return nullptr;
    return take();
  }
  void put(ServedCall& call) noexcept;
  bool here() const noexcept { return owner_ == nullptr || owner_->here(); }
  // A call with a chunk part. Returns null as get() does, or if there is no memory for a part.
  ServedCall* get_with_part() noexcept {
    ServedCall* const call = get();
    if (call != nullptr && (call->part = get_part()) == nullptr) [[unlikely]] {
      put(*call);
      return nullptr;
    }
    return call;
  }
  // Adds a part to a plain call whose reply is not plain. Returns false if there is no memory for
  // it.
  bool add_part(ServedCall& call) noexcept;
  // Returns null if memory is exhausted.
  ChunkPart* get_part() noexcept {
    if (free_parts_.empty() && !grow_parts()) [[unlikely]]
      return nullptr;
    ChunkPart& part = free_parts_.pop();
    RRDK_ASSERT(!part.in_use);
    part.in_use = true;
    return &part;
  }
  // Its buffers must have been given back.
  void put(ChunkPart& part) noexcept {
    RRDK_ASSERT(part.in_use);
    part.in_use = false;
    free_parts_.push(part);
  }
  // Gives back what unused calls keep for their next reply.
  void release_idle() noexcept;
  // Called about every millisecond: gives back what only a burst of calls has needed.
  void look(uint64_t now_ns) noexcept {
    if ((slabs_.size() > kKeptSlabs || parts_.size() > kKeptSlabs) && now_ns >= next_look_ns_)
        [[unlikely]]
      shrink(now_ns);
  }

  // Whether less than half of the calls are left.
  bool scarce() const noexcept { return left() < max_calls_ / 2; }
  uint32_t left() const noexcept { return max_calls_ - (capacity_ - available_); }

  uint32_t capacity() const noexcept { return capacity_; }    // calls that exist
  uint32_t available() const noexcept { return available_; }  // of these, not in use
  StageLog& stages() noexcept { return stages_; }
  // For a header that is read or written and then discarded.
  proto::Header& scratch() noexcept { return scratch_; }
  // Arrays for the connections' lists of Sends, with that capacity each. Control path.
  WorkArrays<fabric::SendWr>& send_arrays(uint32_t capacity);
  // For the spans of a Send that goes out at once. Clearing a new array for each Send would cost
  // more than filling in a few entries.
  std::array<MemorySpan, fabric::kMaxSges>& runs() noexcept { return runs_; }

 private:
  struct Slab;
  struct PartSlab;
  static constexpr size_t kKeptSlabs = 16;  // of either kind
  bool grow() noexcept;
  bool add_slab() noexcept;
  bool grow_parts() noexcept;
  void shrink(uint64_t now_ns) noexcept;
  // Builds free_ and free_parts_ again, since they may still link objects that are gone.
  void collect_free() noexcept;
  ServedCall* take() noexcept;

  Memory& memory_;
  StageLog stages_;
  const base::OwnedByThread* const owner_;
  uint32_t max_calls_;
  uint32_t capacity_ = 0;
  uint32_t available_ = 0;
  uint32_t kept_ = 0;             // of these, those with a buffer for a reply
  uint32_t least_available_ = 0;  // since the last look()
  uint32_t quiet_looks_ = 0;      // consecutive looks in which few were used
  uint64_t next_look_ns_ = 0;
  base::Stack<ServedCall, &ServedCall::next_call> free_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  base::Stack<ChunkPart, &ChunkPart::next> free_parts_;
  std::vector<std::unique_ptr<PartSlab>> parts_;
  std::array<MemorySpan, fabric::kMaxSges> runs_;
  std::vector<std::unique_ptr<WorkArrays<fabric::SendWr>>> send_arrays_;
  proto::Header scratch_;
};

}  // namespace rrdk::engine

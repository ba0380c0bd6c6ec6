// What a work request's wr_id points to. Completions are dispatched by our own tag, never by the
// opcode of a completion, which is not to be trusted when the request failed.
#pragma once

#include <cstdint>

namespace rrdk::xprt {

enum class WorkKind : uint8_t {
  kReceive,  // owner: ReceiveSlot
  kSilent,   // an unsignaled request that failed; whoever owns the chain hears of its signaled end
  kRead,     // owner: Incoming; one RDMA Read
  kReply,    // owner: Incoming; Writes and the Send of a reply or an error
  kCall,     // owner: OutgoingCall::State; binds and the Send of a call
  kRevoke,   // owner: OutgoingCall::State; invalidations
  kProperties,  // owner: Properties::Outgoing; a Send
  // RFC 5666's compatibility mode. Owner of both: ReplyReader::Reading.
  kReplyRead,  // one RDMA Read of a reply's data
  kDone,       // the Send of RDMA_DONE
};

struct WorkTag {
  WorkKind kind;
  void* owner;

  uint64_t id() const noexcept { return reinterpret_cast<uint64_t>(this); }
  static const WorkTag& of(uint64_t wr_id) noexcept {
    return *reinterpret_cast<const WorkTag*>(wr_id);
  }
};

}  // namespace rrdk::xprt

// What crosses the fabric interface on the data path: work requests down, completions up. It has
// the form of reliable-connected verbs, in batches; the semantics, including errors, are those of
// RC verbs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rrdk/memory.h"

namespace rrdk::fabric {

// What a work request does, and what a completion reports.
enum class Op : uint8_t {
  kSend,
  kSendInvalidate,  // Send that also invalidates `invalidate_key` at the receiver
  kRead,            // peer's memory -> sges
  kWrite,           // sges -> peer's memory
  kBindKey,         // binds `key` to sges[0], with `rights`, for this connection; see SendWr::runs
  kInvalidateKey,   // invalidates `key` if it is still valid; when this completes no access by the
                    // peer is in progress
  kReceive,         // completions only
};

// What the holder of a remote key may do. Never both (V1-MEM-15).
enum class Rights : uint8_t { kRemoteRead, kRemoteWrite };

constexpr uint32_t kMaxSges = 16;
constexpr uint32_t kMaxKeyRuns = 1024;  // SendWr::runs

// A send-queue work request. Requests are executed in order: a Write is placed before a later Send
// arrives, and a Bind is done before a later Send is seen; a Read's data may arrive after later
// requests start. `wr_id` is returned in the completion. A request that is not `signaled` completes
// silently if it succeeds, and always reports if it fails.
struct SendWr {
  uint64_t wr_id = 0;
  Op op = Op::kSend;
  Rights rights = Rights::kRemoteRead;  // kBindKey
  bool signaled = true;
  // Not signaled, and of no interest to its poster when it is flushed: it completes silently then,
  // too. The failure that ends the connection is reported if the driver learns about it. Only for
  // drivers with Capabilities::max_copied: for Sends that are copied, and for a kBindKey before
  // one.
  bool quiet = false;
  // A quiet Send of at most Capabilities::max_copied bytes: post_send() copies them, so that their
  // memory is free once the request has been taken.
  bool copied = false;
  uint8_t num_sges = 0;
  // kBindKey of a driver with Capabilities::binds_lists, with kRemoteRead. If it is not 0, sges[0]
  // holds that many MemorySpans, one after the other; the key stands for the runs that they name,
  // at least one byte each, which the peer sees as one range from the address of sges[0] on. The
  // driver may change that list, which must remain until the key is invalid.
  uint16_t runs = 0;
  uint32_t key = 0;             // kRead, kWrite: the peer's; kBindKey, kInvalidateKey: ours
  uint32_t invalidate_key = 0;  // kSendInvalidate: the peer's
  uint64_t remote_address = 0;  // kRead, kWrite
  std::array<MemorySpan, kMaxSges> sges;

  std::span<const MemorySpan> spans() const { return {sges.data(), num_sges}; }
};
static_assert(sizeof(SendWr) <= 288 && offsetof(SendWr, sges) <= 32);

struct ReceiveWr {
  uint64_t wr_id = 0;
  MemorySpan buffer;
};
static_assert(sizeof(ReceiveWr) <= 24);

enum class WcStatus : uint8_t {
  kSuccess,
  kFlushed,          // the queue pair was in error when this request's turn came
  kLocalLength,      // a Send longer than the Receive it met (at the receiver)
  kLocalProtection,  // an sge outside its region, or a key that is not ours
  kRemoteInvalid,    // the peer refused: message too long for its Receive
  kRemoteAccess,     // key unknown, stale, out of bounds, or without the right
  kRemoteOperation,  // the peer failed in a way that it does not disclose
  kRnrExceeded,      // no Receive was posted for too long
  kPeerLost,         // the peer died or the link broke while this was in progress
};

const char* to_string(WcStatus status);

struct Completion {
  uint64_t wr_id;
  void* owner;  // of the queue pair: QueuePairOptions::owner
  Op op;
  WcStatus status;
  bool has_invalidated;      // kReceive: the peer's Send invalidated a key of ours
  uint32_t byte_length;      // kReceive: of the message; kRead: of the data
  uint32_t invalidated_key;  // if has_invalidated
};
static_assert(sizeof(Completion) == 32);  // two in a cache line

}  // namespace rrdk::fabric

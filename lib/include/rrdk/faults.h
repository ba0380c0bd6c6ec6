/**
 * Faults on purpose: what a fabric, or a machine short of memory, does once a month, done now. They
 * are part of every build and cost nothing while they are off.
 *
 *   auto plan = rrdk::must(rrdk::parse_fault_plan("send-error=0.001,no-buffers=1/50,seed=7"));
 *   rrdk::must(runtime->set_faults(plan));          // while calls run, from any thread
 *   ...
 *   runtime->clear_faults();
 *   std::puts(rrdk::to_string(runtime->fault_counts()).c_str());
 *
 * What happens is what a reliable connection would do. A work request that fails is not carried out
 * and completes with the error named; its queue pair is then in error, what else was posted on it
 * is flushed, the peer sees the connection end, and calls on it end with kConnectionLost or, where
 * the client has a policy for that, go on elsewhere. A delayed completion holds up those after it
 * on its connection, and no others; a slow stage holds up its thread. Memory is never used again
 * while the fabric may still access it.
 *
 * Which of the Sends, Reads, and so on, fail depends on the seed and on how many there were since
 * the plan was set, and on nothing else: with one core and the same calls a run can be repeated. So
 * can one with slow stages, if each call is sampled; else it depends on XIDs, which begin at
 * random.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rrdk/error.h"

namespace rrdk {

/** How often. Never, by default. */
struct FaultRate {
  double rate = 0;     ///< probability, 0 to 1
  uint32_t every = 0;  ///< not 0: instead, each so-many-th time
};

/** How a work request fails, as reliable connected verbs name it. */
enum class WorkError : uint8_t {
  kLocalLength,      ///< "local-length": a message longer than the Receive that it met
  kLocalProtection,  ///< "local-protection": memory or a key that is not ours
  kRemoteInvalid,    ///< "remote-invalid": the peer refused the request as invalid
  kRemoteAccess,     ///< "remote-access": the peer refused access to its memory
  kRemoteOperation,  ///< "remote-operation": the peer failed in another way
  kRnrExceeded,      ///< "rnr": the peer posted no Receive for too long
  kPeerLost,         ///< "peer-lost": the peer, or the link to it, is gone
};

/**
 * Which part of a call takes longer, by the names of testrpc's table of stages. It ends where the
 * Stage named is passed (rrdk/stages.h). The thread that passes it busy-waits, and whatever else it
 * has to do waits with it: a poll core's other calls and timers. The first four are the client's,
 * the others the server's; what is between them has no name here, but `delay` makes completions
 * late.
 */
enum class SlowStage : uint8_t {
  kWait,      ///< "wait", to Stage::kStarted
  kPost,      ///< "post", to Stage::kPosted
  kComplete,  ///< "complete", to Stage::kCalled
  kCallback,  ///< "callback", to Stage::kEnded
  kFetch,     ///< "fetch", to Stage::kWhole
  kDecode,    ///< "decode", to Stage::kDecoded
  kQueue,     ///< "queue", to Stage::kEntered: a worker waits, if the procedure has one
  kHandler,   ///< "handler", to Stage::kAnswered: whoever answers waits, in ServerCall::reply()
  kReply,     ///< "reply", to Stage::kReplied
};

struct FaultPlan {
  uint64_t seed = 1;
  /** Work requests that fail, each in its own way: */
  FaultRate send = {}, read = {}, write = {}, receive = {};
  WorkError send_error = WorkError::kRemoteOperation;
  WorkError read_error = WorkError::kRemoteAccess;
  WorkError write_error = WorkError::kRemoteAccess;
  WorkError receive_error = WorkError::kLocalLength;
  FaultRate rnr = {};           ///< Sends that find no Receive (kRnrExceeded)
  FaultRate bind = {};          ///< remote keys that cannot be bound (kLocalProtection)
  FaultRate delay = {};         ///< completions that come late
  uint32_t delay_us = 100;      ///< by so many microseconds, at most 1000000
  FaultRate no_buffers = {};    ///< Memory::get(), get_fitting() and get_bulk() return nothing
  FaultRate registration = {};  ///< Memory::allocate() and adopt() fail with kNoMemory
  /** Of the calls that are sampled (Runtime::stamp_every()), those that come late to one stage: */
  FaultRate stage = {};
  SlowStage slow_stage = SlowStage::kDecode;  ///< to which
  uint32_t stage_us = 100;                    ///< by how many microseconds, at most 1000000
  Reserved<5> reserved = {};                  ///< for what later releases add
};

/** How many faults there were, of each kind, since the Runtime (or its Memory) was made. */
struct FaultCounts {
  uint64_t send = 0, read = 0, write = 0, receive = 0, rnr = 0, bind = 0, delay = 0, no_buffers = 0,
           registration = 0;
  uint64_t stage = 0;         ///< calls that were chosen for it, whether they came so far or not
  Reserved<7> reserved = {};  ///< for what later releases add
};

/**
 * Parses "NAME=RATE,...": send-error, read-error, write-error, receive-error, rnr, bind-error,
 * no-buffers and registration, each with a probability such as 0.001 or, as 1/N, for each N-th
 * time. A WorkError's name may follow the first four: "read-error=0.01:peer-lost".
 * "delay-us=N:RATE" makes completions N microseconds late, "stage-us=N:RATE:STAGE" keeps sampled
 * calls for N microseconds in a part of their way, a SlowStage's name, and "seed=N" sets the seed.
 * What is not named does not happen; of what is named twice the last counts. Errors:
 * kInvalidArgument, naming the part and what it can be.
 */
[[nodiscard]] Result<FaultPlan> parse_fault_plan(std::string_view spec);
/** As parse_fault_plan() reads it; "off" when nothing is to happen. */
std::string to_string(const FaultPlan& plan);
/** One "name count" a line, of those that there were; "none" without any. */
std::string to_string(const FaultCounts& counts);

}  // namespace rrdk

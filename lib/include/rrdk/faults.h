/**
 * Fault injection: failures that a fabric, or a machine short of memory, causes rarely, made to
 * happen now. It is part of every build and costs nothing while it is off.
 *
 *   auto plan = rrdk::must(rrdk::parse_fault_plan("send-error=0.001,no-buffers=1/50,seed=7"));
 *   rrdk::must(runtime->set_faults(plan));          // while calls run, from any thread
 *   ...
 *   runtime->clear_faults();
 *   std::puts(rrdk::to_string(runtime->fault_counts()).c_str());
 *
 * Effect: what a reliable connection would do. A work request that fails is not carried out and
 * completes with the given error. Its queue pair is then in the error state, other work posted on
 * it is flushed, and the peer sees the connection end. Calls on it end with kConnectionLost, or
 * continue on another connection if the client is configured for that. A delayed completion delays
 * those after it on its connection, and no others; a slow stage delays its thread. Memory is never
 * used again while the fabric may still access it.
 *
 * Repeating a run: which Sends, Reads, and so on, fail depends only on the seed and on their number
 * since the plan was set, so with one core and the same calls a run can be repeated. A run with
 * slow stages can be repeated if each call is sampled; otherwise it depends on XIDs, which begin at
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
  uint32_t every = 0;  ///< if not 0, used instead: every N-th time
};

/** How a work request fails, with the names of reliable connected verbs. */
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
 * The part of a call that takes longer, with the names of testrpc's table of stages. It ends where
 * the given Stage is passed (rrdk/stages.h). The thread that passes it busy-waits, which delays all
 * its other work: a poll core's other calls and timers. The first four are the client's, the others
 * the server's. What lies between has no name here, but `delay` makes completions late.
 */
enum class SlowStage : uint8_t {
  kWait,      ///< "wait", to Stage::kStarted
  kPost,      ///< "post", to Stage::kPosted
  kComplete,  ///< "complete", to Stage::kCalled
  kCallback,  ///< "callback", to Stage::kEnded
  kFetch,     ///< "fetch", to Stage::kWhole
  kDecode,    ///< "decode", to Stage::kDecoded
  kQueue,     ///< "queue", to Stage::kEntered: a worker waits, if the procedure has one
  kHandler,  ///< "handler", to Stage::kAnswered: the answering thread waits, in ServerCall::reply()
  kReply,    ///< "reply", to Stage::kReplied
};

struct FaultPlan {
  uint64_t seed = 1;
  /** Work requests that fail, each with the error below. */
  FaultRate send = {}, read = {}, write = {}, receive = {};
  WorkError send_error = WorkError::kRemoteOperation;
  WorkError read_error = WorkError::kRemoteAccess;
  WorkError write_error = WorkError::kRemoteAccess;
  WorkError receive_error = WorkError::kLocalLength;
  FaultRate rnr = {};           ///< Sends that find no Receive (kRnrExceeded)
  FaultRate bind = {};          ///< remote keys that cannot be bound (kLocalProtection)
  FaultRate delay = {};         ///< completions that come late
  uint32_t delay_us = 100;      ///< by this many microseconds, at most 1000000
  FaultRate no_buffers = {};    ///< Memory::get(), get_fitting() and get_bulk() return nothing
  FaultRate registration = {};  ///< Memory::allocate() and adopt() fail with kNoMemory
  /** Sampled calls (Runtime::stamp_every()) that reach one stage late. */
  FaultRate stage = {};
  SlowStage slow_stage = SlowStage::kDecode;  ///< the stage
  uint32_t stage_us = 100;                    ///< by this many microseconds, at most 1000000
  Reserved<5> reserved = {};                  ///< spare bytes for later releases
};

/** The number of faults of each kind since the Runtime (or its Memory) was made. */
struct FaultCounts {
  uint64_t send = 0, read = 0, write = 0, receive = 0, rnr = 0, bind = 0, delay = 0, no_buffers = 0,
           registration = 0;
  uint64_t stage = 0;         ///< calls that were chosen, whether or not they reached the stage
  Reserved<7> reserved = {};  ///< spare bytes for later releases
};

/**
 * Parses "NAME=RATE,...": send-error, read-error, write-error, receive-error, rnr, bind-error,
 * no-buffers and registration, each with a probability such as 0.001 or, as 1/N, for every N-th
 * time. A WorkError's name may follow the first four: "read-error=0.01:peer-lost".
 * "delay-us=N:RATE" makes completions N microseconds late, "stage-us=N:RATE:STAGE" delays sampled
 * calls by N microseconds in a SlowStage, and "seed=N" sets the seed. Faults that are not named do
 * not happen; if a name occurs twice, the last counts. Errors: kInvalidArgument, naming the part
 * and what it can be.
 */
[[nodiscard]] Result<FaultPlan> parse_fault_plan(std::string_view spec);
/** The form that parse_fault_plan() reads; "off" for a plan without faults. */
std::string to_string(const FaultPlan& plan);
/** One line "name count" for each kind that occurred; "none" without any. */
std::string to_string(const FaultCounts& counts);

}  // namespace rrdk

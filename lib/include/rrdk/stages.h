/**
 * Where the time of a call goes: the times at which sampled calls passed each stage, at either end.
 * Server::procedures() has the times of a server's calls from stage to stage.
 *
 *   runtime->stamp_every(16);
 *   ...
 *   for (const rrdk::StampedCall& call : runtime->slow_calls())
 *     if (!call.made && call.at(rrdk::Stage::kEntered) != 0)
 *       std::printf("%08x: %" PRIu64 " ns in its handler\n", call.xid,
 *                   rrdk::ticks_to_ns(call.at(rrdk::Stage::kAnswered) -
 *                                     call.at(rrdk::Stage::kEntered)));
 *
 * Sampling: calls are chosen by their XIDs and the rate alone, so two ends that sample at the same
 * rate (or where one rate is a multiple of the other) have the same calls. Calls with neighbouring
 * XIDs are sampled together, up to eight. Each core keeps the last kStampedCalls of these, and the
 * kSlowCalls slowest of those before.
 *
 * Times are ticks of the CPUs' time stamp counter, which is the same for all CPUs and so all
 * processes of a host: the two ends of a call on one host can be compared. Between hosts only
 * differences are meaningful.
 *
 * Threads: any. Cost: a multiplication and a comparison per call, and a few reads of the counter
 * for each sampled call; nothing is allocated while calls run.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

/**
 * The stages of a call. The first six are those of the end that serves it, the others of the end
 * that makes it. Both begin at 0, so ask StampedCall::at() only for those of its own end. In
 * quotes, testrpc's name for the interval that ends at the stage.
 */
enum class Stage : uint8_t {
  kReceived,  ///< the server has its transport header
  /**
   * "fetch": its RDMA Reads have completed, and it could proceed. Equal to kReceived if there was
   * nothing to read or to wait for.
   */
  kWhole,
  kDecoded,   ///< "decode": its procedure is found; it may still wait for a worker
  kEntered,   ///< "queue": its handler begins; procedure 0, which has no handler: equal to kDecoded
  kAnswered,  ///< "handler": its handler has answered
  kReplied,   ///< "reply": its reply is about to be handed to the driver

  kSubmitted = 0,  ///< Call::submit()
  kStarted,        ///< "wait": it has a credit and a slot, and its Send is made
  kPosted,         ///< "post": its Send is about to be handed to the driver
  kSeen,           ///< its reply has come, and was matched to it
  kCalled,         ///< "complete": its callback begins
  kEnded,          ///< "callback": its callback has returned
};

constexpr size_t kStages = 6;  ///< of one end, at most

/** The number of sampled calls that each core keeps, in both directions together. */
constexpr size_t kStampedCalls = 1024;
/** The number of slow calls that it keeps besides (Runtime::slow_calls()), likewise. */
constexpr size_t kSlowCalls = 64;

/** One call, from one end. */
struct StampedCall {
  bool made = false;        ///< by this end; otherwise served
  uint64_t connection = 0;  ///< ConnectionInfo::id, of this process; 0: see `program`
  uint32_t xid = 0;
  uint32_t program = 0;  ///< 0, as the fields around it, if it was refused before these were known
  uint32_t version = 0;
  uint32_t procedure = 0;
  /**
   * 0 if it has not passed the stage: a refused call, for example, has no handler. kPosted and
   * kReplied are also 0 if more than eight sampled calls of its connection were posted at once.
   */
  std::array<uint64_t, kStages> ticks = {};

  /** When it passed a stage of its end. */
  uint64_t at(Stage stage) const noexcept { return ticks[static_cast<size_t>(stage)]; }
};

/** Converts a length of time. */
uint64_t ticks_to_ns(uint64_t ticks) noexcept;
/** The current time in ticks. */
uint64_t now_ticks() noexcept;

}  // namespace rrdk

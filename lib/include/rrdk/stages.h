/**
 * Where the time of a call goes: when sampled calls passed which stage, at either end.
 *
 * Calls are sampled by their XIDs: whoever knows the rate knows which, so that two ends that sample
 * at the same rate (or where one rate is a multiple of the other) have the same calls. Calls whose
 * XIDs are neighbours are sampled together, up to eight. Each core keeps the last kStampedCalls of
 * them, and the kSlowCalls slowest of those before; Server::procedures() has how long a server's
 * calls took from stage to stage.
 *
 *   runtime->stamp_every(16);
 *   ...
 *   for (const rrdk::StampedCall& call : runtime->slow_calls())
 *     if (!call.made && call.at(rrdk::Stage::kEntered) != 0)
 *       std::printf("%08x: %" PRIu64 " ns in its handler\n", call.xid,
 *                   rrdk::ticks_to_ns(call.at(rrdk::Stage::kAnswered) -
 *                                     call.at(rrdk::Stage::kEntered)));
 *
 * Times are ticks of the CPUs' time stamp counter, which all CPUs of a host read alike, and so all
 * processes on it: a call's two ends on one host can be set side by side. Only differences mean
 * something between hosts.
 *
 * Threads: any. Cost: a multiplication and a comparison per call, and of each call that is sampled
 * some reads of the counter; nothing is allocated while calls run.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

/**
 * What a call has passed. The first six are of the end that serves it, the others of the end that
 * makes it. Both begin at 0: ask StampedCall::at() for those of its own end only. In quotes, what
 * testrpc calls the part of the way that ends there.
 */
enum class Stage : uint8_t {
  kReceived,  ///< the server has its transport header
  /** "fetch": what was to be read of it (RDMA Reads) is there, and it was its turn. As kReceived
      where there was nothing to read or to wait for. */
  kWhole,
  kDecoded,   ///< "decode": its procedure is found; what is left to wait for is a worker
  kEntered,   ///< "queue": its handler begins; procedure 0, which has none: as kDecoded
  kAnswered,  ///< "handler": its handler has answered
  kReplied,   ///< "reply": its reply is about to be handed to the driver

  kSubmitted = 0,  ///< Call::submit()
  kStarted,        ///< "wait": it has a credit, and a slot: its Send is made
  kPosted,         ///< "post": its Send is about to be handed to the driver
  kSeen,           ///< its reply has come, and belongs to it
  kCalled,         ///< "complete": its callback begins
  kEnded,          ///< "callback": its callback has returned
};

constexpr size_t kStages = 6;  ///< of one end, at most

/** How many each core keeps, in both directions together. */
constexpr size_t kStampedCalls = 1024;
/** How many slow ones it keeps besides (Runtime::slow_calls()), in both directions together. */
constexpr size_t kSlowCalls = 64;

/** One call, from one end. */
struct StampedCall {
  bool made = false;        ///< by this end, rather than served
  uint64_t connection = 0;  ///< ConnectionInfo::id, of this process; 0: see `program`
  uint32_t xid = 0;
  uint32_t program = 0;  ///< 0, as those around it: it was refused before these were known
  uint32_t version = 0;
  uint32_t procedure = 0;
  /**
   * 0: it has not passed that one, as a call that was refused has no handler; or, of kPosted and
   * kReplied, more than eight sampled calls of its connection were posted at once.
   */
  std::array<uint64_t, kStages> ticks = {};

  /** When it passed that stage of its end. */
  uint64_t at(Stage stage) const noexcept { return ticks[static_cast<size_t>(stage)]; }
};

/** A length of time. */
uint64_t ticks_to_ns(uint64_t ticks) noexcept;
/** What a stage that is passed now would have. */
uint64_t now_ticks() noexcept;

}  // namespace rrdk

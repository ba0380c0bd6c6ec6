/**
 * What a server has done for each procedure of its services, as Server::procedures() has it: calls,
 * errors, bytes, and how long calls took from stage to stage.
 *
 *   for (const rrdk::ProcedureStats& p : server->procedures())
 *     std::printf("%s: %" PRIu64 " calls, p99 of the handler %" PRIu64 " ns\n", p.name.c_str(),
 *                 p.calls, p.handler.percentile_ns(99));
 *
 * Plain values: a copy of one moment, which any thread may keep.
 */
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "rrdk/language.h"

namespace rrdk {

/**
 * How often which duration was seen, in nanoseconds. Every power of two is cut into eight equal
 * buckets, so that a duration is known to 12.5 %; what is longer than 2^37 ns (137 s) counts as
 * that.
 */
struct DurationHistogram {
  static constexpr uint32_t kSubBits = 3;
  static constexpr uint32_t kMaxBits = 37;
  static constexpr size_t kBuckets = (kMaxBits - kSubBits + 1) << kSubBits;

  std::array<uint64_t, kBuckets> buckets = {};  ///< see bucket_of()
  uint64_t total_ns = 0;                        ///< of all of them

  static constexpr size_t bucket_of(uint64_t ns) noexcept {
    ns = std::min(ns, (uint64_t{1} << kMaxBits) - 1);
    auto bits = static_cast<uint32_t>(std::bit_width(ns));
    if (bits <= kSubBits + 1)
      return static_cast<size_t>(ns);
    uint32_t shift = bits - kSubBits - 1;
    return (size_t{shift} << kSubBits) + static_cast<size_t>(ns >> shift);
  }
  /** The longest duration that counts in that bucket. */
  static constexpr uint64_t upper_end_ns(size_t bucket) noexcept {
    size_t shift = bucket < (2u << kSubBits) ? 0 : (bucket >> kSubBits) - 1;
    uint64_t top = bucket - (shift << kSubBits);
    return ((top + 1) << shift) - 1;
  }

  uint64_t count() const noexcept {
    uint64_t sum = 0;
    for (uint64_t n : buckets)
      sum += n;
    return sum;
  }
  /** 0 when nothing was measured. */
  uint64_t mean_ns() const noexcept {
    uint64_t n = count();
    return n == 0 ? 0 : total_ns / n;
  }
  /** What `percent` of them do not exceed, rounded up to the end of its bucket; 0 of nothing. */
  uint64_t percentile_ns(double percent) const noexcept {
    uint64_t all = count();
    auto rank = static_cast<uint64_t>(std::ceil(percent / 100 * static_cast<double>(all)));
    rank = std::clamp<uint64_t>(rank, 1, std::max<uint64_t>(all, 1));
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets && all != 0; ++i) {
      seen += buckets[i];
      if (seen >= rank)
        return upper_end_ns(i);
    }
    return 0;
  }
};

/** Of one procedure, since the server began to listen. */
struct ProcedureStats {
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;  ///< kOtherProcedures: all without an entry, counted together
  std::string name;        ///< "READ of blk", as log lines have it
  /** Calls that have come and not ended: those that handlers keep, and that wait for workers or run
      in them. One that a handler on a poll core is answering right now need not be among them. */
  uint64_t calls_in_progress = 0;
  uint64_t calls = 0;   ///< that have ended; repeated ones too, whose replies were kept
  uint64_t errors = 0;  ///< of them, those that did not succeed: rejected, denied, dropped
  /** Of the calls, with what came in chunks; without transport headers. */
  uint64_t received_bytes = 0;
  uint64_t sent_bytes = 0;  ///< of the replies, likewise
  /**
   * Times from stage to stage (rrdk/stages.h), of calls that Runtime::stamp_every() samples and
   * that have a handler. This one: from the transport header until the call's chunks were read, and
   * it was the call's turn.
   */
  DurationHistogram fetch;
  DurationHistogram decode;  ///< then until its procedure was found
  DurationHistogram queue;   ///< then until the handler's entry: the way to a worker, if it has one
  DurationHistogram handler;  ///< then until its answer, however long it keeps the call
  /**
   * Then until the reply was made, the way back from a worker included. Replies that reply_after()
   * has delayed are not measured here.
   */
  DurationHistogram reply;
  Reserved<8> reserved = {};  ///< for what later releases add
};

}  // namespace rrdk

/**
 * Statistics of each procedure of a server's services, from Server::procedures(): calls, errors,
 * bytes, and the times of calls from stage to stage.
 *
 *   for (const rrdk::ProcedureStats& p : server->procedures())
 *     std::printf("%s: %" PRIu64 " calls, p99 of the handler %" PRIu64 " ns\n", p.name.c_str(),
 *                 p.calls, p.handler.percentile_ns(99));
 *
 * Threads: plain values, a snapshot that any thread may keep.
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
 * A histogram of durations in nanoseconds. Every power of two is divided into eight equal buckets,
 * so that a duration is known to 12.5 %; longer ones than 2^37 ns (137 s) count as that.
 */
struct DurationHistogram {
  static constexpr uint32_t kSubBits = 3;
  static constexpr uint32_t kMaxBits = 37;
  static constexpr size_t kBuckets = (kMaxBits - kSubBits + 1) << kSubBits;

  std::array<uint64_t, kBuckets> buckets = {};  ///< see bucket_of()
  uint64_t total_ns = 0;                        ///< the sum of all durations

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
  /** 0 if nothing was measured. */
  uint64_t mean_ns() const noexcept {
    uint64_t n = count();
    return n == 0 ? 0 : total_ns / n;
  }
  /**
   * The duration that `percent` of all do not exceed, rounded up to the end of its bucket; 0 if
   * nothing was measured.
   */
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

/** Statistics of one procedure, since the server began to listen. */
struct ProcedureStats {
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;  ///< kOtherProcedures: all without an entry, counted together
  std::string name;        ///< "READ of blk", as in log lines
  /**
   * Calls that have come and not ended: those that handlers keep, that wait for workers, or that
   * run there. A call that a handler on a poll core is answering at this moment may be missing.
   */
  uint64_t calls_in_progress = 0;
  uint64_t calls = 0;   ///< calls that have ended, including repeated ones whose replies were kept
  uint64_t errors = 0;  ///< of these, calls that were rejected, denied or dropped
  /** Bytes of the calls with their chunks, without transport headers. */
  uint64_t received_bytes = 0;
  uint64_t sent_bytes = 0;  ///< bytes of the replies, likewise
  /**
   * Times from stage to stage (rrdk/stages.h), for calls that Runtime::stamp_every() samples and
   * that have a handler. This one: from the transport header until the call's chunks were read and
   * the call could proceed.
   */
  DurationHistogram fetch;
  DurationHistogram decode;   ///< then until its procedure was found
  DurationHistogram queue;    ///< then until the handler began, including the queue of a worker
  DurationHistogram handler;  ///< then until its answer, however long it keeps the call
  /**
   * Then until the reply was made, including the queue back from a worker. Replies delayed by
   * reply_after() are not measured here.
   */
  DurationHistogram reply;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

}  // namespace rrdk

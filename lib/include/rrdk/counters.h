/**
 * What RRDK counts: one table (rrdk/counter_table.h), from which Stats, metrics (rrdk/telemetry.h),
 * the C API and doc/telemetry.md have each counter under one name.
 *
 *   const rrdk::Stats stats = server->stats();
 *   uint64_t calls = stats[rrdk::Counter::kCallsReceived];
 *   uint64_t overruns = stats[rrdk::Refusal::kCreditOverrun];
 *   for (const rrdk::Stats::Value& one : stats.values())
 *     if (one.value != 0)
 *       std::printf("%s %" PRIu64 " %s  (%s)\n", one.info->name, one.value, one.info->unit,
 *                   one.info->text);
 *
 * Counters only grow; gauges, such as kConnections, are of this moment. Units: bytes where the name
 * ends in _bytes, else numbers of what the text says. No reader stops what is counted: each number
 * is whole, but together they are not a snapshot of one moment. Calls are counted when the poll
 * core has finished the batch in which they came: a count that is read in a handler or a callback
 * may lack that batch, its own call included.
 *
 * Ids are for good. Later releases have more of them, and a program that was compiled with an
 * earlier one runs on: it asks for those that it knows, and values() has the others, too. In a
 * library that does not know an id the count is 0.
 *
 * Threads: everything here from any.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "rrdk/language.h"

namespace rrdk {

/**
 * Each counter and gauge. doc/telemetry.md lists them, and says what each counts, which is also
 * counter_info()'s text. Those of buffers (kBuffers to kBuffersMissing) are in PoolAudit, those of
 * procedures (kCalls to kSentBytes) in ProcedureStats: in Stats they are 0. The calls of a server
 * are kCallsReceived, those of a client kCallsMade.
 */
enum class Counter : uint16_t {
#define RRDK_COUNTER(id, enumerator, name, owners, text) k##enumerator = id,
#define RRDK_GAUGE(id, enumerator, name, owners, text) k##enumerator = id,
#include "rrdk/counter_table.h"
};

/**
 * Why something that a peer sent was refused or ignored; each reason has its own counter, in the
 * same list.
 *
 * "Refused" is a call that was answered with an error, or a reply that ended its call with one;
 * "ignored" is a message that changed nothing; "ended" is the connection.
 */
enum class Refusal : uint8_t {
#define RRDK_REFUSAL(id, reason, name, breach, title, text) k##reason,
#include "rrdk/counter_table.h"
};

/** How many reasons this header has. */
constexpr size_t kRefusals = 0
#define RRDK_REFUSAL(id, reason, name, breach, title, text) +1
#include "rrdk/counter_table.h"
    ;

/** Every reason, in order. */
constexpr std::array<Refusal, kRefusals> all_refusals() noexcept {
  std::array<Refusal, kRefusals> all = {};
  for (size_t i = 0; i < kRefusals; ++i)
    all[i] = static_cast<Refusal>(i);
  return all;
}
/** As in "unaligned Position", for people. Never null. */
const char* to_string(Refusal reason) noexcept;
/** The reason's counter: kRefusalXid for Refusal::kXid. */
Counter counter_of(Refusal reason) noexcept;
/**
 * Whether the peer broke the protocol of the transport: by messages that cannot be read, that
 * answer nothing, or that contradict the call, the credits or the properties that they belong to.
 * A client's mistakes in using it are among them: no room for the reply (kNoReplyRoom), or chunks
 * that the binding does not allow (kBindingChunks). Counter::kProtocolBreaches is their sum.
 *
 * A peer that keeps to the protocol causes none. What follows is refused or ignored, and no breach;
 * in doubt, where a reason has several causes, no peer is accused of what a correct one may do:
 *
 * - what our own time-outs cause, as with kLateReply: the peer may only be slow;
 * - what we lack, or do not take: buffers, services, versions, types of RDMA_OPTIONAL, properties,
 *   requests that come too fast, chunks beyond our limits. The peer learns of our limits by trying;
 * - what is wrong in the RPC message alone, which the transport only carries, unless it is neither
 *   call nor reply (kNotACall);
 * - what receivers are to put up with, such as kDone;
 * - work that failed, but for kMessageTooLong: the peer may have withdrawn memory, or be gone.
 */
bool is_breach(Refusal reason) noexcept;

/** What has counters of its own. The metrics' names begin with it, as in server_waits_share. */
enum class CounterOwner : uint8_t { kServer, kClient, kCore, kPool, kProcedure };

/** One line of the table. It is the library's, which may add to its end. */
struct CounterInfo {
  const char* name;  ///< "waits_share", the same everywhere; refusals begin with "refusal_"
  const char* unit;  ///< "bytes", or "" for numbers of what the text says
  const char* text;  ///< what it counts, in a sentence
  bool is_gauge;     ///< of this moment: may fall
  uint8_t owners;    ///< bit 1u << static_cast<unsigned>(owner): that owner has it
};

/** How many the library has: ids are 0 to this, less one. Those of this header are among them. */
size_t counter_count() noexcept;
/** Null: the library has no such counter. */
const CounterInfo* counter_info(Counter id) noexcept;
/** By CounterInfo::name. */
std::optional<Counter> find_counter(std::string_view name) noexcept;

/**
 * What one Server, ClientConnection or poll core had counted when it was asked, since it was made;
 * of connections the sum over all of them, past ones included. A plain value, as large as the
 * library needs it; those of several of one kind can be summed.
 */
class Stats {
 public:
  /** All zeros. */
  explicit Stats(CounterOwner owner);

  CounterOwner owner() const noexcept { return owner_; }
  /** 0 also for what `owner` does not count, and what the library does not know. */
  uint64_t operator[](Counter id) const noexcept {
    return static_cast<size_t>(id) < values_.size() ? values_[static_cast<size_t>(id)] : 0;
  }
  /** The count of refusals for this reason. */
  uint64_t operator[](Refusal reason) const noexcept { return (*this)[counter_of(reason)]; }

  /** A counter of the owner, with its count. */
  struct Value {
    Counter id;
    uint64_t value;
    const CounterInfo* info;  ///< never null
  };
  /** All that the owner has, zeros included, by id. */
  std::vector<Value> values() const;

  /** Adds to one count; nothing happens if the library does not know it. */
  void add(Counter id, uint64_t more) noexcept {
    if (static_cast<size_t>(id) < values_.size())
      values_[static_cast<size_t>(id)] += more;
  }
  Stats& operator+=(const Stats& more) noexcept;

 private:
  CounterOwner owner_;
  std::vector<uint64_t> values_;  // by id
};

}  // namespace rrdk

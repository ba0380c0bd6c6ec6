/**
 * The counters of RRDK. One table (rrdk/counter_table.h) gives each counter the same name in Stats,
 * in the metrics (rrdk/telemetry.h), in the C API and in doc/telemetry.md.
 *
 *   const rrdk::Stats stats = server->stats();
 *   uint64_t calls = stats[rrdk::Counter::kCallsReceived];
 *   uint64_t overruns = stats[rrdk::Refusal::kCreditOverrun];
 *   for (const rrdk::Stats::Value& one : stats.values())
 *     if (one.value != 0)
 *       std::printf("%s %" PRIu64 " %s  (%s)\n", one.info->name, one.value, one.info->unit,
 *                   one.info->text);
 *
 * Values: counters only grow; gauges, such as kConnections, are current values. The unit is bytes
 * if the name ends in _bytes; otherwise the number of what the text says. Reading does not stop
 * counting: each number is whole, but together they are not a snapshot of one moment. Calls are
 * counted when the poll core has finished the batch in which they came, so a count that is read in
 * a handler or a callback may lack that batch, its own call included.
 *
 * Compatibility: ids never change. Later releases have more ids. A program compiled with an earlier
 * one continues to work: it asks for the ids that it knows, and values() has the others too. The
 * count is 0 if the library does not know an id.
 *
 * Threads: any.
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
 * Each counter and gauge. doc/telemetry.md lists them with what each counts, which is also
 * counter_info()'s text. Those of buffers (kBuffers to kBuffersMissing) are in PoolAudit, those of
 * procedures (kCalls to kSentBytes) in ProcedureStats; in Stats they are 0. The calls of a server
 * are kCallsReceived, those of a client kCallsMade.
 */
enum class Counter : uint16_t {
#define RRDK_COUNTER(id, enumerator, name, owners, text) k##enumerator = id,
#define RRDK_GAUGE(id, enumerator, name, owners, text) k##enumerator = id,
#include "rrdk/counter_table.h"
};

/**
 * Why something that a peer sent was refused or ignored. Each reason has its own counter.
 *
 * "Refused" is a call that was answered with an error, or a reply that ended its call with one;
 * "ignored" is a message that changed nothing; "ended" is the connection.
 */
enum class Refusal : uint8_t {
#define RRDK_REFUSAL(id, reason, name, breach, title, text) k##reason,
#include "rrdk/counter_table.h"
};

/** The number of reasons in this header. */
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
/** A description for people, such as "unaligned Position". Never null. */
const char* to_string(Refusal reason) noexcept;
/** The reason's counter: kRefusalXid for Refusal::kXid. */
Counter counter_of(Refusal reason) noexcept;
/**
 * Returns true if the peer broke the transport's protocol: by messages that cannot be read, that
 * answer nothing, or that contradict the call, credits or properties to which they belong. This
 * includes a client's mistakes in using it: no memory for the reply (kNoReplyRoom), or chunks that
 * the binding does not allow (kBindingChunks). Counter::kProtocolBreaches is the sum.
 *
 * A peer that follows the protocol causes no breach. If a reason has several causes, it is no
 * breach if a correct peer can cause it. The following are refused or ignored, but are not
 * breaches:
 *
 *   - the effects of our own time-outs, as with kLateReply: the peer may only be slow;
 *   - what this end lacks or does not accept: buffers, services, versions, types of RDMA_OPTIONAL,
 *     properties, requests that come too fast, chunks beyond our limits. The peer learns our
 *     limits by trying;
 *   - errors in the RPC message alone, which the transport only carries, unless it is neither call
 *     nor reply (kNotACall);
 *   - what receivers must tolerate, such as kDone;
 *   - work that failed, except kMessageTooLong: the peer may have withdrawn memory, or be gone.
 */
bool is_breach(Refusal reason) noexcept;

/**
 * The kinds of objects that have counters. The metrics' names begin with it, as in
 * server_waits_share.
 */
enum class CounterOwner : uint8_t { kServer, kClient, kCore, kPool, kProcedure };

/** One line of the table. The library owns it, and may add fields at its end. */
struct CounterInfo {
  const char* name;  ///< "waits_share", the same everywhere; refusals begin with "refusal_"
  const char* unit;  ///< "bytes", or "" for numbers of what the text says
  const char* text;  ///< what it counts, in a sentence
  bool is_gauge;     ///< a current value, which may fall
  uint8_t owners;    ///< bit 1u << static_cast<unsigned>(owner): that owner has it
};

/**
 * The number of ids in the library, which are 0 to counter_count() - 1 and include those of this
 * header.
 */
size_t counter_count() noexcept;
/** Null if the library has no such counter. */
const CounterInfo* counter_info(Counter id) noexcept;
/** The counter with this CounterInfo::name. */
std::optional<Counter> find_counter(std::string_view name) noexcept;

/**
 * The counts of one Server, ClientConnection or poll core at one time, since it was created; counts
 * of connections are sums over all, past ones included. A plain value, whose size the library
 * determines; values of one kind can be added.
 */
class Stats {
 public:
  /** All zeros. */
  explicit Stats(CounterOwner owner);

  CounterOwner owner() const noexcept { return owner_; }
  /** Also 0 for what `owner` does not count, and for what the library does not know. */
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
  /** All counters of the owner by id, zeros included. */
  std::vector<Value> values() const;

  /** Adds to one count; does nothing if the library does not know it. */
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

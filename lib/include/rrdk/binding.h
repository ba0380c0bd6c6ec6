/**
 * Upper-layer bindings (RFC 8166 section 6): for each program, which arguments and results RDMA may
 * move in chunks of their own, and how large the rest of a reply can be. The client sizes replies
 * by the binding, and the server limits chunks by it.
 *
 *   constexpr rrdk::ProcedureBinding kProcedures[] = {
 *       {.procedure = 0, .name = "NULL"},
 *       {.procedure = 2, .name = "READ", .eligible_results = 1, .fixed_results = 12},
 *   };
 *   constexpr rrdk::Binding kBinding = {
 *       .program = 0x20005666, .version = 1, .name = "perf", .procedures = kProcedures};
 *
 * A binding is data, usually constexpr. Items that it does not mention are not eligible. A
 * procedure without an entry uses that of kOtherProcedures; without that entry it still works,
 * inline or as a long message.
 *
 * Order: the k-th eligible result of a reply, in stream order, goes into the k-th Write chunk
 * offered. A union arm without eligible items uses no chunk, and the chunks come back empty.
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "rrdk/error.h"

namespace rrdk {

/** The maximum number of eligible items in one procedure's arguments, and in its results. */
constexpr uint8_t kMaxEligibleItems = 16;

/** The maximum of ProcedureBinding::fixed_results; what is larger is a variable part. */
constexpr uint32_t kMaxFixedResults = 65536;

/**
 * Bytes of an accepted reply's RPC header if its verifier has no body, as servers answer to
 * AUTH_NONE and AUTH_SYS (RFC 5531 section 9).
 */
constexpr uint32_t kReplyHeaderBytes = 24;

/** The longest reply without results: PROG_MISMATCH, two words more than the header. */
constexpr uint32_t kLongestErrorReply = kReplyHeaderBytes + 8;

/**
 * The number of an entry, here and in rrdk::Procedure, that stands for every procedure without an
 * entry of its own, except 0. As the largest number it comes last in a Binding or a Program;
 * procedure 2^32 - 1 itself can have no other entry.
 */
constexpr uint32_t kOtherProcedures = UINT32_MAX;

struct ProcedureBinding {
  uint32_t procedure;  ///< or kOtherProcedures
  const char* name;    ///< for statistics and messages
  /** Maximum DDP-eligible items in the arguments: distinct non-zero Positions of the Read list. */
  uint8_t eligible_args = 0;
  /** Maximum DDP-eligible items in the results: Write chunks that a call may offer. */
  uint8_t eligible_results = 0;
  /**
   * Bytes of the longest results without their variable parts: of eligible items, and of other
   * items of variable length, only the length word counts. For a union, its largest arm. A multiple
   * of four.
   */
  uint32_t fixed_results = 0;
  /**
   * Refuses, on both sides, calls that do not fit inline after their eligible arguments have moved,
   * so there are no long calls (RFC 5666 section 3.4 leaves these to the binding).
   */
  bool no_long_calls = false;
};

/** A server's answer to a call whose chunks the binding does not allow. */
enum class BreachAnswer : uint8_t {
  kGarbageArgs,     ///< an RPC reply, GARBAGE_ARGS
  kTransportError,  ///< RDMA_ERROR, ERR_CHUNK
};

struct Binding {
  uint32_t program;
  uint32_t version;
  const char* name;  ///< of the program, for statistics and messages
  /** In ascending order of their numbers, each once. */
  std::span<const ProcedureBinding> procedures;
  BreachAnswer on_breach = BreachAnswer::kGarbageArgs;

  /** The entry of a procedure, its own or that of kOtherProcedures; null if there is no entry. */
  constexpr const ProcedureBinding* find(uint32_t procedure) const noexcept {
    // Most tables are dense from zero: an entry's index is its number.
    if (procedure < procedures.size() && procedures[procedure].procedure == procedure)
      return &procedures[procedure];
    auto entry = std::ranges::lower_bound(procedures, procedure, {}, &ProcedureBinding::procedure);
    if (entry != procedures.end() && entry->procedure == procedure)
      return &*entry;
    if (procedure == 0 || procedures.empty() || procedures.back().procedure != kOtherProcedures)
      return nullptr;
    return &procedures.back();
  }

  /**
   * Returns true if a call may have this number of Read chunks and Write chunks. A Position-Zero
   * Read chunk does not count; the limits are the same with and without one, so that a long call
   * cannot evade them.
   */
  constexpr bool allows(uint32_t procedure, uint32_t read_chunks,
                        uint32_t write_chunks) const noexcept {
    const ProcedureBinding* entry = find(procedure);
    uint32_t reads = entry != nullptr ? entry->eligible_args : 0;
    uint32_t writes = entry != nullptr ? entry->eligible_results : 0;
    return read_chunks <= reads && write_chunks <= writes;
  }

  constexpr bool allows_long(uint32_t procedure) const noexcept {
    return allows_long_of(find(procedure));
  }
  /** As above, for an entry that find() returned. */
  static constexpr bool allows_long_of(const ProcedureBinding* entry) noexcept {
    return entry == nullptr || !entry->no_long_calls;
  }

  /**
   * The maximum bytes of the reply message: RPC header, fixed results, and `variable` bytes, for
   * which the caller counts items of variable length with their pads, and eligible items without an
   * offered Write chunk.
   */
  constexpr uint64_t max_reply(uint32_t procedure, uint64_t variable) const noexcept {
    return max_reply_of(find(procedure), variable);
  }
  /** As above, for an entry that find() returned. */
  static constexpr uint64_t max_reply_of(const ProcedureBinding* entry,
                                         uint64_t variable) noexcept {
    uint64_t fixed = entry != nullptr ? entry->fixed_results : 0;
    uint64_t room = UINT64_MAX - kReplyHeaderBytes - fixed;
    uint64_t bound = kReplyHeaderBytes + fixed + std::min(variable, room);
    return std::max<uint64_t>(bound, kLongestErrorReply);
  }
};

/**
 * Checks a binding. Server::add_service() applies it, and so does a ClientConnection at the first
 * begin() with a binding, which it recognises by its address afterwards: a Binding must not change,
 * and must be static or outlive the ClientConnections, BackwardClients, Servers and Clients that it
 * was given to. Calls with an invalid binding end with CallStatus::kInvalidCall, and the log says
 * why. Errors: kInvalidArgument, naming the program, the procedure and what is wrong.
 */
[[nodiscard]] Result<void> check(const Binding& binding);

}  // namespace rrdk

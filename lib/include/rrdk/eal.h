/**
 * DPDK's environment abstraction layer, initialised or adopted.
 *
 * The library needs a running EAL (for its threads' numbers and rte_ring) and never starts one
 * behind the application's back: an application on DPDK or SPDK has called rte_eal_init() itself,
 * and ensure_eal() then does nothing; any other calls ensure_eal() once in main().
 *
 * fork(): no fork without exec once EAL runs. EAL's memory and the buffers are shared between
 * parent and child, and the child has none of the threads. fork() with exec(), posix_spawn(),
 * system() and popen() are safe, and so is fork() with _exit(). A child that ends otherwise, by
 * exit() or by a return from main(), does no harm: destructors of this library's objects do nothing
 * there. They leave the parent's pools, connections and sockets alone, and do not wait for threads
 * that the child does not have. The child may do nothing else with these objects, and what would
 * harm the parent is refused there: Runtime::poll(), begin() and submit() of a Call, the answer to
 * a ServerCall, Memory::get(), connecting and listening. While it lives it holds copies of the
 * parent's descriptors, so a TCP connection that the parent closes ends only when the child has
 * ended, too.
 *
 * RRDK's own descriptors are closed by exec(). Of EAL's, those that are open when ensure_eal() has
 * started EAL are made so; an application that starts EAL itself sees to that itself.
 */
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {

/**
 * True if this process has a running EAL, whoever started it. After rte_eal_cleanup() it is false,
 * provided that this library saw EAL run before (any function of this page does, and everything
 * that needs EAL); a first look after the clean-up is a crash in EAL. Every Memory and Runtime is
 * gone before the clean-up. (An EAL started with --in-memory keeps its memory, and looks running.)
 */
bool eal_running();

/** What ensure_eal()'s arguments mean. */
enum class EalArguments {
  /** All that EAL is given; if there are none, the quiet defaults. */
  kAll,
  /**
   * The quiet defaults apply where the arguments do not say otherwise: no PCI scan unless a device
   * is named (-a, -b), no telemetry socket, one lcore and the caller's CPUs unless lcores are named
   * (-l, -c, --lcores), no files shared with other processes unless these are named (--file-prefix,
   * --proc-type), ordinary pages unless an argument is about hugepages (--socket-mem, --in-memory,
   * --huge-dir, ...), and nothing logged but errors.
   */
  kOverDefaults,
};

/**
 * Adopts the running EAL, or starts one. `arguments` are EAL's own ("-l", "0,1", ...), without a
 * program name; empty: sensible ones for a process beside others on this host (no PCI scan, no
 * shared configuration, no telemetry socket, ordinary pages, quiet log). Idempotent. Call from the
 * main thread, before other threads of the library exist.
 *
 *   rrdk::must(rrdk::ensure_eal(std::vector<std::string>{"-l", "2,3"},
 *                               rrdk::EalArguments::kOverDefaults));
 *
 * Where the arguments name lcores, EAL pins the caller to the first one's CPU.
 *
 * Errors: kInvalidArgument (EAL refused the arguments; the message has its reason),
 * kSystem (also after rte_eal_cleanup(): EAL starts once in a process).
 */
[[nodiscard]] Result<void> ensure_eal(std::span<const std::string> arguments = {},
                                      EalArguments meaning = EalArguments::kAll);
/**
 * The CPUs of EAL's lcores, by lcore number, each once. An lcore with several CPUs counts with the
 * first of them that no earlier lcore has taken; if all are taken it is left out. Empty while EAL
 * does not run.
 */
std::vector<int> eal_cpus();

/**
 * Gives the calling thread an EAL identity (a per-core pool cache). Idempotent; the Runtime's own
 * threads need not call it. False when EAL has no identity left (RTE_MAX_LCORE threads).
 */
bool register_thread();

}  // namespace rrdk

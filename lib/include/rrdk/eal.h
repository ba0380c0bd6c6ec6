/**
 * DPDK's environment abstraction layer (EAL), which the library needs for its threads' numbers and
 * rte_ring. Applications on DPDK or SPDK have called rte_eal_init() themselves; all others call
 * ensure_eal() once in main().
 *
 *   int main() {
 *     rrdk::must(rrdk::ensure_eal());
 *     ...
 *
 * The library never starts EAL by itself; ensure_eal() does nothing if EAL is running.
 *
 * fork(): do not fork without exec once EAL runs, since EAL's memory and the buffers are shared
 * between parent and child, and the child has none of the threads. fork() with exec(),
 * posix_spawn(), system() and popen() are safe, and so is fork() with _exit(). A child that ends
 * otherwise, by exit() or by a return from main(), does no harm: destructors of this library's
 * objects do nothing there. They leave the parent's pools, connections and sockets alone, and do
 * not wait for threads that the child lacks. The child must not use these objects in any other way.
 * What would harm the parent is refused there: Runtime::poll(), begin() and submit() of a Call, the
 * answer to a ServerCall, Memory::get(), connecting and listening. The child holds copies of the
 * parent's descriptors, so a TCP connection that the parent closes ends only when the child has
 * ended, too.
 *
 * exec(): RRDK's own descriptors are closed by exec(), and so are those of EAL that are open when
 * ensure_eal() has started it. An application that starts EAL itself must take care of EAL's
 * descriptors.
 */
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {

/**
 * Returns true if this process has a running EAL, whatever started it. After rte_eal_cleanup() it
 * returns false, provided that this library saw EAL run before (as any function of this header
 * does, and everything that needs EAL); a first call after the clean-up crashes in EAL. Every
 * Memory and Runtime must be destroyed before the clean-up. (An EAL started with --in-memory keeps
 * its memory, and appears to run.)
 */
bool eal_running();

/** The meaning of ensure_eal()'s arguments. */
enum class EalArguments {
  /** EAL is given only the arguments; without arguments, the quiet defaults. */
  kAll,
  /**
   * The quiet defaults apply unless the arguments say otherwise: no PCI scan unless a device is
   * named (-a, -b), no telemetry socket, one lcore and the caller's CPUs unless lcores are named
   * (-l, -c, --lcores), no files shared with other processes unless these are named (--file-prefix,
   * --proc-type), ordinary pages unless an argument is about hugepages (--socket-mem, --in-memory,
   * --huge-dir, ...), and nothing logged but errors.
   */
  kOverDefaults,
};

/**
 * Adopts the running EAL, or starts one. `arguments` are EAL's own ("-l", "0,1", ...), without a
 * program name; without arguments, defaults for a process beside others on this host apply (no PCI
 * scan, no shared configuration, no telemetry socket, ordinary pages, quiet log). Idempotent. Call
 * it from the main thread, before other threads of the library exist.
 *
 *   rrdk::must(rrdk::ensure_eal(std::vector<std::string>{"-l", "2,3"},
 *                               rrdk::EalArguments::kOverDefaults));
 *
 * If the arguments name lcores, EAL pins the caller to the first one's CPU.
 *
 * Errors: kInvalidArgument (EAL refused the arguments; the message has its reason), kSystem (also
 * after rte_eal_cleanup(): EAL starts once in a process).
 */
[[nodiscard]] Result<void> ensure_eal(std::span<const std::string> arguments = {},
                                      EalArguments meaning = EalArguments::kAll);
/**
 * The CPUs of EAL's lcores, by lcore number, each once. An lcore with several CPUs counts with the
 * first CPU that no earlier lcore has taken; if all are taken it is left out. Empty while EAL does
 * not run.
 */
std::vector<int> eal_cpus();

/**
 * Gives the calling thread an EAL identity (a per-core pool cache). Idempotent; the Runtime's own
 * threads need not call it. Returns false if EAL has no identity left (RTE_MAX_LCORE threads).
 */
bool register_thread();

}  // namespace rrdk

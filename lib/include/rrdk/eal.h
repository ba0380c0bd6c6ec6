/**
 * DPDK's environment abstraction layer, initialised or adopted.
 *
 * The library needs a running EAL (for rte_mempool and rte_ring) and never starts one behind the
 * application's back: an application on DPDK or SPDK has called rte_eal_init() itself, and
 * ensure_eal() then does nothing; any other calls ensure_eal() once in main().
 */
#pragma once

#include <span>
#include <string>

#include "rrdk/error.h"

namespace rrdk {

/**
 * True if this process has a running EAL, whoever started it. After rte_eal_cleanup() it is false,
 * provided that this library saw EAL run before (any function of this page does, and everything
 * that needs EAL); a first look after the clean-up is a crash in EAL. Every Memory and Runtime is
 * gone before the clean-up. (An EAL started with --in-memory keeps its memory, and looks running.)
 */
bool eal_running();

/**
 * Adopts the running EAL, or starts one. `arguments` are EAL's own ("-l", "0,1", ...), without a
 * program name; empty: sensible ones for a process beside others on this host (no PCI scan, no
 * shared configuration, no telemetry socket, ordinary pages, quiet log). Idempotent. Call from the
 * main thread, before other threads of the library exist.
 *
 * Errors: kInvalidArgument (EAL refused the arguments; the message has its reason),
 * kSystem (also after rte_eal_cleanup(): EAL starts once in a process).
 */
Result<void> ensure_eal(std::span<const std::string> arguments = {});

/**
 * Gives the calling thread an EAL identity (a per-core pool cache). Idempotent; the Runtime's own
 * threads need not call it. False when EAL has no identity left (RTE_MAX_LCORE threads).
 */
bool register_thread();

}  // namespace rrdk

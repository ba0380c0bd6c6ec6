/**
 * Captures: the messages of RPC-over-RDMA connections in a file for Wireshark and tshark, with any
 * driver: `shm:`, `iwarp:` or `verbs:`. Part of every build; costs nothing while it is off.
 *
 *   rrdk::must(runtime->start_capture("rpc.pcapng"));   // while calls run, from any thread
 *   ...
 *   rrdk::CaptureCounts counts = runtime->stop_capture();
 *
 *   tshark -r rpc.pcapng -o rpc.dissect_unknown_programs:TRUE
 *
 * The file is in pcapng format, with one interface for each driver. It has each Send and Receive of
 * the Runtime's connections, and the RDMA Writes and Reads that this end makes, framed as RoCEv2
 * (UDP port 4791). The peer's RDMA operations are not visible here: arguments in Read chunks are
 * shown as read right after their call, and what the peer writes into our memory is missing.
 *
 * Some frames were never sent. Three of the connection manager's stand before a connection's first
 * message, without which Wireshark does not match replies with calls; there are no
 * acknowledgements, and the CRC is zero. A connection's end here has the queue pair number 2 x
 * ConnectionInfo::id, the peer's the one above. Addresses are the real ones where the driver is one
 * for networks; else 127.0.0.1 and, for the peer, 127.128.0.0 plus the id. The comment of the first
 * frame of a message names the connection and its peer.
 *
 * A frame's time is when the work request was posted, or its completion seen, by the wall clock as
 * it was when the capture began.
 *
 * While it is on, each core copies what it sees into a ring of 32 MiB, which is touched as it is
 * used, and allocates a little for each connection and RDMA Read; a thread ("rrdk-capture", on any
 * CPU) writes the file. What it cannot keep up with is left out, and counted. ~Runtime() ends a
 * capture that goes on. A file that a crash has ended can be read; only its last block, with the
 * counts, is missing.
 *
 * The file holds what was said, credentials included: it is made for its owner alone (mode 0600).
 * One that was there keeps its mode, and is refused (Errc::kPermission) if it is another user's, if
 * others may open it, if its group may write it, or if it holds anything but a capture. A pipe is
 * taken if somebody reads it.
 */
#pragma once

#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

struct CaptureOptions {
  /** Bytes kept of each message, Write or Read, 64 to 1048576. */
  uint32_t message_bytes = 65536;
  /** Largest size of the file, at least 65536; what comes later counts as lost. */
  uint64_t file_bytes = uint64_t{1} << 30;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/** What became of the messages, Writes and Reads that a capture saw. */
struct CaptureCounts {
  uint64_t captured = 0;      ///< are in the file, or wait to be written
  uint64_t lost = 0;          ///< the writing thread, the file's size or the disk did not keep up
  Reserved<8> reserved = {};  ///< for what later releases add
};

}  // namespace rrdk

/**
 * Captures write the messages of RPC-over-RDMA connections into a file for Wireshark and tshark,
 * with any driver: `shm:`, `iwarp:` or `verbs:`. Captures are part of every build, and cost nothing
 * while they are off.
 *
 *   rrdk::must(runtime->start_capture("rpc.pcapng"));   // while calls run, from any thread
 *   ...
 *   rrdk::CaptureCounts counts = runtime->stop_capture();
 *
 *   tshark -r rpc.pcapng -o rpc.dissect_unknown_programs:TRUE
 *
 * Content: the file is in pcapng format, with one interface for each driver. It has each Send and
 * Receive of the Runtime's connections, and the RDMA Writes and Reads that this end makes, framed
 * as RoCEv2 (UDP port 4791). The peer's RDMA operations are not visible here: arguments in Read
 * chunks are shown as read right after their call, and what the peer writes into our memory is
 * missing. The time of a frame is when the work request was posted, or its completion seen, by the
 * wall clock as it was when the capture began.
 *
 * Invented frames: three frames of the connection manager precede a connection's first message,
 * without which Wireshark does not match replies with calls. There are no acknowledgements, and the
 * CRC is zero. This end of a connection has the queue pair number 2 x ConnectionInfo::id, the
 * peer's the one above. Addresses are the real ones if the driver is for networks; otherwise
 * 127.0.0.1 and, for the peer, 127.128.0.0 plus the id. The comment of a message's first frame
 * names the connection and its peer.
 *
 * Cost: each core copies what it sees into a ring of 32 MiB, whose pages are touched as they are
 * used, and allocates a little for each connection and RDMA Read; a thread ("rrdk-capture", on any
 * CPU) writes the file. What it cannot keep up with is left out, and counted. ~Runtime() ends a
 * capture in progress. A file that a crash has ended can be read; only its last block, with the
 * counts, is missing.
 *
 * Security: the file holds the data of calls, credentials included, so it is made for its owner
 * alone (mode 0600). An existing file keeps its mode. It is refused (Errc::kPermission) if it is
 * another user's, if others may open it, if its group may write it, or if it holds anything but a
 * capture. A pipe is accepted if it has a reader.
 */
#pragma once

#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

struct CaptureOptions {
  /** Bytes kept of each message, Write or Read, 64 to 1048576. */
  uint32_t message_bytes = 65536;
  /** The largest size of the file, at least 65536; what comes later counts as lost. */
  uint64_t file_bytes = uint64_t{1} << 30;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** Counts of the messages, Writes and Reads that a capture saw. */
struct CaptureCounts {
  uint64_t captured = 0;      ///< in the file, or waiting to be written
  uint64_t lost = 0;          ///< the writing thread, the file's size or the disk did not suffice
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

}  // namespace rrdk

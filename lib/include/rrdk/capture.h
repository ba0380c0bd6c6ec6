/**
 * What is on the wire, written into a file that Wireshark and tshark read, whatever the driver:
 * shared memory has no wire, and an RDMA device does not show its own. Part of every build; costs
 * nothing while it is off.
 *
 *   rrdk::must(runtime->start_capture("rpc.pcapng"));   // while calls run, from any thread
 *   ...
 *   rrdk::CaptureCounts counts = runtime->stop_capture();
 *
 *   tshark -r rpc.pcapng -Y rpc
 *
 * The file is in pcapng format. Each message that a connection of the Runtime sends or receives is
 * in it, framed as RoCEv2 would (UDP port 4791), and so are the RDMA Writes and Reads that this end
 * makes. Those that the peer makes no driver sees: what a call offers to be read stands in the file
 * as if it had been read as soon as the call was sent; what the peer writes is not there. A
 * connection has a pair of queue pair numbers, twice its ConnectionInfo::id and the one above; its
 * addresses are its own where the driver is one for networks, else 127.0.0.1 for this end and
 * 127.128.0.0 plus the id for the peer. The first frame of each message has a comment that says
 * whose it is.
 *
 * Cost while it is on: each message is copied once more, on the core, and a thread writes the file.
 * What the thread can not keep up with is left out, and counted.
 */
#pragma once

#include <cstdint>

namespace rrdk {

struct CaptureOptions {
  /** Of each message, Write or Read no more bytes than these are kept, 64 to 1048576. */
  uint32_t message_bytes = 65536;
  /** The file ends before it is longer than this; at least 65536. */
  uint64_t file_bytes = uint64_t{1} << 30;
};

/** What became of the messages, Writes and Reads that a capture saw. */
struct CaptureCounts {
  uint64_t captured = 0;  ///< are in the file, or wait to be written
  uint64_t lost = 0;      ///< the writing thread, the file's length or the disk did not keep up
};

}  // namespace rrdk

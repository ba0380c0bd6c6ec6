// What TCP on loopback can do at best between two threads that both poll: what an iWARP driver in
// user space is to be held against. perf/limits and perf/versions print it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rrdk::apps {

// Two CPUs for the two ends; -1: wherever the system puts it.
struct TcpEnds {
  int near_cpu = -1;
  int far_cpu = -1;
};

// Sockets as the iwarp driver has them: non-blocking, TCP_NODELAY.

// The median time in which `there` bytes go and `back` bytes come, in nanoseconds, over
// `duration_ns`. 0: the system refused something.
double tcp_round_trip_ns(TcpEnds ends, size_t there, size_t back, uint64_t duration_ns);

// Bytes per second, of pieces of `size` bytes out of one buffer into another one.
double tcp_stream_bytes_per_s(TcpEnds ends, size_t size, uint64_t duration_ns);

}  // namespace rrdk::apps

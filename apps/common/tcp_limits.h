// Measures the limits of TCP on loopback between two threads that both poll, as the reference for
// an iWARP driver in user space. perf/ prints them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rrdk::apps {

// A null RPC's frames: length field, DDP header, 28 bytes of RPC-over-RDMA, an RPC message with
// AUTH_NONE, CRC.
constexpr size_t kNullCallBytes = 2 + 18 + 28 + 40 + 4;
constexpr size_t kNullReplyBytes = 2 + 18 + 28 + 24 + 4;

// The CPUs of the two ends; -1: not pinned.
struct TcpEnds {
  int near_cpu = -1;
  int far_cpu = -1;
};

// Two connected sockets with TCP_NODELAY, as in the iwarp driver. They are in blocking mode: code
// that polls them passes MSG_DONTWAIT, and libtirpc can use them as they are.
class TcpConnection {
 public:
  TcpConnection();
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // The system refused something.
  bool failed() const { return far_ < 0; }
  int near() const { return near_; }
  int far() const { return far_; }

 private:
  int near_ = -1;
  int far_ = -1;
};

// Sends `there` bytes and returns `back` bytes. Each end belongs to one thread.
class TcpPingPong {
 public:
  TcpPingPong(size_t there, size_t back);

  // Called at the near end: polls until everything has come back. Returns false on a system error.
  bool round_trip();
  // Called at the far end: receives what has arrived, if anything, and answers once it is complete.
  // Returns false if the near end is closed.
  bool answer();
  // Called at the near end: no further round trips follow.
  void close();

 private:
  TcpConnection connection_;
  std::vector<std::byte> near_out_, near_in_, far_in_, far_out_;
  size_t taken_ = 0;  // by the far end, of the current round trip
};

// Measures for `duration_ns`. Returns the median time, in nanoseconds, in which `there` bytes go
// and `back` bytes come, or 0 on a system error.
double tcp_round_trip_ns(TcpEnds ends, size_t there, size_t back, uint64_t duration_ns);

// Returns how many times per second a null call's bytes go and come over `connections` connections,
// with one call in flight on each: both ends receive what their epoll set reports, and answer it.
double tcp_calls_per_s(TcpEnds ends, size_t connections, uint64_t duration_ns);

// Returns the bytes per second of pieces of `size` bytes; each end uses `buffers` buffers in turn.
double tcp_stream_bytes_per_s(TcpEnds ends, size_t size, size_t buffers, uint64_t duration_ns);

}  // namespace rrdk::apps

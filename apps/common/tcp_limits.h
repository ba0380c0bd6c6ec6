// What TCP on loopback can do at best between two threads that both poll: what an iWARP driver in
// user space is to be held against. perf/ prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rrdk::apps {

// A null RPC's frames: length field, DDP header, 28 bytes of RPC-over-RDMA, an RPC message with
// AUTH_NONE, CRC.
constexpr size_t kNullCallBytes = 2 + 18 + 28 + 40 + 4;
constexpr size_t kNullReplyBytes = 2 + 18 + 28 + 24 + 4;

// Two CPUs for the two ends; -1: wherever the system puts it.
struct TcpEnds {
  int near_cpu = -1;
  int far_cpu = -1;
};

// Two connected sockets with TCP_NODELAY, as the iwarp driver has. They are in blocking mode: what
// polls them passes MSG_DONTWAIT, and libtirpc can use them as they are.
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

// `there` bytes go and `back` bytes come. Each end is one thread's.
class TcpPingPong {
 public:
  TcpPingPong(size_t there, size_t back);

  // The near end: polls until all has come back. False: the system refused something.
  bool round_trip();
  // The far end: takes what has come, if anything, and answers once it is all. False: the near end
  // is closed.
  bool answer();
  // The near end has no more.
  void close();

 private:
  TcpConnection connection_;
  std::vector<std::byte> near_out_, near_in_, far_in_, far_out_;
  size_t taken_ = 0;  // by the far end, of the bytes under way
};

// The median time in which `there` bytes go and `back` bytes come, in nanoseconds, over
// `duration_ns`. 0: the system refused something.
double tcp_round_trip_ns(TcpEnds ends, size_t there, size_t back, uint64_t duration_ns);

// How many times a second a null call's bytes go and come over so many connections, with one call
// under way on each: both ends take whatever their epoll set reports, and answer it.
double tcp_calls_per_s(TcpEnds ends, size_t connections, uint64_t duration_ns);

// Bytes per second, of pieces of `size` bytes, each end with so many buffers for them, in turn.
double tcp_stream_bytes_per_s(TcpEnds ends, size_t size, size_t buffers, uint64_t duration_ns);

}  // namespace rrdk::apps

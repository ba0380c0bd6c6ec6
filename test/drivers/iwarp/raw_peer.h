// An iWARP peer that sends given bytes: a TCP socket, and FPDUs made by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/system.h"
#include "drivers/common/endpoint.h"
#include "drivers/iwarp/mpa.h"
#include "drivers/iwarp/segment.h"
#include "drivers/iwarp/terminate.h"

namespace rrdk::iwarp::test {

using Bytes = std::vector<std::byte>;

// An FPDU: length, header, payload, pad, and a CRC that is zero or right.
Bytes fpdu(const SegmentHeader& header, const Bytes& payload = {}, bool crc = false);
Bytes read_request(uint32_t number, const ReadRequest& request);

// Takes a numeric address.
drivers::Endpoint4Or6 endpoint_at(const std::string& uri);

class RawPeer {
 public:
  // Connects, and waits until TCP has connected; from the numeric address `from`, if one is given.
  explicit RawPeer(const std::string& uri, const std::string& from = {});
  // Over an existing connection.
  explicit RawPeer(base::Fd socket) : socket_(std::move(socket)) {}

  void say(const Bytes& bytes);
  void shake(const MpaFrame& request) { say(encode(request)); }
  // Whether everything sent has reached the other end's TCP.
  bool has_arrived() const;
  // TCP keeps only a little for us that we have not read.
  void take_little();
  // From now on TCP sees no incoming packets, as if our host were gone.
  void go_dark();
  // Closes our half.
  void finish();
  // Closes at once, so that the other end gets a reset.
  void reset();

  // Non-blocking: the bytes that have come so far are in `got()`. Returns false if the other end
  // has closed.
  bool pull();
  // Non-blocking: returns the number of bytes that have come, and drops them.
  size_t discard();
  const Bytes& got() const { return got_; }
  bool closed() const { return closed_; }

  // Removes bytes from the front of those that have come. Returns an empty result if not all of
  // them are here.
  std::optional<MpaFrame> take_reply() { return take_frame(MpaKind::kReply); }
  std::optional<MpaFrame> take_frame(MpaKind kind);
  struct Segment {
    SegmentHeader header;
    Bytes payload;
  };
  std::optional<Segment> take_segment();

 private:
  base::Fd socket_;
  Bytes got_;
  bool closed_ = false;
};

}  // namespace rrdk::iwarp::test

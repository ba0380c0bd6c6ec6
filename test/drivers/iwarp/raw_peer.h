// An iWARP peer that says bytes: a TCP socket, and FPDUs made by hand.
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

// An FPDU: length, header, payload, pad, and a CRC, zero or right.
Bytes fpdu(const SegmentHeader& header, const Bytes& payload = {}, bool crc = false);
Bytes read_request(uint32_t number, const ReadRequest& request);

// Of an address in numbers.
drivers::Endpoint4Or6 endpoint_at(const std::string& uri);

class RawPeer {
 public:
  // Connects, and waits until TCP has; from the address `from`, in numbers, if one is given.
  explicit RawPeer(const std::string& uri, const std::string& from = {});
  // Over a connection that is there.
  explicit RawPeer(base::Fd socket) : socket_(std::move(socket)) {}

  void say(const Bytes& bytes);
  void shake(const MpaFrame& request) { say(encode(request)); }
  // Whether all of that has come to the other end's TCP.
  bool has_arrived() const;
  // TCP keeps only a little for us that we have not pulled.
  void take_little();
  // From now on TCP sees nothing of what comes, as if our host were gone.
  void go_dark();
  // Closes our half.
  void finish();
  // Closes at once, so that the other end gets a reset.
  void reset();

  // Non-blocking: what has come so far is in `got()`. False: the other end has closed.
  bool pull();
  // Non-blocking: how much has come, not to be kept.
  size_t discard();
  const Bytes& got() const { return got_; }
  bool closed() const { return closed_; }

  // From the front of what has come, removed. Empty: not all of it is here.
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

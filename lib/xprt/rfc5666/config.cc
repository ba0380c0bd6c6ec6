// Setting up RFC 5666's compatibility mode on a connection, and the Connection Configuration
// Protocol's effect on it (RFC 5666 section 6.2). Sizes are those of whole Sends (V1-CCP-21);
// private data has set the start values (V1-CCP-23).
#include <algorithm>

#include "xprt/connection.h"
#include "xprt/rfc5666/mode.h"
#include "xprt/rfc5666/read_read.h"

namespace rrdk::xprt {

namespace {

constexpr uint32_t kDoneBytes = proto::kFixedBytes;
// Readings beyond those of calls: of calls that were given up on.
constexpr uint32_t kSpareReadings = 16;
constexpr uint32_t kMostReadings = 256;  // 4096 bytes of rooms

// What the peer states, within what was posted and never below what every Receive takes.
uint32_t limit(uint32_t stated, uint32_t own) {
  return std::clamp(stated & ~3u, proto::kInlineThreshold, own);
}

}  // namespace

// Never more than there are spare Receives for their RDMA_DONEs.
ReplyExposer::ReplyExposer(Link& link) : link_(link), exposures_(link.done_receives()) {
  for (Exposure& exposure : exposures_)
    free_.push_front(exposure);
}

ReplyReader::ReplyReader(Link& link, Requester& requester)
    : link_(link),
      requester_(requester),
      readings_(std::min(link.options.credits + kSpareReadings, kMostReadings)),
      marks_(link.options.credits) {
  for (Reading& reading : readings_)
    free_.push(reading);
}

bool ReplyReader::prepare() {
  rooms_ = link_.memory.get(static_cast<uint32_t>(readings_.size()) * kDoneBytes);
  if (!rooms_)
    return false;
  std::byte* at = rooms_.data();
  for (Reading& reading : readings_) {
    reading.room = {at, kDoneBytes, rooms_.region()};
    at += kDoneBytes;
  }
  return true;
}

void Connection::begin_rfc5666() {
  if (link_.options.role == Role::kResponder) {
    exposer_ = std::make_unique<ReplyExposer>(link_);
    link_.rfc5666.exposer = exposer_.get();
    return;
  }
  reader_ = std::make_unique<ReplyReader>(link_, requester_);
  link_.rfc5666.reader = reader_.get();
  if (link_.options.rfc5666.max_reads == 0) {  // also before anyone was told (V1-CCP-14)
    link_.rfc5666.we_serve_no_reads = true;
    link_.peer.read_chunks = 0;
  }
}

proto::ccp::Request Connection::config_request() const {
  const ConnectionOptions& options = link_.options;
  return {options.send_size, options.receive_size, options.rfc5666.max_reads};
}

void Connection::take_config(const proto::ccp::Reply& reply) {
  link_.thresholds(proto::Wire::kVersion1).send = limit(reply.max_call, link_.options.send_size);
  link_.speak(link_.wire);
  link_.sends.set_read_limit(std::min(link_.sends.read_limit(), reply.max_reads));
  link_.rfc5666.peer_serves_no_reads = reply.max_reads == 0;
  link_.rfc5666.align = is_alignment(reply.align) ? reply.align : 0;
  link_.rfc5666.reads_replies = link_.options.rfc5666.read_replies && reply.max_reads != 0;
  link_.rfc5666.configured = true;
  ++link_.counters.rfc5666_configured;
}

// In the middle of a connection's life the values in force are told, and stay (V1-CCP-22).
proto::ccp::Reply Connection::configure(const proto::ccp::Request& request) {
  bool is_first = link_.counters.calls_received == link_.rfc5666.config_calls;
  if (is_first && !link_.rfc5666.configured) {
    link_.thresholds(proto::Wire::kVersion1).send =
        limit(request.max_reply, link_.options.send_size);
    link_.sends.set_read_limit(std::min(link_.sends.read_limit(), request.max_reads));
    link_.rfc5666.peer_serves_no_reads = request.max_reads == 0;
    link_.rfc5666.configured = true;
    ++link_.counters.rfc5666_configured;
  }
  return {link_.options.receive_size, link_.options.rfc5666.align, link_.options.rfc5666.max_reads};
}

}  // namespace rrdk::xprt

// Sets up RFC 5666's compatibility mode on a connection, and applies the Connection Configuration
// Protocol (RFC 5666 section 6.2). Sizes are those of whole Sends (V1-CCP-21); private data has set
// the initial values (V1-CCP-23).
#include <algorithm>

#include "engine/connection.h"
#include "engine/rfc5666/mode.h"
#include "engine/rfc5666/read_read.h"

namespace rrdk::engine {

namespace {

constexpr uint32_t kDoneBytes = proto::kFixedBytes;
// Readings for calls that were given up, beyond those of calls that wait.
constexpr uint32_t kSpareReadings = 16;
constexpr uint32_t kMostReadings = 256;  // 4096 bytes for their headers

// Returns what the peer states, but at most what was posted and at least what every Receive takes.
uint32_t limit(uint32_t stated, uint32_t own) {
  return std::clamp(stated & ~3u, proto::kInlineThreshold, own);
}

}  // namespace

// There are never more exposures than spare Receives for their RDMA_DONEs.
ReplyExposer::ReplyExposer(Common& common) : common_(common), exposures_(common.done_receives()) {
  for (Exposure& exposure : exposures_)
    free_.push_front(exposure);
}

ReplyReader::ReplyReader(Common& common, Requester& requester)
    : common_(common),
      requester_(requester),
      readings_(std::min(common.options.credits + kSpareReadings, kMostReadings)),
      marks_(common.options.credits) {
  for (Reading& reading : readings_)
    free_.push(reading);
}

bool ReplyReader::prepare() {
  rooms_ = common_.memory.get(static_cast<uint32_t>(readings_.size()) * kDoneBytes);
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
  if (common_.options.role == Role::kResponder) {
    exposer_ = std::make_unique<ReplyExposer>(common_);
    common_.rfc5666.exposer = exposer_.get();
    return;
  }
  reader_ = std::make_unique<ReplyReader>(common_, requester_);
  common_.rfc5666.reader = reader_.get();
  if (common_.options.rfc5666.max_reads == 0) {  // also before the peer has been told (V1-CCP-14)
    common_.rfc5666.we_serve_no_reads = true;
    common_.peer.read_chunks = 0;
  }
}

proto::ccp::Request Connection::config_request() const {
  const ConnectionOptions& options = common_.options;
  return {options.send_size, options.receive_size, options.rfc5666.max_reads};
}

void Connection::take_config(const proto::ccp::Reply& reply) {
  common_.thresholds(proto::Wire::kVersion1).send =
      limit(reply.max_call, common_.options.send_size);
  common_.speak(common_.wire);
  common_.sends.set_read_limit(std::min(common_.sends.read_limit(), reply.max_reads));
  common_.rfc5666.peer_serves_no_reads = reply.max_reads == 0;
  common_.rfc5666.align = is_alignment(reply.align) ? reply.align : 0;
  common_.rfc5666.reads_replies = common_.options.rfc5666.read_replies && reply.max_reads != 0;
  common_.rfc5666.configured = true;
  ++common_.counters.rfc5666_configured;
}

// Later in a connection's life it reports the values in force, which do not change (V1-CCP-22).
proto::ccp::Reply Connection::configure(const proto::ccp::Request& request) {
  bool is_first = common_.counters.calls_received == common_.rfc5666.config_calls;
  if (is_first && !common_.rfc5666.configured) {
    common_.thresholds(proto::Wire::kVersion1).send =
        limit(request.max_reply, common_.options.send_size);
    common_.sends.set_read_limit(std::min(common_.sends.read_limit(), request.max_reads));
    common_.rfc5666.peer_serves_no_reads = request.max_reads == 0;
    common_.rfc5666.configured = true;
    ++common_.counters.rfc5666_configured;
  }
  return {common_.options.receive_size, common_.options.rfc5666.align,
          common_.options.rfc5666.max_reads};
}

}  // namespace rrdk::engine

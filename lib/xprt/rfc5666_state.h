// What RFC 5666's compatibility mode changes on one connection. All of it is as it stands here
// outside that mode.
#pragma once

#include <cstdint>

namespace rrdk::xprt {

class ReplyExposer;
class ReplyReader;

struct Rfc5666State {
  uint32_t align = 0;              // that calls are padded to (CONF_RDMA); 0: they are not
  bool we_serve_no_reads = false;  // nothing of ours is offered to be read
  bool peer_serves_no_reads = false;
  bool reads_replies = false;       // no room is offered for results: they are read
  bool configured = false;          // CONF_RDMA had its effect
  uint32_t config_calls = 0;        // of the Connection Configuration Protocol
  uint32_t spare_receives = 0;      // Link::done_receives()
  ReplyExposer* exposer = nullptr;  // the responder's part in Read-Read; null: none
  ReplyReader* reader = nullptr;    // and the requester's
};

}  // namespace rrdk::xprt

// The Connection Configuration Protocol (RFC 5666 section 6.2): an ONC RPC program of one procedure
// by which the ends tell each other their sizes. No later document keeps it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rrdk::proto::ccp {

constexpr uint32_t kProgram = 100417;  // rpc.rdmaconfig
constexpr uint32_t kVersion = 1;
constexpr uint32_t kConfRdma = 1;  // the procedure; 0 is NULL, as in every program

// Of arguments and of results alike: three words.
constexpr uint32_t kBodyBytes = 12;

// config_rdma_req: what the client states. Sizes are those of whole Sends (V1-CCP-21).
struct Request {
  uint32_t max_call = 0;   // the largest inline call that it would like to send
  uint32_t max_reply = 0;  // the largest inline reply that it takes
  uint32_t max_reads = 0;  // RDMA Reads that it can serve at once
  bool operator==(const Request&) const = default;
};

// config_rdma_reply: what the server states.
struct Reply {
  uint32_t max_call = 0;   // the largest inline call that it takes
  uint32_t align = 0;      // of its Receives, in bytes; 0: no preference
  uint32_t max_reads = 0;  // RDMA Reads that it can serve at once
  bool operator==(const Reply&) const = default;
};

std::array<std::byte, kBodyBytes> encode(const Request& request);
std::array<std::byte, kBodyBytes> encode(const Reply& reply);
// Every three words are a valid body.
Request decode_request(std::span<const std::byte, kBodyBytes> body);
Reply decode_reply(std::span<const std::byte, kBodyBytes> body);

}  // namespace rrdk::proto::ccp

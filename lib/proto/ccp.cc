#include "proto/ccp.h"

#include "rrdk/xdr.h"

namespace rrdk::proto::ccp {

namespace {

std::array<std::byte, kBodyBytes> words(uint32_t first, uint32_t second, uint32_t third) {
  std::array<std::byte, kBodyBytes> body;
  xdr::store_u32(&body[0], first);
  xdr::store_u32(&body[4], second);
  xdr::store_u32(&body[8], third);
  return body;
}

}  // namespace

std::array<std::byte, kBodyBytes> encode(const Request& request) {
  return words(request.max_call, request.max_reply, request.max_reads);
}

std::array<std::byte, kBodyBytes> encode(const Reply& reply) {
  return words(reply.max_call, reply.align, reply.max_reads);
}

Request decode_request(std::span<const std::byte, kBodyBytes> body) {
  return {xdr::load_u32(&body[0]), xdr::load_u32(&body[4]), xdr::load_u32(&body[8])};
}

Reply decode_reply(std::span<const std::byte, kBodyBytes> body) {
  return {xdr::load_u32(&body[0]), xdr::load_u32(&body[4]), xdr::load_u32(&body[8])};
}

}  // namespace rrdk::proto::ccp

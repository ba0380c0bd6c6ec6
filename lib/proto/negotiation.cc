#include "proto/negotiation.h"

#include <algorithm>
#include <iterator>

#include "rrdk/xdr.h"

namespace rrdk::proto {

namespace {

constexpr uint32_t kFormatId = 0xf6ab0e18;
constexpr std::byte kFormatVersion{1};
constexpr std::byte kRemoteInvalidation{0x01};  // the lowest bit of the flags (PD-05)
constexpr uint32_t kSizeUnit = 1024;
constexpr uint32_t kLargestSize = 256 * kSizeUnit;

// Rounded down, since a larger size would promise more than any buffer holds (PD-13).
std::byte size_octet(uint32_t size) {
  return std::byte(std::clamp(size, kSizeUnit, kLargestSize) / kSizeUnit - 1);
}

uint32_t size_from(std::byte octet) {
  return (std::to_integer<uint32_t>(octet) + 1) * kSizeUnit;
}

// "RRDKrej", and the reason.
constexpr std::array<std::byte, kRejectionLength - 1> kMagic = {
    std::byte{'R'}, std::byte{'R'}, std::byte{'D'}, std::byte{'K'},
    std::byte{'r'}, std::byte{'e'}, std::byte{'j'}};
constexpr std::string_view kCut = "...";

// For ASCII, independent of the locale.
char printable(char c) noexcept {
  return c >= ' ' && c <= '~' ? c : '?';
}

}  // namespace

std::array<std::byte, kPrivateDataLength> encode(const PrivateData& data) {
  std::array<std::byte, kPrivateDataLength> out{};
  xdr::store_u32(out.data(), kFormatId);
  out[4] = kFormatVersion;
  out[5] = data.remote_invalidation ? kRemoteInvalidation : std::byte{0};
  out[6] = size_octet(data.send_size);
  out[7] = size_octet(data.receive_size);
  return out;
}

// A match with another version may be octets of another layer by chance, so the search continues
// (PD-20).
PrivateData decode_private_data(std::span<const std::byte> field) {
  for (; field.size() >= kPrivateDataLength; field = field.subspan(1)) {
    if (xdr::load_u32(field.data()) != kFormatId || field[4] != kFormatVersion)
      continue;
    return {(field[5] & kRemoteInvalidation) != std::byte{0}, size_from(field[6]),
            size_from(field[7])};
  }
  return {};
}

const char* to_string(Rejection why) noexcept {
  switch (why) {
    case Rejection::kConnections:
      return "it has as many connections as it takes";
    case Rejection::kClient:
      return "it has as many connections of this client as it takes";
    case Rejection::kBuffers:
      return "it has no buffers for another connection";
    case Rejection::kNotAdmitted:
      return "it does not admit this client";
    case Rejection::kClosing:
      return "it takes no more calls";
  }
  return "for a reason that is not known here";
}

std::vector<std::byte> encode(Rejection why, std::string_view text) {
  std::string fits(text.substr(0, kMaxRejectionText));
  if (fits.size() < text.size())
    std::ranges::copy(kCut, fits.end() - kCut.size());
  std::vector<std::byte> data(kMagic.begin(), kMagic.end());
  data.push_back(static_cast<std::byte>(why));
  std::ranges::transform(fits, std::back_inserter(data),
                         [](char c) { return std::byte(printable(c)); });
  return data;
}

std::string Rejected::to_string() const {
  return text.empty() ? proto::to_string(why) : proto::to_string(why) + (": " + text);
}

// A driver may have added zeros (Capabilities::exact_private_data). The text comes from a peer, and
// goes to logs and terminals.
std::optional<Rejected> decode_rejection(std::span<const std::byte> private_data) {
  if (private_data.size() < kRejectionLength ||
      !std::ranges::equal(private_data.first(kMagic.size()), kMagic))
    return std::nullopt;
  Rejected rejected = {static_cast<Rejection>(private_data[kMagic.size()]), {}};
  std::span<const std::byte> rest = private_data.subspan(kRejectionLength);
  for (std::byte octet : rest.first(std::min<size_t>(rest.size(), kMaxRejectionText))) {
    if (octet == std::byte{0})
      break;
    rejected.text += printable(static_cast<char>(octet));
  }
  return rejected;
}

}  // namespace rrdk::proto

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

// The transport properties of version 2 (draft-04 section 5): the bodies of CONNPROP, REQPROP,
// RESPROP and UPDPROP. This layer does not know what a property means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/header.h"

namespace rrdk::proto {

constexpr uint32_t kReceiveBufferSize = 1;           // RDMA2_PROPID_RBSIZ: uint32
constexpr uint32_t kBackwardSupport = 2;             // RDMA2_PROPID_BRS: enum, see BackwardSupport
constexpr uint32_t kFirstExperimental = 0xFFFFFF00;  // ids from here on belong to no standard

// Section 5.2.2: what an end supports of backward messages.
enum class BackwardSupport : uint32_t {
  kNone,
  kInline,   // without chunks
  kGeneral,  // as in the forward direction
};

struct Property {
  uint32_t id;
  std::span<const std::byte> data;  // empty: the default (V2D4-PROP-07)
};

// rpcrdma2_propset as it is in a message. Nothing is copied, however many properties there are.
class PropertySet {
 public:
  PropertySet() = default;
  PropertySet(uint32_t count, std::span<const std::byte> bytes) : count_(count), bytes_(bytes) {}

  uint32_t count() const noexcept { return count_; }
  // Calls `each(index, property)` in order.
  template <typename Each>
  void for_each(Each&& each) const {
    std::span<const std::byte> rest = bytes_;
    for (uint32_t i = 0; i < count_; ++i)
      each(i, take(rest));
  }

 private:
  static Property take(std::span<const std::byte>& rest) noexcept;

  uint32_t count_ = 0;
  std::span<const std::byte> bytes_;  // whole entries, `count_` in number
};

// rpcrdma2_propsubset: element N is bit N mod 32, from the least significant one, of word N div 32
// (V2D4-PROP-03, V2D4-PROP-05). Words that were not sent are zero.
class PropertySubset {
 public:
  PropertySubset() = default;
  explicit PropertySubset(std::span<const std::byte> words) : words_(words) {}

  bool has(uint32_t index) const noexcept;

 private:
  std::span<const std::byte> words_;  // big-endian
};

// Which fields there are depends on the type: CONNPROP has `set` (rdma_start) and `first`
// (rdma_nochg); REQPROP and UPDPROP have `set` (rdma_want, rdma_now); RESPROP has `first`
// (rdma_done), `second` (rdma_rejected) and `set` (rdma_other).
struct PropertyBody {
  PropertySet set;
  PropertySubset first;
  PropertySubset second;
  uint32_t length = 0;  // of the whole message, without trailing bytes
};

// Reads the body of a message of one of these types, from byte 16 on. Returns kOk or kTruncated.
// `body` refers to `message`.
Verdict decode_properties(std::span<const std::byte> message, MessageType type, PropertyBody& body);

// The same for sending. Subsets are given as words, bit 0 the least significant.
struct PropertyMessage {
  MessageType type;
  uint32_t xid = 0;
  uint32_t credits = 0;
  std::span<const Property> set;
  std::span<const uint32_t> first;
  std::span<const uint32_t> second;
};

// Returns the length, or 0 if `out` is too small.
uint32_t encode(const PropertyMessage& message, std::span<std::byte> out);

}  // namespace rrdk::proto

#include "xprt/property_values.h"

#include "rrdk/xdr.h"

namespace rrdk::xprt {

namespace {

// Both known properties are one word. Empty: the default (V2D4-PROP-07).
bool read_word(const proto::Property& property, uint32_t otherwise, uint32_t& value) {
  value = property.data.empty() ? otherwise : 0;
  if (property.data.size() == sizeof(uint32_t))
    value = xdr::load_u32(property.data.data());
  return property.data.empty() || property.data.size() == sizeof(uint32_t);
}

}  // namespace

bool read_change(const proto::PropertySet& set, PropertyChange& change) noexcept {
  constexpr PropertyValues kDefaults;
  bool right = true;
  set.for_each([&](uint32_t index, const proto::Property& property) {
    uint32_t value = 0;
    if (property.id == proto::kReceiveBufferSize) {
      // Below 1024 no version has its threshold (V2D4-PROP-25).
      right &=
          read_word(property, kDefaults.receive_size, value) && value >= proto::kInlineThreshold;
      change.receive_size = value;
      change.size_index = index;
    } else if (property.id == proto::kBackwardSupport) {
      right &= read_word(property, static_cast<uint32_t>(kDefaults.backward), value) && value <= 2;
      change.backward = static_cast<proto::BackwardSupport>(value);
      change.backward_index = index;
    }
  });
  return right;
}

}  // namespace rrdk::xprt

// The two properties of draft-04 section 5.2, as values.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/properties.h"

namespace rrdk::xprt {

// What is known of an end, with the defaults of one that says nothing.
struct PropertyValues {
  uint32_t receive_size = proto::kInlineThreshold2;
  proto::BackwardSupport backward = proto::BackwardSupport::kInline;
};

// What a set says of them; of several entries the last one counts (V2D4-PROP-15).
struct PropertyChange {
  std::optional<uint32_t> receive_size;
  std::optional<proto::BackwardSupport> backward;
  uint32_t size_index = 0;  // of the entry
  uint32_t backward_index = 0;
};

// False: the data of one that is known is no value of it (V2D4-PROP-09, V2D4-PROP-13), which makes
// the whole set faulty. Others are passed over.
bool read_change(const proto::PropertySet& set, PropertyChange& change) noexcept;

}  // namespace rrdk::xprt

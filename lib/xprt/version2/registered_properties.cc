// Transport properties that others have registered (rrdk/extensions.h): said, heard and handed on.
// Requests to change one are rejected, as of all but the Receive Buffer Size.
#include <array>
#include <optional>
#include <utility>

#include "xprt/link.h"
#include "xprt/version2/properties.h"

namespace rrdk::xprt {

using proto::Property;
using proto::PropertySet;
using proto::PropertySubset;

std::span<const TransportProperty> Properties::registered() const noexcept {
  const Extensions* known = link_.options.extensions;
  return known != nullptr ? known->properties() : std::span<const TransportProperty>();
}

// Returns how many there are in `set` then.
uint32_t Properties::add_registered(std::span<Property> set, uint32_t count) const noexcept {
  for (const TransportProperty& property : registered()) {
    if (property.says)
      set[count++] = {property.id, property.value};
  }
  return count;
}

// One that is none makes the set faulty (V2D4-PROP-09). Opaque ones have no `check`.
bool Properties::are_values(const PropertySet& set) const noexcept {
  bool right = true;
  set.for_each([&](uint32_t, const Property& said) {
    for (const TransportProperty& known : registered()) {
      if (right && said.id == known.id && known.check != nullptr && !said.data.empty())
        right = said.data.size() <= kMostPropertyValue && known.check(said.data, known.context);
    }
  });
  return right;
}

// `stays` is there with the peer's first CONNPROP: what is not in that, or in its rdma_nochg, does
// not change afterwards (draft-04 section 5.3.1).
void Properties::hear_registered(const PropertySet& set, const PropertySubset* stays) noexcept {
  struct Last {  // of several (V2D4-PROP-15)
    std::optional<Property> said;
    uint32_t index = 0;
  };
  std::array<Last, kMostProperties> lasts;
  // Once through what the peer has said, which may be very much.
  set.for_each([&](uint32_t index, const Property& said) {
    Last* last = lasts.data();
    for (const TransportProperty& known : registered()) {
      if (said.id == known.id)
        *last = {said, index};
      ++last;
    }
  });
  uint32_t bit = 1;
  const Last* next = lasts.data();
  for (const TransportProperty& known : registered()) {
    const auto& [last, index] = *next++;
    const uint32_t own = std::exchange(bit, bit << 1);
    if (!last)
      continue;
    if (stays != nullptr && !stays->has(index))
      moving_ |= own;
    if (stays == nullptr && (moving_ & own) == 0)
      link_.refused(Refusal::kFixedProperty);
    else if (last->data.size() > kMostPropertyValue)
      link_.refused(Refusal::kLongProperty);
    else if (known.on_value != nullptr)
      known.on_value({known.id, last->data, stays == nullptr, link_.options.peer}, known.context);
  }
}

}  // namespace rrdk::xprt

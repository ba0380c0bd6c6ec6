// What an application registers (rrdk/extensions.h): it is checked once, so that it need not be
// checked when it is used. Also the registered transport properties at work.
#include "rrdk/extensions.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/common.h"
#include "engine/version2/properties.h"
#include "proto/properties.h"

namespace rrdk {

namespace {

Result<void> refuse(const std::string& what, const std::string& why) {
  return fail(Errc::kInvalidArgument, what + ": " + why);
}

Result<void> check(const Feature& feature, const OptionType& type) {
  const std::string what = "feature '" + feature.name + "', type " + std::to_string(type.type);
  if (type.payload != OptionPayload::kNone && type.payload != OptionPayload::kMessage)
    return refuse(what, "say in `payload` whether an RPC message follows");
  if (type.check == nullptr)
    return refuse(what, "it needs `check`, which tells whether bytes are data of this type");
  if (type.on_error == nullptr)
    return refuse(what, "it needs `on_error`, which receives errors of this type");
  return {};
}

Result<void> check(const TransportProperty& property) {
  using Kind = TransportProperty::Kind;
  const std::string what = "property '" + property.name + "'";
  const bool in_range = property.id >= proto::kFirstExperimental;
  if (property.kind != Kind::kStandard && property.kind != Kind::kExperimental)
    return refuse(what, "say in `kind` whether a standard or an experiment defines it");
  if (property.id == proto::kReceiveBufferSize || property.id == proto::kBackwardSupport)
    return refuse(what, "ids 1 and 2 belong to RRDK, see max_receive_size and backward_credits");
  if (property.kind == Kind::kStandard && in_range)
    return refuse(what,
                  "ids from 0xFFFFFF00 on are for experiments, not for standards (draft-04 "
                  "section 5.4.2)");
  if (property.kind == Kind::kExperimental && !in_range)
    return refuse(what, "ids of experiments are 0xFFFFFF00 to 0xFFFFFFFF (draft-04 section 5.4.2)");
  if (property.kind == Kind::kStandard && property.check == nullptr)
    return refuse(what, "it needs `check`, which tells whether bytes are a valid value");
  if (property.kind == Kind::kExperimental && property.check != nullptr)
    return refuse(what, "an experiment's value is opaque: no `check`");
  if (property.value.size() > kMostPropertyValue)
    return refuse(what, "its value has more than " + std::to_string(kMostPropertyValue) + " bytes");
  bool has_value = property.says && !property.value.empty();
  if (has_value && property.check != nullptr && !property.check(property.value, property.context))
    return refuse(what, "its `check` refuses its value");
  return {};
}

}  // namespace

Extensions::Extensions(std::vector<Entry> types, std::string unserved,
                       std::vector<TransportProperty> properties)
    : types_(std::move(types)),
      unserved_(std::move(unserved)),
      properties_(std::move(properties)) {}

Result<std::unique_ptr<const Extensions>> Extensions::create(ExtensionList list) {
  std::vector<Entry> types;
  std::string unserved;
  for (uint32_t number = 0; number < list.features.size(); ++number) {
    const Feature& feature = list.features[number];
    if (feature.types.empty())
      return tl::unexpected(refuse("feature '" + feature.name + "'", "it has no types").error());
    bool served = false;
    for (const OptionType& type : feature.types) {
      if (Result<void> checked = check(feature, type); !checked)
        return tl::unexpected(checked.error());
      served |= type.serve != nullptr;
      types.push_back({type, number});
    }
    if (!served && unserved.empty())
      unserved =
          feature.name.empty() ? "type " + std::to_string(feature.types[0].type) : feature.name;
  }
  auto number_of = [](const Entry& entry) { return entry.type.type; };
  std::ranges::sort(types, {}, number_of);
  if (auto twice = std::ranges::adjacent_find(types, {}, number_of); twice != types.end())
    return tl::unexpected(
        refuse("type " + std::to_string(twice->type.type), "it is registered twice").error());
  if (list.properties.size() > kMostProperties)
    return tl::unexpected(
        refuse("properties", "more than " + std::to_string(kMostProperties)).error());
  for (auto property = list.properties.begin(); property != list.properties.end(); ++property) {
    if (Result<void> checked = check(*property); !checked)
      return tl::unexpected(checked.error());
    if (std::find_if(list.properties.begin(), property, [&](const TransportProperty& other) {
          return other.id == property->id;
        }) != property)
      return tl::unexpected(
          refuse("property '" + property->name + "'", "its id is registered twice").error());
  }
  return std::unique_ptr<const Extensions>(
      new Extensions(std::move(types), std::move(unserved), std::move(list.properties)));
}

const Extensions::Entry* Extensions::entry(uint32_t type) const noexcept {
  auto at = std::ranges::lower_bound(types_, type, {},
                                     [](const Entry& entry) { return entry.type.type; });
  return at != types_.end() && at->type.type == type ? &*at : nullptr;
}

const OptionType* Extensions::find(uint32_t type) const noexcept {
  const Entry* found = entry(type);
  return found != nullptr ? &found->type : nullptr;
}

bool Extensions::together(uint32_t one, uint32_t other) const noexcept {
  const Entry* first = entry(one);
  const Entry* second = entry(other);
  return first != nullptr && second != nullptr && first->feature == second->feature;
}

}  // namespace rrdk

namespace rrdk::engine {

// Transport properties that applications have registered (rrdk/extensions.h): sent, received and
// handed on. Requests to change one are rejected, like those for all properties except the Receive
// Buffer Size.

using proto::Property;
using proto::PropertySet;
using proto::PropertySubset;

std::span<const TransportProperty> Properties::registered() const noexcept {
  const Extensions* known = common_.options.extensions;
  return known != nullptr ? known->properties() : std::span<const TransportProperty>();
}

// Returns the number of properties in `set` afterwards.
uint32_t Properties::add_registered(std::span<Property> set, uint32_t count) const noexcept {
  for (const TransportProperty& property : registered()) {
    if (property.says)
      set[count++] = {property.id, property.value};
  }
  return count;
}

// An invalid value makes the whole set faulty (V2D4-PROP-09). Opaque ones have no `check`.
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

// `stays` is rdma_nochg of the peer's first CONNPROP, and null for later messages. A property that
// is not in that CONNPROP, or is in its rdma_nochg, does not change afterwards (draft-04 section
// 5.3.1).
void Properties::hear_registered(const PropertySet& set, const PropertySubset* stays) noexcept {
  struct Last {  // the last of several entries (V2D4-PROP-15)
    std::optional<Property> said;
    uint32_t index = 0;
  };
  std::array<Last, kMostProperties> lasts;
  // A single pass over what the peer has sent, which may be very long.
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
      common_.refused(Refusal::kFixedProperty);
    else if (last->data.size() > kMostPropertyValue)
      common_.refused(Refusal::kLongProperty);
    else if (known.on_value != nullptr)
      known.on_value({known.id, last->data, stays == nullptr, common_.known_as}, known.context);
  }
}

}  // namespace rrdk::engine

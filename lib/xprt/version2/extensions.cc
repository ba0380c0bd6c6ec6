// What is registered is checked here, once, so that nobody has to ask again while it is used.
#include "rrdk/extensions.h"

#include <algorithm>
#include <utility>

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
    return refuse(what, "it needs `on_error`, which is told of errors of this type");
  return {};
}

Result<void> check(const TransportProperty& property) {
  using Kind = TransportProperty::Kind;
  const std::string what = "property '" + property.name + "'";
  const bool in_range = property.id >= proto::kFirstExperimental;
  if (property.kind != Kind::kStandard && property.kind != Kind::kExperimental)
    return refuse(what, "say in `kind` whether it is a standard's or an experiment's");
  if (property.id == proto::kReceiveBufferSize || property.id == proto::kBackwardSupport)
    return refuse(what, "ids 1 and 2 are RRDK's own, see max_receive_size and backward_credits");
  if (property.kind == Kind::kStandard && in_range)
    return refuse(what,
                  "ids from 0xFFFFFF00 on are for experiments, not for standards (draft-04 "
                  "section 5.4.2)");
  if (property.kind == Kind::kExperimental && !in_range)
    return refuse(what, "ids of experiments are 0xFFFFFF00 to 0xFFFFFFFF (draft-04 section 5.4.2)");
  if (property.kind == Kind::kStandard && property.check == nullptr)
    return refuse(what, "it needs `check`, which tells whether bytes are a value of it");
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

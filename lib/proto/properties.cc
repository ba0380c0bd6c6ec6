#include "proto/properties.h"

#include "proto/codec_impl.h"

namespace rrdk::proto {

namespace {

uint64_t padded(uint64_t length) {
  return length + xdr_pad(length);
}

bool take_set(Cursor& in, std::span<const std::byte> message, PropertySet& set) {
  if (in.left() < kWord)
    return false;
  uint32_t count = in.word();
  size_t from = message.size() - in.left();
  // Each entry has at least eight bytes, so a large count alone cannot keep the loop running.
  for (uint32_t i = 0; i < count; ++i) {
    if (in.left() < 2 * kWord)
      return false;
    in.skip(kWord);
    uint64_t length = padded(in.word());
    if (length > in.left())
      return false;
    in.skip(length);
  }
  set = PropertySet(count, message.subspan(from, message.size() - in.left() - from));
  return true;
}

bool take_subset(Cursor& in, std::span<const std::byte> message, PropertySubset& subset) {
  if (in.left() < kWord)
    return false;
  uint32_t count = in.word();
  if (count > in.left() / kWord)
    return false;
  subset = PropertySubset(message.subspan(message.size() - in.left(), size_t{count} * kWord));
  in.skip(size_t{count} * kWord);
  return true;
}

uint64_t set_length(std::span<const Property> set) {
  uint64_t length = kWord;
  for (const Property& property : set)
    length += 2 * kWord + padded(property.data.size());
  return length;
}

void put_set(Writer& out, std::span<const Property> set) {
  out.word(static_cast<uint32_t>(set.size()));
  for (const Property& property : set) {
    out.word(property.id);
    out.opaque(property.data);
  }
}

void put_subset(Writer& out, std::span<const uint32_t> words) {
  out.word(static_cast<uint32_t>(words.size()));
  for (uint32_t word : words)
    out.word(word);
}

}  // namespace

Property PropertySet::take(std::span<const std::byte>& rest) noexcept {
  uint32_t id = xdr::load_u32(rest.data());
  uint32_t length = xdr::load_u32(rest.data() + kWord);
  Property property = {id, rest.subspan(2 * kWord, length)};
  rest = rest.subspan(2 * kWord + padded(length));
  return property;
}

bool PropertySubset::has(uint32_t index) const noexcept {
  size_t at = size_t{index} / 32 * kWord;
  return at < words_.size() && (xdr::load_u32(&words_[at]) >> index % 32 & 1) != 0;
}

Verdict decode_properties(std::span<const std::byte> message, MessageType type,
                          PropertyBody& body) {
  body = {};
  Cursor in(message.subspan(kFixedBytes));
  bool whole = true;
  if (type == MessageType::kRespProp)
    whole = take_subset(in, message, body.first) && take_subset(in, message, body.second);
  whole = whole && take_set(in, message, body.set);
  if (type == MessageType::kConnProp)
    whole = whole && take_subset(in, message, body.first);
  body.length = static_cast<uint32_t>(message.size() - in.left());
  return whole ? Verdict::kOk : Verdict::kTruncated;
}

uint32_t encode(const PropertyMessage& message, std::span<std::byte> out) {
  bool is_response = message.type == MessageType::kRespProp;
  bool has_first = is_response || message.type == MessageType::kConnProp;
  uint64_t length = kFixedBytes + set_length(message.set);
  if (has_first)
    length += kWord * (1 + message.first.size());
  if (is_response)
    length += kWord * (1 + message.second.size());
  if (length > out.size())
    return 0;
  Writer writer(out.data());
  writer.word(message.xid);
  writer.word(version_of(Wire::kDraft04));
  writer.word(message.credits);
  writer.word(static_cast<uint32_t>(message.type));
  if (is_response) {
    put_subset(writer, message.first);
    put_subset(writer, message.second);
  }
  put_set(writer, message.set);
  if (message.type == MessageType::kConnProp)
    put_subset(writer, message.first);
  return static_cast<uint32_t>(length);
}

}  // namespace rrdk::proto

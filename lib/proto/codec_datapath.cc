// What all versions have in common: the fixed words, the message without chunks, ERR_VERS, and the
// names of verdicts.
#include <cstring>

#include "proto/codec.h"
#include "proto/codec_impl.h"
#include "proto/header.h"

namespace rrdk::proto {

namespace {

constexpr uint32_t kTypeAt = 4;  // msg_type, in an RPC message
constexpr std::byte kZeros[kMinHeader04 - kFixedBytes] = {};

Decoded decode_other_version(std::span<const std::byte> message, uint32_t proc, Header& header) {
  if (!is_version_error(message, proc))
    return {Verdict::kBadVersion, 0};
  return decode_version_error(message, header);
}

}  // namespace

std::optional<FixedWords> peek(std::span<const std::byte> message) {
  if (message.size() < kFixedBytes)
    return std::nullopt;
  const std::byte* p = message.data();
  return FixedWords{xdr::load_u32(p), xdr::load_u32(p + 4), xdr::load_u32(p + 8),
                    xdr::load_u32(p + 12)};
}

bool match_plain(std::span<const std::byte> message, const Versions& versions,
                 Plain& plain) noexcept {
  if (message.size() < kMinHeader + 2 * kWord) [[unlikely]]
    return false;
  const std::byte* p = message.data();
  const std::optional<Wire> wire = versions.wire_of(xdr::load_u32(p + 4));
  if (!wire || xdr::load_u32(p + 12) != static_cast<uint32_t>(MessageType::kMsg)) [[unlikely]]
    return false;
  const std::byte* rpc = p + kMinHeader;
  if (*wire != Wire::kDraft04) {
    if (std::memcmp(p + kFixedBytes, kZeros, kMinHeader - kFixedBytes) != 0)
      return false;
  } else {
    rpc = p + kMinHeader04;
    if (message.size() < kMinHeader04 + 2 * kWord ||
        std::memcmp(p + kFixedBytes + kWord, kZeros, kMinHeader04 - kFixedBytes - kWord) != 0 ||
        std::memcmp(p + kFixedBytes, rpc + kTypeAt, kWord) != 0)
      return false;
  }
  const uint32_t type = xdr::load_u32(rpc + kTypeAt);
  if (type > 1 || std::memcmp(p, rpc, kWord) != 0) [[unlikely]]
    return false;
  plain = {xdr::load_u32(p), xdr::load_u32(p + 8), *wire, static_cast<Direction>(type)};
  return true;
}

// For the versions with discriminated lists, whose Read list comes first.
uint32_t guess_read_key(std::span<const std::byte> message) noexcept {
  constexpr size_t kPresent = kFixedBytes;
  constexpr size_t kHandle = kPresent + 2 * kWord;  // after the Position
  const bool has_one =
      message.size() >= kMinHeader + kWord && xdr::load_u32(message.data() + kPresent) == 1;
  return has_one ? xdr::load_u32(message.data() + kHandle) : 0;
}

namespace {

Writer begin(const Start& start, std::byte* out) {
  Writer writer(out);
  writer.word(start.xid);
  writer.word(version_of(start.wire));
  writer.word(start.credits);
  writer.word(static_cast<uint32_t>(MessageType::kMsg));
  if (start.wire == Wire::kDraft04) {
    writer.word(static_cast<uint32_t>(start.direction));
    writer.word(start.invalidate);
  }
  return writer;
}

}  // namespace

void fill_header(const Plain& plain, Header& header) {
  header.xid = plain.xid;
  header.version = version_of(plain.wire);
  header.credits = plain.credits;
  header.wire = plain.wire;
  header.type = MessageType::kMsg;
  header.direction = plain.direction;
  header.invalidate = 0;
  header.lists.clear();
}

Direction direction_of_message(std::span<const std::byte> rpc, Direction expected) {
  if (rpc.size() < 2 * kWord)
    return expected;
  uint32_t type = xdr::load_u32(&rpc[kTypeAt]);
  return type <= 1 ? static_cast<Direction>(type) : expected;
}

bool is_version_error(std::span<const std::byte> message, uint32_t proc) {
  return proc == static_cast<uint32_t>(MessageType::kError) && message.size() >= kErrVersBytes &&
         xdr::load_u32(&message[kFixedBytes]) == kErrVers;
}

Decoded decode_version_error(std::span<const std::byte> message, Header& header) {
  header.type = MessageType::kError;
  header.direction = Direction::kReply;
  header.error = {.code = ErrorCode::kVersion,
                  .raw = kErrVers,
                  .low = xdr::load_u32(&message[kFixedBytes + kWord]),
                  .high = xdr::load_u32(&message[kFixedBytes + 2 * kWord])};
  return {Verdict::kOk, kErrVersBytes};
}

std::optional<Decoded> decode_error_start(std::span<const std::byte> message, Header& header,
                                          uint32_t& code) {
  header.direction = Direction::kReply;
  if (message.size() < kMinError)
    return Decoded{Verdict::kTooShort, 0};
  if (is_version_error(message, static_cast<uint32_t>(MessageType::kError)))
    return decode_version_error(message, header);
  code = xdr::load_u32(&message[kFixedBytes]);
  if (code == kErrVers)
    return Decoded{Verdict::kTruncated, 0};
  return std::nullopt;
}

Decoded decode(std::span<const std::byte> message, Direction expected, const Limits& limits,
               Header& header) {
  std::optional<FixedWords> words = peek(message);
  if (!words)
    return {Verdict::kTooShort, 0};
  header.xid = words->xid;
  header.version = words->version;
  header.credits = words->credits;
  header.direction = expected;
  header.invalidate = 0;
  header.lists.clear();
  std::optional<Wire> wire = limits.versions.wire_of(words->version);
  if (!wire) [[unlikely]]
    return decode_other_version(message, words->proc, header);
  header.wire = *wire;
  return *wire == Wire::kVersion1 ? version1::decode_body(message, words->proc, limits, header)
                                  : version2::decode_body(message, words->proc, limits, header);
}

uint32_t encoded_length(const Header& header) {
  return kFixedBytes + (header.wire == Wire::kVersion1 ? version1::body_length(header)
                                                       : version2::body_length(header));
}

uint32_t encode(const Header& header, std::span<std::byte> out) {
  uint32_t length = encoded_length(header);
  if (length > out.size())
    return 0;
  Writer writer(out.data());
  writer.word(header.xid);
  writer.word(header.type == MessageType::kError ? header.version : version_of(header.wire));
  writer.word(header.credits);
  writer.word(static_cast<uint32_t>(header.type));
  if (header.wire == Wire::kVersion1)
    version1::encode_body(writer, header);
  else
    version2::encode_body(writer, header);
  return length;
}

uint32_t encode_option(const Header& header, std::span<const std::byte> data,
                       std::span<std::byte> out) {
  bool is_04 = header.wire == Wire::kDraft04;
  uint64_t length = kFixedBytes + (is_04 ? 3 : 2) * kWord + data.size() + xdr_pad(data.size());
  if (length > out.size())
    return 0;
  Writer writer(out.data());
  writer.word(header.xid);
  writer.word(version_of(header.wire));
  writer.word(header.credits);
  writer.word(static_cast<uint32_t>(MessageType::kOptional));
  if (is_04)
    writer.word(static_cast<uint32_t>(header.direction));
  writer.word(header.option.type);
  writer.opaque(data);
  return static_cast<uint32_t>(length);
}

void encode_plain(const Start& start, std::byte* out) {
  Writer writer = begin(start, out);
  writer.zeros(3);
}

void encode_one_read(const Start& start, uint32_t position, const Segment& segment,
                     std::byte* out) {
  Writer writer = begin(start, out);
  writer.word(1);
  writer.word(position);
  writer.segment(segment);
  writer.zeros(3);
}

void encode_one_write(const Start& start, const Segment& segment, std::byte* out) {
  Writer writer = begin(start, out);
  writer.word(0);
  writer.word(1);
  writer.word(1);
  writer.segment(segment);
  writer.zeros(2);
}

}  // namespace rrdk::proto

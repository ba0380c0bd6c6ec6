// What follows the four common words in each version.
#include "proto/codec_impl.h"

// Version 1 (RFC 5666 section 4.3; same bytes in RFC 8166).
namespace rrdk::proto::version1 {

namespace {

constexpr uint32_t kMsgpBytes = 8;  // rdma_align and rdma_thresh
constexpr uint32_t kErrChunk = 2;

Decoded decode_error(std::span<const std::byte> message, Header& header) {
  uint32_t code = 0;
  if (std::optional<Decoded> done = decode_error_start(message, header, code))
    return *done;
  header.error = {.code = code == kErrChunk ? ErrorCode::kBadHeader : ErrorCode::kOther,
                  .raw = code};
  return {Verdict::kOk, kMinError};
}

// The direction of a message that has no field for it (BIDIR-04, BIDIR-15): at a client a
// Position-Zero chunk indicates a call, since replies have none; at a server an RDMA_NOMSG is a
// call, since calls to clients offer no Reply chunk.
Direction direction_of(const Header& header, std::span<const std::byte> rpc) {
  if (header.type != MessageType::kNoMsg)
    return direction_of_message(rpc, header.direction);
  const ChunkLists& lists = header.lists;
  bool holds_call = lists.num_reads != 0 && lists.reads[0].position == 0;
  return holds_call ? Direction::kCall : header.direction;
}

}  // namespace

Decoded decode_with_lists(std::span<const std::byte> message, const Limits& limits,
                          Header& header) {
  if (message.size() < kMinHeader)
    return {Verdict::kTooShort, 0};
  Cursor in(message.subspan(kFixedBytes));
  if (header.type == MessageType::kMsgp) {
    header.msgp_align = in.word();
    header.msgp_thresh = in.word();
  }
  Verdict breach = Verdict::kOk;
  Verdict v = parse_lists(in, limits, header.lists, breach);
  auto length = static_cast<uint32_t>(message.size() - in.left());
  if (v == Verdict::kOk) {
    header.direction = direction_of(header, message.subspan(length));
    v = breach != Verdict::kOk ? breach : check_lists(header, in.left());
  }
  return {v, length};
}

Decoded decode_body(std::span<const std::byte> message, uint32_t proc, const Limits& limits,
                    Header& header) {
  if (proc > static_cast<uint32_t>(MessageType::kError)) [[unlikely]]
    return {Verdict::kBadType, 0};
  header.type = static_cast<MessageType>(proc);
  if (header.type == MessageType::kDone)
    return {Verdict::kOk, kFixedBytes};
  if (header.type == MessageType::kError)
    return decode_error(message, header);
  return decode_with_lists(message, limits, header);
}

uint32_t body_length(const Header& header) {
  switch (header.type) {
    case MessageType::kMsgp:
      return kMsgpBytes + lists_length(header.lists);
    case MessageType::kError:
      return (header.error.code == ErrorCode::kVersion ? kErrVersBytes : kMinError) - kFixedBytes;
    case MessageType::kMsg:
    case MessageType::kNoMsg:
      return lists_length(header.lists);
    default:
      return 0;
  }
}

void encode_body(Writer& out, const Header& header) {
  switch (header.type) {
    case MessageType::kMsgp:
      out.word(header.msgp_align);
      out.word(header.msgp_thresh);
      [[fallthrough]];
    case MessageType::kMsg:
    case MessageType::kNoMsg:
      encode_lists(out, header.lists);
      return;
    case MessageType::kError:
      if (header.error.code == ErrorCode::kVersion) {
        out.word(kErrVers);
        out.word(header.error.low);
        out.word(header.error.high);
      } else {
        out.word(header.error.code == ErrorCode::kOther ? header.error.raw : kErrChunk);
      }
      return;
    default:
      return;
  }
}

}  // namespace rrdk::proto::version1

// Version 2, both drafts. Draft-00 has the bodies of version 1, with three error codes and
// RDMA_OPTIONAL. Draft-04 puts direction and handle before the lists, and has a code per error.
namespace rrdk::proto::version2 {

namespace {

constexpr uint32_t kBadHeader = 2;    // BAD_HEADER, BAD_XDR
constexpr uint32_t kBadOption00 = 3;  // draft-00's INVAL_OPTION
constexpr uint32_t kLastError04 = 10;

// Draft-04's codes (section 6.2). ErrorCode has them in this order.
uint32_t code_of(const ErrorBody& error) {
  return error.code == ErrorCode::kOther ? error.raw : static_cast<uint32_t>(error.code) + 1;
}
static_assert(static_cast<uint32_t>(ErrorCode::kVersion) + 1 == kErrVers);
static_assert(static_cast<uint32_t>(ErrorCode::kSystem) + 1 == kLastError04);

uint32_t arguments_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kVersion:
    case ErrorCode::kWriteResource:
      return 2 * kWord;
    case ErrorCode::kReadChunks:
    case ErrorCode::kWriteChunks:
    case ErrorCode::kSegments:
    case ErrorCode::kReplyResource:
      return kWord;
    default:
      return 0;
  }
}

Decoded decode_error00(uint32_t code, Header& header) {
  header.error = {.code = code == kBadHeader     ? ErrorCode::kBadHeader
                          : code == kBadOption00 ? ErrorCode::kBadOption
                                                 : ErrorCode::kOther,
                  .raw = code};
  return {Verdict::kOk, kMinError};
}

Decoded decode_error04(Cursor in, uint32_t code, Header& header) {
  bool known = code != 0 && code <= kLastError04;
  ErrorBody& error = header.error;
  error = {.code = known ? static_cast<ErrorCode>(code - 1) : ErrorCode::kOther, .raw = code};
  uint32_t arguments = arguments_of(error.code);
  if (in.left() < arguments)
    return {Verdict::kTruncated, 0};
  switch (error.code) {
    case ErrorCode::kReadChunks:
    case ErrorCode::kWriteChunks:
    case ErrorCode::kSegments:
      error.maximum = in.word();
      break;
    case ErrorCode::kWriteResource:
      error.index = in.word();
      [[fallthrough]];
    case ErrorCode::kReplyResource:
      error.length = in.word();
      break;
    default:
      break;
  }
  return {Verdict::kOk, kMinError + arguments};
}

Decoded decode_error(std::span<const std::byte> message, Header& header) {
  uint32_t code = 0;
  if (std::optional<Decoded> done = decode_error_start(message, header, code))
    return *done;
  return header.wire == Wire::kDraft00
             ? decode_error00(code, header)
             : decode_error04(Cursor(message.subspan(kMinError)), code, header);
}

// Reads draft-04's direction word. Returns false if it is missing or invalid.
bool take_direction(Cursor& in, Header& header, Verdict& verdict) {
  header.direction = Direction::kUnknown;
  if (in.left() < kWord) {
    verdict = Verdict::kTruncated;
    return false;
  }
  uint32_t word = in.word();
  if (word > 1) {
    verdict = Verdict::kBadDirection;
    return false;
  }
  header.direction = static_cast<Direction>(word);
  return true;
}

Decoded decode_option(std::span<const std::byte> message, Header& header) {
  Cursor in(message.subspan(kFixedBytes));
  Verdict verdict;
  if (header.wire == Wire::kDraft04 && !take_direction(in, header, verdict))
    return {verdict, 0};
  if (in.left() < 2 * kWord)
    return {Verdict::kTruncated, 0};
  uint32_t type = in.word();
  uint32_t length = in.word();
  auto offset = static_cast<uint32_t>(message.size() - in.left());
  if (length > in.left() || xdr_pad(length) > in.left() - length)
    return {Verdict::kTruncated, 0};
  header.option = {type, offset, length};
  return {Verdict::kOk, offset + length + xdr_pad(length)};
}

Decoded decode_lists04(std::span<const std::byte> message, const Limits& limits, Header& header) {
  Cursor in(message.subspan(kFixedBytes));
  Verdict verdict;
  if (!take_direction(in, header, verdict))
    return {verdict, 0};
  if (in.left() < kWord)
    return {Verdict::kTruncated, 0};
  header.invalidate = in.word();
  Verdict breach = Verdict::kOk;
  Verdict v = parse_lists(in, limits, header.lists, breach);
  auto length = static_cast<uint32_t>(message.size() - in.left());
  if (v != Verdict::kOk)
    return {v, length};
  Direction rpc = direction_of_message(message.subspan(length), header.direction);
  if (header.type == MessageType::kMsg && rpc != header.direction)
    return {Verdict::kBadDirection, length};
  return {breach != Verdict::kOk ? breach : check_lists(header, in.left()), length};
}

}  // namespace

Decoded decode_body(std::span<const std::byte> message, uint32_t proc, const Limits& limits,
                    Header& header) {
  bool is_00 = header.wire == Wire::kDraft00;
  auto last = static_cast<uint32_t>(is_00 ? MessageType::kOptional : MessageType::kUpdProp);
  if (proc > last)
    return {Verdict::kBadType, 0};
  auto type = static_cast<MessageType>(proc);
  switch (type) {
    case MessageType::kMsg:
    case MessageType::kNoMsg:
      header.type = type;
      return is_00 ? version1::decode_with_lists(message, limits, header)
                   : decode_lists04(message, limits, header);
    case MessageType::kMsgp:  // reserved in draft-00, which allows no call in it (V2D0-ERR-03)
      return {Verdict::kBadType, kFixedBytes};
    case MessageType::kDone:  // reserved in draft-00 too, and expects no answer
      header.type = type;
      return {is_00 ? Verdict::kOk : Verdict::kBadType, kFixedBytes};
    case MessageType::kError:
      header.type = type;
      return decode_error(message, header);
    case MessageType::kOptional:
      header.type = type;
      return decode_option(message, header);
    default:  // the transport properties, whose bodies proto/properties.h reads
      header.type = type;
      return {Verdict::kOk, kFixedBytes};
  }
}

uint32_t body_length(const Header& header) {
  bool is_04 = header.wire == Wire::kDraft04;
  switch (header.type) {
    case MessageType::kMsg:
    case MessageType::kNoMsg:
      return (is_04 ? 2 * kWord : 0) + lists_length(header.lists);
    case MessageType::kError:
      return kWord + (is_04 || header.error.code == ErrorCode::kVersion
                          ? arguments_of(header.error.code)
                          : 0);
    default:
      return 0;
  }
}

void encode_body(Writer& out, const Header& header) {
  const ErrorBody& error = header.error;
  switch (header.type) {
    case MessageType::kMsg:
    case MessageType::kNoMsg:
      if (header.wire == Wire::kDraft04) {
        out.word(static_cast<uint32_t>(header.direction));
        out.word(header.invalidate);
      }
      encode_lists(out, header.lists);
      return;
    case MessageType::kError:
      break;
    default:
      return;
  }
  if (error.code == ErrorCode::kVersion) {
    out.word(kErrVers);
    out.word(error.low);
    out.word(error.high);
    return;
  }
  if (header.wire == Wire::kDraft00) {
    out.word(error.code == ErrorCode::kBadOption ? kBadOption00
             : error.code == ErrorCode::kOther   ? error.raw
                                                 : kBadHeader);
    return;
  }
  out.word(code_of(error));
  switch (error.code) {
    case ErrorCode::kReadChunks:
    case ErrorCode::kWriteChunks:
    case ErrorCode::kSegments:
      out.word(error.maximum);
      return;
    case ErrorCode::kWriteResource:
      out.word(error.index);
      [[fallthrough]];
    case ErrorCode::kReplyResource:
      out.word(error.length);
      return;
    default:
      return;
  }
}

}  // namespace rrdk::proto::version2

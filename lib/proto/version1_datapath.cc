// Version 1 (RFC 5666 section 4.3; same bytes in RFC 8166).
#include "proto/codec_impl.h"

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

// The direction of what has no field for it (BIDIR-04, BIDIR-15): at a client a Position-Zero chunk
// shows a call, since replies have none; at a server an RDMA_NOMSG is a call, since calls to
// clients offer no Reply chunk.
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
    return {Verdict::kBadProc, 0};
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

#include "proto/version1.h"
#include "proto/version1_words.h"
#include "rrdk/xdr.h"

namespace rrdk::proto::version1 {

namespace {

// Writes words one after the other; encode() has made sure of the room.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}

  void word(uint32_t value) {
    xdr::store_u32(at_, value);
    at_ += kWord;
  }
  void segment(const Segment& s) {
    word(s.handle);
    word(s.length);
    xdr::store_u64(at_, s.offset);
    at_ += 2 * kWord;
  }

 private:
  std::byte* at_;
};

uint32_t lists_length(const ChunkLists& lists) {
  uint32_t length = 3 * kWord;
  for (uint16_t i = 0; i < lists.num_reads; ++i)
    length += kReadEntryBytes * lists.reads[i].count;
  for (uint16_t i = 0; i < lists.num_writes; ++i)
    length += 2 * kWord + kSegmentBytes * lists.writes[i].count;
  if (lists.has_reply)
    length += kWord + kSegmentBytes * lists.reply.count;
  return length;
}

void put_reads(Writer& out, const ChunkLists& lists) {
  for (uint16_t i = 0; i < lists.num_reads; ++i) {
    for (const Segment& s : lists.of(lists.reads[i])) {
      out.word(1);
      out.word(lists.reads[i].position);
      out.segment(s);
    }
  }
  out.word(0);
}

void put_chunk(Writer& out, const ChunkLists& lists, const WriteChunk& chunk) {
  out.word(1);
  out.word(chunk.count);
  for (const Segment& s : lists.of(chunk))
    out.segment(s);
}

void put_lists(Writer& out, const ChunkLists& lists) {
  put_reads(out, lists);
  for (uint16_t i = 0; i < lists.num_writes; ++i)
    put_chunk(out, lists, lists.writes[i]);
  out.word(0);
  if (lists.has_reply)
    put_chunk(out, lists, lists.reply);
  else
    out.word(0);
}

void put_error(Writer& out, const ErrorBody& error) {
  switch (error.code) {
    case ErrorCode::kVersion:
      out.word(kErrVers);
      out.word(error.low);
      out.word(error.high);
      return;
    case ErrorCode::kChunk:
      out.word(kErrChunk);
      return;
    case ErrorCode::kOther:
      out.word(error.raw);
      return;
  }
}

}  // namespace

void encode_plain(uint32_t xid, uint32_t credits, std::byte* out) {
  Writer writer(out);
  writer.word(xid);
  writer.word(kVersion);
  writer.word(credits);
  writer.word(static_cast<uint32_t>(MessageType::kMsg));
  for (uint32_t at = kFixedBytes; at != kMinHeader; at += kWord)
    writer.word(0);
}

uint32_t encoded_length(const Header& header) {
  switch (header.type) {
    case MessageType::kMsg:
    case MessageType::kNoMsg:
      return kFixedBytes + lists_length(header.lists);
    case MessageType::kMsgp:
      return kFixedBytes + kMsgpBytes + lists_length(header.lists);
    case MessageType::kDone:
      return kFixedBytes;
    case MessageType::kError:
      return header.error.code == ErrorCode::kVersion ? kErrVersBytes : kMinError;
  }
  return 0;
}

uint32_t encode(const Header& header, std::span<std::byte> out) {
  uint32_t length = encoded_length(header);
  if (length > out.size())
    return 0;
  Writer writer(out.data());
  writer.word(header.xid);
  writer.word(header.version);
  writer.word(header.credits);
  writer.word(static_cast<uint32_t>(header.type));
  if (header.type == MessageType::kMsgp) {
    writer.word(header.msgp_align);
    writer.word(header.msgp_thresh);
  }
  if (header.type == MessageType::kError)
    put_error(writer, header.error);
  else if (header.type != MessageType::kDone)
    put_lists(writer, header.lists);
  return length;
}

}  // namespace rrdk::proto::version1

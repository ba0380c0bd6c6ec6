// The codecs that rpcgen makes of layouts.x, behind one interface.
#include <rpc/rpc.h>

#include <algorithm>

#include "layouts.h"
#include "reference.h"

namespace rrdk::proto {

namespace {

using Bytes = std::vector<std::byte>;

template <typename Message>
using XdrProc = bool_t (*)(XDR*, Message*);

char* xdr_bytes_of(std::span<const std::byte> bytes) {
  return const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
}

template <typename Message>
Bytes encode_xdr(XdrProc<Message> proc, Message& message, size_t room) {
  Bytes out(room);
  XDR xdr;
  xdrmem_create(&xdr, xdr_bytes_of(out), static_cast<u_int>(room), XDR_ENCODE);
  out.resize(proc(&xdr, &message) ? xdr_getpos(&xdr) : 0);
  return out;
}

// From here on: decoded headers, as a ReferenceHeader.

std::vector<Segment> segments_of(const wire_chunk& chunk) {
  std::vector<Segment> out;
  for (const wire_segment& s : std::span(chunk.segments.segments_val, chunk.segments.segments_len))
    out.push_back({s.handle, s.length, s.offset});
  return out;
}

void take(const wire_lists& lists, ReferenceHeader& out) {
  for (const wire_read* read = lists.reads; read != nullptr; read = read->next) {
    const wire_segment& s = read->segment;
    out.reads.push_back({read->position, {s.handle, s.length, s.offset}});
  }
  for (const wire_write* write = lists.writes; write != nullptr; write = write->next)
    out.writes.push_back(segments_of(write->chunk));
  if (lists.reply != nullptr)
    out.reply = segments_of(*lists.reply);
}

Bytes copy_of(const char* bytes, u_int length) {
  auto data = std::as_bytes(std::span(bytes, length));
  return {data.begin(), data.end()};
}

std::vector<ReferenceProperty> copy_of(const wire_properties& set) {
  std::vector<ReferenceProperty> out;
  for (const wire_property& p : std::span(set.wire_properties_val, set.wire_properties_len))
    out.push_back({p.id, copy_of(p.value.value_val, p.value.value_len)});
  return out;
}

std::vector<uint32_t> copy_of(const wire_bits& bits) {
  return {bits.wire_bits_val, bits.wire_bits_val + bits.wire_bits_len};
}

template <typename Option>
void take_option(const Option& option, ReferenceHeader& out) {
  out.option_type = option.type;
  out.option = copy_of(option.info.info_val, option.info.info_len);
}

// `range` is that of the first code, whatever the code is.
void take_error(uint32_t code, const wire_two& range, ReferenceHeader& out) {
  out.error = code;
  if (code == 1) {
    out.low = range.first;
    out.high = range.second;
  }
}

void take(const wire_body_1& body, ReferenceHeader& out) {
  const auto& arm = body.wire_body_1_u;
  switch (body.type) {
    case WIRE_MSGP:
      out.align = arm.padded.align;
      out.thresh = arm.padded.threshold;
      return take(arm.padded.lists, out);
    case WIRE_DONE:
      return;
    case WIRE_ERROR:
      return take_error(arm.error.code, arm.error.wire_error_1_u.range, out);
    default:
      return take(arm.lists, out);
  }
}

void take(const wire_body_00& body, ReferenceHeader& out) {
  const auto& arm = body.wire_body_00_u;
  switch (body.type) {
    case WIRE_MSGP:
    case WIRE_DONE:
      return;
    case WIRE_ERROR:
      return take_error(arm.error.code, arm.error.wire_error_00_u.range, out);
    case WIRE_OPTIONAL:
      return take_option(arm.option, out);
    default:
      return take(arm.lists, out);
  }
}

void take(const wire_error_04& error, ReferenceHeader& out) {
  const auto& arm = error.wire_error_04_u;
  take_error(error.code, arm.range, out);
  if (error.code >= 4 && error.code <= 6)
    out.maximum = arm.most;
  if (error.code == 7) {
    out.index = arm.write.first;
    out.needed = arm.write.second;
  }
  if (error.code == 8)
    out.needed = arm.bytes;
}

void take(const wire_body_04& body, ReferenceHeader& out) {
  const auto& arm = body.wire_body_04_u;
  switch (body.type) {
    case WIRE_ERROR:
      return take(arm.error, out);
    case WIRE_OPTIONAL:
      return take_option(arm.option, out);
    case WIRE_CONNPROP:
      out.set = copy_of(arm.connprop.now);
      out.first = copy_of(arm.connprop.fixed);
      return;
    case WIRE_REQPROP:
    case WIRE_UPDPROP:
      out.set = copy_of(arm.properties);
      return;
    case WIRE_RESPROP:
      out.first = copy_of(arm.resprop.done);
      out.second = copy_of(arm.resprop.rejected);
      out.set = copy_of(arm.resprop.instead);
      return;
    default:
      out.invalidate = arm.directed.invalidate;
      return take(arm.directed.lists, out);
  }
}

template <typename Message>
std::optional<ReferenceHeader> decode_xdr(XdrProc<Message> proc,
                                          std::span<const std::byte> message) {
  XDR xdr;
  xdrmem_create(&xdr, xdr_bytes_of(message), static_cast<u_int>(message.size()), XDR_DECODE);
  Message decoded = {};
  std::optional<ReferenceHeader> out;
  if (proc(&xdr, &decoded)) {
    out.emplace();
    out->length = xdr_getpos(&xdr);
    out->again = encode_xdr(proc, decoded, message.size());
    out->canonical = std::ranges::equal(out->again, message.first(out->length));
    out->xid = decoded.xid;
    out->version = decoded.vers;
    out->credits = decoded.credits;
    out->proc = decoded.body.type;
    take(decoded.body, *out);
  }
  xdr_free(reinterpret_cast<xdrproc_t>(proc), &decoded);
  return out;
}

// From here on: one of our headers, to be encoded.

// Our lists as rpcgen's: linked, and pointing into storage that this owns.
class LinkedLists {
 public:
  explicit LinkedLists(const ChunkLists& lists) {
    for (const Segment& s : std::span(lists.segments, lists.num_segments))
      segments_.push_back({s.handle, s.length, s.offset});
    for (const ReadChunk& chunk : std::span(lists.reads, lists.num_reads)) {
      for (const Segment& s : lists.of(chunk))
        reads_.push_back({chunk.position, {s.handle, s.length, s.offset}, nullptr});
    }
    for (const WriteChunk& chunk : std::span(lists.writes, lists.num_writes))
      writes_.push_back({to_xdr(chunk), nullptr});
    reply_ = to_xdr(lists.reply);
    lists_ = {link(reads_), link(writes_), lists.has_reply ? &reply_ : nullptr};
  }
  const wire_lists& lists() const { return lists_; }

 private:
  wire_chunk to_xdr(const WriteChunk& chunk) {
    return {{chunk.count, segments_.data() + chunk.first}};
  }
  template <typename Entry>
  static Entry* link(std::vector<Entry>& entries) {
    for (size_t i = 1; i < entries.size(); ++i)
      entries[i - 1].next = &entries[i];
    return entries.empty() ? nullptr : entries.data();
  }

  std::vector<wire_segment> segments_;
  std::vector<wire_read> reads_;
  std::vector<wire_write> writes_;
  wire_chunk reply_;
  wire_lists lists_;
};

void put(const Header& header, const wire_lists& lists, wire_body_1& out) {
  auto& arm = out.wire_body_1_u;
  if (header.type == MessageType::kMsgp) {
    arm.padded = {header.msgp_align, header.msgp_thresh, lists};
  } else if (header.type == MessageType::kError) {
    bool is_version = header.error.code == ErrorCode::kVersion;
    arm.error.code = is_version ? 1 : 2;
    if (is_version)
      arm.error.wire_error_1_u.range = {header.error.low, header.error.high};
  } else if (header.type != MessageType::kDone) {
    arm.lists = lists;
  }
}

void put(const Header& header, const wire_lists& lists, wire_body_00& out) {
  auto& arm = out.wire_body_00_u;
  if (header.type == MessageType::kError) {
    const ErrorBody& error = header.error;
    arm.error.code = error.code == ErrorCode::kVersion     ? 1
                     : error.code == ErrorCode::kBadOption ? 3
                                                           : 2;
    if (error.code == ErrorCode::kVersion)
      arm.error.wire_error_00_u.range = {error.low, error.high};
  } else {
    arm.lists = lists;
  }
}

uint32_t code_04(ErrorCode code) {
  switch (code) {
    case ErrorCode::kVersion:
      return 1;
    case ErrorCode::kBadHeader:
      return 2;
    case ErrorCode::kBadProc:
      return 3;
    case ErrorCode::kReadChunks:
      return 4;
    case ErrorCode::kWriteChunks:
      return 5;
    case ErrorCode::kSegments:
      return 6;
    case ErrorCode::kWriteResource:
      return 7;
    case ErrorCode::kReplyResource:
      return 8;
    case ErrorCode::kBadOption:
      return 9;
    default:
      return 10;
  }
}

void put(const Header& header, const wire_lists& lists, wire_body_04& out) {
  auto& arm = out.wire_body_04_u;
  if (header.type != MessageType::kError) {
    const bool is_reply = header.direction == Direction::kReply;
    arm.directed = {is_reply ? WIRE_REPLY : WIRE_CALL, header.invalidate, lists};
    return;
  }
  auto& error = arm.error.wire_error_04_u;
  arm.error.code = code_04(header.error.code);
  if (arm.error.code == 1)
    error.range = {header.error.low, header.error.high};
  else if (arm.error.code >= 4 && arm.error.code <= 6)
    error.most = header.error.maximum;
  else if (arm.error.code == 7)
    error.write = {header.error.index, header.error.length};
  else if (arm.error.code == 8)
    error.bytes = header.error.length;
}

template <typename Message>
Bytes encode(XdrProc<Message> proc, const Header& header) {
  constexpr size_t kUnused = 32;  // behind version 1's second error
  LinkedLists lists(header.lists);
  Message message = {};
  message.xid = header.xid;
  message.vers = header.version;
  message.credits = header.credits;
  message.body.type = static_cast<wire_type>(header.type);
  put(header, lists.lists(), message.body);
  return encode_xdr(proc, message, encoded_length(header) + kUnused);
}

}  // namespace

std::optional<ReferenceHeader> reference_decode(Wire wire, std::span<const std::byte> message) {
  switch (wire) {
    case Wire::kVersion1:
      return decode_xdr(xdr_wire_header_1, message);
    case Wire::kDraft00:
      return decode_xdr(xdr_wire_header_00, message);
    default:
      return decode_xdr(xdr_wire_header_04, message);
  }
}

Bytes reference_encode(const Header& header) {
  switch (header.wire) {
    case Wire::kVersion1:
      return encode(xdr_wire_header_1, header);
    case Wire::kDraft00:
      return encode(xdr_wire_header_00, header);
    default:
      return encode(xdr_wire_header_04, header);
  }
}

}  // namespace rrdk::proto

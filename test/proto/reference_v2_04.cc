#include "reference_lists.h"
#include "rpcrdma_v2_04.h"

namespace rrdk::proto {

namespace {

using Lists = LinkedLists<v2d04_read_list, v2d04_write_list, v2d04_write_chunk, v2d04_segment>;

std::vector<std::byte> copy_of(const char* bytes, u_int length) {
  auto data = std::as_bytes(std::span(bytes, length));
  return {data.begin(), data.end()};
}

std::vector<ReferenceProperty> copy_of(const v2d04_propset& set) {
  std::vector<ReferenceProperty> out;
  for (const v2d04_propval& p : std::span(set.v2d04_propset_val, set.v2d04_propset_len))
    out.push_back({p.which, copy_of(p.data.data_val, p.data.data_len)});
  return out;
}

std::vector<uint32_t> copy_of(const v2d04_propsubset& subset) {
  return {subset.v2d04_propsubset_val, subset.v2d04_propsubset_val + subset.v2d04_propsubset_len};
}

void take_error(const v2d04_error& error, ReferenceHeader& out) {
  const auto& arm = error.v2d04_error_u;
  out.error = error.err;
  switch (error.err) {
    case V2D04_ERR_VERS:
      out.low = arm.vrange.vers_low;
      out.high = arm.vrange.vers_high;
      return;
    case V2D04_ERR_READ_CHUNKS:
      out.maximum = arm.max_read_chunks;
      return;
    case V2D04_ERR_WRITE_CHUNKS:
      out.maximum = arm.max_write_chunks;
      return;
    case V2D04_ERR_SEGMENTS:
      out.maximum = arm.max_segments;
      return;
    case V2D04_ERR_WRITE_RESOURCE:
      out.index = arm.writeres.chunk_index;
      out.needed = arm.writeres.length_needed;
      return;
    case V2D04_ERR_REPLY_RESOURCE:
      out.needed = arm.length_needed;
      return;
    default:
      return;
  }
}

void take_chunks(const v2d04_chunk_lists& chunks, ReferenceHeader& out) {
  out.invalidate = chunks.inv_handle;
  take_lists(chunks.reads, chunks.writes, chunks.reply, out);
}

void take_body(const v2d04_body& body, ReferenceHeader& out) {
  const auto& arm = body.v2d04_body_u;
  switch (body.proc) {
    case V2D04_MSG:
      return take_chunks(arm.msg, out);
    case V2D04_NOMSG:
      return take_chunks(arm.nomsg, out);
    case V2D04_ERROR:
      return take_error(arm.error, out);
    case V2D04_OPTIONAL:
      out.option_type = arm.optional.opttype;
      out.option = copy_of(arm.optional.optinfo.optinfo_val, arm.optional.optinfo.optinfo_len);
      return;
    case V2D04_CONNPROP:
      out.set = copy_of(arm.connprop.start);
      out.first = copy_of(arm.connprop.nochg);
      return;
    case V2D04_REQPROP:
      out.set = copy_of(arm.reqprop.want);
      return;
    case V2D04_RESPROP:
      out.first = copy_of(arm.resprop.done);
      out.second = copy_of(arm.resprop.rejected);
      out.set = copy_of(arm.resprop.other);
      return;
    case V2D04_UPDPROP:
      out.set = copy_of(arm.updprop.now);
      return;
  }
}

void put_chunks(Lists& lists, const Header& header, v2d04_chunk_lists& out) {
  out.direction = header.direction == Direction::kReply ? V2D04_REPLY : V2D04_CALL;
  out.inv_handle = header.invalidate;
  lists.put(out.reads, out.writes, out.reply);
}

void put_error(const ErrorBody& error, v2d04_error& out) {
  auto& arm = out.v2d04_error_u;
  switch (error.code) {
    case ErrorCode::kVersion:
      out.err = V2D04_ERR_VERS;
      arm.vrange = {error.low, error.high};
      return;
    case ErrorCode::kBadHeader:
      out.err = V2D04_ERR_BAD_XDR;
      return;
    case ErrorCode::kBadProc:
      out.err = V2D04_ERR_INVAL_PROC;
      return;
    case ErrorCode::kReadChunks:
      out.err = V2D04_ERR_READ_CHUNKS;
      arm.max_read_chunks = error.maximum;
      return;
    case ErrorCode::kWriteChunks:
      out.err = V2D04_ERR_WRITE_CHUNKS;
      arm.max_write_chunks = error.maximum;
      return;
    case ErrorCode::kSegments:
      out.err = V2D04_ERR_SEGMENTS;
      arm.max_segments = error.maximum;
      return;
    case ErrorCode::kWriteResource:
      out.err = V2D04_ERR_WRITE_RESOURCE;
      arm.writeres = {error.index, error.length};
      return;
    case ErrorCode::kReplyResource:
      out.err = V2D04_ERR_REPLY_RESOURCE;
      arm.length_needed = error.length;
      return;
    case ErrorCode::kBadOption:
      out.err = V2D04_ERR_INVAL_OPTION;
      return;
    case ErrorCode::kSystem:
    case ErrorCode::kOther:
      out.err = V2D04_ERR_SYSTEM;
      return;
  }
}

}  // namespace

std::optional<ReferenceHeader> reference_decode_04(std::span<const std::byte> message) {
  return decode_xdr<v2d04_xprt_hdr>(xdr_v2d04_xprt_hdr, message, [](const auto& from, auto& out) {
    out.xid = from.xid;
    out.version = from.vers;
    out.credits = from.credit;
    out.proc = from.body.proc;
    take_body(from.body, out);
  });
}

std::vector<std::byte> reference_encode_04(const Header& header) {
  Lists lists(header.lists);
  v2d04_xprt_hdr message = {header.xid, header.version, header.credits, {}};
  auto& arm = message.body.v2d04_body_u;
  message.body.proc = static_cast<v2d04_proc>(header.type);
  if (header.type == MessageType::kMsg)
    put_chunks(lists, header, arm.msg);
  else if (header.type == MessageType::kNoMsg)
    put_chunks(lists, header, arm.nomsg);
  else if (header.type == MessageType::kError)
    put_error(header.error, arm.error);
  return encode_xdr<v2d04_xprt_hdr>(xdr_v2d04_xprt_hdr, message, encoded_length(header));
}

}  // namespace rrdk::proto

#include "reference_lists.h"
#include "rpcrdma_v2_00.h"

namespace rrdk::proto {

namespace {

using Lists = LinkedLists<v2d00_read_list, v2d00_write_list, v2d00_write_chunk, v2d00_segment>;

void take_body(const v2d00_body& body, ReferenceHeader& out) {
  const auto& arm = body.v2d00_body_u;
  switch (body.proc) {
    case V2D00_MSG:
      return take_lists(arm.msg.reads, arm.msg.writes, arm.msg.reply, out);
    case V2D00_NOMSG:
      return take_lists(arm.nomsg.reads, arm.nomsg.writes, arm.nomsg.reply, out);
    case V2D00_MSGP:
    case V2D00_DONE:
      return;
    case V2D00_ERROR:
      out.error = arm.error.err;
      if (arm.error.err == V2D00_ERR_VERS) {
        out.low = arm.error.v2d00_error_u.vrange.vers_low;
        out.high = arm.error.v2d00_error_u.vrange.vers_high;
      }
      return;
    case V2D00_OPTIONAL: {
      const auto& info = arm.optional.optinfo;
      auto data = std::as_bytes(std::span(info.optinfo_val, info.optinfo_len));
      out.option_type = arm.optional.opttype;
      out.option.assign(data.begin(), data.end());
      return;
    }
  }
}

void put_error(const ErrorBody& error, v2d00_error& out) {
  switch (error.code) {
    case ErrorCode::kVersion:
      out.err = V2D00_ERR_VERS;
      out.v2d00_error_u.vrange = {error.low, error.high};
      return;
    case ErrorCode::kBadOption:
      out.err = V2D00_ERR_INVAL_OPTION;
      return;
    default:
      out.err = V2D00_ERR_BAD_HEADER;
      return;
  }
}

}  // namespace

std::optional<ReferenceHeader> reference_decode_00(std::span<const std::byte> message) {
  return decode_xdr<v2d00_xprt_hdr>(xdr_v2d00_xprt_hdr, message, [](const auto& from, auto& out) {
    out.xid = from.xid;
    out.version = from.vers;
    out.credits = from.credit;
    out.proc = from.body.proc;
    take_body(from.body, out);
  });
}

std::vector<std::byte> reference_encode_00(const Header& header) {
  Lists lists(header.lists);
  v2d00_xprt_hdr message = {header.xid, header.version, header.credits, {}};
  auto& arm = message.body.v2d00_body_u;
  message.body.proc = static_cast<v2d00_proc>(header.type);
  if (header.type == MessageType::kMsg)
    lists.put(arm.msg.reads, arm.msg.writes, arm.msg.reply);
  else if (header.type == MessageType::kNoMsg)
    lists.put(arm.nomsg.reads, arm.nomsg.writes, arm.nomsg.reply);
  else if (header.type == MessageType::kError)
    put_error(header.error, arm.error);
  return encode_xdr<v2d00_xprt_hdr>(xdr_v2d00_xprt_hdr, message, encoded_length(header));
}

}  // namespace rrdk::proto

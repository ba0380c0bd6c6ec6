#include "reference_lists.h"
#include "rpcrdma_v1.h"

namespace rrdk::proto {

namespace {

using Lists = LinkedLists<xdr_read_list, xdr_write_list, xdr_write_chunk, xdr_rdma_segment>;

constexpr size_t kExtraBytes = 32;  // behind ERR_CHUNK

template <typename Body>
void take(const Body& body, ReferenceHeader& out) {
  take_lists(body.rdma_reads, body.rdma_writes, body.rdma_reply, out);
}
template <typename Body>
void put(Lists& lists, Body& body) {
  lists.put(body.rdma_reads, body.rdma_writes, body.rdma_reply);
}

void take_body(const rdma_body& body, ReferenceHeader& out) {
  switch (body.proc) {
    case RDMA_MSG:
      return take(body.rdma_body_u.rdma_msg, out);
    case RDMA_NOMSG:
      return take(body.rdma_body_u.rdma_nomsg, out);
    case RDMA_MSGP:
      out.align = body.rdma_body_u.rdma_msgp.rdma_align;
      out.thresh = body.rdma_body_u.rdma_msgp.rdma_thresh;
      return take(body.rdma_body_u.rdma_msgp, out);
    case RDMA_DONE:
      return;
    case RDMA_ERROR:
      const rpc_rdma_error& error = body.rdma_body_u.rdma_error;
      out.error = error.err;
      if (error.err == ERR_VERS) {
        out.low = error.rpc_rdma_error_u.range.rdma_vers_low;
        out.high = error.rpc_rdma_error_u.range.rdma_vers_high;
      }
      return;
  }
}

}  // namespace

std::optional<ReferenceHeader> reference_decode_v1(std::span<const std::byte> message) {
  return decode_xdr<rdma_msg>(xdr_rdma_msg, message, [](const rdma_msg& from, auto& out) {
    out.xid = from.rdma_xid;
    out.version = from.rdma_vers;
    out.credits = from.rdma_credit;
    out.proc = from.body.proc;
    take_body(from.body, out);
  });
}

std::vector<std::byte> reference_encode_v1(const Header& header) {
  Lists lists(header.lists);
  rdma_msg message = {};
  message.rdma_xid = header.xid;
  message.rdma_vers = header.version;
  message.rdma_credit = header.credits;
  switch (header.type) {
    case MessageType::kMsg:
      message.body.proc = RDMA_MSG;
      put(lists, message.body.rdma_body_u.rdma_msg);
      break;
    case MessageType::kNoMsg:
      message.body.proc = RDMA_NOMSG;
      put(lists, message.body.rdma_body_u.rdma_nomsg);
      break;
    case MessageType::kMsgp:
      message.body.proc = RDMA_MSGP;
      message.body.rdma_body_u.rdma_msgp.rdma_align = header.msgp_align;
      message.body.rdma_body_u.rdma_msgp.rdma_thresh = header.msgp_thresh;
      put(lists, message.body.rdma_body_u.rdma_msgp);
      break;
    case MessageType::kDone:
      message.body.proc = RDMA_DONE;
      break;
    case MessageType::kError: {
      message.body.proc = RDMA_ERROR;
      rpc_rdma_error& error = message.body.rdma_body_u.rdma_error;
      error.err = header.error.code == ErrorCode::kVersion ? ERR_VERS : ERR_CHUNK;
      if (error.err == ERR_VERS)
        error.rpc_rdma_error_u.range = {header.error.low, header.error.high};
      break;
    }
    default:
      break;
  }
  return encode_xdr<rdma_msg>(xdr_rdma_msg, message, encoded_length(header) + kExtraBytes);
}

}  // namespace rrdk::proto

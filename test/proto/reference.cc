#include "reference.h"

#include <algorithm>
#include <map>

#include "rpcrdma_v1.h"

namespace rrdk::proto {

namespace {

constexpr size_t kExtraBytes = 32;  // behind ERR_CHUNK

char* xdr_bytes_of(std::span<const std::byte> bytes) {
  return const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
}

Segment from_xdr(const xdr_rdma_segment& s) {
  return {s.handle, s.length, s.offset};
}

std::vector<Segment> from_xdr(const xdr_write_chunk& chunk) {
  std::vector<Segment> out;
  for (u_int i = 0; i < chunk.target.target_len; ++i)
    out.push_back(from_xdr(chunk.target.target_val[i]));
  return out;
}

template <typename Lists>
void take_lists(const Lists& lists, ReferenceHeader& out) {
  for (const xdr_read_list* r = lists.rdma_reads; r != nullptr; r = r->next)
    out.reads.push_back({r->entry.position, from_xdr(r->entry.target)});
  for (const xdr_write_list* w = lists.rdma_writes; w != nullptr; w = w->next)
    out.writes.push_back(from_xdr(w->entry));
  if (lists.rdma_reply != nullptr)
    out.reply = from_xdr(*lists.rdma_reply);
}

void take_body(const rdma_body& body, ReferenceHeader& out) {
  switch (body.proc) {
    case RDMA_MSG:
      return take_lists(body.rdma_body_u.rdma_msg, out);
    case RDMA_NOMSG:
      return take_lists(body.rdma_body_u.rdma_nomsg, out);
    case RDMA_MSGP:
      out.align = body.rdma_body_u.rdma_msgp.rdma_align;
      out.thresh = body.rdma_body_u.rdma_msgp.rdma_thresh;
      return take_lists(body.rdma_body_u.rdma_msgp, out);
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

std::vector<std::byte> encode_xdr(rdma_msg& message, size_t room) {
  std::vector<std::byte> out(room);
  XDR xdr;
  xdrmem_create(&xdr, xdr_bytes_of(out), static_cast<u_int>(room), XDR_ENCODE);
  out.resize(xdr_rdma_msg(&xdr, &message) ? xdr_getpos(&xdr) : 0);
  return out;
}

// Our lists as rpcgen's: linked, and pointing into storage that this owns.
class LinkedLists {
 public:
  explicit LinkedLists(const ChunkLists& lists) : lists_(lists) {
    for (const ReadChunk& chunk : std::span(lists.reads, lists.num_reads)) {
      for (const Segment& s : lists.of(chunk))
        reads_.push_back({{chunk.position, {s.handle, s.length, s.offset}}, nullptr});
    }
    for (const Segment& s : std::span(lists.segments, lists.num_segments))
      segments_.push_back({s.handle, s.length, s.offset});
    for (const WriteChunk& chunk : std::span(lists.writes, lists.num_writes))
      writes_.push_back({to_xdr(chunk), nullptr});
    reply_ = to_xdr(lists.reply);
    link(reads_);
    link(writes_);
  }

  template <typename Lists>
  void put(Lists& out) {
    out.rdma_reads = reads_.empty() ? nullptr : &reads_[0];
    out.rdma_writes = writes_.empty() ? nullptr : &writes_[0];
    out.rdma_reply = lists_.has_reply ? &reply_ : nullptr;
  }

 private:
  xdr_write_chunk to_xdr(const WriteChunk& chunk) {
    return {{chunk.count, segments_.data() + chunk.first}};
  }
  template <typename List>
  static void link(std::vector<List>& entries) {
    for (size_t i = 1; i < entries.size(); ++i)
      entries[i - 1].next = &entries[i];
  }

  const ChunkLists& lists_;
  std::vector<xdr_read_list> reads_;
  std::vector<xdr_write_list> writes_;
  std::vector<xdr_rdma_segment> segments_;
  xdr_write_chunk reply_;
};

uint64_t total(const std::vector<Segment>& segments) {
  uint64_t sum = 0;
  for (const Segment& s : segments)
    sum += s.length;
  return sum;
}

void check_limits(const ReferenceHeader& header, const Limits& limits, std::set<Verdict>& out) {
  size_t segments = header.reads.size();
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  std::set<uint32_t> positions;
  for (const ReferenceRead& read : header.reads) {
    read_bytes += read.segment.length;
    positions.insert(read.position);
  }
  for (const std::vector<Segment>& chunk : header.writes) {
    segments += chunk.size();
    write_bytes += total(chunk);
  }
  segments += header.reply ? header.reply->size() : 0;
  if (header.reads.size() > limits.read_segments || segments > limits.segments)
    out.insert(Verdict::kTooManySegments);
  positions.erase(0);  // the message's own chunk is no argument's
  if (positions.size() > limits.read_chunks)
    out.insert(Verdict::kTooManyReadChunks);
  if (header.writes.size() > limits.write_chunks)
    out.insert(Verdict::kTooManyWriteChunks);
  if (read_bytes > limits.read_bytes || write_bytes > limits.write_bytes ||
      (header.reply && total(*header.reply) > limits.write_bytes))
    out.insert(Verdict::kTooManyBytes);
}

// Builds the stream in the mind: what lies where, and what is left for between the chunks.
void check_stream(const ReferenceHeader& header, size_t behind, Direction role,
                  std::set<Verdict>& out) {
  std::map<uint32_t, uint64_t> chunks;  // Position to length
  for (const ReferenceRead& read : header.reads) {
    chunks[read.position] += read.segment.length;
    if (read.position % 4 != 0)
      out.insert(Verdict::kBadPosition);
  }
  uint64_t left = behind;
  bool is_long = header.proc == RDMA_NOMSG;
  if (is_long && chunks.contains(0))  // no reply has one
    role = Direction::kCall;
  if (!is_long && chunks.contains(0))
    out.insert(Verdict::kPositionZeroInMsg);
  if (is_long && role == Direction::kReply) {
    left = header.reply ? total(*header.reply) : 0;
    if (left == 0)
      out.insert(Verdict::kNoMessage);
  }
  if (is_long && role == Direction::kCall) {
    left = chunks.contains(0) ? chunks[0] : 0;
    if (left == 0)
      out.insert(Verdict::kNoMessage);
    chunks.erase(0);
  }
  uint64_t here = 0;
  for (auto [position, length] : chunks) {
    if (position < here) {
      out.insert(Verdict::kOverlap);
      return;
    }
    if (position - here > left) {
      out.insert(Verdict::kBeyondStream);
      return;
    }
    left -= position - here;
    here = position + length;
    while (here % 4 != 0)
      ++here;
  }
}

}  // namespace

std::optional<ReferenceHeader> reference_decode(std::span<const std::byte> message) {
  XDR xdr;
  xdrmem_create(&xdr, xdr_bytes_of(message), static_cast<u_int>(message.size()), XDR_DECODE);
  rdma_msg decoded = {};
  std::optional<ReferenceHeader> out;
  if (xdr_rdma_msg(&xdr, &decoded)) {
    out.emplace();
    out->length = xdr_getpos(&xdr);
    std::vector<std::byte> again = encode_xdr(decoded, message.size());
    out->canonical = std::ranges::equal(again, message.first(out->length));
    out->xid = decoded.rdma_xid;
    out->version = decoded.rdma_vers;
    out->credits = decoded.rdma_credit;
    out->proc = decoded.body.proc;
    take_body(decoded.body, *out);
  }
  xdr_free(reinterpret_cast<xdrproc_t>(xdr_rdma_msg), &decoded);
  return out;
}

std::vector<std::byte> reference_encode(const Header& header) {
  LinkedLists lists(header.lists);
  rdma_msg message = {};
  message.rdma_xid = header.xid;
  message.rdma_vers = header.version;
  message.rdma_credit = header.credits;
  switch (header.type) {
    case MessageType::kMsg:
      message.body.proc = RDMA_MSG;
      lists.put(message.body.rdma_body_u.rdma_msg);
      break;
    case MessageType::kNoMsg:
      message.body.proc = RDMA_NOMSG;
      lists.put(message.body.rdma_body_u.rdma_nomsg);
      break;
    case MessageType::kMsgp:
      message.body.proc = RDMA_MSGP;
      message.body.rdma_body_u.rdma_msgp.rdma_align = header.msgp_align;
      message.body.rdma_body_u.rdma_msgp.rdma_thresh = header.msgp_thresh;
      lists.put(message.body.rdma_body_u.rdma_msgp);
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
  return encode_xdr(message, encoded_length(header) + kExtraBytes);
}

std::set<Verdict> faults(const ReferenceHeader& header, size_t behind, Direction role,
                         const Limits& limits) {
  bool is_err_vers = header.proc == RDMA_ERROR && header.error == ERR_VERS;
  if (header.version != 1 && !is_err_vers)
    return {Verdict::kBadVersion};
  std::set<Verdict> out;
  if (!header.canonical)
    out.insert(Verdict::kBadBool);
  if (header.proc == RDMA_MSG || header.proc == RDMA_NOMSG || header.proc == RDMA_MSGP) {
    check_limits(header, limits, out);
    check_stream(header, behind, role, out);
  }
  return out;
}

}  // namespace rrdk::proto

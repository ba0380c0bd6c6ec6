// Putting a call together: the part of its stream that is left, inline or in the Position-Zero
// chunk, with the other Read chunks at their Positions (RFC 5666 section 3.4). Nothing is copied.
// That the Positions lie within the stream, the header's decoder has checked (V1-RL-08).
// Then what the upper layer sees of it.
#include <algorithm>
#include <cstring>

#include "proto/codec.h"
#include "xprt/responder.h"

namespace rrdk::xprt {

namespace {

constexpr std::byte kPad[3] = {};

uint32_t first_item_chunk(const Incoming& call) {
  return call.header.type == proto::MessageType::kNoMsg ? 1 : 0;
}

// Writes fragments, and takes them from what is left of the reduced stream.
class Assembler {
 public:
  explicit Assembler(Incoming& call) : call_(call) {
    if (first_item_chunk(call) == 0)
      left_ = {call.inline_data, call.inline_length};
  }

  void add_stream(uint64_t length) {
    while (length != 0) {
      if (left_.length == 0)
        left_ = next_sink();
      auto n = static_cast<uint32_t>(std::min<uint64_t>(length, left_.length));
      add({left_.data, n});
      left_ = {left_.data + n, left_.length - n};
      length -= n;
    }
  }
  // The Position-Zero chunk's sinks come first, the items' after them.
  void skip_sinks(uint64_t length) {
    for (; length != 0; ++item_sink_)
      length -= call_.sinks[item_sink_].length;
  }
  void add_item(uint64_t length) {
    for (uint64_t left = length; left != 0; ++item_sink_) {
      add({call_.sinks[item_sink_].data, call_.sinks[item_sink_].length});
      left -= call_.sinks[item_sink_].length;
    }
    if (xdr_pad(length) != 0)
      add({kPad, xdr_pad(length)});
  }
  std::span<const Fragment> message() const { return {call_.fragments.data(), count_}; }

 private:
  Fragment next_sink() {
    const MemorySpan& sink = call_.sinks[stream_sink_++];
    return {sink.data, sink.length};
  }
  void add(const Fragment& fragment) { call_.fragments[count_++] = fragment; }

  Incoming& call_;
  Fragment left_{};
  uint32_t stream_sink_ = 0;
  uint32_t item_sink_ = 0;
  uint32_t count_ = 0;
};

uint64_t stream_bytes(const Incoming& call) {
  return first_item_chunk(call) == 0 ? call.inline_length : call.header.lists.reads[0].length;
}

const Incoming& of(const IncomingCall& call) {
  return static_cast<const Incoming&>(call);
}

}  // namespace

void assemble(Incoming& call) noexcept {
  const proto::ChunkLists& lists = call.header.lists;
  Assembler out(call);
  uint64_t left = stream_bytes(call);
  uint64_t position = 0;
  uint32_t first = first_item_chunk(call);
  if (first != 0)
    out.skip_sinks(left);
  for (uint32_t i = first; i < lists.num_reads; ++i) {
    const proto::ReadChunk& chunk = lists.reads[i];
    out.add_stream(chunk.position - position);
    left -= chunk.position - position;
    out.add_item(chunk.length);
    position = chunk.position + chunk.length + xdr_pad(chunk.length);
  }
  out.add_stream(left);
  call.message = out.message();
}

std::optional<uint32_t> first_word(std::span<const Fragment> message) noexcept {
  std::byte word[4];
  uint32_t have = 0;
  for (const Fragment& f : message) {
    uint32_t n = std::min<uint32_t>(f.length, 4 - have);
    std::memcpy(word + have, f.data, n);
    have += n;
    if (have == 4)
      return xdr::load_u32(word);
  }
  return std::nullopt;
}

// What the upper layer sees of an incoming call.

std::span<const Fragment> IncomingCall::message() const {
  return of(*this).message;
}
uint32_t IncomingCall::xid() const {
  return of(*this).header.xid;
}
uint32_t IncomingCall::read_chunks() const {
  return of(*this).item_chunks;
}
bool IncomingCall::is_long() const {
  return of(*this).header.type == proto::MessageType::kNoMsg;
}
uint32_t IncomingCall::write_chunks() const {
  return of(*this).header.lists.num_writes;
}
Message& IncomingCall::reply() {
  return static_cast<Incoming*>(this)->reply;
}
uint32_t IncomingCall::inline_size() const {
  return of(*this).responder->send_threshold(of(*this)) - proto::min_header(of(*this).header.wire);
}
uint64_t IncomingCall::max_reply() const {
  return of(*this).responder->max_reply();
}
mem::Borrower& IncomingCall::borrower() const {
  return of(*this).responder->borrower();
}
bool IncomingCall::is_padded() const {
  return of(*this).header.type == proto::MessageType::kMsgp && of(*this).responder->reads_padding();
}
OpaquePadding IncomingCall::padding() const {
  return of(*this).responder->padding(of(*this));
}
Connection& IncomingCall::connection() const {
  return of(*this).responder->connection();
}

}  // namespace rrdk::xprt

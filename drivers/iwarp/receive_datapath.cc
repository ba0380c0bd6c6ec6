// Bytes in: the stream cut into FPDUs. Payload goes straight to where it belongs, as far as it did
// not come together with a header.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"
#include "drivers/iwarp/wire.h"

namespace rrdk::iwarp {

namespace {

// Reads from one socket before others have their turn.
constexpr uint32_t kMostFills = 16;

// One piece without a description of it: polls that find nothing are most of what there is.
ssize_t take(int socket, std::span<iovec> pieces) noexcept {
  if (pieces.size() == 1) {
    // datapath-allow: this is the wire
    return ::recv(socket, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  // datapath-allow: this is the wire
  return ::recvmsg(socket, &message, MSG_DONTWAIT);
}

}  // namespace

void QueuePair::pull(std::span<fabric::Completion> out, uint32_t& count) noexcept {
  for (uint32_t fills = 0;; ++fills) {
    while (parse(out, count)) {
    }
    if (stalled_ || status_.load(std::memory_order_relaxed) != Status::kEstablished)
      return;
    if (count == out.size() && in_.stage == Stage::kTrailer) {
      readable_ = true;  // there is more to report
      return;
    }
    if (!readable_ || fills == kMostFills || !fill())
      return;
  }
}

// False: TCP has nothing, or the connection is over.
bool QueuePair::fill() noexcept {
  if (!sink_alive())
    return false;
  const uint32_t rest = staged_end_ - staged_begin_;
  if (rest != 0 && staged_begin_ != 0)
    std::memmove(staging_.data(), staging_.data() + staged_begin_, rest);
  staged_begin_ = 0;
  staged_end_ = rest;
  std::array<iovec, fabric::kMaxSges + 1> pieces;
  uint32_t direct = 0;
  size_t count = 0;
  if (in_.stage == Stage::kPayload) {
    count = sink_pieces(in_.left, pieces.data());
    direct = in_.left;
  }
  const uint32_t room = kStaging - staged_end_;
  pieces[count++] = {staging_.data() + staged_end_, room};
  const ssize_t got = take(socket_fd_, std::span(pieces).first(count));
  if (got > 0) {
    const auto placed = static_cast<uint32_t>(std::min<ssize_t>(got, direct));
    took(placed);
    staged_end_ += static_cast<uint32_t>(got) - placed;
    // epoll tells of an end once, perhaps together with what came before it.
    readable_ = hung_up_ || got == static_cast<ssize_t>(direct) + room;
    return true;
  }
  if (got < 0 && errno == EINTR)
    return true;
  readable_ = false;
  if (got == 0)
    fail_with(broken_ || mid_message() ? End::kPeerLost : End::kPeerClosed);
  else if (errno != EAGAIN && errno != EWOULDBLOCK)
    fail_with(End::kPeerLost);
  return false;
}

// The stream ends where no honest peer ends it.
bool QueuePair::mid_message() const noexcept {
  return in_.stage != Stage::kHeader || staged_begin_ != staged_end_ || receiving_;
}

// A step. False: more bytes are needed, or a Receive, or room for a completion.
bool QueuePair::parse(std::span<fabric::Completion> out, uint32_t& count) noexcept {
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return false;
  switch (in_.stage) {
    case Stage::kHeader:
      return parse_header();
    case Stage::kPayload:
      return parse_payload();
    case Stage::kTrailer:
      return parse_trailer(out, count);
  }
  return false;
}

bool QueuePair::parse_header() noexcept {
  const uint32_t staged = staged_end_ - staged_begin_;
  if (staged < kLengthField + 1)
    return false;
  const std::byte* at = staging_.data() + staged_begin_;
  in_.ulpdu = load_u16(at);
  const uint32_t length = header_length(at[kLengthField]);
  if (in_.ulpdu < length)
    return refuse(Cause::kCatastrophic, device_.counts().bad_lengths);
  if (staged < kLengthField + length)
    return false;
  const SegmentFault fault = decode(at + kLengthField, in_.header);
  if (fault != SegmentFault::kNone)
    return refuse_header(fault);
  in_.payload = in_.left = in_.ulpdu - length;
  if (!begin_segment())
    return false;
  if (agreed_.crc)
    in_.crc = add_crc(kCrcStart, at, kLengthField + length);
  staged_begin_ += kLengthField + length;
  in_.stage = in_.left != 0 ? Stage::kPayload : Stage::kTrailer;
  return true;
}

// What came with the header. The rest comes with fill().
bool QueuePair::parse_payload() noexcept {
  const uint32_t length = std::min(staged_end_ - staged_begin_, in_.left);
  if (length == 0 || !sink_alive())
    return false;
  std::array<iovec, fabric::kMaxSges> pieces;
  const size_t count = sink_pieces(length, pieces.data());
  const std::byte* from = staging_.data() + staged_begin_;
  for (const iovec& piece : std::span(pieces).first(count)) {
    std::memcpy(piece.iov_base, from, piece.iov_len);
    from += piece.iov_len;
  }
  staged_begin_ += length;
  took(length);
  return true;
}

bool QueuePair::parse_trailer(std::span<fabric::Completion> out, uint32_t& count) noexcept {
  const uint32_t pad = pad_of(in_.ulpdu);
  if (staged_end_ - staged_begin_ < pad + kCrcField || count == out.size())
    return false;
  const std::byte* at = staging_.data() + staged_begin_;
  if (agreed_.crc && !crc_matches(at + pad, add_crc(in_.crc, at, pad)))
    return refuse(Cause::kMpaCrc, device_.counts().bad_crcs);
  staged_begin_ += pad + kCrcField;
  in_.stage = Stage::kHeader;
  return end_segment(out, count);
}

// `length` more bytes of the payload are where they belong.
void QueuePair::took(uint32_t length) noexcept {
  if (length == 0)
    return;
  if (agreed_.crc) {
    std::array<iovec, fabric::kMaxSges> pieces;
    const size_t count = sink_pieces(length, pieces.data());
    for (const iovec& piece : std::span(pieces).first(count))
      in_.crc = add_crc(in_.crc, static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
  }
  in_.left -= length;
  if (in_.sink == Sink::kRead)
    read_bytes_ += length;
  if (in_.left == 0)
    in_.stage = Stage::kTrailer;
}

// Where the next `length` bytes of the payload belong.
size_t QueuePair::sink_pieces(uint32_t length, iovec* to) noexcept {
  uint32_t skip = in_.payload - in_.left;
  if (in_.sink != Sink::kRead) {
    to[0] = {in_.to + skip, length};
    return 1;
  }
  skip += read_received_;
  const Record& r = record(read_head_);
  size_t count = 0;
  for (uint32_t i = 0; i != r.num_spans && length != 0; ++i) {
    const MemorySpan& span = spans_[(r.first_span + i) & span_mask_];
    if (skip >= span.length) {
      skip -= span.length;
      continue;
    }
    const uint32_t part = std::min(span.length - skip, length);
    to[count++] = {span.data + skip, part};
    length -= part;
    skip = 0;
  }
  return count;
}

// A key can die while a Write to it is half here: then no more of it is placed.
bool QueuePair::sink_alive() noexcept {
  if (in_.stage != Stage::kPayload || in_.sink != Sink::kWindow ||
      stags_.find(in_.header.stag) != nullptr)
    return true;
  return refuse(Cause::kTaggedInvalidStag, device_.counts().refused_keys);
}

}  // namespace rrdk::iwarp

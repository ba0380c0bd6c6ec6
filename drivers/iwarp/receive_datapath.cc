// Receiving bytes: the stream is cut into FPDUs. One system call takes what has come, up to the
// size of the staging buffer; small messages are placed from there. Large payload goes directly to
// its place, unless it came together with a header.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"
#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

namespace {

// What is read from one socket before others have their turn: this many reads, or this many bytes
// that are staged.
constexpr uint32_t kMostFills = 16;
constexpr uint32_t kMostStaged = 64 << 10;
// Receiving a part of a payload of this size counts against the budget of a pass.
constexpr uint32_t kLargePart = 16 << 10;
// Messages that the user of a lane may take in one poll.
constexpr uint32_t kMostInBurst = 64;
// Space after a large payload of a segment, for its trailer and the next header, and after the last
// payload of a message, which small ones may follow. More would only be copied twice.
constexpr uint32_t kRoomBehind = 64;
constexpr uint32_t kRoomForSmall = 4096;

// The first words of a Send that is one segment: last, DDP version 1; RDMAP version 1, opcode.
constexpr uint16_t kWholeSend = 0x4143;
constexpr uint16_t kWholeSendInvalidate = 0x4144;

// A single piece needs no description. Most polls find nothing, so this case matters.
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
  if (rest_length_ != 0 && !stage_rest()) [[unlikely]]
    return;
  uint32_t staged = 0;
  lane_turn_ = lane_runs() ? LaneTurn::kUsers : LaneTurn::kNone;
  lane_left_ = kMostInBurst;
  for (uint32_t fills = 0;; ++fills) {
    while (step(out, count)) {
    }
    const bool over = lane_turn_ == LaneTurn::kOver;
    held_back_ = (over || count == out.size()) && staged_begin_ != staged_end_;
    if (held_back_ || over || stalled_ ||
        status_.load(std::memory_order_relaxed) != Status::kEstablished || !readable_ ||
        fills == kMostFills || staged >= kMostStaged || (fills != 0 && cq_.known_over_budget()))
      return;
    const uint32_t before = staged_end_ - staged_begin_;
    if (!fill())
      break;
    staged += staged_end_ - staged_begin_ - before;
  }
  // The rest of a message is not there, and step() has waited for it.
  if (staged_begin_ != staged_end_ &&
      status_.load(std::memory_order_relaxed) == Status::kEstablished) {
    while (step(out, count)) {
    }
  }
}

// Returns false if more bytes, a Receive, or space for a completion are needed; or if it is
// another's turn.
bool QueuePair::step(std::span<fabric::Completion> out, uint32_t& count) noexcept {
  if (in_.stage != Stage::kHeader)
    return parse(out, count);
  if (lane_turn_ == LaneTurn::kOver)
    return false;
  StagedSend next;
  if (!staged_send(next)) {
    // A part of a message that may suit the lane: its rest has usually arrived. Otherwise it is
    // better kept in a Receive than here.
    const bool waits = lane_user_ != nullptr && (readable_ || receives_->empty()) && lane_runs();
    return !(waits && send_is_cut()) && parse(out, count);
  }
  if (lane_turn_ == LaneTurn::kUsers) {
    offer_burst();
    return status_.load(std::memory_order_relaxed) == Status::kEstablished;
  }
  if (receives_->empty() && lane_goes_on()) [[unlikely]] {
    // The next poll asks the user before this message needs a Receive.
    lane_turn_ = LaneTurn::kOver;
    return false;
  }
  return take_send(next, out, count) || parse(out, count);
}

// Returns false if TCP has nothing, or if the connection is over.
bool QueuePair::fill() noexcept {
  if (!sink_alive())
    return false;
  if (staging_ == nullptr && (staging_ = cq_.take_staging()) == nullptr)
    return false;
  RRDK_ASSERT(staged_begin_ <= staged_end_ && staged_end_ <= kStaging, staged_begin_, staged_end_);
  const uint32_t rest = staged_end_ - staged_begin_;
  if (rest != 0 && staged_begin_ != 0)
    std::memmove(staging_.get(), staging_.get() + staged_begin_, rest);
  staged_begin_ = 0;
  staged_end_ = rest;
  std::array<iovec, fabric::kMaxSges + 1> pieces;
  uint32_t direct = 0;
  size_t count = 0;
  if (in_.stage == Stage::kPayload) {
    if (in_.left >= kLargePart)
      cq_.begin_slow_work();
    count = sink_pieces(in_.left, pieces.data());
    direct = in_.left;
  }
  RRDK_ASSERT(direct == 0 || rest == 0, direct, rest);  // parse_payload() has placed what was here
  const uint32_t room = this->room();
  pieces[count++] = {staging_.get() + staged_end_, room};
  const ssize_t got = take(socket_fd_, std::span(pieces).first(count));
  if (got > 0) {
    const auto placed = static_cast<uint32_t>(std::min<ssize_t>(got, direct));
    took(placed);
    staged_end_ += static_cast<uint32_t>(got) - placed;
    if (placed != 0)
      (void)cq_.copied(placed);
    // epoll reports an end once, possibly together with what came before it.
    readable_ = hung_up_ || got == static_cast<ssize_t>(direct) + room;
    return true;
  }
  if (got < 0 && errno == EINTR)
    return true;
  readable_ = false;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return false;
  if (got < 0 && errno == ETIMEDOUT)
    host_gone_ = true;
  fail_with(got < 0 || broken_ || mid_message() ? End::kPeerLost : End::kPeerClosed);
  return false;
}

// Space in the staging buffer, for what comes next or after the payload in progress. A large
// payload can come only if there is a place for it. Small ones are taken together with what
// surrounds them, and so are the segments of a message that its sender cuts into small ones.
uint32_t QueuePair::room() const noexcept {
  uint32_t most = kStaging;
  const bool large = in_.stage == Stage::kPayload && in_.payload > kMostStagedWhole;
  if (large && !in_.header.last)
    most = kRoomBehind;
  else if (in_.stage == Stage::kPayload ? large
                                        : stags_.any_for_large_writes() || large_reads_ != 0)
    most = kRoomForSmall;
  return std::min(most, kStaging - staged_end_);
}

// Whether the stream ends where no honest peer ends it.
bool QueuePair::mid_message() const noexcept {
  return in_.stage != Stage::kHeader || staged_begin_ != staged_end_ || rest_length_ != 0 ||
         receiving_;
}

// Finds the next message if it is a Send of one segment, of which a part may have arrived.
bool QueuePair::send_begins(StagedSend& found) const noexcept {
  if (staged_end_ - staged_begin_ < kLengthField + kUntaggedHeader)
    return false;
  const std::byte* at = staging_.get() + staged_begin_;
  const std::byte* header = at + kLengthField;
  const uint32_t ulpdu = load_u16(at);
  const uint16_t control = load_u16(header);
  const bool kills = control == kWholeSendInvalidate;
  const bool in_order = load_u32(header + 6) == kSendQueue && load_u32(header + 10) == next_send_ &&
                        load_u32(header + 14) == 0;
  if ((control != kWholeSend && !kills) || !in_order || ulpdu < kUntaggedHeader || receiving_ ||
      agreed_.rtr_send)
    return false;
  found = {.payload = header + kUntaggedHeader,
           .length = ulpdu - kUntaggedHeader,
           .key = load_u32(header + 2),
           .kills = kills};
  return true;
}

// The same for a complete one, as most are.
bool QueuePair::staged_send(StagedSend& found) const noexcept {
  return send_begins(found) && frame_of(found) <= staged_end_ - staged_begin_;
}

bool QueuePair::send_is_cut() const noexcept {
  StagedSend found;
  return send_begins(found) && found.length <= kMostInLane &&
         frame_of(found) > staged_end_ - staged_begin_;
}

bool QueuePair::is_intact(const StagedSend& send) const noexcept {
  if (!agreed_.crc)
    return true;
  const uint32_t covered = frame_of(send) - kCrcField;
  const std::byte* const begin = send.payload - kLengthField - kUntaggedHeader;
  return crc_matches(begin + covered, add_crc(kCrcStart, begin, covered));
}

// A complete Send is checked at once and placed if it is valid. Returns false if it is not, or has
// to wait; then parse() handles it.
bool QueuePair::take_send(const StagedSend& send, std::span<fabric::Completion> out,
                          uint32_t& count) noexcept {
  if (count == out.size() || receives_->empty() || !heard_.load(std::memory_order_relaxed))
    return false;
  const fabric::ReceiveWr& receive = receives_->front();
  if (send.length > receive.buffer.length || (send.kills && stags_.find(send.key) == nullptr) ||
      !is_intact(send))
    return false;
  std::memcpy(receive.buffer.data, send.payload, send.length);
  if (send.kills)
    (void)kill(send.key);
  out[count++] = {.wr_id = receive.wr_id,
                  .owner = owner_,
                  .op = fabric::Op::kReceive,
                  .status = fabric::WcStatus::kSuccess,
                  .has_invalidated = send.kills,
                  .byte_length = send.length,
                  .invalidated_key = send.kills ? send.key : 0};
  receives_->pop();
  lane_turn_ = LaneTurn::kNone;
  ++next_send_;
  staged_begin_ += frame_of(send);
  return true;
}

// One step. Returns false if more bytes, a Receive, or space for a completion are needed.
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
  const std::byte* at = staging_.get() + staged_begin_;
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

// Places what came with the header. The rest comes with fill().
bool QueuePair::parse_payload() noexcept {
  const uint32_t length = std::min(staged_end_ - staged_begin_, in_.left);
  if (length == 0 || !sink_alive())
    return false;
  std::array<iovec, fabric::kMaxSges> pieces;
  const size_t count = sink_pieces(length, pieces.data());
  const std::byte* from = staging_.get() + staged_begin_;
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
  const std::byte* at = staging_.get() + staged_begin_;
  if (agreed_.crc && !crc_matches(at + pad, add_crc(in_.crc, at, pad)))
    return refuse(Cause::kMpaCrc, device_.counts().bad_crcs);
  staged_begin_ += pad + kCrcField;
  in_.stage = Stage::kHeader;
  return end_segment(out, count);
}

// `length` more bytes of the payload are in place.
void QueuePair::took(uint32_t length) noexcept {
  RRDK_ASSERT(length <= in_.left, length, in_.left);
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

// Returns where the next `length` bytes of the payload belong.
size_t QueuePair::sink_pieces(uint32_t length, iovec* to) noexcept {
  RRDK_ASSERT(length <= in_.left && in_.left <= in_.payload, length, in_.left);
  RRDK_ASSERT(in_.sink == Sink::kRead || in_.to != nullptr, in_.sink);
  uint32_t skip = in_.payload - in_.left;
  if (in_.sink != Sink::kRead) {
    to[0] = {in_.to + skip, length};
    return 1;
  }
  skip += read_received_;
  const Record& r = record(read_head_);
  RRDK_ASSERT(r.op == fabric::Op::kRead && !r.done && skip + length <= r.length, skip, r.length);
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

// A key can become invalid while a Write to it has arrived only in part: then no more is placed.
bool QueuePair::sink_alive() noexcept {
  if (in_.stage != Stage::kPayload || in_.sink != Sink::kWindow ||
      stags_.find(in_.header.stag) != nullptr)
    return true;
  return refuse(Cause::kTaggedInvalidStag, device_.counts().refused_keys);
}

}  // namespace rrdk::iwarp

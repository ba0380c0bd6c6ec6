// Bytes out: FPDUs of what was posted and of what the peer reads, gathered from where the data
// lies and handed to TCP a batch at a time.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"
#include "drivers/iwarp/wire.h"

namespace rrdk::iwarp {

using fabric::Op;

namespace {

// Up to so many bytes, an inline message with its headers, a copy costs less than telling the
// kernel where the pieces are.
constexpr size_t kSmall = 4096 + 128;

ssize_t hand_over(int socket, std::span<iovec> pieces) noexcept {
  size_t length = 0;
  for (const iovec& piece : pieces)
    length += piece.iov_len;
  if (length <= kSmall) {
    std::array<std::byte, kSmall> whole;
    std::byte* to = whole.data();
    for (const iovec& piece : pieces)
      to = std::copy_n(static_cast<const std::byte*>(piece.iov_base), piece.iov_len, to);
    // datapath-allow: this is the wire
    return ::send(socket, whole.data(), length, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  // datapath-allow: this is the wire
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

void QueuePair::transmit() noexcept {
  while (may_transmit()) {
    std::array<Fpdu, kBatch> batch;
    std::array<Cursor, kBatch> after;
    Cursor at = cursor_;
    uint32_t count = 0;
    for (uint32_t bytes = 0; count != kBatch && bytes < kBatchBytes; ++count) {
      if (!next_fpdu(at, batch[count]))
        break;
      bytes += batch[count].length;
      after[count] = at;
    }
    if (!may_transmit() || (count == 0 && partial_.length == 0))
      return;
    if (!push({batch.data(), count}, after.data()))
      return;
  }
}

bool QueuePair::may_transmit() const noexcept {
  return writable_ && status_.load(std::memory_order_relaxed) == Status::kEstablished;
}

// What is left of `partial_`, then `fpdus`; after[i] is where the i-th one leaves the cursor.
// False: TCP takes no more for now.
bool QueuePair::push(std::span<Fpdu> fpdus, const Cursor* after) noexcept {
  std::array<iovec, (kBatch + 1) * kIovsPerFpdu> pieces;
  size_t count = 0;
  if (partial_.length != 0)
    count += pieces_of(partial_, pieces.data());
  for (Fpdu& fpdu : fpdus)
    count += pieces_of(fpdu, pieces.data() + count);
  const ssize_t taken = hand_over(socket_fd_, std::span(pieces).first(count));
  if (taken < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
      return tcp_is_full();
    return errno == EINTR || sending_ended();
  }
  auto left = static_cast<uint64_t>(taken);
  if (partial_.length != 0) {
    const uint64_t rest = partial_.length - partial_.sent;
    partial_.sent += static_cast<uint32_t>(std::min(rest, left));
    if (left < rest)
      return tcp_is_full();
    left -= rest;
    sent(partial_);
    partial_.length = 0;
  }
  for (size_t i = 0; i != fpdus.size(); ++i) {
    const uint64_t length = fpdus[i].length;
    if (left < length) {
      if (left != 0) {
        partial_ = fpdus[i];
        partial_.sent = static_cast<uint32_t>(left);
        cursor_ = after[i];
      }
      return tcp_is_full();
    }
    left -= length;
    sent(fpdus[i]);
    cursor_ = after[i];
  }
  return true;
}

// Always false. The connection is over when what the peer sent before its end is read, too: it is
// in TCP still.
bool QueuePair::sending_ended() noexcept {
  writable_ = false;
  broken_ = hung_up_ = readable_ = true;
  cq_.activate(*this);
  return false;
}

// Epoll tells when there is room again.
bool QueuePair::tcp_is_full() noexcept {
  writable_ = false;
  Counters::count(device_.counts().tcp_waits);
  return false;
}

void QueuePair::sent(const Fpdu& fpdu) noexcept {
  if (fpdu.ends_record)
    record(fpdu.record).done = true;
}

// The parts of an FPDU that TCP does not have yet.
size_t QueuePair::pieces_of(Fpdu& fpdu, iovec* to) noexcept {
  size_t count = 0;
  uint32_t skip = fpdu.sent;
  const auto add = [&](void* data, size_t length) {
    const auto skipped = static_cast<uint32_t>(std::min<size_t>(skip, length));
    skip -= skipped;
    if (skipped != length)
      to[count++] = {static_cast<std::byte*>(data) + skipped, length - skipped};
  };
  add(fpdu.head.data(), fpdu.head_length);
  for (const iovec& piece : std::span(fpdu.body).first(fpdu.num_bodies))
    add(piece.iov_base, piece.iov_len);
  add(fpdu.tail.data(), fpdu.tail_length);
  return count;
}

// Messages are not mixed: one that is begun is ended. Then answers to the peer's Reads and requests
// of ours take turns.
bool QueuePair::next_fpdu(Cursor& at, Fpdu& fpdu) noexcept {
  if (at.in_record)
    return next_of_record(at, fpdu);
  if (at.in_response)
    return next_of_response(at, fpdu);
  if (!may_speak_)
    return false;
  const bool has_record = ready_record(at);
  if (at.response != response_tail_ && !(at.turn && has_record))
    return next_of_response(at, fpdu);
  return has_record && next_of_record(at, fpdu);
}

// Goes past what needs no sending. False: there is nothing, or it has to wait.
bool QueuePair::ready_record(Cursor& at) noexcept {
  while (at.record != tail_ && record(at.record).done)
    ++at.record;
  if (at.record == tail_)
    return false;
  if (record(at.record).op != Op::kRead)
    return true;
  if (at.read_number - 1 - reads_answered_ < agreed_.ord)
    return true;
  Counters::count(device_.counts().read_waits);
  return false;
}

bool QueuePair::next_of_record(Cursor& at, Fpdu& fpdu) noexcept {
  Record& r = record(at.record);
  if (r.op == Op::kRead) {
    r.read_number = at.read_number++;
    begin_fpdu(fpdu,
               {.last = true,
                .opcode = Opcode::kReadRequest,
                .queue = kReadQueue,
                .number = r.read_number},
               kReadRequestBody);
    encode(ReadRequest{.sink_stag = r.read_number,
                       .sink_offset = 0,
                       .length = r.length,
                       .source_stag = r.key,
                       .source_offset = r.remote_address},
           fpdu.head.data() + fpdu.head_length);
    fpdu.head_length += kReadRequestBody;
  } else {
    const bool tagged = r.op == Op::kWrite;
    const uint32_t payload = std::min(r.length - at.offset, room_in_fpdu(tagged));
    SegmentHeader header{.tagged = tagged, .last = at.offset + payload == r.length};
    if (tagged) {
      header.opcode = Opcode::kWrite;
      header.stag = r.key;
      header.offset = r.remote_address + at.offset;
    } else {
      header.opcode = r.op == Op::kSend ? Opcode::kSend : Opcode::kSendInvalidate;
      header.stag = r.op == Op::kSend ? 0 : r.invalidate_key;
      header.queue = kSendQueue;
      header.number = at.send_number;
      header.offset = at.offset;
    }
    begin_fpdu(fpdu, header, payload);
    add_bodies(fpdu, r, at.offset, payload);
    at.offset += payload;
    at.in_record = !header.last;
    fpdu.ends_record = header.last;
    fpdu.record = at.record;
    at.send_number += !tagged && header.last;
  }
  end_fpdu(fpdu);
  if (!at.in_record) {
    ++at.record;
    at.offset = 0;
    at.turn = false;
  }
  return true;
}

// The key is looked at for every FPDU: it can have died since the last one.
bool QueuePair::next_of_response(Cursor& at, Fpdu& fpdu) noexcept {
  const Response& response = responses_[at.response & response_mask_];
  const uint32_t payload = std::min(response.length - at.offset, room_in_fpdu(/*tagged=*/true));
  const Stags::Window* source = nullptr;
  if (payload != 0) {
    fault_read_ = response.number;
    source = window(response.source_stag, response.source_offset, response.length,
                    fabric::Rights::kRemoteRead, kReadCauses);
    if (source == nullptr)
      return false;
    fault_read_ = 0;
  }
  const bool last = at.offset + payload == response.length;
  begin_fpdu(fpdu,
             {.tagged = true,
              .last = last,
              .opcode = Opcode::kReadResponse,
              .stag = response.sink_stag,
              .offset = response.sink_offset + at.offset},
             payload);
  if (source != nullptr) {
    const uint64_t skip = response.source_offset - source->address() + at.offset;
    fpdu.body[fpdu.num_bodies++] = {source->base + skip, payload};
    fpdu.response_key = response.source_stag;
  }
  end_fpdu(fpdu);
  at.offset += payload;
  at.in_response = !last;
  if (last) {
    ++at.response;
    at.offset = 0;
    at.turn = true;
  }
  return true;
}

uint32_t QueuePair::room_in_fpdu(bool tagged) const noexcept {
  return max_ulpdu_ - (tagged ? kTaggedHeader : kUntaggedHeader);
}

void QueuePair::begin_fpdu(Fpdu& fpdu, const SegmentHeader& header, uint32_t payload) noexcept {
  const uint32_t length = encode(header, fpdu.head.data() + kLengthField);
  const uint32_t ulpdu = length + payload;
  store_u16(fpdu.head.data(), static_cast<uint16_t>(ulpdu));
  fpdu.head_length = static_cast<uint8_t>(kLengthField + length);
  fpdu.tail_length = static_cast<uint8_t>(pad_of(ulpdu) + kCrcField);
  fpdu.length = kLengthField + ulpdu + fpdu.tail_length;
  fpdu.num_bodies = 0;
  fpdu.ends_record = false;
  fpdu.response_key = 0;
  fpdu.sent = 0;
}

void QueuePair::add_bodies(Fpdu& fpdu, const Record& r, uint32_t skip, uint32_t length) noexcept {
  for (uint32_t i = 0; i != r.num_spans && length != 0; ++i) {
    const MemorySpan& span = spans_[(r.first_span + i) & span_mask_];
    if (skip >= span.length) {
      skip -= span.length;
      continue;
    }
    const uint32_t part = std::min(span.length - skip, length);
    fpdu.body[fpdu.num_bodies++] = {span.data + skip, part};
    length -= part;
    skip = 0;
  }
}

void QueuePair::end_fpdu(Fpdu& fpdu) noexcept {
  fpdu.tail.fill(std::byte{0});
  if (!agreed_.crc)
    return;
  uint32_t crc = add_crc(kCrcStart, fpdu.head.data(), fpdu.head_length);
  for (const iovec& piece : std::span(fpdu.body).first(fpdu.num_bodies))
    crc = add_crc(crc, static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
  const uint32_t pad = fpdu.tail_length - kCrcField;
  crc = add_crc(crc, fpdu.tail.data(), pad);
  store_crc(fpdu.tail.data() + pad, crc);
}

// A Write of nothing to nowhere: says that we are there, and does no more (RFC 5040 section 5.1;
// RFC 6581 section 8 for connections that begin with one).
void QueuePair::queue_empty_write() noexcept {
  begin_fpdu(partial_, {.tagged = true, .last = true, .opcode = Opcode::kWrite}, 0);
  end_fpdu(partial_);
}

void QueuePair::queue_empty_read() noexcept {
  begin_fpdu(partial_,
             {.last = true,
              .opcode = Opcode::kReadRequest,
              .queue = kReadQueue,
              .number = cursor_.read_number++},
             kReadRequestBody);
  encode(ReadRequest{}, partial_.head.data() + partial_.head_length);
  partial_.head_length += kReadRequestBody;
  end_fpdu(partial_);
}

}  // namespace rrdk::iwarp

// Sending bytes: FPDUs of what was posted and of what the peer reads, as many as fit into one
// system call. If TCP takes a part of an FPDU, only the number of these bytes is remembered: the
// same FPDU is built again from the cursor's position.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"
#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

using fabric::Op;

namespace {

// Bytes given to TCP before other queue pairs have their turn: with a peer that reads without end,
// and takes the data fast enough, TCP would never be full.
constexpr size_t kMostAtOnce = 1 << 20;
// Giving TCP this much counts against the budget of a pass.
constexpr size_t kLarge = 32 << 10;

}  // namespace

ssize_t Outbox::send(int socket) noexcept {
  ssize_t taken;
  if (pieces_ - first_ == 1) {
    const iovec& piece = list_[first_];
    // datapath-allow: this is the wire
    taken = ::send(socket, piece.iov_base, piece.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
  } else {
    msghdr message{};
    message.msg_iov = list_.data() + first_;
    message.msg_iovlen = pieces_ - first_;
    // datapath-allow: this is the wire
    taken = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  return taken < 0 ? -errno : taken;
}

// A poll gives TCP something in any case; what is posted may wait for one.
void QueuePair::transmit(Asked asked) noexcept {
  unsent_ = lane_.begun();
  if (unsent_)
    return;  // nothing goes before the rest of a message that has begun
  if (!kept_.empty() || (cursor_.record == tail_ && cursor_.response == response_tail_))
    send_lane();
  size_t given = 0;
  while ((cursor_.record != tail_ || cursor_.response != response_tail_ || !kept_.empty()) &&
         may_transmit()) {
    Outbox& out = cq_.outbox();
    out.clear();
    const size_t lent = lend_lane(out);
    if (!kept_.empty())
      out.lend(kept_.data() + kept_sent_, kept_.size() - kept_sent_);
    Cursor at = cursor_;
    Fpdu fpdu;
    while (out.has_room() && next_fpdu(at, fpdu))
      append(fpdu, out);
    if (!may_transmit())
      return;
    if (out.empty()) {
      cursor_ = at;  // past requests that need no sending
      return;
    }
    const size_t length = out.length();
    const bool large = length >= kLarge;
    if (large && (given != 0 || asked == Asked::kByPost) && cq_.known_over_budget()) {
      unsent_ = true;
      cq_.activate(*this);
      return;
    }
    if (large)
      cq_.begin_slow_work();
    given += length;
    if (!push(out, lent, at))
      return;
    if ((large && cq_.copied(length)) || given >= kMostAtOnce) {
      unsent_ = true;
      return;
    }
  }
}

bool QueuePair::may_transmit() const noexcept {
  return writable_ && status_.load(std::memory_order_relaxed) == Status::kEstablished;
}

// `after` is the cursor's position when TCP has everything. The first `lent` bytes are the lane's.
// Returns false if TCP takes no more for now.
bool QueuePair::push(Outbox& out, size_t lent, const Cursor& after) noexcept {
  out.drop_front(cut_);
  const ssize_t taken = out.send(socket_fd_);
  const ssize_t posted = took_lane(taken, lent);
  if (taken != static_cast<ssize_t>(out.length())) [[unlikely]]
    return pushed(posted);
  drop_kept();
  cut_ = 0;
  for (uint64_t i = cursor_.record; i != after.record; ++i)
    record(i).done = record(i).done || record(i).op != Op::kRead;
  cursor_ = after;
  return true;
}

// TCP took `taken` bytes, fewer than it was given: first of what was kept, then of the FPDUs from
// the cursor on. Or `taken` is -errno. Returns false if TCP takes no more for now.
bool QueuePair::pushed(ssize_t taken) noexcept {
  RRDK_ASSERT(kept_sent_ <= kept_.size(), kept_sent_, kept_.size());
  if (taken < 0) {
    if (taken == -EAGAIN || taken == -EWOULDBLOCK || taken == -ENOBUFS)
      return tcp_is_full();
    return taken == -EINTR || sending_ended(static_cast<int>(-taken));
  }
  auto left = static_cast<size_t>(taken);
  const size_t rest = kept_.size() - kept_sent_;
  if (left < rest) {
    kept_sent_ += left;
    return tcp_is_full();
  }
  drop_kept();
  left -= rest;
  for (Cursor at = cursor_;; cursor_ = at) {
    Fpdu fpdu;
    if (!next_fpdu(at, fpdu)) [[unlikely]]
      return false;
    RRDK_ASSERT(cut_ < fpdu.length(), cut_, fpdu.length());
    if (left < fpdu.length() - cut_) {
      cut_ += static_cast<uint32_t>(left);
      if (cut_ != 0)
        pin(fpdu);
      return tcp_is_full();
    }
    left -= fpdu.length() - cut_;
    cut_ = 0;
    if (fpdu.ends_record)
      record(fpdu.record).done = true;
  }
}

// The FPDU at the cursor has begun: nothing that comes meanwhile may go before the rest of it.
void QueuePair::pin(const Fpdu& fpdu) noexcept {
  RRDK_ASSERT(cut_ != 0 && cut_ < fpdu.length(), cut_);
  cursor_.in_response = fpdu.answers;
  cursor_.in_record = !fpdu.answers;
  if (cursor_.in_record)
    cursor_.record = fpdu.record;
}

// Always returns false. The connection is over only when what the peer sent before its end has been
// read, too, since TCP still has it.
bool QueuePair::sending_ended(int error) noexcept {
  if (error == ETIMEDOUT)
    host_gone_ = true;
  writable_ = false;
  broken_ = hung_up_ = readable_ = true;
  cq_.activate(*this);
  return false;
}

// Epoll reports when there is space again.
bool QueuePair::tcp_is_full() noexcept {
  writable_ = false;
  Counters::count(device_.counts().tcp_waits);
  return false;
}

// Messages are not mixed: one that has begun is finished first. Then answers to the peer's Reads
// and requests of ours take turns.
bool QueuePair::next_fpdu(Cursor& at, Fpdu& fpdu) noexcept {
  if (at.in_response)
    return next_of_response(at, fpdu);
  if (!at.in_record) {
    if (!may_speak_)
      return false;
    const bool has_record = ready_record(at);
    if (at.response != response_tail_ && !(at.turn && has_record))
      return next_of_response(at, fpdu);
    if (!has_record)
      return false;
  }
  next_of_record(at, fpdu);
  return true;
}

// Skips what needs no sending. Returns false if there is nothing, or if it has to wait.
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

void QueuePair::next_of_record(Cursor& at, Fpdu& fpdu) noexcept {
  Record& r = record(at.record);
  RRDK_ASSERT(at.record != tail_ && !r.done && at.offset <= r.length, at.record, at.offset);
  fpdu.record = at.record;
  fpdu.answers = false;
  fpdu.num_bodies = 0;
  fpdu.header = {.tagged = r.op == Op::kWrite, .last = true};
  if (r.op == Op::kRead) {
    r.read_number = at.read_number++;
    fpdu.header.opcode = Opcode::kReadRequest;
    fpdu.header.queue = kReadQueue;
    fpdu.header.number = r.read_number;
    fpdu.payload = kReadRequestBody;
    encode(ReadRequest{.sink_stag = r.read_number,
                       .sink_offset = 0,
                       .length = r.length,
                       .source_stag = r.key,
                       .source_offset = r.remote_address},
           fpdu.request.data());
    fpdu.body[fpdu.num_bodies++] = {fpdu.request.data(), kReadRequestBody};
    fpdu.ends_record = false;  // its data does
  } else {
    fpdu.payload = std::min(r.length - at.offset, room_in_fpdu(fpdu.header.tagged));
    fpdu.header.last = at.offset + fpdu.payload == r.length;
    if (fpdu.header.tagged) {
      fpdu.header.opcode = Opcode::kWrite;
      fpdu.header.stag = r.key;
      fpdu.header.offset = r.remote_address + at.offset;
    } else {
      fpdu.header.opcode = r.op == Op::kSend ? Opcode::kSend : Opcode::kSendInvalidate;
      fpdu.header.stag = r.op == Op::kSend ? 0 : r.invalidate_key;
      fpdu.header.queue = kSendQueue;
      fpdu.header.number = at.send_number;
      fpdu.header.offset = at.offset;
      at.send_number += fpdu.header.last;
    }
    add_bodies(fpdu, r, at.offset, fpdu.payload);
    fpdu.ends_record = fpdu.header.last;
  }
  at.in_record = !fpdu.header.last;
  at.offset += fpdu.payload;
  if (at.in_record)
    return;
  ++at.record;
  at.offset = 0;
  at.turn = false;
}

// The key is checked for every FPDU, since it can have become invalid after the last one.
bool QueuePair::next_of_response(Cursor& at, Fpdu& fpdu) noexcept {
  const Response& response = responses_[at.response & response_mask_];
  RRDK_ASSERT(at.response != response_tail_ && at.offset <= response.length, at.offset);
  fpdu.payload = std::min(response.length - at.offset, room_in_fpdu(/*tagged=*/true));
  fpdu.num_bodies = 0;
  fpdu.answers = true;
  fpdu.ends_record = false;
  if (fpdu.payload != 0) {
    fault_read_ = response.number;
    const Stags::Window* source = window(response.source_stag, response.source_offset,
                                         response.length, fabric::Rights::kRemoteRead, kReadCauses);
    if (source == nullptr)
      return false;
    fault_read_ = 0;
    const uint64_t skip = response.source_offset - source->address() + at.offset;
    if (source->runs == 0) [[likely]]
      fpdu.body[fpdu.num_bodies++] = {source->base + skip, fpdu.payload};
    else
      add_runs(fpdu, *source, static_cast<uint32_t>(skip), at);
  }
  fpdu.header = {.tagged = true,
                 .last = at.offset + fpdu.payload == response.length,
                 .opcode = Opcode::kReadResponse,
                 .stag = response.sink_stag,
                 .offset = response.sink_offset + at.offset};
  at.in_response = !fpdu.header.last;
  at.offset += fpdu.payload;
  if (at.in_response)
    return true;
  ++at.response;
  at.offset = at.run = at.before_run = 0;
  at.turn = true;
  return true;
}

// Adds what lies from byte `from` of the list's memory on. The payload gets shorter if it lies in
// more runs than the FPDU takes. The cursor keeps the place, so that a long response does not walk
// through its list again for each FPDU.
void QueuePair::add_runs(Fpdu& fpdu, const Stags::Window& source, uint32_t from,
                         Cursor& at) noexcept {
  const std::span runs(reinterpret_cast<const MemorySpan*>(source.base), source.runs);
  uint32_t left = fpdu.payload;
  while (left != 0 && fpdu.num_bodies != fpdu.body.size() && at.run != runs.size()) {
    const MemorySpan& run = runs[at.run];
    const uint32_t skip = from - at.before_run;
    if (skip >= run.length) {
      at.before_run += run.length;
      ++at.run;
      continue;
    }
    const uint32_t part = std::min(run.length - skip, left);
    fpdu.body[fpdu.num_bodies++] = {run.data + skip, part};
    from += part;
    left -= part;
  }
  RRDK_ASSERT(left < fpdu.payload && (left == 0 || fpdu.num_bodies == fpdu.body.size()), left);
  fpdu.payload -= left;
}

uint32_t QueuePair::room_in_fpdu(bool tagged) const noexcept {
  RRDK_ASSERT(max_ulpdu_ > kUntaggedHeader && max_ulpdu_ <= kMaxUlpdu, max_ulpdu_);
  return max_ulpdu_ - (tagged ? kTaggedHeader : kUntaggedHeader);
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
  RRDK_ASSERT(length == 0, length);  // the spans have all that was posted
}

void QueuePair::append(const Fpdu& fpdu, Outbox& out) const noexcept {
  const uint32_t ulpdu = fpdu.ulpdu();
  const uint32_t head = kLengthField + ulpdu - fpdu.payload;
  std::byte* at = out.extend(head);
  store_u16(at, static_cast<uint16_t>(ulpdu));
  (void)encode(fpdu.header, at + kLengthField);
  uint32_t crc = agreed_.crc ? add_crc(kCrcStart, at, head) : 0;
  const bool small = fpdu.payload <= Outbox::kMostCopied;
  for (const iovec& piece : std::span(fpdu.body).first(fpdu.num_bodies)) {
    if (small)
      std::memcpy(out.extend(piece.iov_len), piece.iov_base, piece.iov_len);
    else
      out.lend(piece.iov_base, piece.iov_len);
    if (agreed_.crc)
      crc = add_crc(crc, static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
  }
  const uint32_t pad = pad_of(ulpdu);
  finish_fpdu(out.extend(pad + kCrcField), pad, agreed_.crc, crc);
}

}  // namespace rrdk::iwarp

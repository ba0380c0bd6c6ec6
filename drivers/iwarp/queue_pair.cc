#include "drivers/iwarp/queue_pair.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <new>

#include "base/assert.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

using fabric::WcStatus;

namespace {

// Spans of posted requests, on average.
constexpr uint32_t kSpansPerSend = 4;
// The first size of a queue that grows when it is full: most connections have few requests posted
// at a time.
constexpr uint32_t kFirstRecords = 4;
constexpr uint32_t kFirstResponses = 4;
// Memory that a queue pair keeps although TCP has taken everything.
constexpr size_t kMostKeptFree = 256;
static_assert(kSpansPerSend * kFirstRecords >= fabric::kMaxSges);

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::create(Device& device,
                                                     const fabric::QueuePairOptions& options) {
  if (auto checked = drivers::check(options, device.capabilities()); !checked)
    return tl::unexpected(checked.error());
  if (Result<void> added = static_cast<CompletionQueue*>(options.cq)->add(); !added)
    return tl::unexpected(added.error());
  return std::unique_ptr<QueuePair>(new QueuePair(device, options));
}

QueuePair::QueuePair(Device& device, const fabric::QueuePairOptions& options)
    : device_(device),
      cq_(static_cast<CompletionQueue&>(*options.cq)),
      owner_(options.owner),
      reads_(std::min(options.reads, device.capabilities().max_reads)),
      send_limit_(options.send_wrs),
      record_mask_(std::min(std::bit_ceil(options.send_wrs), kFirstRecords) - 1),
      span_mask_(kSpansPerSend * (record_mask_ + 1) - 1),
      records_(record_mask_ + 1),
      spans_(span_mask_ + 1),
      copies_(new std::byte[(record_mask_ + 1) * kMaxCopied]),
      responses_(kFirstResponses),
      response_mask_(responses_.size() - 1),
      stags_(options.keys),
      own_receives_(options.srq == nullptr ? options.receive_wrs : 0),
      shared_receives_(options.srq == nullptr
                           ? nullptr
                           : &static_cast<drivers::SharedReceiveQueue*>(options.srq)->queue()),
      receives_(shared_receives_ != nullptr ? shared_receives_ : &own_receives_) {}

// Doubles the size. Returns false if that is as large as was requested, or if there is no memory.
bool QueuePair::grow() noexcept try {
  const uint64_t records = 2 * (record_mask_ + 1);
  if (records > std::bit_ceil(send_limit_))
    return false;
  std::vector<Record> larger(records);
  std::vector<MemorySpan> spans(kSpansPerSend * records);
  auto copies = std::make_unique_for_overwrite<std::byte[]>(records * kMaxCopied);
  for (uint64_t i = span_head_; i != span_tail_; ++i)
    spans[i & (spans.size() - 1)] = spans_[i & span_mask_];
  for (uint64_t i = head_; i != tail_; ++i) {
    const Record& r = larger[i & (records - 1)] = record(i);
    RRDK_ASSERT(!r.copied || r.length <= kMaxCopied || r.num_spans == 0, r.length);
    if (!r.copied || r.num_spans == 0)
      continue;
    MemorySpan& span = spans[r.first_span & (spans.size() - 1)];
    std::byte* const copy = copies.get() + (i & (records - 1)) * kMaxCopied;
    std::copy_n(span.data, span.length, copy);
    span.data = copy;
  }
  record_mask_ = records - 1;
  span_mask_ = spans.size() - 1;
  records_ = std::move(larger);
  spans_ = std::move(spans);
  copies_ = std::move(copies);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// A peer has at most agreed_.ird Reads that wait for their responses.
bool QueuePair::grow_responses() noexcept try {
  RRDK_ASSERT(response_tail_ - cursor_.response == responses_.size());
  std::vector<Response> larger(2 * responses_.size());
  for (uint64_t i = cursor_.response; i != response_tail_; ++i)
    larger[i & (larger.size() - 1)] = responses_[i & response_mask_];
  responses_ = std::move(larger);
  response_mask_ = responses_.size() - 1;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

QueuePair::~QueuePair() {
  if (staging_ != nullptr)
    cq_.give_staging(std::move(staging_));
  {
    const std::lock_guard lock(device_.control().mutex());
    attempts_.clear();
    device_.silence_watch().remove(*this);
    device_.control().forget(*this);
  }
  disconnect();
  receives_->stop_waiting(*this);
  cq_.remove(*this);
  part();
  device_.control().forget(*this);
}

Peer QueuePair::peer() const {
  return drivers::peer_between(kScheme, near_, far_);
}

// A message without a Receive waits. A held queue pair takes Receives from its own queue, which is
// empty.
void QueuePair::hold_receives(bool hold) {
  RRDK_ASSERT(shared_receives_ == nullptr || own_receives_.empty());
  if (shared_receives_ == nullptr)
    return;
  receives_->stop_waiting(*this);
  receives_ = hold ? &own_receives_ : shared_receives_;
  cq_.activate(*this);
}

uint32_t QueuePair::post_receive(std::span<const fabric::ReceiveWr> wrs) {
  if (shared_receives_ != nullptr)
    return 0;
  const uint32_t taken = own_receives_.post(wrs);
  if (status_.load(std::memory_order_relaxed) == Status::kError)
    cq_.activate(*this);
  return taken;
}

// The end of the data path, whichever end is at fault.
void QueuePair::fail_with(End end) noexcept {
  const Status before = status_.exchange(Status::kError, std::memory_order_acq_rel);
  if (before == Status::kError)
    return;
  cq_.begin_slow_work();
  end_ = before == Status::kEstablished ? end : End::kNeverConnected;
  if (before == Status::kEstablished) {
    lane_.end();
    send_lane();
    cq_.forget_quiet(*this);
    cq_.unwatch(socket_fd_);
    if (end == End::kPeerLost)
      Counters::count(device_.counts().peers_lost);
    pack_parting(end);
    stags_.kill_all();
    close_half();
  }
  settle(end);
  ended_.store(true, std::memory_order_release);
  cq_.activate(*this);
  device_.control().nudge(*this);
  (void)cq_.over_budget();
}

// Decides what becomes of each request that was still in progress.
void QueuePair::settle(End end) noexcept {
  RRDK_ASSERT(end != End::kNotYet && tail_ - head_ <= send_limit_, head_, tail_);
  bool lost = end == End::kPeerLost;
  for (uint64_t i = head_; i != tail_; ++i) {
    Record& r = record(i);
    if (r.done)
      continue;
    r.done = true;
    if (r.quiet)
      continue;
    r.status = std::exchange(lost, false) ? WcStatus::kPeerLost : WcStatus::kFlushed;
    if (refused_read_ != 0 && r.op == fabric::Op::kRead && r.read_number == refused_read_)
      r.status = WcStatus::kRemoteAccess;
  }
}

uint32_t QueuePair::flush(std::span<fabric::Completion> out) noexcept {
  RRDK_ASSERT(status_.load(std::memory_order_relaxed) == Status::kError);
  uint32_t n = reap_sends(out);
  const auto report = [&](uint64_t wr_id, WcStatus status) {
    out[n++] = {.wr_id = wr_id,
                .owner = owner_,
                .op = fabric::Op::kReceive,
                .status = status,
                .has_invalidated = false,
                .byte_length = 0,
                .invalidated_key = 0};
  };
  if (receiving_ && n < out.size()) {
    report(receive_.wr_id, receive_status_);
    receiving_ = false;
  }
  for (; !receiving_ && !own_receives_.empty() && n < out.size(); own_receives_.pop())
    report(own_receives_.front().wr_id, WcStatus::kFlushed);
  return n;
}

// The peer learns about it at once; the control thread sends what TCP does not take now.
void QueuePair::close_half() noexcept {
  if (!parting_.empty()) {
    const ssize_t sent =
        ::send(socket_fd_, parting_.data(), parting_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    parting_.erase(parting_.begin(), parting_.begin() + std::max<ssize_t>(sent, 0));
  }
  if (parting_.empty())
    ::shutdown(socket_fd_, SHUT_WR);
}

// Builds a whole FPDU, in memory of its own.
std::vector<std::byte> QueuePair::framed(const SegmentHeader& header,
                                         std::span<const iovec> payload) const {
  std::vector<std::byte> bytes(kLengthField + kUntaggedHeader);
  bytes.resize(kLengthField + encode(header, bytes.data() + kLengthField));
  for (const iovec& piece : payload) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  const auto ulpdu = static_cast<uint32_t>(bytes.size()) - kLengthField;
  store_u16(bytes.data(), static_cast<uint16_t>(ulpdu));
  const uint32_t crc = agreed_.crc ? add_crc(kCrcStart, bytes.data(), bytes.size()) : 0;
  bytes.resize(bytes.size() + pad_of(ulpdu) + kCrcField);
  finish_fpdu(&bytes[kLengthField + ulpdu], pad_of(ulpdu), agreed_.crc, crc);
  return bytes;
}

// TCP has taken a part of an FPDU whose memory must not be read any more: copies the rest. Rare: a
// Read Response did not fit into a full socket, and then its key became invalid.
void QueuePair::keep_rest() {
  if (cut_ == 0)
    return;
  const uint32_t fault = fault_read_;  // of another one, after it
  Cursor after = cursor_;
  Fpdu fpdu;
  if (!next_fpdu(after, fpdu))
    return;
  fault_read_ = fault;
  RRDK_ASSERT(kept_.empty() && cut_ < fpdu.length(), kept_.size(), cut_);
  kept_ = framed(fpdu.header, std::span(fpdu.body).first(fpdu.num_bodies));
  kept_sent_ = cut_;
  cut_ = 0;
  cursor_ = after;
}

// An empty Write without a destination: it only says that we are there (RFC 5040 section 5.1; RFC
// 6581 section 8 for connections that begin with one).
void QueuePair::keep_empty_write() {
  RRDK_ASSERT(kept_.empty() && cut_ == 0, kept_.size(), cut_);
  kept_ = framed({.tagged = true, .last = true, .opcode = Opcode::kWrite}, {});
}

void QueuePair::keep_empty_read() {
  RRDK_ASSERT(kept_.empty() && cut_ == 0, kept_.size(), cut_);
  std::array<std::byte, kReadRequestBody> body;
  encode(ReadRequest{}, body.data());
  const iovec payload{body.data(), body.size()};
  kept_ = framed({.last = true,
                  .opcode = Opcode::kReadRequest,
                  .queue = kReadQueue,
                  .number = cursor_.read_number++},
                 {&payload, 1});
}

// Whole FPDUs, except for what TCP has of the first. Rare: TCP is full.
void QueuePair::keep(std::span<const std::byte> bytes) noexcept try {
  RRDK_ASSERT(cut_ == 0, cut_);
  kept_.insert(kept_.end(), bytes.begin(), bytes.end());
  cq_.activate(*this);
} catch (const std::bad_alloc&) {
  fail_with(End::kLocalError);
}

void QueuePair::drop_kept() noexcept {
  if (kept_.capacity() > kMostKeptFree)
    kept_ = {};
  kept_.clear();
  kept_sent_ = 0;
  ++kept_rounds_;
}

// What the control thread still sends: the rest of an FPDU, and why we end.
void QueuePair::pack_parting(End end) {
  if (end == End::kPeerLost || end == End::kPeerClosed)
    return;
  keep_rest();
  parting_.assign(kept_.begin() + static_cast<ptrdiff_t>(kept_sent_), kept_.end());
  if (end != End::kRefused && end != End::kLocalError)
    return;
  Terminate terminate{.cause = end == End::kRefused ? cause_ : Cause::kLocalCatastrophic};
  if (fault_read_ != 0) {
    terminate.has_segment = true;
    terminate.segment = {
        .last = true, .opcode = Opcode::kReadRequest, .queue = kReadQueue, .number = fault_read_};
    terminate.ulpdu = kUntaggedHeader + kReadRequestBody;
  } else if (end == End::kRefused) {
    terminate.has_segment = true;
    terminate.segment = in_.header;
    terminate.ulpdu = static_cast<uint16_t>(in_.ulpdu);
  }
  std::array<std::byte, kMaxTerminate> body;
  const uint32_t length = encode(terminate, body);
  const iovec payload{body.data(), length};
  const std::vector<std::byte> last =
      framed({.last = true, .opcode = Opcode::kTerminate, .queue = kTerminateQueue, .number = 1},
             {&payload, 1});
  parting_.insert(parting_.end(), last.begin(), last.end());
  Counters::count(device_.counts().terminates_sent);
}

}  // namespace rrdk::iwarp

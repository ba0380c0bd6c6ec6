#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "rrdk/xdr.h"

namespace rrdk {

// The length of the stream, each buffer's used part and the limit are all multiples of four between
// two operations. So a word never straddles buffers, and there is always space for a pad after its
// item.

namespace {

uint64_t padded(uint64_t length) {
  return length + xdr_pad(length);
}

}  // namespace

void Message::clear() noexcept {
  pieces_.clear();
  buffers_.clear();
  stream_length_ = 0;
  borrows_ = false;
}

// Keeps the first buffer if its size is suitable. That buffer always belongs to the encoder itself:
// an item's comes after its count.
void Message::restart_slowly(uint32_t first_size) noexcept {
  while (buffers_.size() > 1)
    buffers_.pop_back();
  if (!buffers_.empty() && !is_fit(buffers_.front(), first_size))
    buffers_.clear();
}

Encoder::Encoder(Message& message, Memory& memory, uint32_t first_size, uint64_t limit) noexcept
    : first_size_(first_size), limit_(limit & ~uint64_t{3}), message_(message), memory_(memory) {
  if (message_.restart(first_size))
    write_to(message_.buffers_.front());
}

// Returns whether `length` more bytes are allowed; if not, the encoder fails.
bool Encoder::fits(uint64_t length) noexcept {
  if (ok() && length <= limit_ - position())
    return true;
  fail(EncoderFault::kLimit);
  return false;
}

void Encoder::limit_run() noexcept {
  uint64_t run = std::min(static_cast<uint64_t>(buffer_end_ - next_), limit_ - position());
  end_ = ok() ? next_ + run : next_;
}

void Encoder::finish() noexcept {
  finish_here();
}

// Begins another buffer, of `wanted` bytes if that is available and sensible.
bool Encoder::next_buffer(uint64_t wanted) noexcept {
  finish();
  uint64_t size =
      std::max<uint64_t>(first_size_, std::min<uint64_t>(wanted, memory_.largest_buffer()));
  Buffer buffer = memory_.get(static_cast<uint32_t>(size));
  if (!buffer && size > first_size_)
    buffer = memory_.get(first_size_);
  if (!buffer) {
    fail(EncoderFault::kNoMemory);
    return false;
  }
  write_to(buffer);
  // datapath-allow: grows once; a message keeps its capacity from call to call
  message_.buffers_.push_back(std::move(buffer));
  return true;
}

void Encoder::write_to(const Buffer& buffer) noexcept {
  start_ = next_ = buffer.data();
  buffer_end_ = next_ + buffer.capacity();
  region_ = buffer.region();
  limit_run();
}

// Makes space for a run of `length` bytes if there is none.
bool Encoder::room(uint32_t length) noexcept {
  if (next_ != end_ || !fits(length) || !next_buffer(length))
    return false;
  return static_cast<size_t>(end_ - next_) >= length;
}

void Encoder::copy(const std::byte* from, uint64_t length) noexcept {
  while (length != 0) {
    if (next_ == end_ && !next_buffer(length))
      return;
    uint64_t n = std::min(length, static_cast<uint64_t>(end_ - next_));
    std::memcpy(next_, from, n);
    next_ += n;
    from += n;
    length -= n;
  }
}

void Encoder::pad(uint64_t length) noexcept {
  if (!ok())
    return;
  for (uint32_t n = xdr_pad(length); n != 0; --n)
    *next_++ = std::byte{0};
}

void Encoder::put_fixed(std::span<const std::byte> bytes) noexcept {
  if (!fits(padded(bytes.size())))
    return;
  copy(bytes.data(), bytes.size());
  pad(bytes.size());
}

// The pad of such a run is written at once, so that the stream has a valid length whatever follows;
// further bytes of the run overwrite it. The pad is right before `next_`, in the same buffer, even
// if the piece has been finished.
void Encoder::put_bytes(std::span<const std::byte> bytes) noexcept {
  if (!ok() || bytes.empty())
    return;
  if (next_ != open_at_)
    open_pad_ = 0;
  size_t taken = std::min<size_t>(open_pad_, bytes.size());
  std::span<const std::byte> rest = bytes.subspan(taken);
  if (!fits(padded(rest.size())))
    return;
  if (taken != 0)
    std::memcpy(next_ - open_pad_, bytes.data(), taken);
  open_pad_ -= static_cast<uint32_t>(taken);
  if (!rest.empty()) {
    copy(rest.data(), rest.size());
    pad(rest.size());
    open_pad_ = xdr_pad(rest.size());
  }
  open_at_ = next_;
}

void Encoder::put_opaque(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() > UINT32_MAX || !fits(4 + padded(bytes.size())))
    return fail(EncoderFault::kLimit);
  put_u32(static_cast<uint32_t>(bytes.size()));
  put_fixed(bytes);
}

void Encoder::put_opaque(const ItemView& bytes) noexcept {
  if (!fits(4 + padded(bytes.size())))
    return;
  put_u32(bytes.size());
  bytes.for_each([this](const std::byte* run, size_t length) {
    if (ok())
      copy(run, length);
  });
  pad(bytes.size());
}

// All runs but the last are whole words: a pad is implied only after the last.
bool Encoder::can_refer_to(const ItemView& bytes) const noexcept {
  constexpr uint32_t kWorthIt = 4096;
  constexpr uint32_t kMostRuns = 8;
  if (bytes.size() < kWorthIt)
    return false;
  uint32_t runs = 0;
  uint64_t before = 0;
  bool good = true;
  bytes.for_each([&](const std::byte* run, size_t length) {
    good = good && xdr_pad(before) == 0 &&
           memory_.span_of(run, static_cast<uint32_t>(length)).region != kNoRegion;
    before += length;
    ++runs;
  });
  return good && runs <= kMostRuns;
}

void Encoder::put_view(const ItemView& bytes) noexcept {
  if (!ok() || !can_refer_to(bytes))
    return put_opaque(bytes);
  if (!fits(4 + padded(bytes.size())))
    return;
  put_u32(bytes.size());
  if (!ok())
    return;
  finish();
  bytes.for_each([this](const std::byte* run, size_t length) {
    // datapath-allow: grows once; a message keeps its capacity from call to call
    message_.pieces_.push_back({memory_.span_of(run, static_cast<uint32_t>(length)), true, false});
  });
  message_.stream_length_ += padded(bytes.size());
  message_.borrows_ = true;
  limit_run();
}

void Encoder::put_string(std::string_view text) noexcept {
  put_opaque(std::as_bytes(std::span(text)));
}

bool Encoder::put_reference(MemorySpan bytes, Ddp ddp) noexcept {
  if (!fits(4 + padded(bytes.length)))
    return false;
  put_u32(bytes.length);
  if (!ok())
    return false;
  bool eligible = ddp == Ddp::kEligible;
  if (bytes.length != 0 || eligible) {
    finish();
    // datapath-allow: grows once; a message keeps its capacity from call to call
    message_.pieces_.push_back({bytes, true, eligible});
    message_.stream_length_ += padded(bytes.length);
    limit_run();
  }
  return true;
}

void Encoder::put_item(MemorySpan bytes, Ddp ddp) noexcept {
  if (!ok())
    return;
  ++items_;
  if (!memory_.contains(bytes)) [[unlikely]]
    return fail(EncoderFault::kInvalidMemory);
  message_.borrows_ |= bytes.length != 0;
  put_reference(bytes, ddp);
}

namespace {

bool continues(const MemorySpan& run, const MemorySpan& next) {
  return run.region == next.region && run.data + run.length == next.data;
}

// Calls fn(const MemorySpan&) for each run of memory: segments that follow each other are one, and
// empty ones are left out. Their sum must be less than 4 GiB.
template <typename Fn>
void for_each_run(std::span<const MemorySpan> segments, Fn&& fn) {
  MemorySpan run;
  for (const MemorySpan& segment : segments) {
    if (segment.length == 0)
      continue;
    if (run.length != 0 && continues(run, segment)) {
      run.length += segment.length;
      continue;
    }
    if (run.length != 0)
      fn(run);
    run = segment;
  }
  if (run.length != 0)
    fn(run);
}

}  // namespace

// What the segments of an item are together.
struct Encoder::Joined {
  uint32_t runs = 0;
  uint32_t length = 0;
  MemorySpan last;
};

// Returns false, and makes the encoder fail, if they are no item.
bool Encoder::join(std::span<const MemorySpan> segments, Joined& joined) noexcept {
  uint64_t length = 0;
  for (const MemorySpan& segment : segments) {
    if (!memory_.contains(segment)) [[unlikely]] {
      fail(EncoderFault::kInvalidMemory);
      return false;
    }
    length += segment.length;
  }
  if (length > UINT32_MAX) {
    fail(EncoderFault::kLimit);
    return false;
  }
  for_each_run(segments, [&](const MemorySpan& run) {
    ++joined.runs;
    joined.last = run;
  });
  joined.length = static_cast<uint32_t>(length);
  if (joined.runs > kMaxItemSegments)
    fail(EncoderFault::kTooManySegments);
  return ok();
}

// The list is in a buffer that the message owns, so that it lives exactly as long as the piece.
void Encoder::put_item(std::span<const MemorySpan> segments, Ddp ddp) noexcept {
  if (!ok())
    return;
  ++items_;
  Joined joined;
  if (!join(segments, joined)) [[unlikely]]
    return;
  message_.borrows_ |= joined.length != 0;
  if (joined.runs <= 1) {
    put_reference(joined.last, ddp);
    return;
  }
  Buffer list = memory_.get(joined.runs * static_cast<uint32_t>(sizeof(MemorySpan)));
  if (!list)
    return fail(EncoderFault::kNoMemory);
  auto* to = reinterpret_cast<MemorySpan*>(list.data());
  for_each_run(segments,
               [&](const MemorySpan& run) { ::new (static_cast<void*>(to++)) MemorySpan(run); });
  if (!put_reference({list.data(), joined.length, kNoRegion}, ddp))
    return;
  message_.pieces_.back().segments = static_cast<uint16_t>(joined.runs);
  // datapath-allow: grows once; a message keeps its capacity from call to call
  message_.buffers_.push_back(std::move(list));
}

void Encoder::put_item(Buffer buffer, uint32_t length, Ddp ddp) noexcept {
  if (!ok())
    return;
  ++items_;
  if (!buffer)
    return fail(EncoderFault::kNoMemory);
  if (buffer.capacity() < length || !memory_.contains(buffer.first(length))) [[unlikely]]
    return fail(EncoderFault::kInvalidMemory);
  if (put_reference(buffer.first(length), ddp))
    // datapath-allow: grows once; a message keeps its capacity from call to call
    message_.buffers_.push_back(std::move(buffer));
}

Encoder::Mark Encoder::mark() const noexcept {
  return {message_.pieces_.size(),
          message_.buffers_.size(),
          start_,
          next_,
          buffer_end_,
          region_,
          message_.stream_length_,
          fault_,
          items_,
          next_ == open_at_ ? open_pad_ : 0};
}

void Encoder::rewind(const Mark& mark) noexcept {
  // datapath-allow: shrinks
  message_.pieces_.resize(mark.pieces);
  // datapath-allow: shrinks
  message_.buffers_.resize(mark.buffers);
  message_.stream_length_ = mark.stream_length;
  start_ = mark.start;
  next_ = mark.next;
  buffer_end_ = mark.buffer_end;
  region_ = mark.region;
  fault_ = mark.fault;
  items_ = mark.items;
  open_at_ = next_;
  open_pad_ = mark.open_pad;
  if (open_pad_ != 0)
    std::memset(next_ - open_pad_, 0, open_pad_);
  limit_run();
}

}  // namespace rrdk

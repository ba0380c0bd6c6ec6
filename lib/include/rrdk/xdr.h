/**
 * XDR (RFC 4506) over scattered memory. A Decoder reads a stream that lies in several pieces
 * without joining them; an Encoder writes a stream into pool buffers and takes bulk items by
 * reference.
 *
 *   uint64_t offset = args.get_u64();
 *   rrdk::ItemView data = args.get_item(max_bytes);   // count, bytes, pad
 *   if (!args.at_end()) return std::move(call).reject(rrdk::AcceptStat::kGarbageArgs);
 *
 * Errors: both are "sticky": after the first failure every further operation does nothing and
 * returns zeros or empty views, so a handler can decode everything and test ok() once. Nothing here
 * throws, and every length from the peer is checked against what remains before it is used.
 *
 * Direct data placement: an item that the upper-layer binding calls DDP-eligible is written with
 * put_item(..., Ddp::kEligible) and read with get_item(). The transport moves it by RDMA or leaves
 * it inline; the caller sees no difference.
 *
 * Lifetime: a Decoder and its views own nothing, see ItemView. What an Encoder refers to must not
 * change for as long as put_item() says.
 *
 * Threads: an object belongs to one thread at a time.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "rrdk/memory.h"

namespace rrdk {

// Declared for Encoder's friends.
class Call;
namespace service {
class PlainCalls;
}

namespace xdr {

/** The big-endian words of RFC 4506 section 4, at any alignment. */
inline uint32_t load_u32(const std::byte* from) noexcept {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return __builtin_bswap32(word);
}
inline uint64_t load_u64(const std::byte* from) noexcept {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return __builtin_bswap64(word);
}
inline void store_u32(std::byte* to, uint32_t value) noexcept {
  value = __builtin_bswap32(value);
  std::memcpy(to, &value, sizeof value);
}
inline void store_u64(std::byte* to, uint64_t value) noexcept {
  value = __builtin_bswap64(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace xdr

/** One contiguous piece of a stream that is read. Does not own. */
struct Fragment {
  const std::byte* data;
  uint32_t length;
};

/**
 * Bytes of a stream, in place. They lie in one or more fragments, usually in one; contiguous()
 * returns true then.
 *
 * Lifetime: a view owns nothing. One read from ServerCall::args() is valid until that call ends, by
 * reply() or otherwise, even if the ServerCall is moved. One read from Call::results() is valid
 * until the Call's next begin() or its destruction. Copy what must live longer.
 */
class ItemView {
 public:
  ItemView() = default;
  /** `length` bytes from `offset` bytes into fragments[0], which the caller has checked. */
  ItemView(std::span<const Fragment> fragments, uint32_t offset, uint32_t length) noexcept
      : fragments_(fragments), offset_(offset), length_(length) {}

  uint32_t size() const noexcept { return length_; }
  bool empty() const noexcept { return length_ == 0; }
  /** Returns true if all bytes lie in one fragment: data() is then the whole item. */
  bool contiguous() const noexcept {
    return length_ == 0 || fragments_[0].length - offset_ >= length_;
  }
  const std::byte* data() const noexcept {
    return length_ == 0 ? nullptr : fragments_[0].data + offset_;
  }
  /** Calls fn(const std::byte*, size_t) for each contiguous run, in order. */
  template <typename Fn>
  void for_each(Fn&& fn) const {
    uint32_t left = length_;
    uint32_t skip = offset_;
    for (const Fragment& f : fragments_) {
      if (left == 0)
        return;
      uint32_t n = f.length - skip < left ? f.length - skip : left;
      if (n != 0)
        fn(f.data + skip, static_cast<size_t>(n));
      left -= n;
      skip = 0;
    }
  }
  /** Copies the item to `to`, which must have size() bytes. */
  void copy_to(std::byte* to) const noexcept;
  /** The first `length` bytes; `length` is at most size(). */
  ItemView first(uint32_t length) const noexcept { return {fragments_, offset_, length}; }

 private:
  std::span<const Fragment> fragments_;
  uint32_t offset_ = 0;
  uint32_t length_ = 0;
};

/**
 * Pad bytes before the data of a received message (RFC 5666 section 3.9, rrdk/rfc5666.h): each
 * opaque<> and string<> of at least `threshold` bytes begins at a multiple of `align` bytes, a
 * power of two, from the start of the Send, which has `send_length` bytes and ends where the stream
 * does.
 */
struct OpaquePadding {
  uint32_t align = 0;  ///< 0: no pad bytes
  uint32_t threshold = 0;
  uint32_t send_length = 0;
};

/** Reads an XDR stream. Does not own the fragments or the array that describes them. */
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::span<const Fragment> stream) noexcept;
  /**
   * For a reduced stream, whose eligible results were placed elsewhere (RFC 8166 section 4.4).
   * `placed[k]` holds the bytes of the k-th result in order; get_item() returns them after
   * comparing their number with the count in the stream.
   */
  Decoder(std::span<const Fragment> stream, std::span<const ItemView> placed) noexcept;

  /**
   * For the rest of a stream of which `before` bytes were read elsewhere: position() begins there,
   * and length() counts them. `left` is not copied: like `placed`, it must outlive the Decoder and
   * all views read from it.
   */
  Decoder(const Fragment& left, uint32_t before, std::span<const ItemView> placed = {}) noexcept
      : next_(left.data),
        end_(left.data + left.length),
        length_(uint64_t{before} + left.length),
        fragment_(&left),
        last_(&left + 1),
        placed_(placed) {}

  Decoder(Fragment&& left, uint32_t before, std::span<const ItemView> placed = {}) = delete;

  bool ok() const noexcept { return ok_; }
  /** Bytes not yet read; 0 after a failure. */
  uint64_t remaining() const noexcept { return rest_ + static_cast<uint64_t>(end_ - next_); }
  /** Bytes read so far, with pads but without placed items; all bytes after a failure. */
  uint64_t position() const noexcept { return length_ - remaining(); }
  /** Bytes of the whole stream. */
  uint64_t length() const noexcept { return length_; }
  /**
   * Returns true if nothing failed and nothing is left, as must be the case after a procedure's
   * arguments.
   */
  bool at_end() const noexcept { return ok_ && remaining() == 0; }
  /** Makes the decoder fail, for a caller that finds a value it cannot accept. */
  void fail() noexcept;
  /** Skips pad bytes from here on. */
  void expect_padding(const OpaquePadding& padding) noexcept { padding_ = padding; }

  uint32_t get_u32() noexcept {
    if (end_ - next_ < 4) [[unlikely]]
      return get_u32_slow();
    uint32_t value = xdr::load_u32(next_);
    next_ += 4;
    return value;
  }
  uint64_t get_u64() noexcept {
    if (end_ - next_ < 8) [[unlikely]]
      return get_u64_slow();
    uint64_t value = xdr::load_u64(next_);
    next_ += 8;
    return value;
  }
  int32_t get_i32() noexcept { return static_cast<int32_t>(get_u32()); }
  int64_t get_i64() noexcept { return static_cast<int64_t>(get_u64()); }
  /** Fails on a word other than 0 and 1 (RFC 4506 section 4.4). */
  bool get_bool() noexcept;
  /**
   * opaque<max>: count, bytes, pad. Fails if the count exceeds `max` or what remains. Pad bytes
   * must be present, but may have any value (some senders leave old memory contents there).
   */
  ItemView get_opaque(uint32_t max) noexcept;
  /** opaque[length]: bytes and pad, no count. */
  ItemView get_fixed(uint32_t length) noexcept;
  /**
   * The next `length` bytes without pad, for code that reads XDR byte by byte, as rpcgen's
   * x_getbytes does, and reads the pad itself. Fails if fewer remain.
   */
  ItemView get_bytes(uint32_t length) noexcept;
  /**
   * All that remains, for another decoder; at_end() is true afterwards. Fails if that is 4 GiB or
   * more.
   */
  ItemView get_rest() noexcept;
  /**
   * As get_opaque(), for a DDP-eligible item: returns the placed bytes if there are any, otherwise
   * those in the stream. The number of placed bytes must be the count in the stream, or that
   * rounded up to four, since RFC 5666's responders count the pad and RFC 8166's do not. Any other
   * number fails.
   */
  ItemView get_item(uint32_t max) noexcept;
  /** string<max>, copied into `to`, whose size is `max`; returns the part used. */
  std::string_view get_string(std::span<char> to) noexcept;

  /**
   * Returns the next `length` bytes without reading them if they lie in one fragment, otherwise
   * null. For headers of a known number of words: look at all at once, then skip_run().
   */
  const std::byte* peek_run(uint32_t length) const noexcept {
    return static_cast<size_t>(end_ - next_) < length ? nullptr : next_;
  }
  /** Skips what peek_run(length) returned. */
  void skip_run(uint32_t length) noexcept { next_ += length; }

 private:
  uint32_t get_u32_slow() noexcept;
  uint64_t get_u64_slow() noexcept;
  bool take(std::byte* to, uint32_t length) noexcept;
  ItemView view(uint32_t length, uint32_t pad) noexcept;
  ItemView view_placed(uint32_t count) noexcept;
  void skip(uint64_t length) noexcept;
  void skip_padding(uint32_t count) noexcept;
  bool next_fragment() noexcept;

  const std::byte* next_ = nullptr;  // the next byte, in *fragment_
  const std::byte* end_ = nullptr;   // end of *fragment_
  uint64_t rest_ = 0;                // bytes of the fragments after *fragment_
  uint64_t length_ = 0;              // bytes of the whole stream
  const Fragment* fragment_ = nullptr;
  const Fragment* last_ = nullptr;  // one past the last fragment
  std::span<const ItemView> placed_;
  OpaquePadding padding_;
  bool ok_ = true;
};

enum class Ddp : uint8_t {
  kNo,        ///< moves only inline or with the whole message
  kEligible,  ///< the upper-layer binding allows it to move in a chunk of its own
};

/**
 * One piece of a written stream. Only eligible items may be empty, since an empty one has its entry
 * in the Write list too.
 */
struct Piece {
  MemorySpan bytes;       ///< if it is scattered(), only the length: that of all runs
  bool item;              ///< true: opaque data by reference, with an implied XDR pad after it
  bool eligible;          ///< an item that may move in its own chunk
  uint16_t segments = 0;  ///< of an item: its runs of memory if there are several; otherwise 0

  /** Whether it is an item in several runs of memory. */
  bool scattered() const noexcept { return item && segments != 0; }

  /** The runs of memory where its bytes are, in order. */
  std::span<const MemorySpan> runs() const noexcept {
    if (!scattered()) [[likely]]
      return {&bytes, 1};
    return {reinterpret_cast<const MemorySpan*>(bytes.data), segments};
  }
};
static_assert(sizeof(Piece) == 24);

/** The number of zero bytes that RFC 4506 section 3 puts after an item of `length` bytes. */
constexpr uint32_t xdr_pad(uint64_t length) {
  return static_cast<uint32_t>((4 - (length & 3)) & 3);
}

/**
 * A written stream: its pieces in order, and the buffers that it owns. Reused from call to call, so
 * that nothing is allocated in the steady state.
 */
class Message {
 public:
  /**
   * Reserves space for the pieces of most messages, so that only a very scattered one allocates.
   */
  Message() {
    pieces_.reserve(8);
    buffers_.reserve(4);
  }

  std::span<const Piece> pieces() const noexcept { return pieces_; }
  /** Bytes of the complete (unreduced) XDR stream, pads included. A multiple of four. */
  uint64_t stream_length() const noexcept { return stream_length_; }
  /** The buffers that it owns: the first is the Encoder's, others may be results. */
  std::span<Buffer> buffers() noexcept { return buffers_; }
  /** Returns true if it has items in memory that it does not own: put_item() of a MemorySpan. */
  bool borrows() const noexcept { return borrows_; }
  /** Returns all buffers and forgets all pieces; keeps the capacity of its vectors. */
  void clear() noexcept;

 private:
  friend class Encoder;
  static bool is_fit(const Buffer& buffer, uint32_t first_size) noexcept {
    return buffer.capacity() >= first_size && buffer.capacity() / 2 < first_size;
  }
  // Forgets all pieces, and keeps the first buffer if it suits `first_size`. Returns false if no
  // buffer is kept.
  bool restart(uint32_t first_size) noexcept {
    pieces_.clear();
    stream_length_ = 0;
    borrows_ = false;
    if (buffers_.size() != 1 || !is_fit(buffers_.front(), first_size)) [[unlikely]]
      restart_slowly(first_size);
    return !buffers_.empty();
  }
  [[gnu::cold]] void restart_slowly(uint32_t first_size) noexcept;
  std::vector<Piece> pieces_;
  std::vector<Buffer> buffers_;
  uint64_t stream_length_ = 0;
  bool borrows_ = false;
};

/** Why an Encoder failed. */
enum class EncoderFault : uint8_t {
  kNone,
  kLimit,            ///< the stream would exceed its limit
  kNoMemory,         ///< no buffer left, or an empty one was handed over
  kInvalidMemory,    ///< an item that is not in the Encoder's Memory, or is longer than its buffer
  kByCaller,         ///< fail() was called
  kTooManySegments,  ///< an item of more than Encoder::kMaxItemSegments
};

/**
 * Writes an XDR stream into a Message, whose previous contents it clears. The first buffer has at
 * least `first_size` bytes (the inline threshold, say); the previous one is reused if it suits.
 * Further buffers come from `memory`. Fails if memory is exhausted, the stream would exceed
 * `limit`, or an item is not in memory that it may be in; fault() returns what happened first.
 */
class Encoder {
 public:
  Encoder(Message& message, Memory& memory, uint32_t first_size, uint64_t limit) noexcept;
  /** Calls finish(). */
  ~Encoder() {
    if (next_ != start_)
      finish();
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  bool ok() const noexcept { return fault_ == EncoderFault::kNone; }
  EncoderFault fault() const noexcept { return fault_; }
  /**
   * What was written, if it lies in one run of bytes; empty if it does not, or if the Encoder
   * failed. The bytes stay there until more is written, or the call is submitted or answered.
   */
  std::span<const std::byte> run() const noexcept {
    const bool one = ok() && message_.pieces_.empty() && open_pad_ == 0;
    return one ? std::span<const std::byte>(start_, next_) : std::span<const std::byte>();
  }
  /** After kInvalidMemory and kTooManySegments: which put_item() failed, from 1. */
  uint32_t faulty_item() const noexcept { return items_; }
  void put_u32(uint32_t value) noexcept {
    if (end_ - next_ < 4) [[unlikely]] {
      if (!room(4))
        return;
    }
    xdr::store_u32(next_, value);
    next_ += 4;
  }
  void put_u64(uint64_t value) noexcept {
    if (end_ - next_ < 8) [[unlikely]] {
      put_u32(static_cast<uint32_t>(value >> 32));
      put_u32(static_cast<uint32_t>(value));
      return;
    }
    xdr::store_u64(next_, value);
    next_ += 8;
  }
  void put_i32(int32_t value) noexcept { put_u32(static_cast<uint32_t>(value)); }
  void put_i64(int64_t value) noexcept { put_u64(static_cast<uint64_t>(value)); }
  void put_bool(bool value) noexcept { put_u32(value ? 1 : 0); }
  /** opaque<>: count, a copy of the bytes, zero pad. */
  void put_opaque(std::span<const std::byte> bytes) noexcept;
  /** opaque[n]: a copy of the bytes, zero pad, no count. */
  void put_fixed(std::span<const std::byte> bytes) noexcept;
  void put_string(std::string_view text) noexcept;
  /**
   * Writes a copy of the bytes without a count, for code that writes XDR byte by byte, as rpcgen's
   * x_putbytes does. Consecutive calls write one run of bytes. Until another put, the stream ends
   * in the zero pad of that run, which position() counts; a caller that writes the pad itself
   * overwrites it.
   *
   *   out.put_bytes(five);                      // position() is 8
   *   out.put_bytes(three_zeros);               // still 8: this is the pad
   */
  void put_bytes(std::span<const std::byte> bytes) noexcept;
  /** opaque<> copied from another message. */
  void put_opaque(const ItemView& bytes) noexcept;
  /**
   * opaque<> by reference: the count is written, and the bytes stay where they are. They must not
   * change as long as they are in use. For a call that is until it has ended, or with
   * Call::on_released() until that callback. For a reply it is until the callback of
   * ServerCall::on_released(), which is usually later than the return of reply(); without it, until
   * the connection has ended. `bytes` is registered memory of the Encoder's Memory, or empty; fails
   * with kInvalidMemory if Memory::contains() returns false.
   */
  void put_item(MemorySpan bytes, Ddp ddp) noexcept;
  /**
   * As above; the message takes the buffer over and returns it to its pool when it is cleared.
   * Fails, and returns the buffer, if it has fewer than `length` bytes or is of another Memory than
   * the Encoder's.
   */
  void put_item(Buffer buffer, uint32_t length, Ddp ddp) noexcept;
  /**
   * opaque<> by reference out of several runs of memory, one after the other, as a cache keeps it
   * in pages: one item, which the peer receives as if it were one run. Everything said of
   * put_item(MemorySpan) holds for each segment. `segments` itself is copied.
   *
   *   std::array<MemorySpan, 256> pages;                   // 1 MiB in pages of 4 KiB
   *   size_t count = cache.find(file, offset, length, pages);
   *   out.put_item(std::span(pages).first(count), Ddp::kEligible);
   *
   * Segments may have any length and alignment; the XDR pad comes after the last one. Empty ones
   * count for nothing, and those that continue the one before are joined with it. More than
   * kMaxItemSegments after that make it fail with kTooManySegments, 4 GiB or more with kLimit. If
   * no segment is left, the item is empty; if one is left, this is put_item(MemorySpan). Otherwise
   * the list takes a pool buffer of 16 bytes per segment, until the message is cleared; fails with
   * kNoMemory if there is none. An argument that moves in one Read segment takes a second such
   * buffer while its call is in flight, for the driver's copy of the list: the message's own stays
   * unchanged in case the call is sent again. Without such a buffer the call waits, or ends with
   * kNoMemory if its connection has no other call in flight.
   *
   * Results move by RDMA Writes that gather the segments. Arguments move in one Read chunk: of one
   * segment over `shm:` and `iwarp:`, and of a segment for each one here over `verbs:`. If these
   * are more than the call's header or the server takes (about 90 with the default inline_size),
   * the call moves as a whole, as a copy in pool buffers. doc/tutorial.md has more.
   */
  void put_item(std::span<const MemorySpan> segments, Ddp ddp) noexcept;
  static constexpr uint32_t kMaxItemSegments = 1024;
  /**
   * opaque<> from another message: by reference if it has at least 4096 bytes that lie in buffers
   * of the Encoder's Memory in a few runs, otherwise a copy as by put_opaque(). Bytes referred to
   * must not change for as long as put_item(MemorySpan) says; the arguments of the ServerCall that
   * is being answered remain valid for that time. Never moves in a chunk of its own.
   *
   *   call.results().put_view(call.args().get_opaque(max));  // an echo without a copy
   */
  void put_view(const ItemView& bytes) noexcept;
  /**
   * Returns space for `length` bytes (a multiple of four) in one run, which the caller fills.
   * Returns null if there is no such run; then write word by word. For headers of a known number of
   * words.
   */
  std::byte* put_run(uint32_t length) noexcept {
    if (static_cast<size_t>(end_ - next_) < length && !room(length))
      return nullptr;
    std::byte* run = next_;
    next_ += length;
    return run;
  }
  /** Makes the encoder fail: the call or reply will not be sent as it is. */
  void fail() noexcept { fail(EncoderFault::kByCaller); }

  /** Bytes of the stream so far. */
  uint64_t position() const noexcept {
    return message_.stream_length_ + static_cast<uint64_t>(next_ - start_);
  }
  /** Completes the message; called before it is sent. More may still be written. */
  void finish() noexcept;

  /**
   * A position in the stream to which rewind() can return, discarding what came after (for a
   * handler that finds an error after writing half its results). A failure since then is discarded
   * too.
   */
  struct Mark {
    size_t pieces;
    size_t buffers;
    std::byte* start;
    std::byte* next;
    std::byte* buffer_end;
    RegionId region;
    uint64_t stream_length;
    EncoderFault fault;
    uint32_t items;
    uint32_t open_pad;
  };
  Mark mark() const noexcept;
  /** `mark` must be of this encoder, with no rewind() to an earlier mark since. */
  void rewind(const Mark& mark) noexcept;

 private:
  friend class Call;
  friend class service::PlainCalls;
  // Keeps the first `kept` bytes and drops the rest, including a failure; also works after
  // submit(). Returns false, and changes nothing, unless there is exactly one buffer and these
  // bytes lie in it.
  bool keep_first(uint32_t kept) noexcept;
  // The inline version of finish().
  void finish_here() noexcept {
    if (next_ == start_)
      return;
    const auto length = static_cast<uint32_t>(next_ - start_);
    // datapath-allow: grows once; a message keeps its capacity from call to call
    message_.pieces_.push_back({{start_, length, region_}, false, false});
    message_.stream_length_ += length;
    start_ = next_;
  }
  // Only the first reason is kept.
  void fail(EncoderFault fault) noexcept {
    if (ok())
      fault_ = fault;
    end_ = next_;
  }
  bool room(uint32_t length) noexcept;
  bool next_buffer(uint64_t wanted) noexcept;
  void write_to(const Buffer& buffer) noexcept;
  bool fits(uint64_t length) noexcept;
  void limit_run() noexcept;
  void copy(const std::byte* from, uint64_t length) noexcept;
  void pad(uint64_t length) noexcept;
  bool put_reference(MemorySpan bytes, Ddp ddp) noexcept;
  struct Joined;
  bool join(std::span<const MemorySpan> segments, Joined& joined) noexcept;
  bool can_refer_to(const ItemView& bytes) const noexcept;

  std::byte* next_ = nullptr;        // where the next byte goes
  std::byte* end_ = nullptr;         // where the buffer or `limit_` ends
  std::byte* start_ = nullptr;       // where the piece being written began
  std::byte* buffer_end_ = nullptr;  // end of the buffer being written
  std::byte* open_at_ = nullptr;     // `next_` after put_bytes(), until something else is written
  uint32_t open_pad_ = 0;            // bytes before it that the next put_bytes() may overwrite
  RegionId region_ = kNoRegion;      // region of that buffer
  uint32_t first_size_;
  uint64_t limit_;
  Message& message_;
  Memory& memory_;
  EncoderFault fault_ = EncoderFault::kNone;
  uint32_t items_ = 0;  // put_item() calls up to the first failure
};

inline bool Encoder::keep_first(uint32_t kept) noexcept {
  if (message_.buffers_.size() != 1 || message_.buffers_.front().capacity() < kept) [[unlikely]]
    return false;
  std::byte* const begin = message_.buffers_.front().data();
  if (buffer_end_ != begin + message_.buffers_.front().capacity()) [[unlikely]]
    return false;
  message_.pieces_.clear();
  message_.stream_length_ = 0;
  message_.borrows_ = false;
  start_ = begin;
  next_ = begin + kept;
  const auto room = static_cast<uint64_t>(buffer_end_ - begin);
  end_ = begin + (room < limit_ ? room : limit_);
  open_pad_ = 0;
  fault_ = EncoderFault::kNone;
  items_ = 0;
  return true;
}

}  // namespace rrdk

#include "stream.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>

#include "memory.h"
#include "rrdk/tirpc.h"
#define RRDK_TIRPC_ITEM  // they are here, and not weak
#include "rrdk/tirpc_items.h"

// The functions themselves are wanted here.
#undef xdr_bytes
#undef xdr_string
#undef xdr_array
#undef xdr_pointer
#undef xdr_reference

#if defined(__clang__)
#define RRDK_NO_SANITIZE_FUNCTION [[clang::no_sanitize("function")]]
#else
#define RRDK_NO_SANITIZE_FUNCTION
#endif

namespace rrdk::tirpc {

namespace {

// Below this size a copy is cheaper than the book-keeping of memory in place.
constexpr uint32_t kLeastInPlace = 4096;
// A large buffer is not kept for a small item either.
constexpr uint32_t kLeastShare = 8;

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % alignof(int32_t) == 0;
}

}  // namespace

const XDR::xdr_ops Stream::kOps = {get_long,     put_long, get_bytes, put_bytes, get_position,
                                   set_position, get_run,  destroy,   control};

Stream::Stream(Encoder& out, std::span<const Item> items, uint32_t least) noexcept
    : out_(&out), items_(items), least_(least) {
  xdr_.x_op = XDR_ENCODE;
  xdr_.x_ops = &kOps;
  xdr_.x_private = this;
}

Stream::Stream(Decoder& in, std::span<const Item> items, Call* offers, uint64_t most) noexcept
    : in_(&in), start_(in), items_(items), offers_(offers), may_take_(most) {
  xdr_.x_op = XDR_DECODE;
  xdr_.x_ops = &kOps;
  xdr_.x_private = this;
}

// UBSan: xdrproc_t is not the type of any XDR routine, but libtirpc has no other.
RRDK_NO_SANITIZE_FUNCTION bool Stream::run(xdrproc_t routine, void* object) {
  if (routine(&xdr_, object) != FALSE && (out_ != nullptr ? out_->ok() : in_->ok()))
    return true;
  take_back();
  return false;
}

Stream* Stream::of(XDR* xdrs) noexcept {
  return xdrs->x_op != XDR_FREE && xdrs->x_ops == &kOps ? &self(xdrs) : nullptr;
}

bool_t Stream::get_long(XDR* xdrs, long* to) {
  Decoder& in = *self(xdrs).in_;
  *to = in.get_i32();
  return in.ok();
}

bool_t Stream::put_long(XDR* xdrs, const long* from) {
  Encoder& out = *self(xdrs).out_;
  out.put_u32(static_cast<uint32_t>(*from));
  return out.ok();
}

bool_t Stream::get_bytes(XDR* xdrs, char* to, u_int length) {
  Decoder& in = *self(xdrs).in_;
  const ItemView bytes = in.get_bytes(length);
  if (!in.ok())
    return FALSE;
  bytes.copy_to(reinterpret_cast<std::byte*>(to));
  return TRUE;
}

bool_t Stream::put_bytes(XDR* xdrs, const char* from, u_int length) {
  Encoder& out = *self(xdrs).out_;
  out.put_bytes(std::as_bytes(std::span(from, length)));
  return out.ok();
}

u_int Stream::get_position(XDR* xdrs) {
  const Stream& stream = self(xdrs);
  return static_cast<u_int>(stream.out_ != nullptr ? stream.out_->position()
                                                   : stream.in_->position());
}

// The written bytes may be in chunks already, so there is no way back while writing.
bool_t Stream::set_position(XDR* xdrs, u_int position) {
  Stream& stream = self(xdrs);
  if (stream.out_ != nullptr)
    return position == get_position(xdrs);
  Decoder there = stream.start_;
  if (position < there.position() || position > there.length())
    return FALSE;
  there.get_bytes(position - static_cast<u_int>(there.position()));
  if (!there.ok())
    return FALSE;
  *stream.in_ = there;
  return TRUE;
}

int32_t* Stream::get_run(XDR* xdrs, u_int length) {
  constexpr u_int kMost = 4096;  // it has to lie in one piece; longer data goes word by word
  const Stream& stream = self(xdrs);
  if (length > kMost || length % BYTES_PER_XDR_UNIT != 0)
    return nullptr;
  if (stream.out_ != nullptr) {
    std::byte* run = stream.out_->put_run(length);
    return reinterpret_cast<int32_t*>(run);
  }
  const std::byte* run = stream.in_->peek_run(length);
  if (run == nullptr || !is_aligned(run))
    return nullptr;
  stream.in_->skip_run(length);
  return reinterpret_cast<int32_t*>(const_cast<std::byte*>(run));
}

const Item* Stream::find(const char* routine, const char* argument) const noexcept {
  if (seen_ == items_.size())
    return nullptr;
  for (const Item& item : items_) {
    if (item.matches(routine, argument))
      return &item;
  }
  return nullptr;
}

bool Stream::put(const char* data, uint32_t length) {
  ++seen_;
  if (length < least_) {
    out_->put_opaque(std::as_bytes(std::span(data, length)));
  } else if (length == 0) {
    out_->put_item(MemorySpan(), Ddp::kEligible);
  } else if (auto own = registered(data, length)) {
    (own->of_arguments ? refers_to_arguments_ : borrows_) = true;
    out_->put_item(own->span, Ddp::kEligible);
  } else {
    auto memory = process_memory();
    Buffer copy = memory ? (*memory)->get(length) : Buffer();
    if (copy)
      std::memcpy(copy.data(), data, length);
    out_->put_item(std::move(copy), length, Ddp::kEligible);  // fails if there is none
  }
  return out_->ok();
}

bool Stream::get(const Item& item, char** data, u_int* length, uint32_t max) {
  const ItemView view = offers_ != nullptr ? in_->get_item(max) : in_->get_opaque(max);
  if (!in_->ok())
    return false;
  *length = view.size();
  // Either the program gets the offered buffer, or the buffer goes back.
  Buffer room = offers_ != nullptr ? offers_->take_offered(seen_) : Buffer();
  ++seen_;
  if (view.empty())
    return true;
  if (*data == nullptr && !item.copy && take_in_place(view, room, data))
    return true;
  if (*data == nullptr)
    *data = static_cast<char*>(std::malloc(view.size()));
  if (*data == nullptr)
    return false;
  view.copy_to(reinterpret_cast<std::byte*>(*data));
  return true;
}

// Returns false if it is to be copied, and `room` is untouched.
bool Stream::take_in_place(const ItemView& view, Buffer& room, char** data) {
  if (view.size() < kLeastInPlace || !view.contiguous())
    return false;
  if (offers_ == nullptr) {
    lend_arguments(view.data(), view.size());
    in_place_.push_back(view.data());
  } else if (room && view.data() == room.data() && view.size() >= room.capacity() / kLeastShare) {
    lend(std::move(room));
  } else {
    return false;
  }
  *data = reinterpret_cast<char*>(const_cast<std::byte*>(view.data()));
  return true;
}

void Stream::take_back() {
  for (char** memory : taken_) {
    rrdk_tirpc_free(*memory);
    *memory = nullptr;
  }
  taken_.clear();
}

bool Stream::next_count_fits(uint32_t least, uint32_t size) noexcept {
  Decoder ahead = *in_;
  const uint64_t count = ahead.get_u32();
  return ahead.ok() && count <= ahead.remaining() / least && may_allocate(count * size);
}

bool Stream::may_allocate(uint64_t bytes) noexcept {
  if (bytes > may_take_)
    return false;
  may_take_ -= bytes;
  return true;
}

RRDK_NO_SANITIZE_FUNCTION void free_decoded(xdrproc_t routine, void* object) {
  XDR xdr = {};
  xdr.x_op = XDR_FREE;
  routine(&xdr, object);
}

}  // namespace rrdk::tirpc

namespace {

using rrdk::tirpc::Stream;

// Whether a recursive type may go one level deeper. A quarter of the stack is left for the rest:
// deep data from a peer is freed by recursion, too.
bool has_stack() {
  static thread_local const std::span<const std::byte> stack = [] {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t size = 0;
    if (::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
      ::pthread_attr_getstack(&attributes, &begin, &size);
      ::pthread_attr_destroy(&attributes);
    }
    return std::span(static_cast<const std::byte*>(begin), size);
  }();
  const auto* here = static_cast<const std::byte*>(__builtin_frame_address(0));
  const bool is_own = here >= stack.data() && here < stack.data() + stack.size();  // else a fiber's
  return !is_own || here > stack.data() + stack.size() / 4;
}

// Runs an XDR routine of libtirpc that allocates `*memory` if it is null. When it decodes from one
// of our streams, `fits` first checks the peer's count, and the memory that the routine allocates
// is recorded.
template <typename Fits, typename Routine>
bool_t run_and_note(XDR* xdrs, char** memory, Fits fits, Routine routine) {
  Stream* stream = Stream::of(xdrs);
  if (stream == nullptr)
    return routine();
  if (!has_stack())
    return FALSE;
  if (xdrs->x_op != XDR_DECODE)
    return routine();
  if (!fits(*stream))
    return FALSE;
  const bool takes = *memory == nullptr;
  const bool_t done = routine();
  if (takes && *memory != nullptr)
    stream->note(memory);
  return done;
}

}  // namespace

bool_t rrdk_xdr_bytes(XDR* xdrs, char** data, u_int* size, u_int max, const char* routine,
                      const char* item) {
  if (xdrs->x_op == XDR_FREE && *data != nullptr && rrdk::tirpc::give_back(*data)) {
    *data = nullptr;
    return TRUE;
  }
  Stream* stream = Stream::of(xdrs);
  const rrdk::tirpc::Item* eligible = stream != nullptr ? stream->find(routine, item) : nullptr;
  if (eligible != nullptr && xdrs->x_op == XDR_ENCODE)
    return *size <= max && stream->put(*data, *size);
  // The bytes of an eligible item may be elsewhere; they are no more than the message has.
  return run_and_note(
      xdrs, data, [&](Stream& own) { return eligible != nullptr || own.next_count_fits(1, 1); },
      [&]() -> bool_t {
        return eligible != nullptr ? stream->get(*eligible, data, size, max)
                                   : xdr_bytes(xdrs, data, size, max);
      });
}

bool_t rrdk_xdr_string(XDR* xdrs, char** text, u_int max) {
  return run_and_note(
      xdrs, text, [](Stream& stream) { return stream.next_count_fits(1, 1); },
      [&] { return xdr_string(xdrs, text, max); });
}

bool_t rrdk_xdr_array(XDR* xdrs, char** elements, u_int* count, u_int max, u_int size,
                      xdrproc_t element) {
  return run_and_note(
      xdrs, elements,
      [size](Stream& stream) { return stream.next_count_fits(BYTES_PER_XDR_UNIT, size); },
      [&] { return xdr_array(xdrs, elements, count, max, size, element); });
}

bool_t rrdk_xdr_pointer(XDR* xdrs, char** object, u_int size, xdrproc_t routine) {
  // The first word is not a count but a bool: no object, or one of any size.
  return run_and_note(
      xdrs, object, [size](Stream& stream) { return stream.may_allocate(size); },
      [&] { return xdr_pointer(xdrs, object, size, routine); });
}

bool_t rrdk_xdr_reference(XDR* xdrs, char** object, u_int size, xdrproc_t routine) {
  return run_and_note(
      xdrs, object, [size](Stream& stream) { return stream.may_allocate(size); },
      [&] { return xdr_reference(xdrs, object, size, routine); });
}

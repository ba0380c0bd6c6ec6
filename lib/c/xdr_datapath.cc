// XDR and buffers from C: the Encoder, Decoder and Buffer of the C++ API, by their handles.
#include <bit>

#include "c/handles.h"

namespace rrdk::c {
namespace {

// A view is an ItemView, whose fields C does not access.
static_assert(sizeof(rrdk_view) == sizeof(ItemView) && std::is_trivially_copyable_v<ItemView>);
static_assert(sizeof(rrdk_mark) == sizeof(Encoder::Mark));

rrdk_view view_of(const ItemView& item) noexcept {
  auto view = std::bit_cast<rrdk_view>(item);
  view.length = item.size();
  return view;
}

ItemView item_of(const rrdk_view& view) noexcept {
  return {
      {static_cast<const Fragment*>(view.fragments), view.num_fragments}, view.offset, view.length};
}

std::span<const std::byte> bytes_of(const void* bytes, size_t length) noexcept {
  return {static_cast<const std::byte*>(bytes), length};
}

Ddp ddp_of(rrdk_ddp ddp) noexcept {
  return ddp == RRDK_DDP_ELIGIBLE ? Ddp::kEligible : Ddp::kNo;
}

// Reads a string<> into `to`, which has space for `size` bytes; returns its length. It is used
// instead of Decoder::get_string(), since the text may contain a NUL.
size_t take_string(Decoder& decoder, char* to, size_t size) noexcept {
  if (size == 0) {
    decoder.fail();
    return 0;
  }
  const size_t most = std::min<size_t>(size - 1, UINT32_MAX);
  const std::string_view text = decoder.get_string({to, most});
  const size_t length = text.size();
  if (length != 0 && std::memchr(to, '\0', length) != nullptr) {
    decoder.fail();
    to[0] = '\0';
    return 0;
  }
  to[length] = '\0';
  return length;
}

}  // namespace
}  // namespace rrdk::c

using namespace rrdk;
using c::of;

rrdk_buffer* rrdk_buffer_get(rrdk_memory* memory, uint32_t size) {
  return c::handle_of(of(memory).get(size).release());
}

void rrdk_buffer_put(rrdk_buffer* buffer) {
  if (buffer != nullptr)
    mem::put(&of(buffer));
}

void* rrdk_buffer_data(const rrdk_buffer* buffer) {
  return of(buffer).data;
}

uint32_t rrdk_buffer_capacity(const rrdk_buffer* buffer) {
  return of(buffer).capacity;
}

rrdk_span rrdk_buffer_span(const rrdk_buffer* buffer, uint32_t length) {
  return {of(buffer).data, length, of(buffer).region};
}

const void* rrdk_view_run(const rrdk_view* view, uint32_t offset, uint32_t* length) {
  const void* found = nullptr;
  uint32_t at = 0;
  *length = 0;
  c::item_of(*view).for_each([&](const std::byte* run, size_t n) {
    if (found == nullptr && offset - at < n && offset >= at) {
      found = run + (offset - at);
      *length = static_cast<uint32_t>(n) - (offset - at);
    }
    at += static_cast<uint32_t>(n);
  });
  return found;
}

void rrdk_view_copy(const rrdk_view* view, void* to) {
  c::item_of(*view).copy_to(static_cast<std::byte*>(to));
}

bool rrdk_encoder_ok(const rrdk_encoder* encoder) {
  return of(encoder).ok();
}

uint64_t rrdk_encoder_position(const rrdk_encoder* encoder) {
  return of(encoder).position();
}

void rrdk_encoder_fail(rrdk_encoder* encoder) {
  of(encoder).fail();
}

rrdk_mark rrdk_encoder_mark(const rrdk_encoder* encoder) {
  return std::bit_cast<rrdk_mark>(of(encoder).mark());
}

void rrdk_encoder_rewind(rrdk_encoder* encoder, const rrdk_mark* mark) {
  of(encoder).rewind(std::bit_cast<Encoder::Mark>(*mark));
}

void rrdk_put_u32(rrdk_encoder* encoder, uint32_t value) {
  of(encoder).put_u32(value);
}

void rrdk_put_u64(rrdk_encoder* encoder, uint64_t value) {
  of(encoder).put_u64(value);
}

void rrdk_put_bool(rrdk_encoder* encoder, bool value) {
  of(encoder).put_bool(value);
}

void rrdk_put_opaque(rrdk_encoder* encoder, const void* bytes, size_t length) {
  of(encoder).put_opaque(c::bytes_of(bytes, length));
}

void rrdk_put_fixed(rrdk_encoder* encoder, const void* bytes, size_t length) {
  of(encoder).put_fixed(c::bytes_of(bytes, length));
}

void rrdk_put_string(rrdk_encoder* encoder, const char* text) {
  if (text != nullptr)
    of(encoder).put_string(text);
  else
    of(encoder).fail();
}

void rrdk_put_item(rrdk_encoder* encoder, rrdk_span bytes, rrdk_ddp ddp) {
  of(encoder).put_item(c::span_of(bytes), c::ddp_of(ddp));
}

static_assert(RRDK_MAX_ITEM_SEGMENTS == Encoder::kMaxItemSegments);

void rrdk_put_item_segments(rrdk_encoder* encoder, const rrdk_span* segments, size_t num_segments,
                            rrdk_ddp ddp) {
  if (segments == nullptr && num_segments != 0)
    return of(encoder).fail();
  of(encoder).put_item(std::span(reinterpret_cast<const MemorySpan*>(segments), num_segments),
                       c::ddp_of(ddp));
}

void rrdk_put_buffer(rrdk_encoder* encoder, rrdk_buffer* buffer, uint32_t length, rrdk_ddp ddp) {
  of(encoder).put_item(buffer != nullptr ? Buffer(&of(buffer)) : Buffer(), length, c::ddp_of(ddp));
}

void rrdk_put_view(rrdk_encoder* encoder, const rrdk_view* view) {
  of(encoder).put_view(c::item_of(*view));
}

bool rrdk_decoder_ok(const rrdk_decoder* decoder) {
  return of(decoder).ok();
}

bool rrdk_decoder_at_end(const rrdk_decoder* decoder) {
  return of(decoder).at_end();
}

uint64_t rrdk_decoder_remaining(const rrdk_decoder* decoder) {
  return of(decoder).remaining();
}

void rrdk_decoder_fail(rrdk_decoder* decoder) {
  of(decoder).fail();
}

uint32_t rrdk_get_u32(rrdk_decoder* decoder) {
  return of(decoder).get_u32();
}

uint64_t rrdk_get_u64(rrdk_decoder* decoder) {
  return of(decoder).get_u64();
}

bool rrdk_get_bool(rrdk_decoder* decoder) {
  return of(decoder).get_bool();
}

rrdk_view rrdk_get_opaque(rrdk_decoder* decoder, uint32_t max) {
  return c::view_of(of(decoder).get_opaque(max));
}

rrdk_view rrdk_get_fixed(rrdk_decoder* decoder, uint32_t length) {
  return c::view_of(of(decoder).get_fixed(length));
}

rrdk_view rrdk_get_item(rrdk_decoder* decoder, uint32_t max) {
  return c::view_of(of(decoder).get_item(max));
}

size_t rrdk_get_string(rrdk_decoder* decoder, char* to, size_t size) {
  return c::take_string(of(decoder), to, size);
}

#include <algorithm>
#include <cstring>

#include "rrdk/xdr.h"

namespace rrdk {

void ItemView::copy_to(std::byte* to) const noexcept {
  for_each([&to](const std::byte* run, size_t length) {
    std::memcpy(to, run, length);
    to += length;
  });
}

Decoder::Decoder(std::span<const Fragment> stream) noexcept
    : fragment_(stream.data()), last_(stream.data() + stream.size()) {
  if (stream.empty())
    return;
  for (const Fragment& f : stream.subspan(1))
    rest_ += f.length;
  next_ = fragment_->data;
  end_ = next_ + fragment_->length;
  length_ = remaining();
}

Decoder::Decoder(std::span<const Fragment> stream, std::span<const ItemView> placed) noexcept
    : Decoder(stream) {
  placed_ = placed;
}

void Decoder::fail() noexcept {
  ok_ = false;
  next_ = end_ = nullptr;
  rest_ = 0;
}

// Moves to the next byte. Returns false at the end.
bool Decoder::next_fragment() noexcept {
  while (next_ == end_) {
    if (rest_ == 0)
      return false;
    ++fragment_;
    next_ = fragment_->data;
    end_ = next_ + fragment_->length;
    rest_ -= fragment_->length;
  }
  return true;
}

// `length` must be at most remaining().
void Decoder::skip(uint64_t length) noexcept {
  while (length > static_cast<uint64_t>(end_ - next_)) {
    length -= static_cast<uint64_t>(end_ - next_);
    next_ = end_;
    next_fragment();
  }
  next_ += length;
}

bool Decoder::take(std::byte* to, uint32_t length) noexcept {
  if (remaining() < length) {
    fail();
    return false;
  }
  while (length != 0) {
    next_fragment();
    uint32_t n = std::min(length, static_cast<uint32_t>(end_ - next_));
    std::memcpy(to, next_, n);
    to += n;
    next_ += n;
    length -= n;
  }
  return true;
}

uint32_t Decoder::get_u32_slow() noexcept {
  std::byte word[4];
  return take(word, sizeof word) ? xdr::load_u32(word) : 0;
}

uint64_t Decoder::get_u64_slow() noexcept {
  std::byte words[8];
  return take(words, sizeof words) ? xdr::load_u64(words) : 0;
}

bool Decoder::get_bool() noexcept {
  uint32_t value = get_u32();
  if (value > 1)
    fail();
  return value == 1;
}

ItemView Decoder::view(uint32_t length, uint32_t pad) noexcept {
  uint64_t padded = uint64_t{length} + pad;
  if (remaining() < padded) {
    fail();
    return {};
  }
  if (length == 0)
    return {};
  next_fragment();
  ItemView item({fragment_, last_}, static_cast<uint32_t>(next_ - fragment_->data), length);
  skip(padded);
  return item;
}

ItemView Decoder::get_fixed(uint32_t length) noexcept {
  return view(length, xdr_pad(length));
}

ItemView Decoder::get_bytes(uint32_t length) noexcept {
  return view(length, 0);
}

ItemView Decoder::get_rest() noexcept {
  uint64_t left = remaining();
  if (left > UINT32_MAX) {
    fail();
    return {};
  }
  return view(static_cast<uint32_t>(left), 0);
}

ItemView Decoder::get_opaque(uint32_t max) noexcept {
  uint32_t count = get_u32();
  if (count > max) {
    fail();
    return {};
  }
  if (padding_.align != 0) [[unlikely]]
    skip_padding(count);
  return view(count, xdr_pad(count));
}

ItemView Decoder::view_placed(uint32_t count) noexcept {
  ItemView item = placed_.front();
  placed_ = placed_.subspan(1);
  uint64_t padded = uint64_t{count} + xdr_pad(count);
  if (item.size() != count && item.size() != padded) {
    fail();
    return {};
  }
  return item.first(count);
}

ItemView Decoder::get_item(uint32_t max) noexcept {
  uint32_t count = get_u32();
  if (!ok_ || count > max) {
    fail();
    return {};
  }
  if (!placed_.empty() && !placed_.front().empty())
    return view_placed(count);
  // A Write chunk that came back empty: this result is inline, and uses up the chunk.
  if (!placed_.empty())
    placed_ = placed_.subspan(1);
  if (padding_.align != 0) [[unlikely]]
    skip_padding(count);
  return view(count, xdr_pad(count));
}

std::string_view Decoder::get_string(std::span<char> to) noexcept {
  ItemView text = get_opaque(static_cast<uint32_t>(std::min<size_t>(to.size(), UINT32_MAX)));
  text.copy_to(reinterpret_cast<std::byte*>(to.data()));
  return {to.data(), text.size()};
}

// Skipping the padding of RFC 5666 section 3.9 (doc/compat-rfc5666.md).
//
// The data's count has been read; its bytes come next, or the pad before them.
void Decoder::skip_padding(uint32_t count) noexcept {
  if (!ok_ || count < padding_.threshold)
    return;
  uint64_t at = padding_.send_length - remaining();
  uint64_t pad = -at & (padding_.align - 1);
  if (remaining() < pad)
    fail();
  else
    skip(pad);
}

}  // namespace rrdk

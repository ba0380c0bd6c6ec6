// Skipping the padding of RFC 5666 section 3.9 (doc/compat-rfc5666.md).
#include "rrdk/xdr.h"

namespace rrdk {

// The data's count was read; its bytes come next, or the pad before them.
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

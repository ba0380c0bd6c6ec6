// RFC 8797's private data, and that of rejections, with any content.
#include "proto/negotiation.h"
#include "require.h"

using namespace rrdk::proto;
using rrdk::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  PrivateData heard = decode_private_data({reinterpret_cast<const std::byte*>(data), size});
  require(heard.send_size >= 1024 && heard.send_size <= 262144, "Send Size out of range");
  require(heard.receive_size >= 1024 && heard.receive_size <= 262144, "Receive Size out of range");
  PrivateData again = decode_private_data(encode(heard));
  require(again.remote_invalidation == heard.remote_invalidation &&
              again.send_size == heard.send_size && again.receive_size == heard.receive_size,
          "what was encoded says something else");
  auto rejected = decode_rejection({reinterpret_cast<const std::byte*>(data), size});
  if (!rejected)
    return 0;
  require(rejected->text.size() <= kMaxRejectionText, "a text without bound");
  for (char c : rejected->text)
    require(c >= ' ' && c <= '~', "a text that is not printable");
  return 0;
}

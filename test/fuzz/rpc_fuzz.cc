// RPC headers and credentials, in one piece and cut into fragments: the cuts change nothing. And
// the window of RPCSEC_GSS' sequence numbers, against a set of all that were used.
#include <algorithm>
#include <set>
#include <vector>

#include "gss/wire.h"
#include "require.h"
#include "rpc/headers_datapath.h"

namespace {

using namespace rrdk;
using fuzz::require;

// The first byte says how long the pieces are.
std::vector<Fragment> cut(const std::byte* data, size_t size, size_t piece) {
  std::vector<Fragment> fragments;
  for (size_t at = 0; at < size; at += piece)
    fragments.push_back({data + at, static_cast<uint32_t>(std::min(piece, size - at))});
  return fragments;
}

void check_call(std::span<const Fragment> whole, std::span<const Fragment> pieces) {
  Decoder one(whole), many(pieces);
  rpc::CallHeader a, b;
  rpc::CallVerdict verdict = rpc::decode_call(one, a);
  require(rpc::decode_call(many, b) == verdict, "a call's verdict depends on its fragments");
  if (verdict != rpc::CallVerdict::kOk)
    return;
  require(a.xid == b.xid && a.program == b.program && a.version == b.version &&
              a.procedure == b.procedure && a.credential.flavor == b.credential.flavor &&
              one.remaining() == many.remaining(),
          "a call depends on its fragments");
  AuthSys x, y;
  bool decoded = decode(a.credential, x);
  require(decode(b.credential, y) == decoded, "AUTH_SYS depends on its fragments");
  if (decoded)
    require(x.uid == y.uid && x.gid == y.gid && x.machine_name() == y.machine_name() &&
                std::ranges::equal(x.gids(), y.gids()),
            "AUTH_SYS");
  gss::CredentialBody c, d;
  const bool is_gss = gss::decode(a.credential, c);
  require(gss::decode(b.credential, d) == is_gss, "RPCSEC_GSS depends on its fragments");
  if (is_gss)
    require(c.control == d.control && c.sequence == d.sequence && c.protection == d.protection &&
                c.handle == d.handle && c.handle_length == d.handle_length,
            "RPCSEC_GSS");
}

// RFC 2203 section 5.3.3.1: each number once, and none from before the window.
void check_window(std::span<const std::byte> numbers) {
  gss::SequenceWindow window;
  std::set<uint32_t> used;
  uint32_t highest = 0;
  for (; numbers.size() >= sizeof(uint32_t); numbers = numbers.subspan(sizeof(uint32_t))) {
    // Most are near to each other, so that they meet in the window.
    uint32_t number = xdr::load_u32(numbers.data());
    if (number % 8 != 0)
      number = highest - gss::SequenceWindow::kSize + number % (2 * gss::SequenceWindow::kSize);
    const bool is_late = number <= highest && highest - number >= gss::SequenceWindow::kSize;
    highest = std::max(highest, number);
    require(window.use(number) == (!is_late && used.insert(number).second), "a sequence number");
  }
}

void check_reply(std::span<const Fragment> whole, std::span<const Fragment> pieces) {
  Decoder one(whole), many(pieces);
  rpc::ReplyHeader a, b;
  bool good = rpc::decode_reply(one, a);
  require(rpc::decode_reply(many, b) == good, "a reply's verdict depends on its fragments");
  if (good)
    require(rpc::call_status(a) == rpc::call_status(b), "a reply depends on its fragments");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0)
    return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  size_t piece = data[0] + size_t{1};
  std::vector<Fragment> whole = cut(bytes + 1, size - 1, size);
  std::vector<Fragment> pieces = cut(bytes + 1, size - 1, piece);
  check_call(whole, pieces);
  check_reply(whole, pieces);
  check_window({bytes + 1, size - 1});
  return 0;
}

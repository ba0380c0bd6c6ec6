// Encoding and decoding allocate nothing once a message's vectors have grown.
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "test/xdr/messages.h"

namespace {
std::atomic<uint64_t> allocations = 0;
}

void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size))
    return p;
  throw std::bad_alloc();
}
// Not inlined: GCC would take free() for the wrong partner of operator new.
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace rrdk {
namespace {

class AllocationTest : public test::MessageTest {
 protected:
  void encode_and_decode() {
    Encoder out(message_, *memory_, 64, test::kNoLimit);
    Encoder::Mark mark = out.mark();
    out.put_opaque(data_);
    out.rewind(mark);
    out.put_u64(1);
    out.put_opaque(data_);
    out.put_item(memory_->get(256), 200, Ddp::kEligible);
    out.put_u32(2);
    out.finish();

    std::array<Fragment, 16> fragments;
    size_t n = 0;
    for (const Piece& piece : message_.pieces())
      fragments[n++] = {piece.bytes.data, piece.bytes.length};
    Decoder in({fragments.data(), n});
    in.get_u64();
    sum_ += in.get_opaque(1000).size() + in.get_item(200).size() + in.get_u32();
  }
  std::array<std::byte, 700> data_ = {};
  uint64_t sum_ = 0;
};

TEST_F(AllocationTest, SteadyStateHasNone) {
  encode_and_decode();
  uint64_t before = allocations;
  for (int i = 0; i != 1000; ++i)
    encode_and_decode();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum_, 1001u * (700 + 200 + 2));
}

}  // namespace
}  // namespace rrdk

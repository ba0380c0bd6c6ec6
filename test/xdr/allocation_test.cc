// Encoding and decoding allocate nothing once a message's vectors have grown.
#include <array>

#include "allocation_hook.h"
#include "test/xdr/messages.h"

namespace rrdk {
namespace {

uint64_t allocations = 0;

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

TEST_F(AllocationTest, SteadyStateAllocatesNothing) {
  encode_and_decode();
  apps::set_allocation_hook([]() noexcept { ++allocations; });
  for (int i = 0; i != 1000; ++i)
    encode_and_decode();
  apps::set_allocation_hook(nullptr);
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(sum_, 1001u * (700 + 200 + 2));
}

}  // namespace
}  // namespace rrdk

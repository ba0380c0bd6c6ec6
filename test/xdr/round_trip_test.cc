// Random values, encoded, cut into other pieces, and decoded again.
#include <algorithm>
#include <memory>
#include <string>

#include "test/xdr/messages.h"

namespace rrdk {
namespace {

using test::Bytes;
using test::bytes_of;

enum class Kind { kU32, kU64, kI32, kI64, kBool, kOpaque, kFixed, kString, kItem, kOwnedItem };
constexpr unsigned kKinds = 10;

struct Value {
  Kind kind;
  uint64_t number;
  Bytes bytes;
};

class RoundTrip : public test::MessageTest {
 protected:
  std::mt19937_64 random_{test::run_seed()};

  std::vector<Value> random_values() {
    std::vector<Value> values(random_() % 12);
    for (Value& v : values) {
      v.kind = static_cast<Kind>(random_() % kKinds);
      v.number = random_();
      v.bytes = test::random_bytes(random_, random_() % (random_() % 8 == 0 ? 1000 : 40));
    }
    return values;
  }

  Buffer filled(const Bytes& bytes) {
    Buffer buffer = memory_->get(static_cast<uint32_t>(std::max<size_t>(bytes.size(), 1)));
    if (buffer)
      std::ranges::copy(bytes, buffer.data());
    return buffer;
  }

  void put(Encoder& out, const Value& v, std::vector<Buffer>& held) {
    uint32_t length = static_cast<uint32_t>(v.bytes.size());
    switch (v.kind) {
      case Kind::kU32:
        return out.put_u32(static_cast<uint32_t>(v.number));
      case Kind::kU64:
        return out.put_u64(v.number);
      case Kind::kI32:
        return out.put_i32(static_cast<int32_t>(v.number));
      case Kind::kI64:
        return out.put_i64(static_cast<int64_t>(v.number));
      case Kind::kBool:
        return out.put_bool(v.number & 1);
      case Kind::kOpaque:
        return out.put_opaque(v.bytes);
      case Kind::kFixed:
        return out.put_fixed(v.bytes);
      case Kind::kString:
        return out.put_string({reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size()});
      case Kind::kItem:
        held.push_back(filled(v.bytes));
        if (!held.back())
          return out.fail();
        return out.put_item(held.back().first(length), Ddp::kEligible);
      case Kind::kOwnedItem:
        return out.put_item(filled(v.bytes), length, Ddp::kEligible);
    }
  }

  // Into message_. The pools are large enough for all values that random_values() makes.
  bool encode(const std::vector<Value>& values, std::vector<Buffer>& held) {
    Encoder out(message_, *memory_, 64u << random_() % 4, test::kNoLimit);
    for (const Value& v : values)
      put(out, v, held);
    return out.ok();
  }

  static void expect(Decoder& in, const Value& v) {
    uint32_t length = static_cast<uint32_t>(v.bytes.size());
    std::vector<char> text(length);
    switch (v.kind) {
      case Kind::kU32:
        EXPECT_EQ(in.get_u32(), static_cast<uint32_t>(v.number));
        break;
      case Kind::kU64:
        EXPECT_EQ(in.get_u64(), v.number);
        break;
      case Kind::kI32:
        EXPECT_EQ(in.get_i32(), static_cast<int32_t>(v.number));
        break;
      case Kind::kI64:
        EXPECT_EQ(in.get_i64(), static_cast<int64_t>(v.number));
        break;
      case Kind::kBool:
        EXPECT_EQ(in.get_bool(), (v.number & 1) != 0);
        break;
      case Kind::kOpaque:
        EXPECT_EQ(bytes_of(in.get_opaque(length)), v.bytes);
        break;
      case Kind::kFixed:
        EXPECT_EQ(bytes_of(in.get_fixed(length)), v.bytes);
        break;
      case Kind::kString: {
        std::string_view got = in.get_string(text);
        EXPECT_EQ(bytes_of(std::as_bytes(std::span(got))), v.bytes);
        break;
      }
      case Kind::kItem:
      case Kind::kOwnedItem:
        EXPECT_EQ(bytes_of(in.get_item(length)), v.bytes);
        break;
    }
  }

  // Reads as expect() does, whatever the stream contains.
  static void read(Decoder& in, const Value& v) {
    uint32_t length = static_cast<uint32_t>(v.bytes.size());
    std::vector<char> text(length);
    switch (v.kind) {
      case Kind::kU32:
      case Kind::kI32:
        in.get_u32();
        break;
      case Kind::kU64:
      case Kind::kI64:
        in.get_u64();
        break;
      case Kind::kBool:
        in.get_bool();
        break;
      case Kind::kOpaque:
        bytes_of(in.get_opaque(length));
        break;
      case Kind::kFixed:
        bytes_of(in.get_fixed(length));
        break;
      case Kind::kString:
        in.get_string(text);
        break;
      case Kind::kItem:
      case Kind::kOwnedItem:
        bytes_of(in.get_item(length));
        break;
    }
  }
};

// Shows: V1-PAD-01, EXP-09
TEST_F(RoundTrip, ScatteredStreamsDecodeToWhatWasEncoded) {
  for (int round = 0; round != 3000; ++round) {
    std::vector<Value> values = random_values();
    std::vector<Buffer> held;
    ASSERT_TRUE(encode(values, held));
    Bytes stream = test::stream_of(message_);
    ASSERT_EQ(stream.size(), message_.stream_length());
    ASSERT_EQ(stream.size() % 4, 0u);
    test::Scattered cut(stream, random_);
    Decoder in(cut.fragments());
    for (const Value& v : values)
      expect(in, v);
    ASSERT_TRUE(in.at_end()) << "round " << round;
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

// A reduced stream: eligible items are elsewhere, and their pads nowhere.
// Shows: V1-CHUNK-03, V1-PAD-09
TEST_F(RoundTrip, ReducedStreamsDecodeToWhatWasEncoded) {
  for (int round = 0; round != 1000; ++round) {
    std::vector<Value> values = random_values();
    std::vector<Buffer> held;
    ASSERT_TRUE(encode(values, held));
    Bytes reduced;
    std::vector<std::unique_ptr<test::Scattered>> places;
    std::vector<ItemView> placed;
    for (const Piece& piece : message_.pieces()) {
      std::span<const std::byte> bytes(piece.bytes.data, piece.bytes.length);
      if (!piece.eligible) {
        reduced.insert(reduced.end(), bytes.begin(), bytes.end());
        continue;
      }
      Bytes landed = bytes_of(bytes);
      if (random_() % 2 == 0)
        landed.resize(landed.size() + xdr_pad(landed.size()));
      places.push_back(std::make_unique<test::Scattered>(landed, random_));
      placed.emplace_back(places.back()->fragments(), 0, static_cast<uint32_t>(landed.size()));
    }
    test::Scattered cut(reduced, random_);
    Decoder in(cut.fragments(), placed);
    for (const Value& v : values)
      expect(in, v);
    ASSERT_TRUE(in.at_end()) << "round " << round;
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

TEST_F(RoundTrip, TruncatedStreamsFail) {
  for (int round = 0; round != 100; ++round) {
    std::vector<Value> values = random_values();
    std::vector<Buffer> held;
    ASSERT_TRUE(encode(values, held));
    Bytes stream = test::stream_of(message_);
    for (size_t length = 0; length != stream.size(); ++length) {
      test::Scattered cut(std::span<const std::byte>(stream).first(length), random_);
      Decoder in(cut.fragments());
      for (const Value& v : values)
        read(in, v);
      ASSERT_FALSE(in.ok()) << "round " << round << ", " << length << " bytes";
    }
  }
}

TEST_F(RoundTrip, MutatedStreamsStayInside) {
  for (int round = 0; round != 3000; ++round) {
    std::vector<Value> values = random_values();
    Bytes stream = test::random_bytes(random_, random_() % 300);
    for (std::byte& b : stream)
      b = random_() % 3 != 0 ? std::byte{0} : b;
    test::Scattered cut(stream, random_);
    Decoder in(cut.fragments());
    for (const Value& v : values)
      read(in, v);
    EXPECT_LE(in.remaining(), stream.size());
  }
}

}  // namespace
}  // namespace rrdk

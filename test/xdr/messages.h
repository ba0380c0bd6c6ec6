// Memory to encode into, and messages as the bytes for which they stand.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"
#include "test/xdr/scatter.h"

namespace rrdk::test {

// The complete stream, with the pads that item pieces imply.
inline Bytes stream_of(const Message& message) {
  Bytes out;
  for (const Piece& piece : message.pieces()) {
    for (const MemorySpan& run : piece.runs())
      out.insert(out.end(), run.data, run.data + run.length);
    if (piece.item)
      out.resize(out.size() + xdr_pad(piece.bytes.length));
  }
  return out;
}

// Small classes, so that streams spill over many buffers and are soon exhausted. Every test ends
// with whole pools.
class MessageTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(ensure_eal().has_value()); }

  void SetUp() override {
    auto memory = Memory::create(
        {.classes = {{64, 128}, {256, 32}, {1024, 32}}, .hugepages = HugepagePolicy::kNever});
    ASSERT_TRUE(memory.has_value()) << memory.error().message;
    memory_ = std::move(*memory);
  }
  void TearDown() override {
    message_.clear();
    if (memory_ != nullptr) {
      EXPECT_TRUE(memory_->whole());
    }
  }

  std::unique_ptr<Memory> memory_;
  Message message_;
};

constexpr uint64_t kNoLimit = UINT64_MAX;

}  // namespace rrdk::test

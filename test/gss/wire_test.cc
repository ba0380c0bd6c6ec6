// RPCSEC_GSS on the wire, and its window of sequence numbers.
#include "gss/wire.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "gss_caller.h"
#include "test/seed.h"

namespace rrdk::gss {
namespace {

bool decodes(const Words& words, CredentialBody& to) {
  const Bytes bytes = bytes_of(words);
  const Fragment fragment = {bytes.data(), static_cast<uint32_t>(bytes.size())};
  return decode({AuthFlavor::kRpcsecGss, ItemView({&fragment, 1}, 0, fragment.length)}, to);
}

// Shows: GSS-CRED-01
TEST(Credentials, AreReadOnlyIfTheyAreWhole) {
  CredentialBody body;
  ASSERT_TRUE(decodes({1, 0, 7, 3, 16, 0, 0, 0, 9}, body));
  EXPECT_EQ(body.control, Control::kData);
  EXPECT_EQ(body.sequence, 7u);
  EXPECT_EQ(body.protection, Protection::kPrivacy);
  EXPECT_EQ(body.handle.back(), std::byte{9});
  EXPECT_TRUE(decodes({1, 1, 0, 1, 0}, body));
  EXPECT_EQ(body.handle_length, 0u);
  EXPECT_TRUE(decodes({1, 0, 7, 1, 3, 0x01020300}, body)) << "of a foreign length";
  EXPECT_EQ(body.handle_length, 3u);

  EXPECT_FALSE(decodes({2, 0, 7, 1, 0}, body)) << "another version";
  EXPECT_FALSE(decodes({1, 4, 7, 1, 0}, body)) << "an unknown procedure";
  EXPECT_FALSE(decodes({1, 0, 7, 1, 4}, body)) << "a handle that is not there";
  EXPECT_FALSE(decodes({1, 0, 7, 1, 0, 0}, body)) << "bytes behind it";
  EXPECT_FALSE(decodes({1, 0, 7}, body)) << "cut off";
  EXPECT_FALSE(decodes({1, 0, 7, 1, 0xffffffff}, body)) << "an enormous length";
}

// Shows: GSS-SEQ-01, GSS-SEQ-04
TEST(Window, TakesEachNumberOnce) {
  SequenceWindow window;
  EXPECT_TRUE(window.use(0));
  EXPECT_TRUE(window.use(5));
  EXPECT_TRUE(window.use(3));
  EXPECT_FALSE(window.use(3));
  EXPECT_FALSE(window.use(5));
  EXPECT_FALSE(window.use(0));
  EXPECT_TRUE(window.use(kHighestSequence));
  EXPECT_FALSE(window.use(5)) << "too old";
  EXPECT_TRUE(window.use(kHighestSequence - SequenceWindow::kSize + 1));
  EXPECT_FALSE(window.use(kHighestSequence - SequenceWindow::kSize));
}

// A number that shares its bit with one that has left the window is new.
// Shows: GSS-SEQ-01, GSS-SEQ-04
TEST(Window, AgreesWithASet) {
  std::mt19937_64 random(rrdk::test::run_seed());
  SequenceWindow window;
  std::set<uint32_t> used;
  uint32_t highest = 0;
  for (int i = 0; i != 200'000; ++i) {
    const uint32_t back = static_cast<uint32_t>(random() % 6000);
    const uint32_t forward = random() % 100 == 0 ? static_cast<uint32_t>(random() % 9000) : 2;
    const uint32_t next = highest + forward < back ? 0 : highest + forward - back;
    const bool fits = next > highest || highest - next < SequenceWindow::kSize;
    ASSERT_EQ(window.use(next), fits && used.insert(next).second) << next << " after " << highest;
    highest = std::max(highest, next);
  }
}

}  // namespace
}  // namespace rrdk::gss

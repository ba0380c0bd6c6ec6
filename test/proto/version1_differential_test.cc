// Our version 1 codec against the one that rpcgen makes from the specification's XDR: random and
// mutated headers, half and half. RRDK_SEED replays a run; RRDK_HEADERS is the number of headers,
// 10^6 unless a sanitizer slows the run down.
#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <map>

#include "differential.h"
#include "header_random.h"
#include "test/seed.h"
#include "version1_only.h"

namespace rrdk::proto {
namespace {

using Bytes = HeaderRandom::Bytes;

constexpr uint32_t kProcError = 4;
constexpr uint32_t kErrVers = 1;
constexpr uint32_t kErrChunk = 2;
constexpr size_t kFixedBytes = 16;
constexpr size_t kMinError = 20;

// The only place where the texts differ: ERR_CHUNK has eight meaningless words in RFC 5666 only, so
// they are added for rpcgen's decoder. And an unknown error code, which XDR refuses, is still an
// error (V1-ERR-15).
Judgement judge_error(const Bytes& message) {
  if (message.size() < kMinError)
    return {{Verdict::kTooShort}, {}};
  uint32_t code = xdr::load_u32(&message[kFixedBytes]);
  Bytes padded = message;
  if (code == kErrChunk)
    padded.resize(message.size() + 32);
  Judgement out = {{}, reference_decode(Wire::kVersion1, padded)};
  bool version_1 = xdr::load_u32(&message[4]) == 1;
  if (out.reference)
    out.verdicts = faults(*out.reference, 0, Direction::kReply, {});
  else if (!version_1)
    out.verdicts = {Verdict::kBadVersion};
  else if (code == kErrVers)
    out.verdicts = {Verdict::kTruncated};
  if (out.verdicts.empty())
    out.verdicts = {Verdict::kOk};
  return out;
}

Judgement judge(const Bytes& message, Direction role, const Limits& limits) {
  if (message.size() < kFixedBytes)
    return {{Verdict::kTooShort}, {}};
  uint32_t version = xdr::load_u32(&message[4]);
  uint32_t proc = xdr::load_u32(&message[12]);
  if (version == 1 && proc == kProcError)
    return judge_error(message);
  if (version != 1 && !(proc == kProcError && message.size() >= 28))
    return {{Verdict::kBadVersion}, {}};
  if (proc == kProcError)
    return judge_error(message);
  if (proc > kProcError)
    return {{Verdict::kBadType}, {}};
  if (message.size() < kMinHeader && proc < 3)
    return {{Verdict::kTooShort}, {}};
  Judgement out = {{}, reference_decode(Wire::kVersion1, message)};
  if (!out.reference) {
    // A list that runs past the end may have another fault before its end.
    out.verdicts = {Verdict::kTruncated,         Verdict::kBadDiscriminator,
                    Verdict::kBadPosition,       Verdict::kTooManySegments,
                    Verdict::kTooManyReadChunks, Verdict::kTooManyWriteChunks,
                    Verdict::kTooManyBytes};
    return out;
  }
  out.verdicts = faults(*out.reference, message.size() - out.reference->length, role, limits);
  if (out.verdicts.empty())
    out.verdicts = {Verdict::kOk};
  return out;
}

void expect_same_content(const ReferenceHeader& reference, const Header& ours) {
  EXPECT_EQ(ours.xid, reference.xid);
  EXPECT_EQ(ours.version, reference.version);
  EXPECT_EQ(ours.credits, reference.credits);
  ASSERT_EQ(static_cast<uint32_t>(ours.type), reference.proc);
  if (ours.type == MessageType::kMsgp) {
    EXPECT_EQ(ours.msgp_align, reference.align);
    EXPECT_EQ(ours.msgp_thresh, reference.thresh);
  }
  if (ours.type == MessageType::kError) {
    EXPECT_EQ(ours.error.raw, reference.error);
    bool is_version = reference.error == kErrVers;
    EXPECT_EQ(ours.error.code, is_version ? ErrorCode::kVersion : ErrorCode::kBadHeader);
    EXPECT_EQ(ours.error.low, is_version ? reference.low : 0);
    EXPECT_EQ(ours.error.high, is_version ? reference.high : 0);
  } else if (ours.type != MessageType::kDone) {
    expect_same_lists(reference, ours.lists);
  }
}

void expect_same_encoding(const Bytes& message, const ReferenceHeader& reference,
                          const Header& ours) {
  Bytes encoded(encoded_length(ours));
  ASSERT_EQ(encode(ours, encoded), encoded.size());
  Bytes theirs = reference_encode(ours);
  if (ours.type == MessageType::kError && ours.error.code == ErrorCode::kBadHeader)
    theirs.resize(kMinError);
  EXPECT_TRUE(encoded == theirs) << hex(encoded) << "\n" << hex(theirs);
  bool sorted = std::ranges::is_sorted(reference.reads, {}, &ReferenceRead::position);
  if (sorted) {
    EXPECT_TRUE(std::equal(encoded.begin(), encoded.end(), message.begin()));
  }
}

class Differential : public testing::Test {
 protected:
  void check(const Bytes& message, Direction role, const Limits& limits) {
    Judgement judgement = judge(message, role, limits);
    // Not zeroed: fields that decode() does not write must not be read.
    Header& ours = header_;
    Decoded decoded = decode(message, role, version1_only(limits), ours);
    ++seen_[decoded.verdict];
    ASSERT_TRUE(judgement.verdicts.contains(decoded.verdict)) << to_string(decoded.verdict);
    if (message.size() >= kFixedBytes) {
      EXPECT_EQ(ours.xid, xdr::load_u32(&message[0]));
      EXPECT_EQ(ours.version, xdr::load_u32(&message[4]));
      EXPECT_EQ(ours.credits, xdr::load_u32(&message[8]));
    }
    if (decoded.verdict != Verdict::kOk)
      return;
    bool is_error = ours.type == MessageType::kError;
    if (!judgement.reference) {
      ASSERT_TRUE(is_error && ours.error.code == ErrorCode::kOther);
      EXPECT_EQ(ours.error.raw, xdr::load_u32(&message[kFixedBytes]));
      return;
    }
    bool is_short = is_error && ours.error.code == ErrorCode::kBadHeader;
    EXPECT_EQ(decoded.header_length, is_short ? kMinError : judgement.reference->length);
    expect_same_content(*judgement.reference, ours);
    expect_same_encoding(message, *judgement.reference, ours);
  }

  Header header_;
  std::map<Verdict, uint64_t> seen_;
};

constexpr Limits kAboveOurs = {1000, 1000, 1000, 1000, ~uint64_t{0}, ~uint64_t{0}};

// Shows: V1-HDR-01, V1-HDR-04, V1-HDR-05, V1-HDR-06, V1-HDR-08, V1-HDR-09, V1-HDR-10, V1-HDR-17,
// V1-HDR-20, V1-CHUNK-12, V1-RL-06, V1-RL-07, V1-RL-08, V1-LONG-08, V1-LONG-09, V1-ERR-06, EXP-28
TEST_F(Differential, DecodesAndEncodesAsTheSpecificationsXdrDoes) {
  HeaderRandom random(test::run_seed());
  const uint64_t count = number_of_headers();
  Bytes message;
  for (uint64_t i = 0; i < count; ++i) {
    random.generate(message);
    if (i % 2 == 1)
      random.mutate(message);
    Direction role = random.one_in(4) ? Direction::kReply : Direction::kCall;
    uint32_t kind = random.below(8);
    check(message, role, kind == 0 ? kNarrow : kind < 4 ? Limits{} : kWide);
    ASSERT_FALSE(HasFailure()) << "header " << i << ":" << hex(message);
  }
  for (auto [verdict, times] : seen_)
    std::cout << std::setw(9) << times << "  " << to_string(verdict) << "\n";
  if (count < kManyHeaders)
    return;
  // If a kind of header did not occur, the run would prove less than it seems to.
  for (int v = 0; v <= static_cast<int>(Verdict::kTooManyBytes); ++v) {
    if (Verdict(v) == Verdict::kBadDirection)  // version 1 has none
      continue;
    EXPECT_GE(seen_[Verdict(v)] * 10'000, count) << to_string(Verdict(v));
  }
  EXPECT_GE(seen_[Verdict::kOk] * 2, count);
}

// Shows: V1-HDR-20
TEST_F(Differential, RefusesEveryTruncationAsTheSpecificationsXdrDoes) {
  HeaderRandom random(test::run_seed());
  Bytes message;
  for (int i = 0; i < 200; ++i) {
    random.generate(message);
    if (message.size() > kInlineThreshold)
      continue;
    while (!message.empty()) {
      message.pop_back();
      // A copy of exactly this size, so that a sanitizer sees a read beyond its end.
      check(Bytes(message), Direction::kCall, kWide);
      ASSERT_FALSE(HasFailure()) << "header " << i << ":" << hex(message);
    }
  }
}

// Shows: V1-CHUNK-15
TEST_F(Differential, LimitsAboveWhatAHeaderHoldsAreThoseOfTheHeader) {
  HeaderRandom random(test::run_seed());
  Bytes message;
  for (int i = 0; i < 20'000; ++i) {
    random.generate(message);
    Header wide, above;
    Decoded a = decode(message, Direction::kCall, version1_only(kWide), wide);
    Decoded b = decode(message, Direction::kCall, version1_only(kAboveOurs), above);
    ASSERT_EQ(a.verdict, b.verdict) << hex(message);
  }
}

}  // namespace
}  // namespace rrdk::proto

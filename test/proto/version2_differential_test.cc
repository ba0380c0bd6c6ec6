// Our codecs of version 2 against those that rpcgen makes from the drafts' XDR: as in
// version1_differential_test.cc, for each draft.
#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <map>

#include "differential.h"
#include "header_random.h"
#include "proto/properties.h"
#include "test/seed.h"

namespace rrdk::proto {
namespace {

using Bytes = HeaderRandom::Bytes;

constexpr uint32_t kMsg = 0, kNoMsg = 1, kReserved = 2, kError = 4, kOptional = 5, kConnProp = 6;
constexpr uint32_t kErrVers = 1;
constexpr size_t kErrVersBytes = 28;
constexpr size_t kMinErrorBytes = 20;
constexpr size_t kDirectionAt = 16;

uint32_t word_of(const Bytes& message, size_t at) {
  return xdr::load_u32(&message[at]);
}

bool is_defined(Wire wire, uint32_t proc) {
  if (wire == Wire::kDraft00)
    return proc <= 5 && proc != kReserved;
  return proc <= 1 || (proc >= kError && proc <= 9);
}

Judgement judge_error(Wire wire, const Bytes& message) {
  if (message.size() < kMinErrorBytes)
    return {{Verdict::kTooShort}, {}};
  Judgement out = {{Verdict::kOk}, reference_decode(wire, message)};
  uint32_t code = word_of(message, kFixedBytes);
  bool is_known = code != 0 && code <= (wire == Wire::kDraft00 ? 3 : 10);
  if (!out.reference && is_known)  // an unknown error is still an error
    out.verdicts = {Verdict::kTruncated};
  return out;
}

Judgement judge(Wire wire, const Bytes& message, Direction role, const Limits& limits) {
  if (message.size() < kFixedBytes)
    return {{Verdict::kTooShort}, {}};
  uint32_t proc = word_of(message, 12);
  bool is_err_vers = proc == kError && message.size() >= kErrVersBytes &&
                     word_of(message, kFixedBytes) == kErrVers;
  if (word_of(message, 4) != 2 && !is_err_vers)
    return {{Verdict::kBadVersion}, {}};
  if (!is_defined(wire, proc))
    return {{Verdict::kBadType}, {}};
  if (proc == kError)
    return judge_error(wire, message);
  bool has_lists = proc == kMsg || proc == kNoMsg;
  if (wire == Wire::kDraft00 && has_lists && message.size() < kMinHeader)
    return {{Verdict::kTooShort}, {}};

  Judgement out = {{}, reference_decode(wire, message)};
  bool says_direction = wire == Wire::kDraft04 && (has_lists || proc == kOptional);
  if (out.reference)
    out.verdicts = faults_of_version2(wire, *out.reference, message, role, limits);
  else if (says_direction && message.size() >= 20 && word_of(message, kDirectionAt) > 1)
    out.verdicts = {Verdict::kBadDirection};
  else if (has_lists)  // a list that runs past the end may have another fault before its end
    out.verdicts = {Verdict::kTruncated, Verdict::kBadDiscriminator, Verdict::kBadPosition};
  else if (proc == kOptional)
    out.verdicts = {Verdict::kTruncated};
  if (out.verdicts.empty())
    out.verdicts = {Verdict::kOk};
  return out;
}

// The direction of the message, read as simply as possible.
Direction direction_of(Wire wire, const Bytes& message, const ReferenceHeader* reference,
                       Direction role) {
  uint32_t proc = word_of(message, 12);
  if (proc == kError)
    return Direction::kReply;
  if (wire == Wire::kDraft04 && (proc <= kNoMsg || proc == kOptional)) {
    uint32_t direction = message.size() >= 20 ? word_of(message, kDirectionAt) : 7;
    return direction > 1 ? Direction::kUnknown : static_cast<Direction>(direction);
  }
  if (reference == nullptr || proc > kNoMsg)
    return role;
  if (proc == kNoMsg) {  // a long reply has no Position-Zero chunk
    bool is_call = std::ranges::count(reference->reads, 0u, &ReferenceRead::position) != 0;
    return is_call ? Direction::kCall : role;
  }
  if (message.size() < reference->length + 8)
    return role;
  uint32_t msg_type = word_of(message, reference->length + 4);
  return msg_type > 1 ? role : static_cast<Direction>(msg_type);
}

ErrorCode code_of(Wire wire, uint32_t code) {
  constexpr ErrorCode k00[] = {ErrorCode::kVersion, ErrorCode::kBadHeader, ErrorCode::kBadOption};
  constexpr ErrorCode k04[] = {ErrorCode::kVersion,       ErrorCode::kBadHeader,
                               ErrorCode::kBadProc,       ErrorCode::kReadChunks,
                               ErrorCode::kWriteChunks,   ErrorCode::kSegments,
                               ErrorCode::kWriteResource, ErrorCode::kReplyResource,
                               ErrorCode::kBadOption,     ErrorCode::kSystem};
  return wire == Wire::kDraft00 ? k00[code - 1] : k04[code - 1];
}

void expect_same_error(Wire wire, const ReferenceHeader& reference, const ErrorBody& ours) {
  EXPECT_EQ(ours.raw, reference.error);
  EXPECT_EQ(ours.code, code_of(wire, reference.error));
  EXPECT_EQ(ours.low, reference.low);
  EXPECT_EQ(ours.high, reference.high);
  EXPECT_EQ(ours.maximum, reference.maximum);
  EXPECT_EQ(ours.index, reference.index);
  EXPECT_EQ(ours.length, reference.needed);
}

void expect_same_subset(const std::vector<uint32_t>& words, const PropertySubset& ours) {
  for (uint32_t i = 0; i < 32 * words.size(); ++i)
    ASSERT_EQ(ours.has(i), (words[i / 32] >> i % 32 & 1) != 0) << i;
  EXPECT_FALSE(ours.has(static_cast<uint32_t>(32 * words.size())));
  EXPECT_FALSE(ours.has(0xffffffff));
}

// Our encoder's bytes for the result of rpcgen's decoder equal rpcgen's.
void expect_same_encoding_of_properties(const ReferenceHeader& reference, MessageType type) {
  std::vector<Property> set;
  for (const ReferenceProperty& property : reference.set)
    set.push_back({property.id, property.data});
  Bytes encoded(reference.length);
  uint32_t length = encode({.type = type,
                            .xid = reference.xid,
                            .credits = reference.credits,
                            .set = set,
                            .first = reference.first,
                            .second = reference.second},
                           encoded);
  ASSERT_EQ(length, encoded.size());
  EXPECT_TRUE(encoded == reference.again) << hex(encoded) << "\n" << hex(reference.again);
}

void expect_same_properties(const Bytes& message, const std::optional<ReferenceHeader>& reference,
                            MessageType type) {
  PropertyBody body;
  Verdict verdict = decode_properties(message, type, body);
  ASSERT_EQ(verdict, reference ? Verdict::kOk : Verdict::kTruncated);
  if (!reference)
    return;
  EXPECT_EQ(body.length, reference->length);
  ASSERT_EQ(body.set.count(), reference->set.size());
  uint32_t seen = 0;
  body.set.for_each([&](uint32_t i, const Property& ours) {
    EXPECT_EQ(i, seen++);
    EXPECT_EQ(ours.id, reference->set[i].id);
    EXPECT_TRUE(std::ranges::equal(ours.data, reference->set[i].data));
  });
  EXPECT_EQ(seen, reference->set.size());
  expect_same_subset(reference->first, body.first);
  expect_same_subset(reference->second, body.second);
  expect_same_encoding_of_properties(*reference, type);
}

void expect_same_option(const Bytes& message, const ReferenceHeader& reference,
                        const Header& ours) {
  EXPECT_EQ(ours.option.type, reference.option_type);
  ASSERT_LE(ours.option.offset + ours.option.length, message.size());
  auto data = std::span(message).subspan(ours.option.offset, ours.option.length);
  EXPECT_TRUE(std::ranges::equal(data, reference.option));
  Bytes encoded(reference.length);
  ASSERT_EQ(encode_option(ours, data, encoded), encoded.size());
  EXPECT_TRUE(encoded == reference.again) << hex(encoded) << "\n" << hex(reference.again);
}

void expect_same_encoding(const ReferenceHeader& reference, const Header& ours) {
  Bytes encoded(encoded_length(ours));
  ASSERT_EQ(encode(ours, encoded), encoded.size());
  Bytes theirs = reference_encode(ours);
  EXPECT_TRUE(encoded == theirs) << hex(encoded) << "\n" << hex(theirs);
  if (std::ranges::is_sorted(reference.reads, {}, &ReferenceRead::position)) {
    EXPECT_TRUE(encoded == reference.again) << hex(encoded) << "\n" << hex(reference.again);
  }
}

// A message that match_plain() accepts is plain according to the slow decoder, too, and the other
// way round.
void expect_plain_if_it_is(Wire wire, const Bytes& message, const ReferenceHeader& reference,
                           const Limits& limits) {
  bool has_nothing = reference.proc == kMsg && reference.version == 2 && reference.reads.empty() &&
                     reference.writes.empty() && !reference.reply && reference.invalidate == 0;
  bool has_direction = wire == Wire::kDraft00 || word_of(message, kDirectionAt) <= 1;
  bool has_message = message.size() >= min_header(wire) + 8;
  bool is_plain = has_nothing && has_direction && has_message;
  if (is_plain) {
    uint32_t rpc = min_header(wire);
    uint32_t type = word_of(message, rpc + 4);
    is_plain = type <= 1 && word_of(message, rpc) == word_of(message, 0) &&
               (wire == Wire::kDraft00 || type == word_of(message, kDirectionAt));
  }
  Plain plain;
  ASSERT_EQ(match_plain(message, limits.versions, plain), is_plain);
  if (!is_plain)
    return;
  Header fast;
  fill_header(plain, fast);
  Header slow;
  Decoded decoded = decode(message, Direction::kUnknown, limits, slow);
  EXPECT_EQ(decoded.verdict, Verdict::kOk);
  EXPECT_EQ(decoded.header_length, plain.header_length());
  EXPECT_TRUE(fast.xid == slow.xid && fast.version == slow.version &&
              fast.credits == slow.credits && fast.wire == slow.wire && fast.type == slow.type &&
              fast.direction == slow.direction && fast.invalidate == slow.invalidate &&
              slow.lists.num_segments == 0);
}

class Differential2 : public testing::TestWithParam<Wire> {
 protected:
  Wire wire() const { return GetParam(); }

  void check(const Bytes& message, Direction role, Limits limits) {
    limits.versions = {.one = false, .two = wire()};
    Judgement judgement = judge(wire(), message, role, limits);
    // Not zeroed: fields that decode() does not write must not be read.
    Header& ours = header_;
    Decoded decoded = decode(message, role, limits, ours);
    ++seen_[decoded.verdict];
    ASSERT_TRUE(judgement.verdicts.contains(decoded.verdict)) << to_string(decoded.verdict);
    if (message.size() < kFixedBytes)
      return;
    EXPECT_EQ(ours.xid, word_of(message, 0));
    EXPECT_EQ(ours.version, word_of(message, 4));
    EXPECT_EQ(ours.credits, word_of(message, 8));
    const ReferenceHeader* reference = judgement.reference ? &*judgement.reference : nullptr;
    if (reference != nullptr)
      expect_plain_if_it_is(wire(), message, *reference, limits);
    if (decoded.verdict == Verdict::kBadDirection) {
      EXPECT_EQ(ours.direction, direction_of(wire(), message, reference, role));
    }
    if (decoded.verdict == Verdict::kOk)
      check_accepted(message, judgement.reference, role, decoded);
  }

  Header header_;
  std::map<Verdict, uint64_t> seen_;
  std::map<MessageType, uint64_t> accepted_;
  std::map<uint32_t, uint64_t> errors_;

 private:
  void check_accepted(const Bytes& message, const std::optional<ReferenceHeader>& reference,
                      Direction role, const Decoded& decoded) {
    const Header& ours = header_;
    ++accepted_[ours.type];
    ASSERT_EQ(static_cast<uint32_t>(ours.type), word_of(message, 12));
    EXPECT_EQ(ours.direction,
              direction_of(wire(), message, reference ? &*reference : nullptr, role));
    if (static_cast<uint32_t>(ours.type) >= kConnProp) {
      EXPECT_EQ(decoded.header_length, kFixedBytes);
      return expect_same_properties(message, reference, ours.type);
    }
    if (!reference) {
      ASSERT_TRUE(ours.type == MessageType::kError && ours.error.code == ErrorCode::kOther);
      EXPECT_EQ(ours.error.raw, word_of(message, kFixedBytes));
      return;
    }
    EXPECT_EQ(decoded.header_length, reference->length);
    switch (ours.type) {
      case MessageType::kError:
        ++errors_[ours.error.raw];
        expect_same_error(wire(), *reference, ours.error);
        break;
      case MessageType::kOptional:
        return expect_same_option(message, *reference, ours);
      case MessageType::kDone:
        return;
      default:
        EXPECT_EQ(ours.invalidate, reference->invalidate);
        expect_same_lists(*reference, ours.lists);
    }
    expect_same_encoding(*reference, ours);
  }
};

constexpr Limits kNarrowChunks = {8, 2, 2, 12, 4096, 8192, 4};

// Shows: V2D0-HDR-01, V2D0-HDR-02, V2D0-HDR-03, V2D0-HDR-04, V2D0-ERR-01, V2D0-OPT-01, V2D0-OPT-07,
// V2D4-HDR-01, V2D4-HDR-02, V2D4-HDR-03, V2D4-HDR-04, V2D4-HDR-05, V2D4-HDR-06, V2D4-HDR-07,
// V2D4-HDR-08, V2D4-ERR-01, V2D4-ERR-18, V2D4-OPT-01, V2D4-POP-01, V2D4-POP-02, V2D4-PROP-03,
// V2D4-PROP-05, V2X-13
TEST_P(Differential2, DecodesAndEncodesAsTheDraftsXdrDoes) {
  HeaderRandom random(test::run_seed());
  const uint64_t count = number_of_headers() / 2;
  Bytes message;
  for (uint64_t i = 0; i < count; ++i) {
    random.generate2(message, wire());
    if (i % 2 == 1)
      random.mutate(message);
    Direction role = random.one_in(4) ? Direction::kReply : Direction::kCall;
    uint32_t kind = random.below(8);
    check(message, role, kind == 0 ? kNarrowChunks : kind < 4 ? Limits{} : kWide);
    ASSERT_FALSE(HasFailure()) << "header " << i << ":" << hex(message);
  }
  for (auto [verdict, times] : seen_)
    std::cout << std::setw(9) << times << "  " << to_string(verdict) << "\n";
  if (count < kManyHeaders)
    return;
  // If a kind of header did not occur, the run would prove less than it seems to.
  for (int v = 0; v <= static_cast<int>(Verdict::kTooManyBytes); ++v) {
    if (Verdict(v) == Verdict::kBadDirection && wire() == Wire::kDraft00)
      continue;
    EXPECT_GE(seen_[Verdict(v)] * 10'000, count) << to_string(Verdict(v));
  }
  EXPECT_GE(seen_[Verdict::kOk] * 2, count);
  const auto last = wire() == Wire::kDraft00 ? MessageType::kOptional : MessageType::kUpdProp;
  for (int t = 0; t <= static_cast<int>(last); ++t) {
    if (is_defined(wire(), static_cast<uint32_t>(t))) {
      EXPECT_GE(accepted_[MessageType(t)] * 10'000, count) << t;
    }
  }
  for (uint32_t code = 1; code <= (wire() == Wire::kDraft00 ? 3u : 10u); ++code)
    EXPECT_GE(errors_[code] * 10'000, count) << code;
}

// Shows: V2D0-ERR-02, V2D4-ERR-07, V2D4-ERR-23
TEST_P(Differential2, RefusesEveryTruncationAsTheDraftsXdrDoes) {
  HeaderRandom random(test::run_seed());
  Bytes message;
  for (int i = 0; i < 300; ++i) {
    random.generate2(message, wire());
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

INSTANTIATE_TEST_SUITE_P(Drafts, Differential2, testing::Values(Wire::kDraft00, Wire::kDraft04),
                         [](const auto& param) {
                           return param.param == Wire::kDraft00 ? "Draft00" : "Draft04";
                         });

}  // namespace
}  // namespace rrdk::proto

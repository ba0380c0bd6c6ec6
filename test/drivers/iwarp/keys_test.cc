// Peers that access memory without a valid key: the memory stays unchanged, they are told why, and
// the other connection continues (RawClient's destructor).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "test/drivers/iwarp/raw_client.h"

namespace rrdk::iwarp::test {
namespace {

TEST_F(RawClient, AccessesOutsideTheKeysAreTerminated) {
  connect();
  const Bytes some = payload(16);
  const auto read = [&](uint32_t stag, uint64_t at, uint32_t length) {
    return read_request(
        1, {.sink_stag = 5, .length = length, .source_stag = stag, .source_offset = at});
  };
  struct Case {
    const char* what;
    std::function<Bytes()> bytes;
    Cause cause;
    const char* counter;
  };
  const Case cases[] = {
      {"a Write to an invalid key", [&] { return write(0x1234567, base(), some); },
       Cause::kTaggedInvalidStag, "refused_keys"},
      {"a Write with the key for reading", [&] { return write(read_key_, base(), some); },
       Cause::kAccessRights, "refused_rights"},
      {"a Write before the window", [&] { return write(write_key_, base() - 1, some); },
       Cause::kTaggedOutOfBounds, "refused_bounds"},
      {"a Write across its end", [&] { return write(write_key_, base() + 4081, some); },
       Cause::kTaggedOutOfBounds, "refused_bounds"},
      {"a Write at the end of the address space",
       [&] { return write(write_key_, UINT64_MAX - 3, some); }, Cause::kTaggedOutOfBounds,
       "refused_bounds"},
      {"a Read of an invalid key", [&] { return read(77, base(), 4); }, Cause::kInvalidStag,
       "refused_keys"},
      {"a Read with the key for writing", [&] { return read(write_key_, base(), 4); },
       Cause::kAccessRights, "refused_rights"},
      {"a Read beyond the window", [&] { return read(read_key_, base(), 4097); },
       Cause::kOutOfBounds, "refused_bounds"},
      {"a Read that wraps around", [&] { return read(read_key_, base(), UINT32_MAX); },
       Cause::kOutOfBounds, "refused_bounds"},
  };
  for (const Case& one : cases) {
    expect_terminated({one.what, one.bytes(), one.cause, one.counter});
    again();
  }
}

TEST_F(RawClient, AKeyThatDiesUnderAWriteIsNotWrittenAnyMore) {
  connect();
  const Bytes bytes = write(write_key_, base(), payload(4000));
  peer_.say(Bytes(bytes.begin(), bytes.begin() + 1016));
  ASSERT_TRUE(until([&] { return window().data[999] != std::byte{0x5a}; }));
  run(fabric::test::invalidate_wr(5, write_key_));
  std::fill_n(window().data, 4096, std::byte{0x5a});
  peer_.say(Bytes(bytes.begin() + 1016, bytes.end()));
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  const auto last = peer_.take_segment();
  ASSERT_TRUE(last);
  EXPECT_EQ(decode_terminate(last->payload).cause, Cause::kTaggedInvalidStag);
  EXPECT_EQ(pair_.server.counter("refused_keys"), 1u);
  EXPECT_TRUE(untouched());
}

TEST_F(RawClient, AKeyThatDiesUnderAReadIsNotReadAnyMore) {
  connect();
  // Reads until TCP is full: the answers are not taken.
  Buffer large = fabric::test::test_memory().get(1 << 20);
  std::fill_n(large.data(), 1 << 20, std::byte{1});
  uint32_t key = 0;
  ASSERT_TRUE(qp_->reserve_keys(std::span(&key, 1)));
  run(fabric::test::bind_wr(1, key, large.first(1 << 20), Rights::kRemoteRead));
  peer_.take_little();
  for (uint32_t i = 1; i != kReads + 1; ++i)
    peer_.say(read_request(i, {.sink_stag = 5,
                               .length = 1 << 20,
                               .source_stag = key,
                               .source_offset = fabric::test::address_of(large.data())}));
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.counter("tcp_waits") != 0; }));
  run(fabric::test::invalidate_wr(5, key));
  std::fill_n(large.data(), 1 << 20, std::byte{2});
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  EXPECT_EQ(std::ranges::count(peer_.got(), std::byte{2}) < 100, true);
  for (auto segment = peer_.take_segment(); segment; segment = peer_.take_segment()) {
    if (segment->header.opcode != Opcode::kReadResponse) {
      EXPECT_EQ(segment->header.opcode, Opcode::kTerminate);
      EXPECT_EQ(decode_terminate(segment->payload).cause, Cause::kInvalidStag);
      EXPECT_EQ(decode_terminate(segment->payload).segment.queue, kReadQueue);
      continue;
    }
    EXPECT_TRUE(
        std::ranges::all_of(segment->payload, [](std::byte b) { return b == std::byte{1}; }));
  }
}

// The key of another connection, of an earlier call, and of the past.
TEST_F(RawClient, OnlyLivingKeysOfTheConnectionOpenMemory) {
  connect();
  const Bytes some = payload(16);
  Buffer foreign = fabric::test::test_memory().get(4096);
  std::fill_n(foreign.data(), 4096, std::byte{0x5a});
  for (const Rights rights : {Rights::kRemoteWrite, Rights::kRemoteRead}) {
    for (const char* which : {"foreign", "killed", "released", "never bound"}) {
      SCOPED_TRACE(which);
      uint32_t key = 0;
      uint64_t at = base();
      if (which == std::string("foreign")) {
        key = pair_.expose(foreign.first(4096), rights);
        at = fabric::test::address_of(foreign.data());
      } else {
        ASSERT_TRUE(qp_->reserve_keys(std::span(&key, 1)));
        if (which != std::string("never bound"))
          run(fabric::test::bind_wr(1, key, window(), rights));
        if (which == std::string("killed"))
          run(fabric::test::invalidate_wr(2, key));
        if (which == std::string("released"))
          qp_->release_key(key);
      }
      if (rights == Rights::kRemoteWrite)
        expect_terminated(
            {"a Write", write(key, at, some), Cause::kTaggedInvalidStag, "refused_keys"});
      else
        expect_terminated(
            {"a Read",
             read_request(1,
                          {.sink_stag = 5, .length = 16, .source_stag = key, .source_offset = at}),
             Cause::kInvalidStag, "refused_keys"});
      EXPECT_TRUE(std::all_of(foreign.data(), foreign.data() + 4096,
                              [](std::byte b) { return b == std::byte{0x5a}; }));
      again();
    }
  }
}

// The key that a Send with Invalidate invalidates is invalid for the very next bytes.
TEST_F(RawClient, ThePeerMayKillItsKeyAndIsThenHeldToIt) {
  connect();
  Bytes both =
      fpdu({.last = true, .opcode = Opcode::kSendInvalidate, .stag = write_key_, .number = 1},
           payload(8));
  const Bytes late = write(write_key_, base(), payload(16));
  both.insert(both.end(), late.begin(), late.end());
  expect_terminated({"a Write with it", both, Cause::kTaggedInvalidStag, "refused_keys"});
  const auto done = completions();
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].invalidated_key, write_key_);
}

// RFC 5040 sections 5.1 and 5.2: for zero bytes the STag is not checked.
TEST_F(RawClient, NothingMayBeReadAndWrittenAnywhere) {
  connect();
  peer_.say(write(0xdeadbeef, UINT64_MAX, {}));
  peer_.say(read_request(1, {.sink_stag = 9, .source_stag = 0xdeadbeef, .source_offset = 1}));
  peer_.say(write(write_key_, base() + 4096, {}));
  peer_.say(send(1, payload(8)));
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
  ASSERT_TRUE(until([&] { return peer_.got().size() >= 20; }));
  const auto answer = peer_.take_segment();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.opcode, Opcode::kReadResponse);
  EXPECT_EQ(answer->header.stag, 9u);
  EXPECT_TRUE(answer->payload.empty());
  EXPECT_TRUE(untouched());
}

TEST_F(RawClient, AWindowIsOpenToItsLastByte) {
  connect();
  peer_.say(write(write_key_, base() + 4095, {std::byte{7}}));
  peer_.say(read_request(
      1, {.sink_stag = 9, .length = 1, .source_stag = read_key_, .source_offset = base() + 4095}));
  ASSERT_TRUE(until([&] { return peer_.got().size() >= 24; }));
  const auto answer = peer_.take_segment();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->payload, Bytes{std::byte{7}});
}

// A length beyond the available memory is refused before any of the data has come.
TEST_F(RawClient, EveryLengthIsHeldToTheWindow) {
  connect();
  for (uint32_t ulpdu = 0; ulpdu <= kMaxUlpdu; ulpdu += ulpdu < 20 ? 1 : 1637) {
    SCOPED_TRACE(ulpdu);
    Bytes bytes = write(write_key_, base(), payload(4));
    bytes[0] = static_cast<std::byte>(ulpdu >> 8);
    bytes[1] = static_cast<std::byte>(ulpdu);
    bytes.resize(kLengthField + kTaggedHeader);
    if (ulpdu < kTaggedHeader) {
      expect_terminated({"below the header's", bytes, Cause::kCatastrophic, "bad_lengths"});
      again();
    } else if (ulpdu > kTaggedHeader + 4096) {
      expect_terminated({"beyond the window", bytes, Cause::kTaggedOutOfBounds, "refused_bounds"});
      again();
    }
  }
}

}  // namespace
}  // namespace rrdk::iwarp::test

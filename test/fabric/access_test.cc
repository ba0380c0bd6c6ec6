// RDMA Read and Write: remote keys, their bounds, rights, and end.
#include <algorithm>
#include <map>
#include <set>

#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"

namespace rrdk::fabric::test {
namespace {

constexpr std::byte kMark{0x5a};
constexpr uint32_t kSize = 4096;

class Access : public testing::TestWithParam<FabricUnderTest> {
 protected:
  Access() : pair_(GetParam().new_uri()) {
    std::fill_n(local_.data(), kSize, std::byte{1});
    std::fill_n(remote_.data(), 3 * kSize, kMark);
  }
  // Only the middle third is exposed: the memory around it must stay unchanged.
  MemorySpan exposed() const { return {remote_.data() + kSize, kSize, remote_.region()}; }
  uint64_t base() const { return address_of(exposed().data); }
  bool remote_untouched() const {
    return std::all_of(remote_.data(), remote_.data() + 3 * kSize,
                       [](std::byte b) { return b == kMark; });
  }
  // How a request that the peer refused may end. Devices over TCP may report the refusal of a Read
  // as the end of the connection.
  static bool is_refusal(const Pair& pair, Op op, WcStatus status) {
    if (op != Op::kRead && !pair.acknowledges())
      return status == WcStatus::kSuccess;
    const bool may_flush = !pair.acknowledges() && !pair.can().counts_causes;
    return status == WcStatus::kRemoteAccess || (may_flush && status == WcStatus::kFlushed);
  }
  // The access is refused, both ends of the connection end, and the memory is unchanged.
  void expect_refused(const SendWr& wr) {
    const WcStatus status = pair_.run(wr).status;
    EXPECT_TRUE(is_refusal(pair_, wr.op, status)) << to_string(status);
    EXPECT_TRUE(pair_.pump_until([&] {
      return pair_.client.has_event(EventType::kDisconnected) &&
             pair_.server.has_event(EventType::kDisconnected);
    }));
    EXPECT_TRUE(remote_untouched());
    EXPECT_TRUE(std::all_of(local_.data(), local_.data() + kSize,
                            [](std::byte b) { return b == std::byte{1}; }));
  }

  Pair pair_;
  Buffer local_ = test_memory().get(1 << 20);
  Buffer remote_ = test_memory().get(1 << 20);
};
INSTANTIATE_TEST_SUITE_P(Fabric, Access, all_fabrics(), fabric_name);

TEST_P(Access, ReadsAndWritesWhatTheKeyCovers) {
  const uint32_t reader = pair_.expose(exposed(), Rights::kRemoteRead);
  const uint32_t writer = pair_.expose(exposed(), Rights::kRemoteWrite);
  pair_.write(access_wr(1, Op::kWrite, local_.first(kSize), writer, base()));
  EXPECT_EQ(std::memcmp(exposed().data, local_.data(), kSize), 0);
  EXPECT_EQ(exposed().data[-1], kMark);
  EXPECT_EQ(exposed().data[kSize], kMark);
  // The last byte alone, and a part from the middle.
  exposed().data[kSize - 1] = std::byte{7};
  const Completion last =
      pair_.run(access_wr(2, Op::kRead, local_.first(1), reader, base() + kSize - 1));
  EXPECT_EQ(last.status, WcStatus::kSuccess);
  EXPECT_EQ(last.byte_length, 1u);
  EXPECT_EQ(local_.data()[0], std::byte{7});
  EXPECT_EQ(local_.data()[1], std::byte{1});
}

TEST_P(Access, ScattersReadsAndGathersWrites) {
  const uint32_t reader = pair_.expose(exposed(), Rights::kRemoteRead);
  const uint32_t writer = pair_.expose(exposed(), Rights::kRemoteWrite);
  ASSERT_GE(pair_.can().max_sges, 3u);
  SendWr wr = access_wr(1, Op::kWrite, local_.first(10), writer, base());
  wr.num_sges = 3;
  wr.sges[1] = {local_.data() + 100, 0, local_.region()};
  wr.sges[2] = {local_.data() + 200, 20, local_.region()};
  std::fill_n(local_.data() + 200, 20, std::byte{2});
  pair_.write(wr);
  EXPECT_EQ(exposed().data[9], std::byte{1});
  EXPECT_EQ(exposed().data[10], std::byte{2});
  EXPECT_EQ(exposed().data[29], std::byte{2});
  EXPECT_EQ(exposed().data[30], kMark);
  if (pair_.can().max_read_sges < 3)
    return;
  wr.op = Op::kRead;
  wr.key = reader;
  wr.sges[0].data = local_.data() + 1000;
  wr.sges[2].data = local_.data() + 2000;
  EXPECT_EQ(pair_.run(wr).byte_length, 30u);
  EXPECT_EQ(local_.data()[1009], std::byte{1});
  EXPECT_EQ(local_.data()[2019], std::byte{2});
}

// A key that stands for several runs of the server's memory, of odd lengths and with gaps between
// them.
class ListedKey : public Access {
 protected:
  static constexpr uint32_t kRuns = 100;

  void SetUp() override {
    if (!pair_.can().binds_lists)
      GTEST_SKIP() << "a key of this driver stands for one run";
    std::vector<MemorySpan> runs;
    std::byte* at = remote_.data() + 3 * kSize;
    for (uint32_t i = 0; i != kRuns; ++i) {
      const uint32_t length = i % 7 == 0 ? 3000 + i : i * 13 % 40 + 1;
      runs.push_back({at, length, remote_.region()});
      for (uint32_t k = 0; k != length; ++k)
        bytes_.push_back(at[k] = std::byte(bytes_.size() * 31 + i));
      at += length + 1;
    }
    const auto size = static_cast<uint32_t>(std::span(runs).size_bytes());
    std::memcpy(list_.data(), runs.data(), size);
    ASSERT_TRUE(pair_.server_qp->reserve_keys(std::span(&key_, 1)));
    SendWr wr = bind_wr(900, key_, list_.first(size), Rights::kRemoteRead);
    wr.runs = kRuns;
    ASSERT_EQ(pair_.run(pair_.server, *pair_.server_qp, wr).status, WcStatus::kSuccess);
  }
  SendWr read(uint64_t from, uint32_t length) {
    return access_wr(2, Op::kRead, local_.first(length), key_, address_of(list_.data()) + from);
  }

  Buffer list_ = test_memory().get(65536);
  std::vector<std::byte> bytes_;  // of all runs
  uint32_t key_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Fabric, ListedKey, all_fabrics(), fabric_name);

TEST_P(ListedKey, IsReadAsOneRange) {
  const auto size = static_cast<uint32_t>(bytes_.size());
  for (const uint32_t from : {0u, 1u, 3000u, 3001u, size / 2, size - 1}) {
    for (const uint32_t length : {1u, 17u, 9000u, size}) {
      if (length > size - from)
        continue;
      const Completion done = pair_.run(read(from, length));
      ASSERT_EQ(done.status, WcStatus::kSuccess);
      EXPECT_EQ(done.byte_length, length);
      EXPECT_EQ(std::memcmp(local_.data(), bytes_.data() + from, length), 0);
    }
  }
  // Into several runs of the reader's.
  SendWr wr = read(5, 100);
  if (pair_.can().max_read_sges < 3)
    return;
  wr.num_sges = 3;
  wr.sges[1] = {local_.data() + 5000, 0, local_.region()};
  wr.sges[2] = {local_.data() + 70000, 9000, local_.region()};
  EXPECT_EQ(pair_.run(wr).byte_length, 9100u);
  EXPECT_EQ(std::memcmp(local_.data(), bytes_.data() + 5, 100), 0);
  EXPECT_EQ(std::memcmp(local_.data() + 70000, bytes_.data() + 105, 9000), 0);
}

TEST_P(ListedKey, HasBoundsBehindItsLastRun) {
  expect_refused(read(bytes_.size() - 10, 11));
  EXPECT_TRUE(pair_.counted("refused_bounds", 1));
}

TEST_P(ListedKey, HasBoundsBeforeItsFirstRun) {
  expect_refused(read(UINT64_MAX, 1));
  EXPECT_TRUE(pair_.counted("refused_bounds", 1));
}

TEST_P(ListedKey, IsNotForWriting) {
  SendWr wr = read(0, 100);
  wr.op = Op::kWrite;
  expect_refused(wr);
  EXPECT_TRUE(pair_.counted("refused_rights", 1));
}

TEST_P(ListedKey, IsInvalidatedAsAWhole) {
  EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, invalidate_wr(3, key_)).status,
            WcStatus::kSuccess);
  expect_refused(read(0, 1));
  EXPECT_TRUE(pair_.counted("refused_keys", 1));
}

// What the poster got wrong ends the connection, as with any key.
TEST_P(ListedKey, IsNotBoundToWhatIsNoMemoryOfOurs) {
  std::byte heap[64];
  const MemorySpan runs[] = {local_.first(10), {heap, sizeof heap, local_.region()}};
  std::memcpy(list_.data() + 32768, runs, sizeof runs);
  uint32_t key = 0;
  ASSERT_TRUE(pair_.server_qp->reserve_keys(std::span(&key, 1)));
  SendWr wr =
      bind_wr(900, key, {list_.data() + 32768, sizeof runs, list_.region()}, Rights::kRemoteRead);
  wr.runs = 2;
  EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, wr).status, WcStatus::kLocalProtection);
}

// Data that cannot be read at once leaves no trace: posted, the request reports the fault.
TEST_P(Access, ReadsAtOnceOrNotAtAll) {
  const uint32_t reader = pair_.expose(exposed(), Rights::kRemoteRead);
  const uint32_t writer = pair_.expose(exposed(), Rights::kRemoteWrite);
  QueuePair& qp = *pair_.client_qp;
  if (!qp.read_now(local_.first(100), reader, base()))
    GTEST_SKIP() << "this driver reads nothing at once";
  EXPECT_EQ(std::memcmp(local_.data(), exposed().data, 100), 0);
  EXPECT_EQ(local_.data()[100], std::byte{1});
  EXPECT_TRUE(qp.read_now(local_.first(kSize), reader, base()));
  exposed().data[kSize - 1] = std::byte{7};
  EXPECT_TRUE(qp.read_now(local_.first(1), reader, base() + kSize - 1));
  EXPECT_EQ(local_.data()[0], std::byte{7});
  const auto refused = [&] {
    return pair_.counter("refused_keys") + pair_.counter("refused_rights") +
           pair_.counter("refused_bounds");
  };
  EXPECT_FALSE(qp.read_now(local_.first(2), reader, base() + kSize - 1));
  EXPECT_FALSE(qp.read_now(local_.first(1), reader, base() - 1));
  EXPECT_FALSE(qp.read_now(local_.first(1), writer, base()));
  EXPECT_FALSE(qp.read_now(local_.first(1), reader ^ 0x40000000, base()));
  EXPECT_FALSE(qp.read_now(local_.first(1), 0, 0));
  for (const uint32_t key : {reader, 0u, UINT32_MAX})
    qp.expect_read(key);
  EXPECT_EQ(refused(), 0u);
  EXPECT_EQ(local_.data()[0], std::byte{7});
  EXPECT_EQ(pair_.run(access_wr(1, Op::kRead, local_.first(100), reader, base())).status,
            WcStatus::kSuccess);
  EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, invalidate_wr(2, reader)).status,
            WcStatus::kSuccess);
  EXPECT_FALSE(qp.read_now(local_.first(1), reader, base()));
  qp.disconnect();
  qp.expect_read(reader);
  EXPECT_FALSE(qp.read_now(local_.first(1), reader, base()));
}

TEST_P(Access, ReadsNothingAtOnceBeforeThereIsAConnection) {
  End end(GetParam().new_uri());
  std::unique_ptr<QueuePair> qp = end.queue_pair();
  qp->expect_read(1);
  EXPECT_FALSE(qp->read_now(local_.first(1), 1, 0));
}

// As many Reads as the peer serves wait for it, and each gets the data that it asked for.
TEST_P(Access, ReadsWaitTogetherForAPeerThatIsBusy) {
  const uint32_t reader = pair_.expose(exposed(), Rights::kRemoteRead);
  const uint32_t reads = std::min(pair_.client_qp->reads_allowed(), kSize / 8);
  ASSERT_GT(reads, 0u);
  for (uint32_t i = 0; i < kSize; ++i)
    exposed().data[i] = static_cast<std::byte>(i / 8 + i % 8);
  for (uint32_t round = 0; round < 3; ++round) {
    std::fill_n(local_.data(), kSize, std::byte{0xff});
    for (uint32_t i = 0; i < reads; ++i) {
      const SendWr wr = access_wr(i, Op::kRead, {local_.data() + size_t{i} * 8, 8, local_.region()},
                                  reader, base() + i * 8);
      ASSERT_TRUE(pair_.pump_until([&] { return pair_.client_qp->post_send({&wr, 1}) == 1; })) << i;
    }
    ASSERT_TRUE(pair_.pump_until([&] { return pair_.client.completions.size() == reads; }));
    for (const Completion& done : pair_.client.take_completions())
      EXPECT_EQ(done.status, WcStatus::kSuccess) << done.wr_id;
    EXPECT_EQ(std::memcmp(local_.data(), exposed().data, reads * 8), 0) << round;
  }
}

// Shows: V1-WL-14, V1-MEM-02
TEST_P(Access, WriteIsPlacedBeforeALaterSendArrives) {
  const uint32_t writer = pair_.expose(exposed(), Rights::kRemoteWrite);
  for (uint32_t round = 1; round < 200; ++round) {
    pair_.post_receives(*pair_.server_qp, 1);
    std::memcpy(local_.data() + kSize - 4, &round, 4);
    const std::array<SendWr, 2> wrs = {
        access_wr(1, Op::kWrite, local_.first(kSize), writer, base()),
        send_wr(2, {local_.first(4)})};
    ASSERT_TRUE(pair_.pump_until([&] { return pair_.client_qp->post_send(wrs) == 2; }));
    ASSERT_TRUE(pair_.pump_until([&] { return !pair_.server.completions.empty(); }));
    uint32_t placed;
    std::memcpy(&placed, exposed().data + kSize - 4, 4);
    ASSERT_EQ(placed, round);
    pair_.server.completions.clear();
    pair_.client.pump();
    pair_.receive_buffers.clear();
  }
}

// Shows: V1-MEM-02
TEST_P(Access, AReadIsNotNoticedWhereItReads) {
  pair_.post_receives(*pair_.server_qp, 2);
  const uint32_t reader = pair_.expose(exposed(), Rights::kRemoteRead);
  for (uint32_t round = 0; round != 20; ++round) {
    ASSERT_EQ(pair_.run(access_wr(round, Op::kRead, local_.first(kSize), reader, base())).status,
              WcStatus::kSuccess);
  }
  EXPECT_TRUE(remote_untouched());
  // The source first learns about the message behind them.
  ASSERT_EQ(pair_.run(send_wr(100, {local_.first(8)})).status, WcStatus::kSuccess);
  ASSERT_TRUE(pair_.pump_until([&] { return !pair_.server.completions.empty(); }));
  EXPECT_EQ(pair_.server.completions.size(), 1u);
  EXPECT_EQ(pair_.server.completions[0].op, Op::kReceive);
  EXPECT_TRUE(pair_.server.events.empty());
}

struct Range {
  const char* what;
  int64_t offset;
  uint32_t length;
};

// Shows: SEC-01, SEC-02
TEST_P(Access, OutsideTheKeyIsRefused) {
  if (!pair_.can().exact_bounds)
    GTEST_SKIP() << "this device does not check the bounds of keys";
  for (const Range& range : {Range{"one before", -1, 2}, Range{"one after", kSize - 1, 2},
                             Range{"just behind", kSize, 1}, Range{"all and one", 0, kSize + 1},
                             Range{"far", int64_t{1} << 40, 8}, Range{"wrap", -8, 16}}) {
    for (const Op op : {Op::kRead, Op::kWrite}) {
      SCOPED_TRACE(range.what);
      Pair pair(GetParam().new_uri());
      const Rights rights = op == Op::kRead ? Rights::kRemoteRead : Rights::kRemoteWrite;
      const uint32_t key = pair.expose(exposed(), rights);
      const uint64_t address = base() + static_cast<uint64_t>(range.offset);
      const WcStatus status =
          pair.run(access_wr(1, op, local_.first(range.length), key, address)).status;
      EXPECT_TRUE(is_refusal(pair, op, status)) << to_string(status);
      EXPECT_TRUE(pair.pump_until([&] { return pair.counted("refused_bounds", 1); }));
      EXPECT_TRUE(remote_untouched());
    }
  }
}

// No request behind a failed one succeeds, even if it could be done at once: the Send of a reply so
// reports that a silent Write before it failed.
TEST_P(Access, NothingBehindARefusedWriteSucceeds) {
  if (!pair_.acknowledges())
    GTEST_SKIP() << "this fabric does not acknowledge Writes";
  pair_.post_receives(*pair_.server_qp, 1);
  SendWr refused = access_wr(1, Op::kWrite, local_.first(kSize), 0x12345678, base());
  refused.signaled = false;
  const std::array<SendWr, 2> wrs = {refused, send_wr(2, {local_.first(4)})};
  ASSERT_EQ(pair_.client_qp->post_send(wrs), 2u);
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.client.completions.size() == 2; }));
  EXPECT_EQ(pair_.client.completions[0].wr_id, 1u);
  EXPECT_EQ(pair_.client.completions[0].status, WcStatus::kRemoteAccess);
  EXPECT_EQ(pair_.client.completions[1].wr_id, 2u);
  EXPECT_EQ(pair_.client.completions[1].status, WcStatus::kFlushed);
  EXPECT_TRUE(remote_untouched());
}

TEST_P(Access, EndOfTheAddressSpaceIsRefused) {
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteRead);
  expect_refused(access_wr(1, Op::kRead, local_.first(64), key, UINT64_MAX - 31));
}

// Shows: SEC-02
TEST_P(Access, ReadKeyDoesNotWrite) {
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteRead);
  expect_refused(access_wr(1, Op::kWrite, local_.first(8), key, base()));
  EXPECT_TRUE(pair_.counted("refused_rights", 1));
}

// Shows: SEC-02
TEST_P(Access, WriteKeyDoesNotRead) {
  if (!pair_.can().exact_rights)
    GTEST_SKIP() << "this device lets a peer read whatever is registered";
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteWrite);
  expect_refused(access_wr(1, Op::kRead, local_.first(8), key, base()));
}

TEST_P(Access, ReservedKeyMeansNothingBeforeItIsBound) {
  uint32_t key = 0;
  ASSERT_TRUE(pair_.server_qp->reserve_keys(std::span(&key, 1)));
  expect_refused(access_wr(1, Op::kRead, local_.first(8), key, base()));
}

// Shows: V1-MEM-10, SEC-01, SEC-02
TEST_P(Access, KeyOfAnotherConnectionIsRefused) {
  if (!pair_.can().private_keys)
    GTEST_SKIP() << "keys of this device serve all its connections";
  auto [client, server] = pair_.connect();
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteRead);
  EXPECT_EQ(pair_.run(pair_.client, *client, access_wr(1, Op::kRead, local_.first(8), key, base()))
                .status,
            WcStatus::kRemoteAccess);
  // The connection to which the key belongs continues.
  EXPECT_EQ(pair_.run(access_wr(2, Op::kRead, local_.first(8), key, base())).status,
            WcStatus::kSuccess);
}

// Shows: SEC-01, SEC-02
TEST_P(Access, InvalidatedKeyIsRefused) {
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteRead);
  EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, invalidate_wr(5, key)).status,
            WcStatus::kSuccess);
  expect_refused(access_wr(1, Op::kRead, local_.first(8), key, base()));
  EXPECT_TRUE(pair_.counted("refused_keys", 1));
}

TEST_P(Access, KeysAreFreshAndBounded) {
  Pair pair(GetParam().new_uri(), {}, {.keys = 8});
  std::set<uint32_t> seen;
  std::array<uint32_t, 8> keys;
  std::array<uint32_t, 1> more;
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(pair.server_qp->reserve_keys(keys));
    EXPECT_FALSE(pair.server_qp->reserve_keys(more));
    for (const uint32_t key : keys) {
      EXPECT_TRUE(seen.insert(key).second) << "a key came back";
      pair.server_qp->release_key(key);
    }
  }
}

TEST_P(Access, KeysAreGivenAllOrNone) {
  Pair pair(GetParam().new_uri(), {}, {.keys = 4});
  std::array<uint32_t, 5> five;
  std::array<uint32_t, 4> four;
  EXPECT_FALSE(pair.server_qp->reserve_keys(five));
  EXPECT_TRUE(pair.server_qp->reserve_keys(four));
}

TEST_P(Access, AKeyThatIsGivenBackTwiceIsStillOneKey) {
  Pair pair(GetParam().new_uri(), {}, {.keys = 4});
  std::array<uint32_t, 4> keys;
  std::array<uint32_t, 1> more;
  ASSERT_TRUE(pair.server_qp->reserve_keys(more));
  pair.server_qp->release_key(more[0]);
  pair.server_qp->release_key(more[0]);
  pair.server_qp->release_key(~more[0]);
  ASSERT_TRUE(pair.server_qp->reserve_keys(keys));
  EXPECT_EQ(std::set<uint32_t>(keys.begin(), keys.end()).size(), keys.size());
  EXPECT_FALSE(pair.server_qp->reserve_keys(more));
}

// Many keys of a connection do not help to guess the next one: no step from one to the next is
// common, and no variable bit favours a value.
// Shows: V1-MEM-09
TEST_P(Access, KeysAreHardToPredict) {
  if (!pair_.can().private_keys)
    GTEST_SKIP() << "this device chooses the keys itself, as it registers memory";
  constexpr uint32_t kKeys = 4096;
  std::array<std::vector<uint32_t>, 2> keys;
  for (std::vector<uint32_t>& of_connection : keys) {
    Pair pair(GetParam().new_uri(), {}, {.keys = 1});
    for (uint32_t i = 0; i != kKeys; ++i) {
      uint32_t& key = of_connection.emplace_back();
      ASSERT_TRUE(pair.server_qp->reserve_keys({&key, 1}));
      pair.server_qp->release_key(key);
    }
    std::map<uint32_t, uint32_t> steps;
    for (uint32_t i = 1; i != kKeys; ++i)
      ++steps[of_connection[i] - of_connection[i - 1]];
    const auto common = std::ranges::max_element(steps, {}, [](auto& step) { return step.second; });
    EXPECT_LT(common->second, kKeys / 20) << "the step 0x" << std::hex << common->first;
    uint32_t free_bits = 0;
    for (uint32_t bit = 0; bit != 32; ++bit) {
      const auto ones = static_cast<uint32_t>(
          std::ranges::count_if(of_connection, [=](uint32_t key) { return key >> bit & 1; }));
      if (ones == 0 || ones == kKeys)
        continue;  // the device's
      ++free_bits;
      EXPECT_GT(ones, kKeys * 2 / 5) << "bit " << bit;
      EXPECT_LT(ones, kKeys * 3 / 5) << "bit " << bit;
    }
    EXPECT_GE(free_bits, pair.can().counts_causes ? 32u : 8u);
  }
  // The keys of another connection do not help either.
  uint32_t alike = 0;
  for (uint32_t i = 0; i != kKeys; ++i)
    alike += keys[0][i] == keys[1][i];
  EXPECT_LT(alike, kKeys / 20);
}

TEST_P(Access, KeysServeAgainAfterTheirRelease) {
  Pair pair(GetParam().new_uri(), {}, {.keys = 3});
  for (int round = 0; round < 10; ++round) {
    const uint32_t key = pair.expose(exposed(), Rights::kRemoteRead);
    EXPECT_EQ(pair.run(access_wr(1, Op::kRead, local_.first(8), key, base())).status,
              WcStatus::kSuccess);
    EXPECT_EQ(pair.run(pair.server, *pair.server_qp, invalidate_wr(2, key)).status,
              WcStatus::kSuccess);
    pair.server_qp->release_key(key);
  }
}

TEST_P(Access, SendWithInvalidateEndsTheKey) {
  if (!pair_.can().sends_invalidations || !pair_.can().takes_invalidations)
    GTEST_SKIP() << "keys of this device cannot be invalidated by a Send";
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteRead);
  pair_.post_receives(*pair_.server_qp, 1);
  SendWr wr = send_wr(1, {local_.first(8)});
  wr.op = Op::kSendInvalidate;
  wr.invalidate_key = key;
  EXPECT_EQ(pair_.run(wr).status, WcStatus::kSuccess);
  ASSERT_TRUE(pair_.pump_until([&] { return !pair_.server.completions.empty(); }));
  EXPECT_TRUE(pair_.server.completions[0].has_invalidated);
  EXPECT_EQ(pair_.server.completions[0].invalidated_key, key);
  pair_.server_qp->release_key(key);
  expect_refused(access_wr(2, Op::kRead, local_.first(8), key, base()));
}

TEST_P(Access, InvalidatingAForeignKeyEndsTheConnection) {
  if (!pair_.can().guards_invalidation)
    GTEST_SKIP() << "this device lets any of its connections invalidate a key";
  auto [client, server] = pair_.connect();
  const uint32_t key = pair_.expose(exposed(), Rights::kRemoteRead);
  const std::array<ReceiveWr, 1> receive = {ReceiveWr{1, local_.first(kSize)}};
  ASSERT_EQ(server->post_receive(receive), 1u);
  SendWr wr = send_wr(1, {local_.first(2000)});
  wr.op = Op::kSendInvalidate;
  wr.invalidate_key = key;
  EXPECT_TRUE(is_refusal(pair_, wr.op, pair_.run(pair_.client, *client, wr).status));
  ASSERT_TRUE(pair_.pump_until([&] { return !pair_.server.completions.empty(); }));
  EXPECT_EQ(pair_.server.completions[0].status, WcStatus::kRemoteAccess);
  EXPECT_FALSE(pair_.server.completions[0].has_invalidated);
  EXPECT_EQ(pair_.run(access_wr(2, Op::kRead, local_.first(8), key, base())).status,
            WcStatus::kSuccess);
}

TEST_P(Access, SpanOutsideItsRegionIsALocalError) {
  MemorySpan outside = local_.first(64);
  outside.data = reinterpret_cast<std::byte*>(uintptr_t{64});
  EXPECT_EQ(pair_.run(send_wr(1, {outside})).status, WcStatus::kLocalProtection);
  EXPECT_TRUE(pair_.pump_until([&] {
    return pair_.client.has_event(EventType::kDisconnected) &&
           pair_.server.has_event(EventType::kDisconnected);
  }));
}

TEST_P(Access, BindingAKeyThatIsNotOursIsALocalError) {
  EXPECT_EQ(pair_
                .run(pair_.server, *pair_.server_qp,
                     bind_wr(1, 0x12345678, exposed(), Rights::kRemoteRead))
                .status,
            WcStatus::kLocalProtection);
}

// A request that a copied Send follows is not reported either, however short it is, unless it
// fails.
TEST_P(Access, ByAKeyWhoseBindIsNotReported) {
  if (pair_.can().max_copied == 0)
    GTEST_SKIP() << "this driver copies no Sends when they are posted";
  Buffer told = test_memory().get(kSize);
  const auto bind_and_send = [&](MemorySpan span) {
    uint32_t key = 0;
    EXPECT_TRUE(pair_.server_qp->reserve_keys({&key, 1}));
    key = pair_.server_qp->name_key(key, span, Rights::kRemoteRead);
    std::memcpy(told.data(), &key, sizeof key);
    std::array<SendWr, 2> wrs = {bind_wr(1, key, span, Rights::kRemoteRead),
                                 send_wr(2, {told.first(sizeof key)})};
    for (SendWr& wr : wrs) {
      wr.signaled = false;
      wr.quiet = true;
      wr.copied = wr.op == Op::kSend;
    }
    EXPECT_EQ(pair_.server_qp->post_send(wrs), wrs.size());
    return key;
  };
  for (const uint32_t length : {1u, 60u, kSize}) {
    pair_.post_receives(*pair_.client_qp, 1);
    const MemorySpan span = {exposed().data, length, exposed().region};
    const uint32_t key = bind_and_send(span);
    ASSERT_TRUE(pair_.pump_until([&] { return !pair_.client.completions.empty(); }));
    EXPECT_EQ(pair_.client.take_completions()[0].byte_length, sizeof key);
    EXPECT_EQ(pair_.run(access_wr(3, Op::kRead, local_.first(length), key, base())).status,
              WcStatus::kSuccess);
    EXPECT_EQ(local_.data()[length - 1], kMark);
  }
  pair_.server_qp->disconnect();
  bind_and_send(exposed());
  EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, send_wr(4, {told.first(4)})).wr_id, 4u);
  EXPECT_TRUE(pair_.server.take_completions().empty());
}

TEST_P(Access, ABindThatFailsIsReportedInFrontOfACopiedSend) {
  if (pair_.can().max_copied == 0)
    GTEST_SKIP() << "this driver copies no Sends when they are posted";
  SendWr wr = bind_wr(1, 0x12345678, exposed(), Rights::kRemoteRead);
  wr.signaled = false;
  wr.quiet = true;
  EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, wr).status, WcStatus::kLocalProtection);
}

// An end that closes takes its keys along; that is no error of the other end.
TEST_P(Access, AfterThePeerHasClosedIsNotRefusedButLost) {
  Buffer mine = test_memory().get(kSize);
  Buffer theirs = test_memory().get(kSize);
  const uint32_t key = pair_.expose(theirs.first(kSize), Rights::kRemoteWrite);
  pair_.server_qp->disconnect();
  const Completion done =
      pair_.run(access_wr(1, Op::kWrite, mine.first(kSize), key, address_of(theirs.data())));
  // Without acknowledgements, success only means that the Write was sent.
  EXPECT_TRUE(done.status == WcStatus::kPeerLost || done.status == WcStatus::kFlushed ||
              (done.status == WcStatus::kSuccess && !pair_.acknowledges()))
      << to_string(done.status);
  EXPECT_TRUE(pair_.pump_until([&] { return pair_.client.has_event(EventType::kDisconnected); }));
}

TEST_P(Access, MemoryRegisteredLaterTakesPart) {
  for (int round = 0; round < 3; ++round) {  // ids of regions are used again
    RegisteredMemory mine = test_memory().allocate(3 * kSize).value();
    RegisteredMemory theirs = test_memory().allocate(2 * kSize).value();
    std::fill_n(mine.data(), 3 * kSize, std::byte(round + 10));
    const uint32_t key = pair_.expose(theirs.span(100, kSize), Rights::kRemoteWrite);
    pair_.write(
        access_wr(1, Op::kWrite, mine.span(1, kSize), key, address_of(theirs.data() + 100)));
    EXPECT_EQ(theirs.data()[99], std::byte{0});
    EXPECT_EQ(theirs.data()[100], std::byte(round + 10));
    EXPECT_EQ(theirs.data()[100 + kSize - 1], std::byte(round + 10));
    EXPECT_EQ(theirs.data()[100 + kSize], std::byte{0});
    pair_.deliver({mine.span(0, kSize)});
    EXPECT_EQ(pair_.receive_buffers.back().data()[kSize - 1], std::byte(round + 10));
    EXPECT_EQ(pair_.run(pair_.server, *pair_.server_qp, invalidate_wr(3, key)).status,
              WcStatus::kSuccess);
    pair_.server_qp->release_key(key);
  }
}

}  // namespace
}  // namespace rrdk::fabric::test

// A security context at its caller, whose server does not keep to the rules.
#include "gss/session.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <set>

#include "gss_caller.h"
#include "test/seed.h"

namespace rrdk::gss {
namespace {

constexpr uint32_t kWindow = 128;
constexpr uint32_t kUsed = 7;  // sequence number of the call that is answered

Words words_of(std::span<const std::byte> bytes) {
  Words words;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4)
    words.push_back(xdr::load_u32(&bytes[at]));
  return words;
}

// Both ends of a context; the server's is held by the test.
struct Contexts {
  explicit Contexts(Protection protection = Protection::kIntegrity)
      : session(Identity::initiator({}).value(), "nfs@localhost", protection) {
    const auto identity = Identity::acceptor("nfs@localhost", "").value();
    Token first, answer, none;
    EXPECT_TRUE(session.begin({}, first).goes_on());
    EXPECT_TRUE(server.accept(*identity, first.bytes(), answer).complete());
    EXPECT_TRUE(session.begin(answer.bytes(), none).complete());
  }
  Bytes sign(const Words& message) {
    Token sum;
    EXPECT_TRUE(server.sign(bytes_of(message), sum));
    return {sum.bytes().begin(), sum.bytes().end()};
  }
  bool open(uint32_t window, const Bytes& sum, size_t handle_bytes = 8) {
    return session.open(Bytes(handle_bytes), window, sum);
  }
  // Whether the caller takes these results, and if it does, what they are.
  std::optional<Words> results(const Bytes& bytes, const Bytes& verifier = {}) {
    const Fragment all = {bytes.data(), static_cast<uint32_t>(bytes.size())};
    Decoder in(std::span(&all, 1));
    ProtectedCall call;
    call.sequence = kUsed;
    const Fragment sum = {verifier.data(), static_cast<uint32_t>(verifier.size())};
    if (!session.open_results(call, in, ItemView({&sum, 1}, 0, sum.length)))
      return std::nullopt;
    return words_of({call.results.data, call.results.length});
  }
  // As a right server would send them.
  Words protect(const Words& clear) {
    if (session.protection() == Protection::kIntegrity)
      return opaque(bytes_of(clear)) + opaque(sign(clear));
    Token sealed;
    EXPECT_TRUE(server.wrap(bytes_of(clear), sealed));
    return opaque(sealed.bytes());
  }

  Session session;
  Context server;
};

class Sessions : public testing::TestWithParam<Protection> {};
INSTANTIATE_TEST_SUITE_P(Gss, Sessions,
                         testing::Values(Protection::kIntegrity, Protection::kPrivacy));

// Shows: GSS-INIT-07, GSS-SEQ-05
TEST(ASession, BelievesTheWindowOnlyIfTheServerHasSignedIt) {
  Contexts ends;
  EXPECT_FALSE(ends.open(kWindow, {}));
  EXPECT_FALSE(ends.open(kWindow, ends.sign({kWindow + 1})));
  EXPECT_FALSE(ends.open(kWindow, Bytes(kMaxAuthBody)));
  EXPECT_FALSE(ends.open(kWindow, ends.sign({kWindow}), kMaxAuthBody)) << "no header has space";
  EXPECT_TRUE(ends.session.blank().empty());
  EXPECT_TRUE(ends.open(kWindow, ends.sign({kWindow})));
  EXPECT_FALSE(ends.session.blank().empty());
  const auto path = std::make_shared<Path>(nullptr);
  for (uint32_t i = 1; i <= kWindow; ++i) {
    ProtectedCall call;
    ASSERT_EQ(ends.session.take_number(path, 0, call), Numbering::kTaken);
    EXPECT_EQ(call.sequence, i == kWindow ? kWindow + 1 : i) << "the window's checksum is known";
  }
}

// Calls of a context whose server has announced a small window.
class SmallWindow : public testing::Test, public Path::Owner {
 protected:
  static constexpr uint32_t kSmall = 5;
  SmallWindow() { EXPECT_TRUE(ends.open(kSmall, ends.sign({kSmall}))); }
  bool take(const std::shared_ptr<Path>& path, ProtectedCall& call) {
    return ends.session.take_number(path, now, call) == Numbering::kTaken;
  }
  // A call that is answered at once.
  bool make(const std::shared_ptr<Path>& path) {
    ProtectedCall call;
    if (!take(path, call))
      return false;
    answer(*path, call);
    return true;
  }
  void answer(Path& path, ProtectedCall& call) {
    path.note_arrival(call.position);
    ends.session.give_back(call);
  }
  void end_context(std::unique_ptr<Session>) noexcept override {}
  bool ask_arrival() noexcept override {
    ++asked;
    return true;
  }

  Contexts ends;
  uint64_t now = 1;
  uint32_t asked = 0;
  std::shared_ptr<Path> one = std::make_shared<Path>(this), other = std::make_shared<Path>(this);
};

// libtirpc's has five places.
// Shows: GSS-WIN-02
TEST_F(SmallWindow, HoldsNoMoreCallsThanTheServerHasSaid) {
  ProtectedCall calls[kSmall + 1];
  for (uint32_t i = 0; i != kSmall; ++i)
    ASSERT_TRUE(take(i % 2 == 0 ? one : other, calls[i]));
  EXPECT_FALSE(take(one, calls[kSmall])) << "over all connections";
  EXPECT_FALSE(take(other, calls[kSmall]));
  one->note_arrival(one->sent());
  other->note_arrival(other->sent());
  ends.session.give_back(calls[2]);
  EXPECT_FALSE(take(other, calls[kSmall])) << "it is the turn of who was first";
  EXPECT_TRUE(take(one, calls[kSmall]));
  EXPECT_FALSE(make(one));
  ends.session.give_back(calls[3]);
  EXPECT_FALSE(make(other));
  now += 10'000'000;
  EXPECT_TRUE(make(other)) << "the first one does not come for its turn";
}

// Calls on one connection overtake a call on another one, which has not arrived yet.
TEST_F(SmallWindow, IsNotMovedBeyondWhatIsOnItsWay) {
  ProtectedCall slow;
  ASSERT_TRUE(take(one, slow));
  uint32_t made = 0;
  while (make(other))
    ASSERT_LE(++made, kSmall);
  EXPECT_GE(made, kSmall - 2);
  EXPECT_EQ(asked, 1u) << "whether it has arrived";
  EXPECT_FALSE(make(other));
  EXPECT_EQ(asked, 1u) << "once";
  one->note_asked();
  one->note_arrival(slow.position);  // another answer there has shown it
  for (int i = 0; i != 100; ++i)
    ASSERT_TRUE(make(other)) << "it arrived, though it is not answered";
  ends.session.give_back(slow);
}

// The server looks at its number once it has read the arguments by RDMA; later messages do not
// wait.
TEST_F(SmallWindow, IsNotMovedBeyondACallThatIsFetched) {
  for (const bool by_itself : {false, true}) {
    ProtectedCall fetched;
    fetched.may_be_fetched = true;
    ASSERT_TRUE(take(one, fetched));
    one->note_arrival(fetched.position);
    const std::shared_ptr<Path>& path = by_itself ? one : other;
    uint32_t made = 0;
    while (make(path))
      ASSERT_LE(++made, kSmall);
    EXPECT_GE(made, kSmall - 2);
    answer(*one, fetched);
    for (int i = 0; i != 100; ++i)
      ASSERT_TRUE(make(path));
  }
  ProtectedCall lost;
  lost.may_be_fetched = true;
  ASSERT_TRUE(take(one, lost));
  one->note_arrival(lost.position);
  while (make(other)) {
  }
  now += 2'000'000'000;
  EXPECT_TRUE(make(other)) << "not for ever";
  ends.session.give_back(lost);
}

TEST_F(SmallWindow, IsMovedByTheConnectionItself) {
  ProtectedCall slow;
  ASSERT_TRUE(take(one, slow));
  for (int i = 0; i != 100; ++i) {
    ProtectedCall call;
    ASSERT_TRUE(take(one, call)) << "nothing overtakes on one connection";
    ends.session.give_back(call);  // without an answer
  }
  EXPECT_EQ(asked, 0u);
}

TEST_F(SmallWindow, OpensWhenTheConnectionHasEnded) {
  ProtectedCall lost;
  ASSERT_TRUE(take(one, lost));
  while (make(other)) {
  }
  ends.session.give_back(lost);
  EXPECT_FALSE(make(other)) << "it may arrive still";
  one->end();
  EXPECT_TRUE(make(other));
}

TEST_F(SmallWindow, DoesNotWaitForEver) {
  ProtectedCall slow;
  ASSERT_TRUE(take(one, slow));
  while (make(other)) {
  }
  now += 2'000'000'000;
  EXPECT_TRUE(make(other));
}

// A call has its number, and then lacks something else.
TEST_F(SmallWindow, KeepsTheNumberOfACallThatWaits) {
  ProtectedCall waits;
  ASSERT_TRUE(take(one, waits));
  const uint32_t number = waits.sequence;
  ASSERT_TRUE(make(one)) << "sent before the one that waits";
  EXPECT_TRUE(ends.session.keep_number(one, now, waits));
  EXPECT_EQ(waits.sequence, number);
  while (make(other)) {
  }
  EXPECT_TRUE(ends.session.keep_number(one, now, waits)) << "it is within the window still";
  EXPECT_EQ(waits.sequence, number);
  EXPECT_FALSE(make(other)) << "it has not arrived";
  now += 2'000'000'000;  // now it does not count any more
  for (uint32_t i = 0; i != kSmall; ++i)
    ASSERT_TRUE(make(other));
  EXPECT_FALSE(ends.session.keep_number(one, now, waits)) << "it is out of the window";
}

// Connections of a client that share a context, against the window of a right server. Messages are
// on their way for any time, connections end at any time, and calls that were lost are made again.
class Simulation final : public Path::Owner {
 public:
  Simulation(uint32_t window, uint64_t seed) : window_(window), random_(seed) {
    EXPECT_TRUE(ends_.open(window, ends_.sign({window})));
    for (Connection& one : connections_)
      connect(one);
  }

  void run() {
    constexpr int kSteps = 40'000;
    for (int i = 0; i != kSteps; ++i) {
      now_ += 1000;
      step(true);
    }
    for (int i = 0; !idle() && i != kSteps; ++i) {  // without new calls, all must end
      now_ += 1000;
      step(false);
    }
    EXPECT_TRUE(idle()) << "calls wait for ever";
    EXPECT_EQ(dropped_, 0u) << "of " << answered_ << " that were answered";
    EXPECT_GT(answered_, 1000u);
    EXPECT_LE(most_, window_);
  }

 private:
  struct Sim {
    ProtectedCall call;
    uint32_t life = 0;  // of its connection
  };
  struct Message {
    Sim* call;  // null: a question
    uint32_t sequence;
    uint64_t position;
  };
  struct Connection {
    std::shared_ptr<Path> path;
    uint32_t life = 0;
    std::deque<Message> on_its_way;
    std::vector<Message> at_server;
    std::deque<std::unique_ptr<Sim>> to_make;
    std::vector<std::unique_ptr<Sim>> made;
    bool asked = false;
  };

  void end_context(std::unique_ptr<Session>) noexcept override {}
  bool ask_arrival() noexcept override {
    return true;  // the simulation looks at the path itself
  }
  uint32_t pick(size_t of) { return static_cast<uint32_t>(random_() % of); }
  void connect(Connection& one) {
    one.path = std::make_shared<Path>(this);
    ++one.life;
  }
  bool idle() const {
    return std::ranges::all_of(connections_, [](const Connection& one) {
      return one.to_make.empty() && one.made.empty();
    });
  }

  void step(bool more) {
    Connection& one = connections_[pick(connections_.size())];
    switch (pick(16)) {
      case 0:
        if (more && pick(50) == 0)
          return cut(one);
        [[fallthrough]];
      case 1:
      case 2:
      case 3:
        if (more && one.to_make.size() < 40)
          one.to_make.push_back(std::make_unique<Sim>());
        [[fallthrough]];
      case 4:
      case 5:
      case 6:
        return send(one);
      case 7:
        if (one.on_its_way.size() < 8 && one.path->arrived() < one.path->sent())
          one.on_its_way.push_back({nullptr, 0, one.path->sent()});
        return;
      case 8:
      case 9:
      case 10:
      case 11:
        for (uint32_t n = pick(4); n != 0 && !one.on_its_way.empty(); --n)
          arrive(one);
        return;
      default:
        answer(one);
    }
  }
  void send(Connection& one) {
    if (one.to_make.empty())
      return;
    Sim& next = *one.to_make.front();
    // Sometimes it has lacked memory, and has its number already.
    const bool kept = next.call.numbered && ends_.session.keep_number(one.path, now_, next.call);
    if (!kept) {
      ends_.session.give_back(next.call);
      if (ends_.session.take_number(one.path, now_, next.call) != Numbering::kTaken)
        return;
    }
    if (pick(8) == 0)
      return;
    one.on_its_way.push_back({&next, next.call.sequence, next.call.position});
    one.made.push_back(std::move(one.to_make.front()));
    one.to_make.pop_front();
    most_ = std::max(most_, outstanding());
  }
  size_t outstanding() const {
    size_t sum = 0;
    for (const Connection& one : connections_)
      sum += one.made.size();
    return sum;
  }
  // Section 5.3.3.1.
  void arrive(Connection& one) {
    const Message message = one.on_its_way.front();
    one.on_its_way.pop_front();
    if (message.call == nullptr)
      return one.path->note_arrival(message.position);
    const bool is_below = uint64_t{message.sequence} + window_ <= highest_;
    if (is_below || !seen_.insert(message.sequence).second) {
      ++dropped_;
      return;
    }
    highest_ = std::max<uint64_t>(highest_, message.sequence);
    one.at_server.push_back(message);
  }
  void answer(Connection& one) {
    if (one.at_server.empty())
      return;
    const auto at = one.at_server.begin() + pick(one.at_server.size());
    one.path->note_arrival(at->position);
    ends_.session.give_back(at->call->call);
    std::erase_if(one.made, [&](const auto& call) { return call.get() == at->call; });
    one.at_server.erase(at);
    ++answered_;
  }
  void cut(Connection& one) {
    one.path->end();
    for (auto& call : one.made) {
      ends_.session.give_back(call->call);
      one.to_make.push_front(std::move(call));
    }
    if (!one.to_make.empty())
      ends_.session.give_back(one.to_make.back()->call);
    for (auto& call : one.to_make)
      ends_.session.give_back(call->call);
    one.made.clear();
    one.at_server.clear();
    // Some have arrived, and are for nobody; they may move the window.
    for (uint32_t n = pick(one.on_its_way.size() + 1); n != 0; --n) {
      highest_ = std::max<uint64_t>(highest_, one.on_its_way.front().sequence);
      one.on_its_way.pop_front();
    }
    one.on_its_way.clear();
    connect(one);
  }

  const uint32_t window_;
  std::mt19937_64 random_;
  Contexts ends_;
  std::array<Connection, 4> connections_;
  uint64_t now_ = 1;
  uint64_t highest_ = 0;
  std::set<uint32_t> seen_;
  size_t answered_ = 0, dropped_ = 0, most_ = 0;
};

TEST(ManyConnections, LoseNoCallToTheWindow) {
  const uint64_t seed = test::run_seed();
  for (const uint32_t window : {5u, 16u, 128u}) {
    SCOPED_TRACE(window);
    Simulation(window, seed + window).run();
  }
}

// Shows: GSS-DATA-02
TEST(ASession, BelievesNoReplyToAnotherCall) {
  Contexts ends;
  const auto verifies = [&](const Bytes& sum) {
    const Fragment all = {sum.data(), static_cast<uint32_t>(sum.size())};
    return ends.session.verify_reply(kUsed, ItemView({&all, 1}, 0, all.length));
  };
  EXPECT_TRUE(verifies(ends.sign({kUsed})));
  EXPECT_FALSE(verifies(ends.sign({kUsed + 1})));
  EXPECT_FALSE(verifies({}));
  EXPECT_FALSE(verifies(Bytes(kMaxAuthBody + 4)));
}

// Shows: GSS-INTEG-01, GSS-INTEG-02, GSS-PRIV-01, GSS-PRIV-02
TEST_P(Sessions, TakeResultsOnlyAsTheServerHasProtectedThem) {
  Contexts ends(GetParam());
  const Words right = {kUsed, 1, 2, 3};
  const Words sent = ends.protect(right);
  EXPECT_EQ(ends.results(bytes_of(sent)), (Words{1, 2, 3}));
  EXPECT_EQ(ends.results(bytes_of(ends.protect({kUsed}))), Words());

  EXPECT_FALSE(ends.results(bytes_of(ends.protect({kUsed + 1, 1, 2, 3})))) << "of another call";
  EXPECT_FALSE(ends.results(bytes_of(ends.protect({})))) << "without a number";
  EXPECT_FALSE(ends.results(bytes_of(right))) << "not protected";
  EXPECT_FALSE(ends.results(bytes_of(opaque(bytes_of(right))))) << "without a checksum";
  EXPECT_FALSE(ends.results(bytes_of(sent + Words{0}))) << "with something behind it";
  EXPECT_FALSE(ends.results({}));
  const Bytes verifier = ends.sign({kUsed});
  EXPECT_EQ(ends.results(bytes_of(ends.protect({kUsed})), verifier), Words());
  EXPECT_FALSE(ends.results(bytes_of(opaque(bytes_of({kUsed})) + opaque(verifier)), verifier))
      << "no results, out of what every reply has";
  for (size_t length = 0; length < 4 * sent.size(); length += 4) {
    const Bytes all = bytes_of(sent);
    EXPECT_FALSE(ends.results({all.begin(), all.begin() + static_cast<ptrdiff_t>(length)}));
  }
  // Every byte but the pads'.
  const size_t pad =
      GetParam() == Protection::kPrivacy ? xdr_pad(xdr::load_u32(bytes_of(sent).data())) : 0;
  for (size_t at = 0; at + pad < 4 * sent.size(); ++at) {
    Bytes changed = bytes_of(sent);
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(ends.results(changed)) << at;
  }
}

}  // namespace
}  // namespace rrdk::gss

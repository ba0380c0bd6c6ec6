// Contexts of an acceptor: who may have one, how many there are, and when they end.
#include "gss/contexts.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>

#include "gss_caller.h"

// Kerberos leaks the name of a service whose key it does not find (1.20, gss_acquire_cred_from).
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libkrb5.so";
}

namespace rrdk::gss {
namespace {

// Hands tokens to an acceptor and waits for the answers.
struct Tokens {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::unique_ptr<Establishment>> done;
  };

  explicit Tokens(const GssAcceptorOptions& options = {})
      : contexts(Identity::acceptor("nfs@localhost", "").value(), options) {}

  bool give(std::span<const std::byte> token, Control control = Control::kInit,
            const Handle& handle = {}) {
    auto work = std::make_unique<Establishment>();
    work->from = from;
    work->control = control;
    work->handle = handle;
    work->token.assign(token.begin(), token.end());
    work->call = &waiting;
    work->done = [](Establishment& done) {
      auto& its = *static_cast<Waiting*>(done.call);
      const std::lock_guard lock(its.mutex);
      its.done.emplace_back(&done);
      its.changed.notify_all();
    };
    return contexts.establish(std::move(work));
  }
  std::unique_ptr<Establishment> take() {
    std::unique_lock lock(waiting.mutex);
    waiting.changed.wait(lock, [this] { return !waiting.done.empty(); });
    auto first = std::move(waiting.done.front());
    waiting.done.erase(waiting.done.begin());
    return first;
  }
  // A whole context.
  Handle establish(GssCaller& caller) {
    EXPECT_TRUE(give(caller.begin()));
    const auto done = take();
    EXPECT_EQ(done->major, uint32_t{GSS_S_COMPLETE});
    EXPECT_TRUE(caller.complete(done->answer.bytes()));
    return done->handle;
  }

  // From now on the acceptor's thread waits for the latch.
  void hold(std::latch& until) {
    auto work = std::make_unique<Establishment>();
    std::latch reached(1);
    struct Pair {
      std::latch &until, &reached;
    } pair{until, reached};
    work->call = &pair;
    work->done = [](Establishment& done) {
      const Pair its = *static_cast<Pair*>(done.call);
      delete &done;
      its.reached.count_down();
      its.until.wait();
    };
    EXPECT_TRUE(contexts.establish(std::move(work)));
    reached.wait();
  }

  Owner from = {"here", "1"};
  Waiting waiting;  // outlives the acceptor's thread
  Contexts contexts;
};

TEST(Contexts, NameTheirCaller) {
  Tokens tokens;
  GssCaller caller;
  const ContextRef context = tokens.contexts.find(tokens.establish(caller));
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->context.peer(), "alice@" + std::string(std::getenv("RRDK_TEST_REALM")));
  EXPECT_EQ(tokens.contexts.find({}), nullptr);
  EXPECT_EQ(tokens.contexts.stats().contexts, 1u);
}

// Shows: GSS-PRIV-02
TEST(Contexts, SignAndWrapForEachOther) {
  Tokens tokens;
  GssCaller caller;
  const ContextRef context = tokens.contexts.find(tokens.establish(caller));
  ASSERT_NE(context, nullptr);
  const Bytes text = bytes_of({1, 2, 3});
  Token sealed, open;
  ASSERT_TRUE(caller.context.wrap(text, sealed));
  ASSERT_TRUE(context->context.unwrap(sealed.bytes(), open));
  EXPECT_TRUE(std::ranges::equal(open.bytes(), text));
  Token sum;
  ASSERT_TRUE(context->context.sign(text, sum));
  EXPECT_TRUE(caller.context.verify(text, sum.bytes()));
  EXPECT_FALSE(caller.context.verify(bytes_of({1, 2, 4}), sum.bytes()));
  EXPECT_FALSE(context->context.unwrap(sum.bytes(), open)) << "what is signed is not private";
  EXPECT_FALSE(context->context.unwrap({}, open));
}

// The key of another service is in no table here.
TEST(Contexts, AreRefusedWithoutTheServicesKey) {
  Tokens tokens;
  GssCaller caller("other@localhost");
  ASSERT_TRUE(tokens.give(caller.begin()));
  EXPECT_TRUE(GSS_ERROR(tokens.take()->major));
  EXPECT_EQ(tokens.contexts.stats().contexts, 0u);
  EXPECT_EQ(tokens.contexts.stats().refused, 1u);
}

TEST(Contexts, AreRefusedForNonsense) {
  Tokens tokens;
  GssCaller caller;
  const Bytes good = caller.begin();
  Bytes flipped = good;
  flipped[flipped.size() / 2] ^= std::byte{1};
  const Bytes cut(good.begin(), good.begin() + 40);
  const std::vector<Bytes> all = {{}, Bytes(3), Bytes(kLongestToken), flipped, cut};
  for (const Bytes& token : all) {
    ASSERT_TRUE(tokens.give(token));
    EXPECT_TRUE(GSS_ERROR(tokens.take()->major)) << token.size();
  }
  ASSERT_TRUE(tokens.give(good, Control::kContinueInit, Handle{std::byte{1}}));
  EXPECT_FALSE(tokens.take()->known);
  EXPECT_EQ(tokens.contexts.stats().contexts, 0u);
}

// Shows: GSS-DESTROY-04
TEST(Contexts, TheOldestMakesSpace) {
  Tokens tokens({.service = {}, .key_table = {}, .max_contexts = 3});
  std::vector<Handle> handles;
  for (int i = 0; i != 6; ++i) {
    GssCaller caller;
    handles.push_back(tokens.establish(caller));
    tokens.contexts.note_use(tokens.contexts.find(handles.back()));
  }
  EXPECT_EQ(tokens.contexts.stats().contexts, 3u);
  EXPECT_EQ(tokens.contexts.stats().evicted, 3u);
  EXPECT_EQ(tokens.contexts.find(handles[2]), nullptr);
  EXPECT_NE(tokens.contexts.find(handles[3]), nullptr);
}

// One with a key makes as many as it likes.
TEST(Contexts, OneCallerTakesNoPlaceOfOthers) {
  Tokens tokens({.service = {}, .key_table = {}, .max_contexts = 4});
  GssCaller alice;
  const Handle first = tokens.establish(alice);
  tokens.contexts.note_use(tokens.contexts.find(first));
  for (int i = 0; i != 20; ++i) {
    GssCaller bob("nfs@localhost", "bob");
    tokens.contexts.note_use(tokens.contexts.find(tokens.establish(bob)));
  }
  EXPECT_NE(tokens.contexts.find(first), nullptr);
  EXPECT_EQ(tokens.contexts.stats().contexts, 4u);
  EXPECT_EQ(tokens.contexts.stats().evicted, 17u);
}

// A token that was recorded makes contexts when it is sent again; its sender does not have their
// key.
TEST(Contexts, ThatAreNotUsedTakeNoPlaceOfOthers) {
  Tokens tokens({.service = {}, .key_table = {}, .max_contexts = 3, .max_unfinished = 5});
  GssCaller honest;
  const Handle used = tokens.establish(honest);
  tokens.contexts.note_use(tokens.contexts.find(used));
  GssCaller other;
  const Bytes recorded = other.begin();
  for (int i = 0; i != 40; ++i) {
    ASSERT_TRUE(tokens.give(recorded));
    EXPECT_EQ(tokens.take()->major, uint32_t{GSS_S_COMPLETE});
  }
  EXPECT_NE(tokens.contexts.find(used), nullptr);
  EXPECT_LE(tokens.contexts.stats().contexts, 6u);
}

TEST(Contexts, ThatAPeerDoesNotUseTakeNoPlaceOfAnothers) {
  Tokens tokens({.service = {}, .key_table = {}, .max_unfinished = 5});
  tokens.from = {"there", "1"};
  GssCaller honest;
  const Handle unused = tokens.establish(honest);
  GssCaller other;
  const Bytes recorded = other.begin();
  for (const Owner& flood : {Owner{"here", "1"}, Owner{"here", "2"}}) {
    tokens.from = flood;
    for (int i = 0; i != 20; ++i) {
      ASSERT_TRUE(tokens.give(recorded));
      EXPECT_EQ(tokens.take()->major, uint32_t{GSS_S_COMPLETE});
    }
  }
  EXPECT_NE(tokens.contexts.find(unused), nullptr);
  EXPECT_EQ(tokens.contexts.stats().contexts, 5u);
}

TEST(Contexts, OnePeersTokensKeepNoOthersOut) {
  constexpr uint32_t kMost = 6;
  Tokens tokens({.service = {}, .key_table = {}, .max_unfinished = kMost});
  std::latch checked(1);
  tokens.hold(checked);
  const auto give = [&](const char* name, const char* part) {
    tokens.from = {name, part};
    return tokens.give({});
  };
  for (uint32_t i = 0; i != kMost; ++i)
    EXPECT_TRUE(give("here", i < 4 ? "1" : "2"));
  EXPECT_FALSE(give("here", "1")) << "it has the most itself";
  EXPECT_TRUE(tokens.waiting.done.empty());
  EXPECT_TRUE(give("there", "3"));
  EXPECT_TRUE(give("here", "4")) << "another connection of that peer has more";
  ASSERT_EQ(tokens.waiting.done.size(), 2u);
  for (int i = 0; i != 2; ++i) {
    const auto made_way = tokens.take();
    EXPECT_TRUE(made_way->made_way);
    EXPECT_EQ(made_way->from.part, "1");
  }
  checked.count_down();
  std::vector<std::string> parts;
  for (uint32_t i = 0; i != kMost; ++i) {
    const auto done = tokens.take();
    EXPECT_FALSE(done->made_way);
    parts.push_back(done->from.part);
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"1", "1", "2", "2", "3", "4"}));
  EXPECT_EQ(tokens.contexts.stats().refused, kMost + 4);
}

TEST(Contexts, EndWhenTheirCallerSaysSo) {
  Tokens tokens;
  GssCaller caller;
  const Handle handle = tokens.establish(caller);
  const ContextRef held = tokens.contexts.find(handle);
  tokens.contexts.destroy(handle);
  EXPECT_EQ(tokens.contexts.find(handle), nullptr);
  EXPECT_EQ(tokens.contexts.stats().destroyed, 1u);
  Token sum;
  EXPECT_TRUE(held->context.sign(bytes_of({1}), sum)) << "a call that has come already";
}

TEST(Acceptors, SayWhatIsMissing) {
  GssAcceptorOptions options;
  options.key_table = "/nonexistent/keys";
  options.service = "nfs@localhost";
  const auto no_table = GssAcceptor::create(options);
  ASSERT_FALSE(no_table);
  EXPECT_EQ(no_table.error().code, Errc::kNotFound);
  EXPECT_NE(no_table.error().message.find("/nonexistent/keys"), std::string::npos)
      << no_table.error().message;
  options = {};
  options.service = "other@localhost";
  const auto no_key = GssAcceptor::create(options);
  ASSERT_FALSE(no_key);
  EXPECT_NE(no_key.error().message.find("other@localhost"), std::string::npos)
      << no_key.error().message;
  options = {};
  options.max_contexts = 0;
  EXPECT_EQ(GssAcceptor::create(options).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rrdk::gss

// Extensions of version 2, as a program registers, sends and serves them (rrdk/extensions.h).
#include "rrdk/extensions.h"

#include <algorithm>
#include <map>

#include "survival_world.h"

namespace rrdk::loopback {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint32_t kAsk = 100, kTell = 101;
constexpr size_t kSilent = 2;  // requests of this length are not answered

// A feature with one request, answered by the same bytes; and a property.
struct Site {
  explicit Site(bool loaded = true, bool with_property = false) {
    ExtensionList list;
    if (loaded)
      list.features = {{.name = "echo", .types = {type(kAsk), type(kTell)}}};
    if (with_property)
      list.properties = {{.name = "colour",
                          .id = 0xffffff11,
                          .kind = TransportProperty::Kind::kExperimental,
                          .value = Bytes(3, std::byte{7}),
                          .on_value =
                              [](const PropertyValue& said, void* self) {
                                auto& site = *static_cast<Site*>(self);
                                site.heard.emplace_back(said.value.begin(), said.value.end());
                                site.peer = said.from.address;
                                EXPECT_FALSE(said.updated);
                              },
                          .context = this}};
    extensions = Extensions::create(std::move(list)).value();
  }
  OptionType type(uint32_t number) {
    return {.type = number,
            .payload = OptionPayload::kNone,
            .check = [](std::span<const std::byte> info, bool, void*) { return !info.empty(); },
            .serve =
                [](const OptionMessage& request, OptionAnswer& answer, void* self) {
                  auto& site = *static_cast<Site*>(self);
                  ++site.served;
                  site.peer = request.from.address;
                  if (request.info.size() == kSilent)
                    return;
                  EXPECT_TRUE(answer.set(kTell, request.info));
                },
            .on_error = [](const OptionError& error,
                           void* self) { ++static_cast<Site*>(self)->errors[error.why]; },
            .context = this};
  }

  std::unique_ptr<const Extensions> extensions;
  uint32_t served = 0;
  std::map<OptionError::Why, uint32_t> errors;
  std::vector<Bytes> heard;
  std::string peer;
};

struct Outcomes {
  static void add(OptionOutcome&& outcome, void* self) {
    static_cast<Outcomes*>(self)->all.push_back(std::move(outcome));
  }
  std::vector<OptionOutcome> all;
};

ClientOptions client_of(const Site& site, RpcRdmaVersion version = RpcRdmaVersion::kTwo,
                        RpcRdmaDraft draft = RpcRdmaDraft::kDraft04) {
  ClientOptions options;
  options.version = version;
  options.version2.draft = draft;
  options.credits = 4;
  options.version2.extensions = site.extensions.get();
  return options;
}
ServerOptions server_of(const Site& site, RpcRdmaDraft draft = RpcRdmaDraft::kDraft04) {
  ServerOptions options;
  options.versions.draft = draft;
  options.credits = 4;
  options.version2.extensions = site.extensions.get();
  return options;
}
void call(SurvivalWorld& world) {
  EndingCalls endings = submit(world, kEcho, 1);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
}
OptionOutcome ask(SurvivalWorld& world, size_t bytes) {
  return send_option_and_wait(*world.connection, {.type = kAsk, .info = Bytes(bytes, std::byte{5})})
      .value();
}

// A client only sends requests; registering the feature at a server without `serve` is an error.
TEST(Extensions, OnlyServersNeedAFunctionThatServes) {
  Site here, there;
  OptionType ask_only = here.type(kAsk), tell = here.type(kTell);
  ask_only.serve = tell.serve = nullptr;
  here.extensions =
      Extensions::create({.features = {{.name = "echo", .types = {ask_only, tell}}}}).value();
  SurvivalWorld world(client_of(here), server_of(there));
  world.connect();
  EXPECT_EQ(ask(world, 5).status, CallStatus::kOk);
  EXPECT_EQ(there.served, 1u);
  auto made = Server::create(*world.runtime, server_of(here));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kInvalidArgument);
  for (const char* named : {"'echo'", "`serve`"})
    EXPECT_NE(made.error().message.find(named), std::string::npos) << made.error().message;
}

// They are sampled like calls, and give their records back.
TEST(Extensions, CallsAreStampedBehindManyMessages) {
  Site here, there;
  SurvivalWorld world(client_of(here), server_of(there));
  world.runtime->stamp_every(1);
  world.connect();
  for (size_t i = 0; i < kStampedCalls + 10; ++i)
    ASSERT_EQ(ask(world, 5).status, CallStatus::kOk);
  call(world);
  const std::vector<StampedCall> calls = world.runtime->stamped_calls();
  EXPECT_TRUE(std::ranges::any_of(calls, [](const StampedCall& stamped) {
    return stamped.made && stamped.procedure == kEcho && stamped.at(Stage::kEnded) != 0;
  }));
}

// Shows: V2D0-OPT-04
TEST(Extensions, TrialTellsWhetherTheServerKnowsThem) {
  for (RpcRdmaDraft draft : {RpcRdmaDraft::kDraft00, RpcRdmaDraft::kDraft04}) {
    Site here, there, nothing(false);
    {
      SurvivalWorld world(client_of(here, RpcRdmaVersion::kTwo, draft), server_of(there, draft));
      world.connect();
      OptionOutcome known = ask(world, 5);
      EXPECT_EQ(known.status, CallStatus::kOk);
      EXPECT_EQ(known.support, OptionSupport::kSupported);
      EXPECT_EQ(known.type, kTell);
      EXPECT_EQ(known.info, Bytes(5, std::byte{5}));
      EXPECT_EQ(here.served, 0u);
      EXPECT_EQ(there.served, 1u);
      EXPECT_FALSE(there.peer.empty());
      // An error that concerns the message says so.
      OptionOutcome refused = ask(world, kSilent);
      EXPECT_NE(refused.status, CallStatus::kOk);
      EXPECT_EQ(refused.support, OptionSupport::kSupported);
      EXPECT_EQ(refused.error_code, draft == RpcRdmaDraft::kDraft00 ? 2u : 10u);
      EXPECT_EQ(here.errors[OptionError::Why::kRefused], 1u);
      EXPECT_EQ(there.errors[OptionError::Why::kNoAnswer], 1u);
      call(world);
      EXPECT_EQ(world.stats()[Counter::kOptionsSent], 2u);
      EXPECT_EQ(world.server->stats()[Counter::kOptionsServed], 1u);
    }
    for (const ServerOptions& options : {server_of(nothing, draft), ServerOptions{}}) {
      ServerOptions without = options;
      without.versions.draft = draft;
      SurvivalWorld world(client_of(here, RpcRdmaVersion::kTwo, draft), without);
      world.connect();
      OptionOutcome unknown = ask(world, 5);
      EXPECT_EQ(unknown.status, CallStatus::kRemoteError);
      EXPECT_EQ(unknown.support, OptionSupport::kUnsupported);
      EXPECT_EQ(unknown.error_code, draft == RpcRdmaDraft::kDraft00 ? 3u : 9u);
      EXPECT_EQ(world.server->stats()[Refusal::kUnknownOption], 1u);
      call(world);
    }
    EXPECT_EQ(here.errors[OptionError::Why::kUnsupported], 2u);
  }
}

TEST(Extensions, NoServerOfVersion1KnowsThem) {
  Site here;
  SurvivalWorld world(client_of(here, RpcRdmaVersion::kAuto), {.versions = {.two = false}});
  world.connect();
  for (int i = 0; i < 2; ++i) {
    OptionOutcome unknown = ask(world, 5);
    EXPECT_EQ(unknown.status, CallStatus::kVersionError);
    EXPECT_EQ(unknown.support, OptionSupport::kUnsupported);
    call(world);
    EXPECT_EQ(world.connection->version(), 1u);
  }
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 1u);
  EXPECT_EQ(world.stats()[Counter::kOptionsSent], 1u);
}

TEST(Extensions, UnregisteredOptionsAreNotSent) {
  Site here, there;
  SurvivalWorld world(client_of(here), server_of(there));
  world.connect();
  Outcomes outcomes;
  const Bytes one(1), many(kMostOptionInfo + 1);
  const OptionRequest bad[] = {{.type = 77, .info = one},
                               {.type = kAsk},
                               {.type = kAsk, .info = many},
                               {.type = kAsk, .info = one, .payload = many}};
  for (const OptionRequest& request : bad) {
    auto sent = send_option(*world.connection, request, Outcomes::add, &outcomes);
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().code, Errc::kInvalidArgument);
    EXPECT_NE(sent.error().message.find(std::to_string(request.type)), std::string::npos);
    EXPECT_FALSE(send_option_and_wait(*world.connection, request));
  }
  call(world);
  EXPECT_TRUE(outcomes.all.empty());
  EXPECT_EQ(world.stats()[Counter::kOptionsSent], 0u);
}

TEST(Extensions, TheCompletionCallbackIsOptional) {
  Site here, there;
  SurvivalWorld world(client_of(here), server_of(there));
  world.connect();
  const Bytes answered(5), silent(kSilent);
  for (const Bytes& info : {answered, silent})
    ASSERT_TRUE(send_option(*world.connection, {.type = kAsk, .info = info}, nullptr, nullptr));
  world.until([&] { return here.errors[OptionError::Why::kRefused] == 1; });
  call(world);
  EXPECT_EQ(there.served, 2u);
}

TEST(Extensions, ManyAreAnsweredBesideCalls) {
  Site here, there;
  SurvivalWorld world(client_of(here), server_of(there));
  world.connect();
  Outcomes outcomes;
  EndingCalls endings;
  for (size_t i = 0; i < 100; ++i) {
    const Bytes info(1 + i % 7 + (i % 7 + 1 == kSilent), std::byte{1});
    ASSERT_TRUE(
        send_option(*world.connection, {.type = kAsk, .info = info}, Outcomes::add, &outcomes));
    if (i % 10 == 0) {
      for (auto& ending : submit(world, kEcho, 2))
        endings.push_back(std::move(ending));
    }
  }
  world.until([&] { return outcomes.all.size() == 100 && all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  for (const OptionOutcome& outcome : outcomes.all)
    EXPECT_EQ(outcome.status, CallStatus::kOk) << to_string(outcome.status);
  EXPECT_EQ(there.served, 100u);
}

TEST(Extensions, EachEndsOnceHoweverItsConnectionEnds) {
  Site here, there;
  Outcomes outcomes;
  const Bytes info(4);
  {
    SurvivalWorld world(client_of(here), server_of(there));
    world.connect();
    auto send = [&](uint32_t timeout_ms) {
      ASSERT_TRUE(send_option(*world.connection,
                              {.type = kAsk, .info = info, .timeout_ms = timeout_ms}, Outcomes::add,
                              &outcomes));
    };
    call(world);  // needs more credits than one
    send(2);      // while the server is not polled
    world.until_silent([&] { return !outcomes.all.empty(); });
    ASSERT_EQ(outcomes.all.size(), 1u);
    EXPECT_EQ(outcomes.all[0].status, CallStatus::kTimeout);
    EXPECT_EQ(outcomes.all[0].support, OptionSupport::kUnknown);
    call(world);
    world.stop_server();
    world.until([&] { return !world.connection->alive(); });
    send(0);
    world.until([&] { return outcomes.all.size() == 2; });
    EXPECT_EQ(outcomes.all[1].status, CallStatus::kConnectionLost);
    world.start_server();
    world.connection.reset();
    world.connect();
    send(0);  // and is closed before the next poll
    world.connection.reset();
  }
  ASSERT_EQ(outcomes.all.size(), 3u);
  // Closing waits for the next pass if the budget of one is spent: the answer may come first.
  const bool was_answered = outcomes.all[2].status == CallStatus::kOk;
  if (!was_answered) {
    EXPECT_EQ(outcomes.all[2].status, CallStatus::kShutdown);
  }
  EXPECT_EQ(outcomes.all[2].support,
            was_answered ? OptionSupport::kSupported : OptionSupport::kUnknown);
}

TEST(Extensions, PropertiesAreToldAndHeardAtBothEnds) {
  Site here(true, true), there(true, true);
  {
    SurvivalWorld world(client_of(here), server_of(there));
    world.connect();
    call(world);
    call(world);
  }
  const std::vector<Bytes> once = {Bytes(3, std::byte{7})};
  EXPECT_EQ(here.heard, once);
  EXPECT_EQ(there.heard, once);
  EXPECT_FALSE(there.peer.empty());
  SurvivalWorld world({});
  ClientOptions client = client_of(here);
  ServerOptions server = server_of(there);
  client.version2.properties = server.version2.properties = false;
  EXPECT_EQ(Client::create(*world.runtime, client).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(Server::create(*world.runtime, server).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rrdk::loopback

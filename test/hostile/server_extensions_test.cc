// Messages of types that a server has registered (rrdk/extensions.h), with wrong data, wrong
// trailing bytes, a wrong direction or a wrong number.
#include "rrdk/extensions.h"
#include "server_scenario.h"
#include "version2.h"

namespace rrdk::hostile {
namespace {

// 101 answers 100, and is only an answer; both have one word. 110 has a message behind it.
constexpr uint32_t kAsk = 100, kTell = 101, kAskWithMessage = 110;

OptionType type(uint32_t number, OptionPayload payload) {
  return {.type = number,
          .payload = payload,
          .check = [](std::span<const std::byte> info, bool, void*) { return info.size() == 4; },
          .serve = [](const OptionMessage& request, OptionAnswer& answer,
                      void*) { EXPECT_TRUE(answer.set(kTell, request.info)); },
          .on_error = [](const OptionError&, void*) {}};
}

const Extensions* extensions() {
  static const auto made = [] {
    OptionType answer = type(kTell, OptionPayload::kNone);
    answer.serve = nullptr;
    return Extensions::create(
               {.features = {{.name = "words",
                              .types = {type(kAsk, OptionPayload::kNone), answer,
                                        type(kAskWithMessage, OptionPayload::kMessage)}}},
                .properties = {}})
        .value();
  }();
  return made.get();
}

ServerScenario served(Wire wire, ServerScenario scenario) {
  scenario.server.version2.extensions = extensions();
  if (wire == k00)
    scenario.server.versions.draft = RpcRdmaDraft::kDraft00;
  return scenario;
}
Message option(Wire wire, uint32_t direction, std::initializer_list<Part> rest) {
  if (wire == k00)
    return {7, 2, kCredits, kOptional, times(1, rest)};
  return {7, 2, kCredits, kOptional, direction, times(1, rest)};
}

std::vector<ServerScenario> of(Wire wire) {
  auto ask = [wire](std::initializer_list<Part> rest) { return option(wire, kForward, rest); };
  auto refused = [](const char* name, Message message, Refusal reason, uint32_t code = kBadXdr) {
    return ServerScenario{name, {say(std::move(message))}, {error2(7, {code})}, {reason}};
  };
  const uint32_t system = wire == k00 ? kBadXdr : kSystem;
  const Message good = ask({kAsk, 4, 5});
  const Message told = option(wire, kBackward, {kTell, 4, 5});
  std::vector<ServerScenario> all = {
      {"AsItShouldBe", {say(good)}, {told}, {}},
      {"WithAMessage", {say(ask({kAskWithMessage, 4, 5, call(7, 0)}))}, {told}, {}},
      refused("WithoutData", ask({kAsk, 0}), Refusal::kBadOption),
      refused("WithTooMuchData", ask({kAsk, 8, 1, 2}), Refusal::kBadOption),
      refused("WithDataOfAKibibyte", ask({kAsk, 1028, times(257, {1})}), Refusal::kLongOption,
              system),
      refused("LongerThanItIs", ask({kAsk, 0xffffffff, 1}), Refusal::kTruncated),
      refused("WithoutItsMessage", ask({kAskWithMessage, 4, 5}), Refusal::kBadOption),
      refused("WithHalfAMessage", ask({kAskWithMessage, 4, 5, 7}), Refusal::kBadOption),
      refused("WithAnothersMessage", ask({kAskWithMessage, 4, 5, call(8, 0)}), Refusal::kBadOption),
      refused("WithAReplyBehindIt", ask({kAskWithMessage, 4, 5, success(7)}), Refusal::kBadOption),
      refused("WithAMessageThatItDoesNotHave", ask({kAsk, 4, 5, call(7, 0)}), Refusal::kBadOption),
      refused("AnAnswerAsARequest", ask({kTell, 4, 5}), Refusal::kOptionDirection),
      {"ManyOfEach",
       {say_in_turn(300, ask({kAsk, 0})), say_in_turn(300, good)},
       {},
       {{Refusal::kBadOption, 300}}},
  };
  all.back().answers.assign(300, error2(7, {kBadXdr}));
  all.back().answers.insert(all.back().answers.end(), 300, told);
  if (wire == k04)
    all.push_back(
        {"AnAnswerToNothing", {say_times(100, told)}, {}, {{Refusal::kReplyToServer, 100}}});
  for (ServerScenario& scenario : all)
    scenario = served(wire, std::move(scenario));
  return all;
}

RRDK_SERVER_SCENARIOS(ServerExtensions, of(k04));
RRDK_SERVER_SCENARIOS(ServerExtensionsDraft00, of(k00));

}  // namespace
}  // namespace rrdk::hostile

// Transport properties of draft-04 that are wrong, or almost right, at a server that announces its
// own.
#include "server_scenario.h"
#include "version2.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kSize = 1, kBackwards = 2;  // ids

// The properties that the server announces behind its first reply.
Message told() {
  return {1, 2, kCredits, kConnProp, 2, kSize, 4, 4096, kBackwards, 4, 0, 1, 2};
}
ServerScenario scenario(const char* name, std::vector<Step> script, std::vector<Message> answers,
                        std::vector<Moved> counters) {
  script.insert(script.begin(), {say(null_call2(k04, 1)), hear(2)});
  answers.insert(answers.begin(), {null_reply2(k04, 1), told()});
  return {.name = name,
          .script = std::move(script),
          .answers = std::move(answers),
          .counters = std::move(counters),
          .server = {.credits = kCredits}};
}
ServerScenario bad(const char* name, Message message) {
  return scenario(name, {say(std::move(message))}, {error2(7, {kBadXdr})},
                  {Refusal::kBadProperties});
}
ServerScenario taken(const char* name, Message message, std::vector<Moved> counters = {}) {
  return scenario(name, {say(std::move(message))}, {}, std::move(counters));
}
Message connprop(uint32_t size, uint32_t stays = 0) {
  return {7, 2, kCredits, kConnProp, 1, kSize, 4, size, 1, stays};
}
Message updprop(uint32_t size) {
  return {7, 2, kCredits, kUpdProp, 1, kSize, 4, size};
}
Message reqprop(uint32_t size) {
  return {7, 2, kCredits, kReqProp, 1, kSize, 4, size};
}

ServerScenario cut_at_every_byte(const char* name, Message message, size_t length) {
  ServerScenario all = scenario(name, {}, {}, {{Refusal::kBadProperties, length - 16}});
  for (size_t cut = 16; cut < length; ++cut) {
    all.script.push_back(say(message.cut(cut)));
    all.answers.push_back(error2(7, {kBadXdr}));
    all.script.push_back(hear(all.answers.size()));
  }
  return all;
}

// Shows: V2D4-PROP-08, V2D4-PROP-11
std::vector<ServerScenario> sets() {
  return {
      cut_at_every_byte("ConnPropCutAtEveryByte", connprop(8192), 40),
      cut_at_every_byte("ReqPropCutAtEveryByte", reqprop(8192), 32),
      cut_at_every_byte("UpdPropCutAtEveryByte", updprop(8192), 32),
      bad("LargestCount", {7, 2, kCredits, kUpdProp, 0xffffffff, kSize, 4, 8192}),
      bad("ACountWhoseBytesWrap", {7, 2, kCredits, kUpdProp, 0x20000000, kSize, 4, 8192}),
      bad("LargestLength", {7, 2, kCredits, kUpdProp, 1, kSize, 0xffffffff, 8192}),
      bad("ALengthWhosePadWraps", {7, 2, kCredits, kUpdProp, 1, kSize, 0xfffffffd, 8192}),
      bad("LargestSubset", {7, 2, kCredits, kConnProp, 0, 0xffffffff, 1}),
      bad("ASubsetWhoseBytesWrap", {7, 2, kCredits, kConnProp, 0, 0x40000000, 1}),
      bad("ASecondEntryThatIsNotThere", {7, 2, kCredits, kUpdProp, 2, kSize, 4, 8192}),
      // Shows: V2D4-PROP-10, V2D4-POP-12
      taken("FiveHundredUnknownOnes", {7, 2, kCredits, kConnProp, 500, times(500, {1000, 0}), 0}),
      // Shows: V2D4-PROP-06
      taken("ASubsetBeyondTheSet", {7, 2, kCredits, kConnProp, 0, 3, 0xffffffff, 0xffffffff, 1}),
      taken("BytesBehindIt", {7, 2, kCredits, kUpdProp, 0, 1, 2, 3}, {Refusal::kTrailingBytes}),
  };
}

// Shows: SEC-12
std::vector<ServerScenario> values() {
  return {
      // Shows: V2D4-PROP-25
      bad("ASizeOfNothing", connprop(0)),
      bad("ASizeOfOne", updprop(1)),
      bad("ASizeBelow1024", connprop(1023)),
      taken("TheSmallestSize", connprop(1024), {Refusal::kSmallReceives}),
      taken("TheLargestSize", connprop(0xffffffff)),
      bad("AnotherBackwardSupport", {7, 2, kCredits, kConnProp, 1, kBackwards, 4, 3, 0}),
      scenario("RequestsOfAnySize",
               {say(reqprop(1024)), hear(3), say(reqprop(4095)), hear(4), say(reqprop(0xffffffff)),
                hear(5), say(reqprop(4096)), hear(6)},
               {{7, 2, kCredits, kRespProp, 0, 1, 1, 0},
                {7, 2, kCredits, kRespProp, 0, 1, 1, 0},
                {7, 2, kCredits, kRespProp, 0, 0, 1, kSize, 4, 4096},
                {7, 2, kCredits, kRespProp, 1, 1, 0, 0}},
               {}),
      scenario("ManyRequests", {say_in_turn(500, reqprop(0x7fffffff))},
               std::vector<Message>(500, {7, 2, kCredits, kRespProp, 0, 0, 1, kSize, 4, 4096}), {}),
      // Shows: V2D4-POP-26
      taken("AnAnswerToNothing", {7, 2, kCredits, kRespProp, 1, 1, 0, 1, kSize, 4, 1024},
            {Refusal::kUnknownXid}),
      taken("AFaultyAnswerToNothing", {7, 2, kCredits, kRespProp, 0xffffffff},
            {Refusal::kUnknownXid}),
      // Shows: V2D4-POP-28
      scenario("AChangeOfWhatStays",
               {say(connprop(8192, 1)), say_slowly(100, updprop(65536)), say(updprop(4096))}, {},
               {{Refusal::kFixedProperty, 101}}),
      taken("AChangeOfWhatWasNeverSaid", updprop(65536), {Refusal::kFixedProperty}),
      // Shows: V2D4-POP-13
      scenario("ManyOfTheFirstMessage", {say_slowly(300, connprop(8192))}, {}, {}),
  };
}

RRDK_SERVER_SCENARIOS(ServerPropertySets, sets());
RRDK_SERVER_SCENARIOS(ServerPropertyValues, values());

}  // namespace
}  // namespace rrdk::hostile

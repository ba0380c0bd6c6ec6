// Malformed RPC messages under valid headers.
#include "server_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kProgram = 0x20005600, kVersion = 3;
constexpr uint32_t kEcho = loopback::kEcho, kWorker = loopback::kWorker;

Message msg(std::initializer_list<Part> rpc) {
  return {7, 1, kCredits, kMsg, 0, 0, 0, times(1, rpc)};
}
// MSG_DENIED with these words behind it.
Message denial(std::initializer_list<Part> words) {
  return {7, 1, kCredits, kMsg, 0, 0, 0, 7, 1, 1, times(1, words)};
}
ServerScenario refused(const char* name, Message message, uint32_t accept_stat, Refusal reason) {
  return {name, {say(std::move(message))}, {rejection(7, accept_stat)}, {reason}};
}
ServerScenario ends(const char* name, Message message, Refusal reason) {
  return {name, {say(std::move(message))}, {}, {reason}, After::kEnds};
}
ServerScenario garbage(const char* name, Message message) {
  return {name, {say(std::move(message))}, {rejection(7, 4)}, {}};
}

// Truncated at every word behind the message type.
ServerScenario truncated_at_every_word() {
  ServerScenario scenario = {"CutOffAtEveryWord", {}, {}, {{Refusal::kGarbageCall, 8}}};
  for (size_t length = 8; length < 40; length += 4) {
    scenario.script.push_back(say(msg({call(7, 0)}).cut(28 + length)));
    scenario.answers.push_back(rejection(7, 4));
  }
  return scenario;
}

std::vector<ServerScenario> rpc() {
  return {
      // Shows: V1-ERR-17
      {"RpcVersionThree",
       {say(msg({7, 0, 3, kProgram, kVersion, 0, 0, 0, 0, 0}))},
       {denial({0, 2, 2})},
       {Refusal::kRpcVersion}},
      {"LargestRpcVersionAndNothingElse",
       {say(msg({7, 0, 0xffffffff}))},
       {denial({0, 2, 2})},
       {Refusal::kRpcVersion}},
      truncated_at_every_word(),
      ends("NothingButTheXid", msg({7}), Refusal::kNotACall),
      ends("MessageTypeTwo", msg({7, 2, 2, kProgram, kVersion, 0, 0, 0, 0, 0}), Refusal::kNotACall),
      ends("LargestMessageType", msg({7, 0xffffffff}), Refusal::kNotACall),
      {"AReply", {say(msg({success(7)}))}, {}, {Refusal::kReplyToServer}},
      {"ManyReplies", {say_times(500, msg({success(7)}))}, {}, {{Refusal::kReplyToServer, 500}}},
      {"AReplyWithChunks",
       {say({7, 1, kCredits, kMsg, 1, 8, segment(0x4711, 8, 0), 0, 1, 1, segment(0x4711, 8, 0), 0,
             0, success(7)})},
       {},
       {Refusal::kReplyToServer}},
      {"CredentialOneByteTooLong",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 1, 401, filler(404), 0, 0}))},
       {denial({1, 1})},
       {Refusal::kBadCredential}},
      {"LargestCredential",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 1, 0xffffffff, 0, 0}))},
       {denial({1, 1})},
       {Refusal::kBadCredential}},
      {"CredentialThatIsNotThere",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 1, 400, 0, 0}))},
       {rejection(7, 4)},
       {Refusal::kGarbageCall}},
      {"VerifierOneByteTooLong",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 0, 0, 0, 401, filler(404)}))},
       {denial({1, 3})},
       {Refusal::kBadVerifier}},
      {"LargestVerifier",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 0, 0, 6, 0xffffffff}))},
       {denial({1, 3})},
       {Refusal::kBadVerifier}},
      {"VerifierThatIsNotThere",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 0, 0, 0, 4}))},
       {rejection(7, 4)},
       {Refusal::kGarbageCall}},
      // As long as allowed, of an unknown flavour: the service does not look at it.
      {"LongCredentialOfAnUnknownFlavour",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 0x7fffffff, 400, filler(400), 0, 400,
                 filler(400), 4, 5}))},
       {echo_reply(7)},
       {}},
      // AUTH_SYS with a malformed body: like any other credential without meaning.
      {"AuthSysThatIsNot",
       {say(msg({7, 0, 2, kProgram, kVersion, kEcho, 1, 8, 0xffffffff, 0xffffffff, 0, 0, 4, 5}))},
       {echo_reply(7)},
       {}},
      // Shows: V1-ERR-17
      refused("UnknownProgram", msg({call(7, 0, kVersion, 0x7777)}), 1, Refusal::kNoProgram),
      {"UnknownVersion",
       {say(msg({call(7, 0, 4)}))},
       {{7, 1, kCredits, kMsg, 0, 0, 0, accepted(7, 2), 3, 3}},
       {Refusal::kNoVersion}},
      {"LargestVersion",
       {say(msg({call(7, 0, 0xffffffff)}))},
       {{7, 1, kCredits, kMsg, 0, 0, 0, accepted(7, 2), 3, 3}},
       {Refusal::kNoVersion}},
      refused("UnknownProcedure", msg({call(7, 99)}), 3, Refusal::kNoProcedure),
      refused("LargestProcedure", msg({call(7, 0xffffffff)}), 3, Refusal::kNoProcedure),
      {"NullWithArguments", {say(msg({call(7, 0), filler(2000)}))}, {null_reply(7)}, {}},
      garbage("NoArguments", msg({call(7, kEcho)})),
      garbage("CountAboveTheMessage", msg({call(7, kEcho), 8, 5})),
      garbage("LargestCount", msg({call(7, kEcho), 0xffffffff, 5})),
      garbage("CountThatWrapsWithItsPad", msg({call(7, kEcho), 0xfffffffe, 5})),
      garbage("TooManyArguments", msg({call(7, kEcho), 4, 5, 6})),
      garbage("PadThatIsCutOff", Message{msg({call(7, kEcho), 5, filler(5)})}),
      {"OnAWorker", {say(msg({call(7, kWorker), 4, 5}))}, {echo_reply(7)}, {}},
      garbage("GarbageForAWorker", msg({call(7, kWorker), 8, 5})),
      {"ManyForAWorker",
       {[](Stage& stage) {
         for (uint32_t i = 0; i < 200; ++i) {
           stage.peer->say(msg({call(7, kWorker), 8, 5}).bytes(*stage.peer));
           stage.until("it is answered", [&] { return stage.peer->heard.size() > i; });
         }
       }},
       std::vector<Message>(200, rejection(7, 4)),
       {}},
      // Shows: V1-ERR-20
      {"TheHandlerDropsIt", {say(msg({call(7, loopback::kDropCall)}))}, {}, {}, After::kEnds},
      {"TheHandlerForgetsIt", {say(msg({call(7, loopback::kForget)}))}, {rejection(7, 5)}, {}},
  };
}

RRDK_SERVER_SCENARIOS(RpcMessages, rpc());

}  // namespace
}  // namespace rrdk::hostile

// Connections that begin and end in irregular ways, at a client.
#include "client_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr CallStatus kOk = CallStatus::kOk, kLost = CallStatus::kConnectionLost;

Message good_reply() {
  return {xid(0), 1, kCredits, kMsg, 0, 0, 0, success(xid(0)), 4, 5};
}
ClientScenario left(const char* name, std::vector<Asked> asked, std::vector<Step> script) {
  return {name, std::move(asked), std::move(script), {}, After::kLeft};
}
ClientScenario not_connected(const char* name, Errc error, PeerOptions::Answer answer) {
  ClientScenario scenario = {name, {}, {}, {}};
  scenario.connect_error = error;
  scenario.client.connect_timeout_ms = 300;
  scenario.peer.answer = answer;
  return scenario;
}

// A rejection in our servers' format, with a text behind it.
ClientScenario rejected(const char* name, uint8_t why, const std::string& text, const char* says) {
  ClientScenario scenario = not_connected(name, Errc::kRefused, PeerOptions::Answer::kReject);
  Bytes told;
  for (char c : "RRDKrej" + std::string(1, static_cast<char>(why)) + text)
    told.push_back(static_cast<std::byte>(c));
  scenario.peer.rejection = told;
  scenario.connect_says = says;
  return scenario;
}

std::vector<ClientScenario> ends() {
  return {
      rejected("RejectsWithAText", 4, "come later", "not admit this client: come later"),
      rejected("RejectsWithTerminalCommands", 4, "\x1b]0;mine\a\r\n\xff", ": ?]0;mine????"),
      rejected("RejectsWithALongText", 4, std::string(48, '%'),
               ": %%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%"),
      rejected("RejectsForNoKnownReason", 0xff, std::string(48, '\x7f'),
               "not known here: ????????????????????????????????????????????????"),
      not_connected("NeverAccepts", Errc::kTimeout, PeerOptions::Answer::kNone),
      not_connected("Rejects", Errc::kRefused, PeerOptions::Answer::kReject),
      not_connected("DropsTheRequest", Errc::kConnectionLost, PeerOptions::Answer::kDrop),
      left("AfterConnecting", {}, {hang_up()}),
      left("WithACallInFlight", {{Ask::kEcho, kLost}}, {hang_up()}),
      left("WithChunksInFlight",
           {{Ask::kRead, kLost}, {Ask::kWrite, kLost}, {Ask::kLong, kLost}, {Ask::kBoth, kLost}},
           {pause(20), hang_up()}),
      left("WithMoreCallsThanCredits", std::vector<Asked>(20, {Ask::kEcho, kLost}),
           {pause(20), hang_up()}),
      left("BehindTheReply", {{Ask::kEcho, kOk}}, {say(good_reply()), ended(0), hang_up()}),
      {"BehindAMalformedReply",
       {{Ask::kEcho, CallStatus::kMalformedReply}},
       {say({xid(0), 1, kCredits, 7}), ended(0), hang_up()},
       {Refusal::kBadType},
       After::kLeft},
      left("WhileItWrites", {{Ask::kRead, kLost}}, {[](Stage& stage) {
             const Bytes& heard = stage.peer->heard_message(0);
             uint64_t address = uint64_t{word_at(heard, 9)} << 32 | word_at(heard, 10);
             stage.peer->access(fabric::Op::kWrite, word_at(heard, 7), address, Bytes(600));
             stage.peer->hang_up();
           }}),
      left("WithACancelledCall", {{Ask::kRead, CallStatus::kCancelled}},
           {cancel(0), ended(0), hang_up()}),
      {"TakesNothing",
       {{Ask::kLarge, CallStatus::kTimeout, 1}},
       {},
       // The call was copied: only the missing answer shows that the peer does not take it.
       {Refusal::kNoAnswers},
       After::kEnds,
       {.private_data = usual_private_data(), .receives = 0},
       {.credits = kCredits, .call_timeout_ms = 0, .lend_ms = 1},
       {},
       false},
  };
}

// Accepts with this private data; the victim sends at most `bytes` at once.
ClientScenario threshold(const char* name, Bytes private_data, uint32_t bytes) {
  return {name,
          {{Ask::kLarge, kOk}},
          {[bytes](Stage& stage) {
             EXPECT_EQ(word_at(stage.peer->heard_message(0), 3), bytes < 2096 ? kNoMsg : kMsg);
             EXPECT_LE(stage.peer->heard_message(0).size(), bytes);
           },
           say(good_reply())},
          {},
          After::kServes,
          {.private_data = std::move(private_data)}};
}
Bytes with_octet(size_t index, uint8_t value) {
  Bytes data = usual_private_data();
  data[index] = std::byte{value};
  return data;
}

std::vector<ClientScenario> greetings() {
  Bytes at_the_end(48, std::byte{0x18});
  Bytes usual = usual_private_data();
  at_the_end.insert(at_the_end.end(), usual.begin(), usual.end());
  Bytes cut_off = at_the_end;
  cut_off.pop_back();
  return {
      // Shows: V1-INLINE-06
      threshold("Nothing", {}, 1024),
      threshold("OneByte", Bytes(1, std::byte{0xf6}), 1024),
      threshold("SevenBytes", Bytes(usual.begin(), usual.begin() + 7), 1024),
      threshold("EightBytesOfGarbage", Bytes(8, std::byte{0xf6}), 1024),
      threshold("FiftySixBytesOfGarbage", Bytes(56, std::byte{0xf6}), 1024),
      threshold("WrongMagic", with_octet(3, 0x19), 1024),
      threshold("WrongVersion", with_octet(4, 2), 1024),
      threshold("AllFlags", with_octet(5, 0xff), 4096),
      threshold("SmallestReceives", with_octet(7, 0), 1024),
      threshold("LargestReceives", with_octet(7, 255), 4096),
      threshold("BehindFortyEightOctets", at_the_end, 4096),
      threshold("CutOffAtTheEnd", cut_off, 1024),
      // The server says that it sends little, so a Reply chunk is offered for replies that would
      // not fit.
      {"SmallestSends",
       {{Ask::kEcho, kOk}},
       {say(good_reply())},
       {},
       After::kServes,
       {.private_data = with_octet(6, 0)}},
  };
}

RRDK_CLIENT_SCENARIOS(ClientEnds, ends());
RRDK_CLIENT_SCENARIOS(ClientGreetings, greetings());

}  // namespace
}  // namespace rrdk::hostile

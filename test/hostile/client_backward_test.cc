// Calls from a server of draft-04 to a client that serves some, with chunks that it may or may not
// take.
#include "client_scenario.h"
#include "version2.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kItem = 52;  // Position of an item behind a call's header and its offset

ClientScenario serving(bool chunks, ClientScenario scenario) {
  scenario.script.push_back(pause(20));
  if (scenario.after == After::kServes)
    scenario.script.push_back(say(echo_reply2(k04, xid(0))));
  scenario.asked = {{Ask::kEcho, scenario.after == After::kServes ? CallStatus::kOk
                                                                  : CallStatus::kConnectionLost}};
  scenario.client.version = RpcRdmaVersion::kTwo;
  scenario.client.version2.backward_chunks = chunks;
  scenario.client.max_call = scenario.client.max_reply = 1u << 20;
  scenario.serves = true;
  return scenario;
}
ClientScenario inline_only(const char* name, Message message, uint32_t code) {
  return serving(false, {.name = name,
                         .asked = {},
                         .script = {say(std::move(message))},
                         .counters = {Refusal::kBackwardChunks},
                         .errors = {{7, 2, kCredits, kError, code, 0}}});
}
ClientScenario refused(const char* name, Message message, std::vector<Moved> counters,
                       Message error) {
  return serving(true, {.name = name,
                        .asked = {},
                        .script = {say(std::move(message))},
                        .counters = std::move(counters),
                        .errors = {std::move(error)}});
}
ClientScenario served(const char* name, Message message) {
  return serving(true, {.name = name,
                        .asked = {},
                        .script = {say(std::move(message))},
                        .counters = {},
                        .replies = 1});
}
ClientScenario ended(const char* name, Message message) {
  return serving(true, {.name = name,
                        .asked = {},
                        .script = {say(std::move(message))},
                        .counters = {Refusal::kAccessRefused},
                        .after = After::kEnds});
}

Message write_call(Part chunk, uint32_t bytes) {
  return call2(k04, 7,
               {1, kItem, std::move(chunk), 0, 0, 0, call(7, loopback::kWrite), 0, 0, bytes});
}
Message read_call(Part chunk, uint32_t bytes) {
  return call2(k04, 7, {0, 1, 1, std::move(chunk), 0, 0, call(7, loopback::kRead), 0, 0, bytes});
}
Message with_reply_chunk(Part chunk) {
  return call2(k04, 7, {0, 0, 1, 1, std::move(chunk), call(7, loopback::kEcho), 4, 5});
}
Message long_call(Part chunk) {
  return call2(k04, 7, {1, 0, std::move(chunk), 0, 0, 0}, kNoMsg);
}

// Shows: V2D4-PROP-30
std::vector<ClientScenario> all() {
  return {
      serving(false, {.name = "AnInlineCall",
                      .asked = {},
                      .script = {say(echo_call2(k04, 7))},
                      .counters = {},
                      .replies = 1}),
      inline_only("AReadChunkThatIsNotTaken", write_call(readable(8000), 8000), kReadChunks),
      inline_only("AWriteChunkThatIsNotTaken", read_call(writable(8000), 8000), kWriteChunks),
      inline_only("AReplyChunkThatIsNotTaken", with_reply_chunk(writable(8000)), kWriteChunks),
      inline_only("ALongCallThatIsNotTaken", long_call(readable(8000)), kReadChunks),
      serving(false,
              {.name = "AThousandThatAreNotTaken",
               .asked = {},
               .script = {say_in_turn(1000, write_call(readable(8000), 8000))},
               .counters = {{Refusal::kBackwardChunks, 1000}},
               .errors = std::vector<Message>(1000, {7, 2, kCredits, kError, kReadChunks, 0})}),
      served("AReadChunk", write_call(readable(8000), 8000)),
      served("AWriteChunk", read_call(writable(8000), 8000)),
      served("AReplyChunk", with_reply_chunk(writable(8000))),
      ended("AReadOfWhatIsNotReadable", write_call(writable(8000), 8000)),
      ended("AReadOfAnUnknownHandle", write_call(segment(0x4711, 8000, 0), 8000)),
      ended("AWriteToWhatIsNotWritable", read_call(readable(8000), 8000)),
      ended("ALongCallThatIsRevoked", long_call(revoked(8000))),
      refused("ACallLargerThanAny", write_call(segment(0x4711, 0x7fffffff, 0), 0x7fffffff),
              {Refusal::kTooManyBytes}, {7, 2, kCredits, kError, kSystem}),
      refused("APositionBeyondTheCall",
              call2(k04, 7, {1, 4096, readable(8), 0, 0, 0, call(7, loopback::kWrite), 0, 0, 8}),
              {Refusal::kBeyondMessage}, {7, 2, kCredits, kError, kBadXdr}),
  };
}

RRDK_CLIENT_SCENARIOS(ClientBackward, all());

}  // namespace
}  // namespace rrdk::hostile

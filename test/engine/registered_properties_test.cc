// Properties that the application has registered, at a server (draft-04 sections 5.3.1 and 5.4).
#include "extensions_test.h"
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kConnProp = 6, kUpdProp = 9;
constexpr uint32_t kCall = 0;

class RegisteredProperties : public ResponderTest {
 protected:
  using Kind = TransportProperty::Kind;
  struct Heard {
    uint32_t id;
    Bytes value;
    bool updated;
    bool operator==(const Heard&) const = default;
  };
  TransportProperty property(Kind kind, uint32_t id, Bytes value, bool says = true) {
    TransportProperty made = {.name = "p", .id = id, .kind = kind, .value = value, .says = says};
    if (kind == Kind::kStandard)
      made.check = [](std::span<const std::byte> bytes, void*) { return bytes.size() == 8; };
    made.on_value = [](const PropertyValue& said, void* self) {
      static_cast<RegisteredProperties*>(self)->heard.push_back(
          {said.id, Bytes(said.value.begin(), said.value.end()), said.updated});
    };
    made.context = this;
    return made;
  }
  Bytes connect(std::vector<TransportProperty> properties) {
    extensions = std::make_unique<TestExtensions>(false, std::move(properties));
    ConnectionOptions options;
    options.extensions = extensions->made.get();
    ResponderTest::connect(options);
    peer_side->say(Wire{1, 2, 4, kMsg, kCall, 0, 0, 0, 0, 1, kCall});
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 2u);
    return sent.size() == 2 ? Bytes(sent[1].begin() + 12, sent[1].end()) : Bytes(64);
  }
  void expect_silence(const Bytes& message) {
    peer_side->say(message);
    EXPECT_TRUE(peer_side->take().empty());
  }
  std::unique_ptr<TestExtensions> extensions;
  std::vector<Heard> heard;
};

// Shows: V2D4-PROP-16
TEST_F(RegisteredProperties, AreSaidWithTheOthersAndStay) {
  Bytes opaque = Wire{0x01020304, 0x05000000}.bytes();
  opaque.resize(5);
  Bytes said = connect({property(Kind::kExperimental, 0xffffff07, opaque),
                        property(Kind::kStandard, 9, Bytes(8), false),
                        property(Kind::kStandard, 8, Bytes(8))});
  EXPECT_EQ(said, Wire({kConnProp, 4, 1, 4, 4096, 2, 4, 0, 0xffffff07, 5, 0x01020304, 0x05000000, 8,
                        8, 0, 0, 1, 14})
                      .bytes());
  // The largest ones fit, too.
  end->disconnect();
  std::vector<TransportProperty> largest;
  for (uint32_t i = 0; i < kMostProperties; ++i)
    largest.push_back(property(Kind::kExperimental, 0xffffff00 + i, Bytes(kMostPropertyValue)));
  said = connect(largest);
  EXPECT_EQ(said.size(), 4 + 4 + 24 + kMostProperties * (8 + kMostPropertyValue) + 8);
  EXPECT_EQ(word(said, said.size() / 4 - 1), 0x3feu);
}

// Shows: V2D4-PROP-16
TEST_F(RegisteredProperties, ThePeersAreHandedOnAsTheyAre) {
  connect({property(Kind::kExperimental, 0xffffff07, {}), property(Kind::kStandard, 8, Bytes(8))});
  // The first one twice, of which the last counts; an unknown one; and the second stays.
  expect_silence(Wire{70, 2, 0, kConnProp, 4, 0xffffff07, 4, 1,          0xffffff08, 4,
                      2,  8, 8, 3,         4, 0xffffff07, 1, 0xff000000, 1,          4});
  Bytes one(1, std::byte{0xff});
  EXPECT_EQ(heard, (std::vector<Heard>{{0xffffff07, one, false}, {8, Wire{3, 4}, false}}));
  heard.clear();
  expect_silence(Wire{71, 2, 0, kUpdProp, 2, 8, 8, 5, 6, 0xffffff07, 0});
  EXPECT_EQ(heard, (std::vector<Heard>{{0xffffff07, {}, true}}));
  EXPECT_EQ(counters().refusals[Refusal::kFixedProperty], 1u);
  // CONNPROP again, which is then treated as UPDPROP.
  heard.clear();
  expect_silence(Wire{70, 2, 0, kConnProp, 1, 0xffffff07, 4, 9, 0});
  EXPECT_EQ(heard, (std::vector<Heard>{{0xffffff07, Wire{9}, true}}));
  heard.clear();
  expect_silence(Wire{71, 2, 0, kUpdProp, 1, 0xffffff07, 68}.raw(Bytes(68)));
  EXPECT_EQ(counters().refusals[Refusal::kLongProperty], 1u);
  EXPECT_TRUE(heard.empty());
}

TEST_F(RegisteredProperties, AnInvalidValueMakesItsMessageFaulty) {
  connect({property(Kind::kStandard, 8, Bytes(8))});
  peer_side->say(Wire{70, 2, 0, kConnProp, 2, 1, 4, 8192, 8, 4, 3, 0});
  Bytes answer = only_answer();
  EXPECT_EQ(word(answer, 3), kError);
  EXPECT_EQ(word(answer, 4), 2u);
  EXPECT_TRUE(heard.empty());
  EXPECT_EQ(end->engine->properties().peer().receive_size, 4096u);
  expect_silence(Wire{70, 2, 0, kConnProp, 1, 1, 4, 8192, 0});
  expect_silence(Wire{71, 2, 0, kUpdProp, 1, 8, 8, 5, 6});  // it was not in CONNPROP
  EXPECT_EQ(counters().refusals[Refusal::kFixedProperty], 1u);
  EXPECT_TRUE(heard.empty());
}

TEST_F(RegisteredProperties, ARequestToChangeOneIsRejected) {
  connect({property(Kind::kStandard, 8, Bytes(8))});
  peer_side->say(Wire{72, 2, 0, 7, 1, 8, 8, 1, 2});
  Bytes answer = only_answer();
  EXPECT_EQ(Bytes(answer.begin() + 12, answer.end()), Wire({8, 0, 1, 1, 0}).bytes());
}

}  // namespace
}  // namespace rrdk::engine::test

// Which types may be registered, and the errors for those that may not (draft-04 sections 4.3 and
// 5.4.2).
#include "extensions_test.h"

namespace rrdk::engine::test {
namespace {

class Registry : public testing::Test {
 protected:
  static void expect_refused(ExtensionList list, const std::string& word) {
    auto made = Extensions::create(std::move(list));
    ASSERT_FALSE(made) << word;
    EXPECT_EQ(made.error().code, Errc::kInvalidArgument);
    EXPECT_NE(made.error().message.find(word), std::string::npos) << made.error().message;
  }
  static ExtensionList one(const OptionType& type) {
    return {.features = {{.name = "f", .types = {type}}}, .properties = {}};
  }
  static ExtensionList one(const TransportProperty& property) {
    return {.features = {}, .properties = {property}};
  }
  static TransportProperty property(TransportProperty::Kind kind, uint32_t id) {
    TransportProperty made = {.name = "p", .id = id, .kind = kind, .value = Bytes(4)};
    if (kind == TransportProperty::Kind::kStandard)
      made.check = [](std::span<const std::byte> value, void*) { return value.size() == 4; };
    return made;
  }
  using Kind = TransportProperty::Kind;
  TestExtensions sample;
};

// Shows: V2D4-OPT-06, V2D0-OPT-05
TEST_F(Registry, WantsOfATypeWhatItsDocumentHasToSay) {
  OptionType whole = sample.type(100);
  EXPECT_TRUE(Extensions::create(one(whole)));
  OptionType lacks = whole;
  lacks.payload = OptionPayload::kUnstated;
  expect_refused(one(lacks), "`payload`");
  lacks = whole;
  lacks.check = nullptr;
  expect_refused(one(lacks), "`check`");
  lacks = whole;
  lacks.on_error = nullptr;
  expect_refused(one(lacks), "`on_error`");
  expect_refused({.features = {{.name = "f", .types = {}}}, .properties = {}}, "'f'");
}

// Shows: V2D4-OPT-04
TEST_F(Registry, TakesAFeatureAsAWholeOrNotAtAll) {
  OptionType lacks = sample.type(102);
  lacks.check = nullptr;
  std::vector<Feature> half = {{.name = "f", .types = {sample.type(100), lacks}}};
  expect_refused({.features = half, .properties = {}}, "type 102");
  std::vector<Feature> twice = {{.name = "f", .types = {sample.type(100), sample.type(101)}},
                                {.name = "g", .types = {sample.type(101)}}};
  expect_refused({.features = twice, .properties = {}}, "type 101");
  EXPECT_NE(sample.made->find(100), nullptr);
  EXPECT_NE(sample.made->find(101), nullptr);
  EXPECT_EQ(sample.made->find(99), nullptr);
  EXPECT_EQ(sample.made->find(0xffffffff), nullptr);
  EXPECT_TRUE(sample.made->together(100, 102));
  EXPECT_FALSE(sample.made->together(100, 110));
  EXPECT_FALSE(sample.made->together(100, 99));
}

// Shows: V2D4-PROP-16
TEST_F(Registry, KeepsStandardsOutOfTheRangeOfExperiments) {
  for (uint32_t id : {0xffffff00u, 0xffffff80u, 0xffffffffu}) {
    expect_refused(one(property(Kind::kStandard, id)), "section 5.4.2");
    EXPECT_TRUE(Extensions::create(one(property(Kind::kExperimental, id))));
  }
  for (uint32_t id : {3u, 0xfffffeffu}) {
    expect_refused(one(property(Kind::kExperimental, id)), "section 5.4.2");
    EXPECT_TRUE(Extensions::create(one(property(Kind::kStandard, id))));
  }
  for (uint32_t id : {1u, 2u})
    expect_refused(one(property(Kind::kStandard, id)), "belong to RRDK");
}

TEST_F(Registry, BoundsPropertiesAndTheirValues) {
  TransportProperty large = property(Kind::kExperimental, 0xffffff01);
  large.value.resize(kMostPropertyValue);
  EXPECT_TRUE(Extensions::create(one(large)));
  large.value.resize(kMostPropertyValue + 1);
  expect_refused(one(large), "bytes");
  TransportProperty bad = property(Kind::kStandard, 3);
  bad.value.resize(5);
  expect_refused(one(bad), "`check`");
  bad = property(Kind::kStandard, 3);
  bad.check = nullptr;
  expect_refused(one(bad), "`check`");
  bad = property(Kind::kStandard, 3);
  bad.kind = Kind::kUnstated;
  expect_refused(one(bad), "`kind`");
  ExtensionList many;
  many.properties = {property(Kind::kStandard, 3), property(Kind::kStandard, 3)};
  expect_refused(many, "twice");
  for (uint32_t id = 4; many.properties.size() <= kMostProperties; ++id)
    many.properties.push_back(property(Kind::kStandard, id));
  expect_refused(many, "more than");
}

}  // namespace
}  // namespace rrdk::engine::test

// The table of counters, as programs read it: in C++, and in C from the same lines.
#include "rrdk/counters.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "rrdk/rrdk.h"

namespace rrdk {
namespace {

constexpr size_t kKnown = RRDK_COUNTERS;

TEST(Counters, HaveAnIdANameAndAText) {
  ASSERT_EQ(counter_count(), kKnown) << "the header's are the library's";
  std::set<std::string> names;
  for (size_t id = 0; id < counter_count(); ++id) {
    const CounterInfo* info = counter_info(static_cast<Counter>(id));
    ASSERT_NE(info, nullptr) << id;
    EXPECT_TRUE(names.insert(info->name).second) << info->name;
    EXPECT_EQ(find_counter(info->name), static_cast<Counter>(id));
    EXPECT_EQ(info->unit, std::string(info->name).ends_with("_bytes") ? "bytes" : std::string());
    EXPECT_GT(std::string(info->text).size(), 5u) << info->name;
    EXPECT_NE(info->owners, 0) << info->name;
  }
  EXPECT_EQ(find_counter("waits_share"), Counter::kWaitsShare);
  EXPECT_EQ(find_counter(""), std::nullopt);
  EXPECT_EQ(find_counter("waits_shar"), std::nullopt);
}

// Programs are compiled with these numbers: they were the first, and do not change.
TEST(Counters, KeepTheirIds) {
  EXPECT_EQ(static_cast<int>(Counter::kCallsReceived), 0);
  EXPECT_EQ(static_cast<int>(Counter::kWaitsShare), 25);
  EXPECT_EQ(static_cast<int>(Counter::kConnections), 49);
  EXPECT_EQ(static_cast<int>(Counter::kSentBytes), 90);
  EXPECT_EQ(static_cast<int>(Counter::kRefusalTooShort), 91);
  EXPECT_EQ(static_cast<int>(Counter::kRefusalWorkFailed), 157);
  EXPECT_EQ(static_cast<int>(Refusal::kTooShort), 0);
  EXPECT_EQ(static_cast<int>(Refusal::kWorkFailed), 66);
}

TEST(Counters, EachRefusalHasItsOwn) {
  std::set<Counter> counters;
  for (Refusal reason : all_refusals()) {
    const Counter counter = counter_of(reason);
    EXPECT_TRUE(counters.insert(counter).second) << to_string(reason);
    EXPECT_EQ(std::string(counter_info(counter)->name).find("refusal_"), 0u) << to_string(reason);
    EXPECT_STRNE(to_string(reason), "unknown refusal");
  }
  const auto unknown = static_cast<Refusal>(kRefusals);
  EXPECT_STREQ(to_string(unknown), "unknown refusal");
  EXPECT_FALSE(is_breach(unknown));
  EXPECT_EQ(counter_info(counter_of(unknown)), nullptr);
}

TEST(Counters, AreTheSameInC) {
  EXPECT_EQ(rrdk_counter_count(), counter_count());
  for (uint32_t id = 0; id < counter_count(); ++id) {
    const CounterInfo* info = counter_info(static_cast<Counter>(id));
    EXPECT_STREQ(rrdk_counter_name(id), info->name);
    EXPECT_STREQ(rrdk_counter_unit(id), info->unit);
    EXPECT_STREQ(rrdk_counter_text(id), info->text);
    EXPECT_EQ(rrdk_counter_is_gauge(id), info->is_gauge);
    EXPECT_EQ(rrdk_counter_find(info->name), id);
  }
  EXPECT_EQ(RRDK_COUNTER_waits_share, static_cast<int>(Counter::kWaitsShare));
  EXPECT_EQ(RRDK_COUNTER_refusal_xid, static_cast<int>(counter_of(Refusal::kXid)));
  for (uint32_t id : {rrdk_counter_count(), 65536u, UINT32_MAX}) {
    EXPECT_EQ(rrdk_counter_name(id), nullptr);
    EXPECT_EQ(rrdk_counter_unit(id), nullptr);
    EXPECT_EQ(rrdk_counter_text(id), nullptr);
    EXPECT_FALSE(rrdk_counter_is_gauge(id));
  }
  EXPECT_EQ(rrdk_counter_find("waits"), UINT32_MAX);
}

// A program of another release: a later one asks for counters that this library does not know.
TEST(Stats, AreZeroForWhatTheLibraryDoesNotKnow) {
  Stats stats(CounterOwner::kServer);
  const auto later = static_cast<Counter>(counter_count());
  stats.add(later, 5);
  EXPECT_EQ(stats[later], 0u);
  EXPECT_EQ(stats[static_cast<Counter>(UINT16_MAX)], 0u);
  EXPECT_EQ(counter_info(later), nullptr);
}

TEST(Stats, ListWhatTheirOwnerHas) {
  Stats core(CounterOwner::kCore);
  core.add(Counter::kSleeps, 3);
  std::set<std::string> names;
  for (const Stats::Value& one : core.values()) {
    names.insert(one.info->name);
    EXPECT_EQ(one.value, one.id == Counter::kSleeps ? 3u : 0u);
  }
  EXPECT_EQ(names, (std::set<std::string>{"passes", "busy_passes", "completions", "sleeps",
                                          "connections"}));
}

TEST(Stats, AddUp) {
  Stats sum(CounterOwner::kClient);
  Stats one(CounterOwner::kClient);
  one.add(Counter::kCallsOk, 2);
  one.add(counter_of(Refusal::kXid), 1);
  sum += one;
  sum += one;
  EXPECT_EQ(sum[Counter::kCallsOk], 4u);
  EXPECT_EQ(sum[Refusal::kXid], 2u);
  const Stats taken = std::move(one);
  sum += one;  // NOLINT(bugprone-use-after-move): it is empty now
  EXPECT_EQ(sum[Counter::kCallsOk], 4u);
  EXPECT_EQ(taken[Counter::kCallsOk], 2u);
}

}  // namespace
}  // namespace rrdk

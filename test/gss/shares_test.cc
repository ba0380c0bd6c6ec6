// Who gives way when there is limited room.
#include "gss/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "test/seed.h"

namespace rrdk::gss {
namespace {

template <Yields yields>
void agree_with_a_list() {
  struct One {
    uint64_t number;
    int thing;
    Owner owner;
  };
  std::mt19937_64 random(rrdk::test::run_seed());
  Shares<int, yields> shares;
  std::vector<One> list;  // the oldest first
  const auto count = [&](auto&& same) { return std::ranges::count_if(list, same); };
  const auto rank = [&](const One& one) {
    return std::tuple(count([&](const One& other) { return other.owner.name == one.owner.name; }),
                      count([&](const One& other) {
                        return other.owner.name == one.owner.name &&
                               other.owner.part == one.owner.part;
                      }));
  };
  for (int i = 0; i != 1'000; ++i) {
    const auto which = static_cast<size_t>(list.empty() ? 0 : random() % list.size());
    if (list.size() < 40 && random() % 2 == 0) {
      const Owner owner = {std::to_string(random() % 6), std::to_string(random() % 3)};
      list.push_back({shares.add(i, owner), i, owner});
    } else if (!list.empty() && random() % 2 == 0) {
      One one = list[which];
      list.erase(list.begin() + static_cast<ptrdiff_t>(which));
      if (random() % 2 == 0) {
        one.number = shares.renew(one.number);
        list.push_back(one);
      } else {
        ASSERT_EQ(shares.take(one.number), one.thing);
      }
    } else if (list.size() > 20) {
      // No other owner has more, and no other part of its owner.
      const int thing = shares.surplus();
      ASSERT_EQ(shares.take_surplus(), thing);
      const auto found = std::ranges::find(list, thing, &One::thing);
      ASSERT_NE(found, list.end());
      ASSERT_TRUE(std::ranges::all_of(list, [&](const One& other) {
        const bool same_owner = other.owner.name == found->owner.name;
        const auto [whole, part] = rank(*found);
        const auto [other_whole, other_part] = rank(other);
        return other_whole <= whole && (!same_owner || other_part <= part);
      }));
      const auto same = [&](const One& other) {
        return other.owner.name == found->owner.name && other.owner.part == found->owner.part;
      };
      const bool is_oldest = std::none_of(list.begin(), found, same);
      const bool is_newest = std::none_of(found + 1, list.end(), same);
      ASSERT_TRUE(yields == Yields::kOldest ? is_oldest : is_newest);
      list.erase(found);
    } else if (!list.empty()) {
      ASSERT_EQ(shares.take_oldest(), list.front().thing);
      list.erase(list.begin());
    }
    ASSERT_EQ(shares.size(), list.size());
  }
}

TEST(Shares, AgreeWithAList) {
  agree_with_a_list<Yields::kOldest>();
  agree_with_a_list<Yields::kNewest>();
}

TEST(Shares, AmongEqualsTheOldestOrTheNewestGivesWay) {
  Shares<int, Yields::kOldest> oldest;
  Shares<int, Yields::kNewest> newest;
  std::vector<uint64_t> numbers;
  for (int i = 0; i != 4; ++i) {
    numbers.push_back(oldest.add(i, {std::to_string(i)}));
    newest.add(i, {std::to_string(i)});
  }
  oldest.renew(numbers[0]);
  EXPECT_EQ(oldest.take_surplus(), 1);
  EXPECT_EQ(newest.take_surplus(), 3);
}

}  // namespace
}  // namespace rrdk::gss

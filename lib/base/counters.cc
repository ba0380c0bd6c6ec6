#include "rrdk/counters.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace rrdk {

namespace {

constexpr uint8_t kServer = 1u << static_cast<unsigned>(CounterOwner::kServer);
constexpr uint8_t kClient = 1u << static_cast<unsigned>(CounterOwner::kClient);
constexpr uint8_t kCore = 1u << static_cast<unsigned>(CounterOwner::kCore);
constexpr uint8_t kPool = 1u << static_cast<unsigned>(CounterOwner::kPool);
constexpr uint8_t kProcedure = 1u << static_cast<unsigned>(CounterOwner::kProcedure);

constexpr const char* unit_of(std::string_view name) {
  return name.ends_with("_bytes") ? "bytes" : "";
}

struct Line {
  uint16_t id;
  std::string_view enumerator;
  CounterInfo info;
};

constexpr Line kLines[] = {
#define RRDK_COUNTER(id, enumerator, name, owners, text) \
  {id, #enumerator, {#name, unit_of(#name), text, false, owners}},
#define RRDK_GAUGE(id, enumerator, name, owners, text) \
  {id, #enumerator, {#name, unit_of(#name), text, true, owners}},
#include "rrdk/counter_table.h"
};
constexpr size_t kCounters = std::size(kLines);

// By id. An id that has no line in the table, or two, leaves an entry without a name.
constexpr std::array<CounterInfo, kCounters> kInfos = [] {
  std::array<CounterInfo, kCounters> infos = {};
  for (const Line& line : kLines) {
    if (line.id < kCounters)
      infos[line.id] = line.info;
  }
  return infos;
}();
static_assert(std::ranges::all_of(kInfos, [](const CounterInfo& i) { return i.name != nullptr; }),
              "each id of the table is used once, and none is left out");

// "WaitsShare" is "waits_share".
constexpr bool is_name_of(std::string_view enumerator, std::string_view name) {
  size_t at = 0;
  for (size_t i = 0; i < enumerator.size(); ++i) {
    const char c = enumerator[i];
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && i != 0) {
      if (at == name.size() || name[at] != '_')
        return false;
      ++at;
    }
    if (at == name.size() || name[at] != (is_upper ? c - 'A' + 'a' : c))
      return false;
    ++at;
  }
  return at == name.size();
}
static_assert(std::ranges::all_of(kLines,
                                  [](const Line& l) {
                                    return is_name_of(l.enumerator, l.info.name);
                                  }),
              "an enumerator and its name say the same");
static_assert(std::ranges::all_of(kInfos,
                                  [](const CounterInfo& i) {
                                    return std::string_view(i.text).ends_with('.') && i.owners != 0;
                                  }),
              "a text is a sentence");

constexpr bool kBreach = true, kNoBreach = false;

struct Reason {
  Counter counter;
  bool is_breach;
  const char* title;
};
constexpr Reason kReasons[] = {
#define RRDK_REFUSAL(id, reason, name, breach, title, text) \
  {Counter::kRefusal##reason, breach, title},
#include "rrdk/counter_table.h"
};
static_assert(std::size(kReasons) == kRefusals);

const Reason* find(Refusal reason) noexcept {
  const auto place = static_cast<size_t>(reason);
  return place < kRefusals ? &kReasons[place] : nullptr;
}

}  // namespace

const char* to_string(Refusal reason) noexcept {
  const Reason* const found = find(reason);
  return found != nullptr ? found->title : "unknown refusal";
}

Counter counter_of(Refusal reason) noexcept {
  const Reason* const found = find(reason);
  return found != nullptr ? found->counter : static_cast<Counter>(kCounters);
}

bool is_breach(Refusal reason) noexcept {
  const Reason* const found = find(reason);
  return found != nullptr && found->is_breach;
}

size_t counter_count() noexcept {
  return kCounters;
}

const CounterInfo* counter_info(Counter id) noexcept {
  const auto place = static_cast<size_t>(id);
  return place < kCounters ? &kInfos[place] : nullptr;
}

std::optional<Counter> find_counter(std::string_view name) noexcept {
  const auto found = std::ranges::find(kInfos, name, &CounterInfo::name);
  if (found == kInfos.end())
    return std::nullopt;
  return static_cast<Counter>(found - kInfos.begin());
}

Stats::Stats(CounterOwner owner) : owner_(owner), values_(kCounters) {}

std::vector<Stats::Value> Stats::values() const {
  std::vector<Value> all;
  for (size_t id = 0; id < values_.size(); ++id) {
    if ((kInfos[id].owners >> static_cast<unsigned>(owner_) & 1) != 0)
      all.push_back({static_cast<Counter>(id), values_[id], &kInfos[id]});
  }
  return all;
}

Stats& Stats::operator+=(const Stats& more) noexcept {
  for (size_t id = 0; id < std::min(values_.size(), more.values_.size()); ++id)  // moved from: 0
    values_[id] += more.values_[id];
  return *this;
}

}  // namespace rrdk

// Things of many owners for which there is limited room: the owner with the most gives way first,
// so that no owner keeps others out, whatever it does. An owner has parts, such as the connections
// of a host, and the part with the most gives way first, too.
//
// All functions take logarithmic time. Not thread-safe. Without memory add() throws and has added
// nothing; no other function allocates.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/assert.h"

namespace rrdk::gss {

struct Owner {
  std::string name;
  std::string part = {};
};

// Which of an owner's things gives way, and whose if several have as many.
enum class Yields : uint8_t { kOldest, kNewest };

template <typename Thing, Yields yields>
class Shares {
 public:
  size_t size() const noexcept { return things_.size(); }

  // It is the newest. The number is its name here.
  uint64_t add(Thing thing, const Owner& owner) {
    const uint64_t number = ++last_;
    Node* part = &root_.part(owner.name);
    try {
      part = &part->part(owner.part);
      things_.emplace(number, Kept{std::move(thing), part});
      for (Node* node = part; node != &root_; node = node->whole)
        node->add(number);
    } catch (...) {
      remove(*part, number);
      things_.erase(number);
      throw;
    }
    return number;
  }
  // Makes it the newest again, with another number.
  uint64_t renew(uint64_t number) noexcept {
    auto kept = things_.extract(number);
    RRDK_ASSERT(!kept.empty(), number);
    kept.key() = ++last_;
    for (Node* node = kept.mapped().part; node != &root_; node = node->whole)
      node->replace(number, last_);
    things_.insert(std::move(kept));
    return last_;
  }
  Thing take(uint64_t number) noexcept {
    auto kept = things_.extract(number);
    RRDK_ASSERT(!kept.empty(), number);
    remove(*kept.mapped().part, number);
    return std::move(kept.mapped().thing);
  }
  // There must be one.
  Thing take_oldest() noexcept { return take(things_.begin()->first); }
  // That which gives way. There must be one.
  const Thing& surplus() const noexcept { return things_.find(next())->second.thing; }
  Thing take_surplus() noexcept { return take(next()); }

 private:
  struct Node;
  // By it the parts of an owner are ordered; the last gives way.
  struct Rank {
    size_t count;
    uint64_t urgency;
    Node* node;
    auto operator<=>(const Rank&) const = default;
  };
  using Ranks = std::set<Rank>;

  struct Node {
    Node* whole = nullptr;
    std::string name = {};
    std::set<uint64_t> numbers = {};  // of its things
    std::map<std::string, std::unique_ptr<Node>> parts = {};
    Ranks ranks = {};                        // of its parts
    typename Ranks::node_type rank = {};     // its own, while it has nothing
    typename Ranks::iterator in_whole = {};  // else where that is

    Node& part(const std::string& its_name) {
      if (const auto found = parts.find(its_name); found != parts.end())
        return *found->second;
      auto made = std::make_unique<Node>(Node{.whole = this, .name = its_name});
      Ranks first = {Rank{0, 0, made.get()}};
      made->rank = first.extract(first.begin());
      return *parts.emplace(its_name, std::move(made)).first->second;
    }
    uint64_t next_to_yield() const noexcept {
      return yields == Yields::kOldest ? *numbers.begin() : *numbers.rbegin();
    }
    void add(uint64_t number) {
      numbers.insert(number);
      note_rank();
    }
    void drop(uint64_t number) noexcept {
      if (numbers.erase(number) != 0)
        note_rank();
    }
    void replace(uint64_t number, uint64_t by) noexcept {
      auto one = numbers.extract(number);
      one.value() = by;
      numbers.insert(std::move(one));
      note_rank();
    }
    void note_rank() noexcept {
      if (rank.empty())
        rank = whole->ranks.extract(in_whole);
      if (numbers.empty())
        return;
      const uint64_t next = next_to_yield();
      rank.value().count = numbers.size();
      rank.value().urgency =
          yields == Yields::kOldest ? std::numeric_limits<uint64_t>::max() - next : next;
      in_whole = whole->ranks.insert(std::move(rank)).position;
    }
  };
  struct Kept {
    Thing thing;
    Node* part;
  };

  // The number of that which gives way.
  uint64_t next() const noexcept {
    const Node* node = &root_;
    while (!node->ranks.empty())
      node = node->ranks.rbegin()->node;
    return node->next_to_yield();
  }
  // From the part, and from what it is a part of. Those that have nothing left are forgotten.
  void remove(Node& part, uint64_t number) noexcept {
    for (Node* node = &part; node != &root_;) {
      node->drop(number);
      Node* const whole = node->whole;
      if (node->numbers.empty() && node->parts.empty())
        whole->parts.erase(whole->parts.find(node->name));
      node = whole;
    }
  }

  Node root_;
  std::map<uint64_t, Kept> things_;
  uint64_t last_ = 0;
};

}  // namespace rrdk::gss

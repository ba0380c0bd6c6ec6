// What one connection may use: credits for calls, and allowance for time on its poll core, its own
// and its client's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.h"

namespace rrdk::engine {

// Credits (RFC 5666 section 3.3): what a responder grants and what a requester may use.

// The responder's side. A grant is computed from the Receives that back it, and never copied from
// what the peer asks for.
//
// Where Receives are shared the grant is elastic. It begins with `first` credits, doubles for a
// peer that makes a considerable part of all calls, and shrinks again for one that does not. A
// responder cannot see how many calls a peer has in flight, so the measure is the peer's share of
// all calls. In version 1 only an answer can change a grant (RFC 5666 section 3.3), so a peer that
// falls silent keeps its last grant for ever.
class Grant {
 public:
  // Not elastic: the same grant from the first answer on.
  explicit Grant(uint32_t configured) noexcept : Grant(configured, configured, false) {}
  Grant(uint32_t configured, uint32_t first, bool shared = true) noexcept
      : configured_(std::max(1u, configured)), first_(first), shared_(shared), elastic_(first) {
    set_most();
  }

  void configure(uint32_t credits) noexcept {
    configured_ = std::max(1u, credits);
    set_most();
  }
  uint32_t last() const noexcept { return last_; }
  // An upper bound on all grants so far.
  uint32_t most_ever() const noexcept { return most_ever_; }

  // Counts a call. Returns true if the peer has more calls unanswered than it may.
  bool on_call(uint32_t asked) noexcept {
    asked_ = asked;
    // Where Receives are shared, the calls that may come equal the Receives that were promised.
    const bool beyond = shared_ ? due_ == 0 : unanswered_ >= bound_;
    due_ -= std::min(due_, 1u);
    ++unanswered_;
    return beyond;
  }

  uint32_t asked() const noexcept { return asked_; }
  // Returns the word for several answers that are given in sequence, if no answer changes the
  // state; otherwise 0. `posted` is as for on_answer().
  uint32_t steady(uint32_t posted) const noexcept {
    const uint32_t next = std::max(1u, std::min({asked_, most_, posted + unanswered_}));
    const bool stays =
        next == last_ && bound_ == last_ && unanswered_ < last_ && due_ == last_ - unanswered_;
    return stays ? last_ : 0;
  }
  // Counts `count` such answers. Returns true if it is time for adapt().
  bool count_answers(uint32_t count) noexcept {
    answers_ += count;
    return answers_ > elastic_ / kLooksPerGrant;
  }
  // Called before an elastic answer. Returns true if it is time for adapt().
  bool count_answer() noexcept { return ++answers_ > elastic_ / kLooksPerGrant; }
  // `answers` were given to all other connections that share the Receives, and `most` is the number
  // of Receives that one connection could have if it made all calls. A peer without competitors has
  // 64 credits within four round trips.
  void adapt(uint64_t answers, uint32_t most) noexcept {
    const uint64_t all = answers - since_;
    const auto part = static_cast<uint32_t>(
        std::min<uint64_t>(configured_, uint64_t{answers_} * most / std::max<uint64_t>(all, 1)));
    if (part >= 2 * elastic_ || part >= configured_)
      elastic_ = std::min(2 * elastic_, configured_);
    else if (part < elastic_ / 2)
      elastic_ = std::max(first_, part);
    since_ = answers;
    answers_ = 0;
    set_most();
  }
  // Called before an answer. Returns how many Receives beyond `posted` it needs to grant all
  // credits.
  uint32_t lacks(uint32_t posted) const noexcept {
    RRDK_ASSERT(unanswered_ != 0);  // at least the call that is being answered
    const uint32_t wanted = std::min(asked_, most_);
    return wanted - std::min(wanted, posted + unanswered_ - 1);
  }
  // Counts an answer and returns the word for its header. `posted` Receives are ready. The grant is
  // never zero (V1-CREDIT-06), and never more than the calls posted for and in process
  // (V1-CREDIT-14).
  uint32_t on_answer(uint32_t posted) noexcept {
    RRDK_ASSERT(unanswered_ != 0);
    --unanswered_;
    last_ = std::max(1u, std::min({asked_, most_, posted + unanswered_}));
    lower_bound_slowly();
    due_ = std::max(due_, last_ - std::min(last_, unanswered_));
    return last_;
  }
  // Counts a call that ends without an answer because the connection ends.
  void on_no_answer() noexcept {
    RRDK_ASSERT(unanswered_ != 0);
    --unanswered_;
  }

  // Replies that wait for RDMA_DONE count against the grant (RFC 5666 section 11), which stays
  // above zero.
  void set_owed(uint32_t dones) noexcept {
    owed_ = dones;
    set_most();
  }

  uint32_t unanswered() const noexcept { return unanswered_; }
  // The number of calls that may yet come: those that the last answer allows, and those that the
  // peer may have sent before it saw that answer.
  uint32_t due() const noexcept { return due_; }

 private:
  void set_most() noexcept {
    const uint32_t most = std::min(configured_, elastic_);
    most_ = most - std::min(owed_, most);
    most_ever_ = std::max(most_ever_, most_);
  }
  // Calls that the peer sent before it saw a lower grant break no rule. So a bound stays in force
  // until as many answers have granted less as calls could be in flight under it. The next bound is
  // the largest grant of these answers.
  void lower_bound_slowly() noexcept {
    lowered_most_ = std::max(lowered_most_, last_);
    if (last_ < bound_ && ++lowered_answers_ < bound_)
      return;
    bound_ = lowered_most_;
    lowered_answers_ = 0;
    lowered_most_ = 0;
  }

  // A peer's share is checked once every quarter of its grant.
  static constexpr uint32_t kLooksPerGrant = 4;

  uint32_t configured_;
  const uint32_t first_;
  const bool shared_;
  uint32_t elastic_;      // the current elastic grant, from first_ to configured_
  uint32_t answers_ = 0;  // since the last check
  uint64_t since_ = 0;    // answers to all connections, at the last check
  uint32_t asked_ = 1;
  uint32_t last_ = 1;             // one call before the first grant (V1-CREDIT-11)
  uint32_t bound_ = 1;            // an unanswered call beyond it is an overrun
  uint32_t lowered_answers_ = 0;  // consecutive answers that granted less than bound_
  uint32_t lowered_most_ = 0;     // the largest grant of these
  uint32_t unanswered_ = 0;
  uint32_t due_ = 1;
  uint32_t owed_ = 0;
  uint32_t most_;  // limit of an answer: the least of configured_, elastic_ and what owed_ leaves
  uint32_t most_ever_ = 1;  // the largest that most_ has been
};

// The requester's side: calls that may be in flight, limited to the Receives for their replies.
class Window {
 public:
  explicit Window(uint32_t own) noexcept : own_(std::max(1u, own)) {}

  void on_grant(uint32_t credits) noexcept {
    last_ = credits;
    granted_ = std::clamp(credits, 1u, own_);
    limit_ = granted_ > held_ ? granted_ - held_ : 1;
  }
  // Sets how many credits RDMA_DONEs use (RFC 5666 section 3.8). One is left for a call, whose
  // reply shows that they are free again.
  void set_held(uint32_t dones) noexcept {
    held_ = dones;
    on_grant(granted_);
  }
  uint32_t granted_last() const noexcept { return last_; }  // as received
  uint32_t size() const noexcept { return granted_; }
  uint32_t for_calls() const noexcept { return limit_; }
  uint32_t in_flight() const noexcept { return in_flight_; }
  bool open() const noexcept { return in_flight_ < limit_; }
  void on_call() noexcept {
    RRDK_ASSERT(open(), in_flight_, limit_);
    ++in_flight_;
  }
  void on_answer() noexcept {
    RRDK_ASSERT(in_flight_ != 0);
    --in_flight_;
  }

 private:
  uint32_t own_;
  uint32_t last_ = 0;
  uint32_t granted_ = 1;  // until the first reply (V1-CREDIT-11)
  uint32_t held_ = 0;
  uint32_t limit_ = 1;  // granted_ less held_
  uint32_t in_flight_ = 0;
};

// How much of its poll core a connection may use per turn, and how much its client may use with all
// its connections: deficit round robin. The unit is bytes. Each call is charged kCallCost, about
// what it costs to serve a call without chunks. The last call that is started, and what is then
// written, may overdraw an allowance; later turns pay that back.
template <int64_t kOneTurn>
class Allowance {
 public:
  static constexpr int64_t kMostDebt = 64 * kOneTurn;  // a larger debt is forgiven

  bool open() const noexcept { return bytes_ > 0; }
  int64_t left() const noexcept { return bytes_; }
  void charge(uint64_t bytes) noexcept { bytes_ -= static_cast<int64_t>(bytes); }
  void fill(int64_t bytes = kOneTurn) noexcept { bytes_ = bytes; }
  void refill(uint64_t turns) noexcept {
    constexpr uint64_t kPaysAll = kMostDebt / kOneTurn + 1;
    int64_t more = static_cast<int64_t>(std::min(turns, kPaysAll)) * kOneTurn;
    bytes_ = std::min(kOneTurn, std::max(std::min(bytes_, kOneTurn), -kMostDebt) + more);
  }
  void lift() noexcept { bytes_ = INT64_MAX; }  // no other connection waits
  bool lifted() const noexcept { return bytes_ > kOneTurn; }

 private:
  int64_t bytes_ = INT64_MAX;
};

constexpr int64_t kCallCost = 4096;
constexpr int64_t kQuantum = 4 * kCallCost;  // of one turn of a connection
// For a connection that has the core to itself: what one batch of completions can bring.
constexpr int64_t kExclusiveQuantum = 32 * kCallCost;
constexpr int64_t kClientQuantum = 4 * kQuantum;

// What the connections of one client share on one core.
struct alignas(64) ClientShare {
  Allowance<kClientQuantum> allowance;
  uint32_t calls = 0;  // objects of the core's CallPool that they use
};

// The turn of one connection.
struct Turn {
  ClientShare& client;
  Allowance<kQuantum> allowance = {};
  bool waits = false;  // calls wait for a turn, or for earlier calls

  bool open() const noexcept { return allowance.open() && client.allowance.open(); }
  // How many small calls are still allowed while the turn is open.
  uint32_t calls_left() const noexcept {
    const int64_t bytes = std::min(allowance.left(), client.allowance.left());
    return static_cast<uint32_t>(std::min<int64_t>((bytes - 1) / kCallCost + 1, 32));
  }
  void charge(uint64_t bytes) noexcept {
    allowance.charge(bytes);
    client.allowance.charge(bytes);
  }
};

}  // namespace rrdk::engine

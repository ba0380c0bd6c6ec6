// What one connection may take: calls, by credits, and the time of its poll core, by its turns and
// its client's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.h"

namespace rrdk::engine {

// Credits (RFC 5666 section 3.3): what a responder grants and what a requester may use.

// The responder's side. A grant is computed from the Receives that back it, and never copied from
// what the peer asks for.
//
// Where Receives are shared the grant is elastic: `first` credits at first; more, by doubling, for
// a peer that makes a good part of all calls; few again for one that does not. A responder cannot
// see how many calls a peer has in flight, so what counts is the peer's part of all calls. In
// version 1 only an answer can change a grant (RFC 5666 section 3.3): a peer that falls silent
// keeps its last grant for ever.
class Grant {
 public:
  // Not elastic: as many from the first answer on.
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
  // No answer has granted more.
  uint32_t most_ever() const noexcept { return most_ever_; }

  // A call came. True: it is more than the peer may have unanswered.
  bool on_call(uint32_t asked) noexcept {
    asked_ = asked;
    // Where Receives are shared, calls that may come and Receives that were promised are the same.
    const bool beyond = shared_ ? due_ == 0 : unanswered_ >= bound_;
    due_ -= std::min(due_, 1u);
    ++unanswered_;
    return beyond;
  }

  uint32_t asked() const noexcept { return asked_; }
  // The word of answers that are given at once, one after the other, as long as each of them leaves
  // all as it is; 0: they do not. `posted` as in on_answer().
  uint32_t steady(uint32_t posted) const noexcept {
    const uint32_t next = std::max(1u, std::min({asked_, most_, posted + unanswered_}));
    const bool stays =
        next == last_ && bound_ == last_ && unanswered_ < last_ && due_ == last_ - unanswered_;
    return stays ? last_ : 0;
  }
  // That many such answers were given. True: it is time to adapt().
  bool count_answers(uint32_t count) noexcept {
    answers_ += count;
    return answers_ > elastic_ / kLooksPerGrant;
  }
  // Before an elastic answer. True: it is time to adapt().
  bool count_answer() noexcept { return ++answers_ > elastic_ / kLooksPerGrant; }
  // `answers` were given to all who share the Receives, this one not included, and `most` Receives
  // one of them could have if it made all calls. A peer that is alone has 64 credits within four
  // round trips.
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
  // Before an answer: how many Receives beyond those `posted` would let it grant all.
  uint32_t lacks(uint32_t posted) const noexcept {
    RRDK_ASSERT(unanswered_ != 0);  // the call that is being answered
    const uint32_t wanted = std::min(asked_, most_);
    return wanted - std::min(wanted, posted + unanswered_ - 1);
  }
  // An answer goes out; the word for its header. `posted` Receives stand ready. Zero is never
  // granted (V1-CREDIT-06), and never more than posted and in process (V1-CREDIT-14).
  uint32_t on_answer(uint32_t posted) noexcept {
    RRDK_ASSERT(unanswered_ != 0);
    --unanswered_;
    last_ = std::max(1u, std::min({asked_, most_, posted + unanswered_}));
    lower_bound_slowly();
    due_ = std::max(due_, last_ - std::min(last_, unanswered_));
    return last_;
  }
  // A call ends without an answer, because the connection does.
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
  // Calls that may yet come: those that the last answer allows, and what could be on its way before
  // the peer sees that.
  uint32_t due() const noexcept { return due_; }

 private:
  void set_most() noexcept {
    const uint32_t most = std::min(configured_, elastic_);
    most_ = most - std::min(owed_, most);
    most_ever_ = std::max(most_ever_, most_);
  }
  // Calls that the peer sent before it saw a lower grant are no breach. So a bound holds until as
  // many answers have granted less as calls could be in flight under it. The next bound is the most
  // that any of these answers granted.
  void lower_bound_slowly() noexcept {
    lowered_most_ = std::max(lowered_most_, last_);
    if (last_ < bound_ && ++lowered_answers_ < bound_)
      return;
    bound_ = lowered_most_;
    lowered_answers_ = 0;
    lowered_most_ = 0;
  }

  // A peer's part is looked at once in a quarter of its grant.
  static constexpr uint32_t kLooksPerGrant = 4;

  uint32_t configured_;
  const uint32_t first_;
  const bool shared_;
  uint32_t elastic_;      // what it is now, from first_ to configured_
  uint32_t answers_ = 0;  // since the last look
  uint64_t since_ = 0;    // answers to all, at the last look
  uint32_t asked_ = 1;
  uint32_t last_ = 1;             // one call before the first grant (V1-CREDIT-11)
  uint32_t bound_ = 1;            // beyond it a call is an overrun
  uint32_t lowered_answers_ = 0;  // in a row with less than bound_
  uint32_t lowered_most_ = 0;     // the most that one of them granted
  uint32_t unanswered_ = 0;
  uint32_t due_ = 1;
  uint32_t owed_ = 0;
  uint32_t most_;           // of an answer, after configured_, elastic_ and owed_
  uint32_t most_ever_ = 1;  // that it was
};

// The requester's side: calls that may be in flight, capped at what it has reply Receives for.
class Window {
 public:
  explicit Window(uint32_t own) noexcept : own_(std::max(1u, own)) {}

  void on_grant(uint32_t credits) noexcept {
    last_ = credits;
    granted_ = std::clamp(credits, 1u, own_);
    limit_ = granted_ > held_ ? granted_ - held_ : 1;
  }
  // Credits that RDMA_DONEs use (RFC 5666 section 3.8). One is left for a call, whose reply shows
  // that they are free again.
  void set_held(uint32_t dones) noexcept {
    held_ = dones;
    on_grant(granted_);
  }
  uint32_t granted_last() const noexcept { return last_; }  // as it came
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
  uint32_t limit_ = 1;  // granted_ without held_
  uint32_t in_flight_ = 0;
};

// What a connection may use of its poll core per turn, and what its client may use with all its
// connections: deficit round robins. The unit is bytes; each call is charged kCallCost, about what
// it costs to serve one without chunks. The last call that is started may overdraw an allowance,
// and so may what is then written; later turns pay that back.
template <int64_t kOneTurn>
class Allowance {
 public:
  static constexpr int64_t kMostDebt = 64 * kOneTurn;  // more is forgiven

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
// Of a connection that has the core for itself: what one batch of completions can bring.
constexpr int64_t kAloneQuantum = 32 * kCallCost;
constexpr int64_t kClientQuantum = 4 * kQuantum;

// What the connections of one client share on one core.
struct alignas(64) ClientShare {
  Allowance<kClientQuantum> allowance;
  uint32_t calls = 0;  // objects of the core's CallPool that they have
};

// A connection's.
struct Turn {
  ClientShare& client;
  Allowance<kQuantum> allowance = {};
  bool waits = false;  // calls do: for a turn, or for earlier ones

  bool open() const noexcept { return allowance.open() && client.allowance.open(); }
  // Of small calls, while it is open.
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

// A queue pair for engine tests that executes work requests against checked memory, step by step.
// Every access outside a live key, every Send without a Receive, and every request beyond the send
// queue's depth fails the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/connection.h"
#include "fabric/device.h"
#include "fabric/work.h"

namespace rrdk::engine::test {

using Bytes = std::vector<std::byte>;

// True while the engine runs, false while its surroundings run: decides which allocations are
// counted.
inline thread_local bool in_engine = false;
struct EngineScope {
  explicit EngineScope(bool inside) : before(std::exchange(in_engine, inside)) {}
  ~EngineScope() { in_engine = before; }
  bool before;
};

// The other end of a queue pair: an engine's, or a script's.
class RemoteSide {
 public:
  // Returns null if the access is refused.
  virtual std::byte* access(uint32_t key, uint64_t address, uint32_t length,
                            fabric::Rights rights) = 0;
  // Returns false if no Receive is posted, or it is too small.
  virtual bool receive(const Bytes& message, std::optional<uint32_t> invalidate) = 0;

 protected:
  ~RemoteSide() = default;
};

class FakeQueuePair final : public fabric::QueuePair, public RemoteSide {
 public:
  struct Key {
    bool bound = false;
    bool was_bound = false;
    MemorySpan span;
    fabric::Rights rights{};
    Bytes joined;  // of a list of runs: what they hold when the key is bound
  };

  RemoteSide* remote = nullptr;
  uint32_t depth = 256;
  bool in_error = false;
  bool disconnected = false;
  bool expect_refusals = false;  // if the test is about a dead key or a refused access
  uint32_t fail_invalidate = 0;  // how many of the next invalidations fail
  uint32_t keys_left = UINT32_MAX;
  bool sends_now = false;  // which requests are refused
  uint32_t reads_now = 0;  // likewise: how many more Reads are accepted
  uint32_t listed_posts = 0;
  uint64_t sent_now = 0;
  bool renames_keys = false;     // as devices do whose keys come from registrations
  std::map<uint32_t, Key> keys;  // reserved
  std::set<uint32_t> used_keys;  // ever
  struct Name {
    std::byte* data;
    uint32_t length;
    fabric::Rights rights;
  };
  std::map<uint32_t, Name> named;   // by name_key()
  std::vector<fabric::SendWr> log;  // everything executed
  std::vector<Bytes> messages;      // Sends in the queue
  std::deque<fabric::SendWr> posted;
  std::deque<fabric::ReceiveWr> receives;
  std::deque<fabric::Completion> send_completions;
  std::deque<fabric::Completion> receive_completions;
  uint64_t read_so_far = 0;  // Reads in flight, too
  uint32_t reads_in_flight = 0;
  uint32_t max_reads_in_flight = 0;

  // RemoteKeys
  bool reserve_keys(std::span<uint32_t> out) override {
    EngineScope outside(false);
    if (keys_left < out.size())
      return false;
    keys_left -= static_cast<uint32_t>(out.size());
    for (uint32_t& key : out) {
      next_key_ = next_key_ * 1664525 + 1013904223;
      key = next_key_;
      EXPECT_TRUE(used_keys.insert(key).second);
      keys[key] = {};
    }
    return true;
  }
  uint32_t name_key(uint32_t key, const MemorySpan& span, fabric::Rights rights) override {
    EngineScope outside(false);
    if (!renames_keys)
      return key;
    EXPECT_TRUE(keys.contains(key));
    keys.erase(key);
    next_key_ = next_key_ * 1664525 + 1013904223;
    keys[next_key_] = {};
    named[next_key_] = {span.data, span.length, rights};
    return next_key_;
  }
  void release_key(uint32_t key) override {
    EngineScope outside(false);
    auto found = keys.find(key);
    ASSERT_NE(found, keys.end()) << "released twice, or never reserved";
    EXPECT_TRUE(!found->second.bound || disconnected) << "released while the peer may use it";
    keys.erase(found);
    ++keys_left;
  }

  uint64_t read_bytes() const override { return read_so_far; }

  // QueuePair: for requests that the engine posts itself.
  uint32_t post_send(std::span<const fabric::SendWr> wrs) override {
    EngineScope outside(false);
    listed_posts += !wrs.empty();
    take(wrs);
    return static_cast<uint32_t>(wrs.size());
  }
  uint32_t post_receive(std::span<const fabric::ReceiveWr> wrs) override {
    EngineScope outside(false);
    receives.insert(receives.end(), wrs.begin(), wrs.end());
    return static_cast<uint32_t>(wrs.size());
  }
  void disconnect() override { fail(); }
  uint32_t reads_allowed() const override { return 16; }
  Peer peer() const override { return {}; }
  bool send_now(std::span<const MemorySpan> spans, uint32_t invalidate_key) noexcept override {
    EngineScope outside(false);
    if (!sends_now || in_error)
      return false;
    EXPECT_TRUE(posted.empty()) << "it overtakes what was posted before";
    fabric::SendWr wr;
    wr.op = invalidate_key == 0 ? fabric::Op::kSend : fabric::Op::kSendInvalidate;
    wr.invalidate_key = invalidate_key;
    wr.signaled = false;
    wr.quiet = wr.copied = true;
    wr.num_sges = static_cast<uint8_t>(spans.size());
    std::ranges::copy(spans, wr.sges.begin());
    posted.push_back(wr);
    copy(posted.back());
    ++sent_now;
    return execute_one();
  }

  bool bind_now(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept override {
    EngineScope outside(false);
    if (!sends_now || in_error)
      return false;
    EXPECT_TRUE(posted.empty());
    fabric::SendWr wr;
    wr.op = fabric::Op::kBindKey;
    wr.key = key;
    wr.rights = rights;
    wr.signaled = false;
    wr.quiet = true;
    wr.num_sges = 1;
    wr.sges[0] = span;
    posted.push_back(wr);
    return execute_one();
  }

  bool read_now(const MemorySpan& to, uint32_t key, uint64_t remote_address) noexcept override {
    EngineScope outside(false);
    if (reads_now == 0 || in_error)
      return false;
    const std::byte* from =
        remote->access(key, remote_address, to.length, fabric::Rights::kRemoteRead);
    if (from == nullptr)
      return false;
    std::copy_n(from, to.length, to.data);
    --reads_now;
    return true;
  }

  // As drivers may, it overwrites the list.
  static void bind_list(Key& key, uint32_t runs) {
    EXPECT_EQ(key.rights, fabric::Rights::kRemoteRead);
    EXPECT_EQ(key.span.length, runs * sizeof(MemorySpan));
    auto* const first = reinterpret_cast<MemorySpan*>(key.span.data);
    for (const MemorySpan& run : std::span(first, runs)) {
      EXPECT_NE(run.length, 0u);
      key.joined.insert(key.joined.end(), run.data, run.data + run.length);
    }
    std::fill_n(key.span.data, key.span.length, std::byte{0xee});
    key.span.length = static_cast<uint32_t>(key.joined.size());
  }

  // RemoteSide: for the peer
  std::byte* access(uint32_t key, uint64_t address, uint32_t length,
                    fabric::Rights rights) override {
    auto found = keys.find(key);
    if (in_error || found == keys.end() || !found->second.bound || found->second.rights != rights)
      return nullptr;
    const MemorySpan& span = found->second.span;
    auto base = reinterpret_cast<uint64_t>(span.data);
    if (address < base || length > span.length || address - base > span.length - length)
      return nullptr;
    Bytes& joined = found->second.joined;
    return (joined.empty() ? span.data : joined.data()) + (address - base);
  }
  bool receive(const Bytes& message, std::optional<uint32_t> invalidate) override {
    if (in_error || receives.empty() || receives.front().buffer.length < message.size())
      return false;
    fabric::ReceiveWr wr = receives.front();
    receives.pop_front();
    std::copy(message.begin(), message.end(), wr.buffer.data);
    fabric::Completion done = completion(wr.wr_id, fabric::Op::kReceive);
    done.byte_length = static_cast<uint32_t>(message.size());
    if (invalidate) {
      auto found = keys.find(*invalidate);
      if (found != keys.end())
        found->second.bound = false;
      done.has_invalidated = true;
      done.invalidated_key = *invalidate;
    }
    receive_completions.push_back(done);
    return true;
  }

  // Takes the requests that the engine wants to post.
  void post(Connection& engine) {
    for (const fabric::ReceiveWr& wr : engine.receives())
      receives.push_back(wr);
    engine.receives().clear();
    take(engine.sends());
    engine.sends().clear();
    engine.take_sent_now();
    engine.on_posted();
    if (!engine.sends().empty() || !engine.receives().empty())
      return post(engine);
    EXPECT_LE(retired_.size(), depth) << "more on the send queue than it holds";
    if (in_error)
      flush();
  }

  // Executes the oldest request. Returns false if the queue is empty.
  bool execute_one() {
    if (posted.empty())
      return false;
    fabric::SendWr wr = posted.front();
    posted.pop_front();
    log.push_back(wr);
    fabric::WcStatus status = execute(wr);
    if (!wr.copied && (status != fabric::WcStatus::kSuccess || wr.signaled)) {
      fabric::Completion done = completion(wr.wr_id, wr.op);
      done.status = status;
      for (const MemorySpan& sge : wr.spans())
        done.byte_length += sge.length;
      send_completions.push_back(done);
    }
    if (status != fabric::WcStatus::kSuccess)
      fail();
    return true;
  }

  // Moves the queue pair to the error state: everything is flushed.
  void fail() {
    in_error = true;
    flush();
  }

  // Hands up to `most` completions of one queue to the engine.
  bool deliver(Connection& engine, std::deque<fabric::Completion>& from, size_t most) {
    std::vector<fabric::Completion> batch;
    for (; !from.empty() && batch.size() < most; from.pop_front())
      batch.push_back(from.front());
    if (&from == &send_completions) {
      for (const fabric::Completion& c : batch)
        retire(c);
    }
    if (batch.empty())
      return false;
    EngineScope inside(true);
    engine.on_completions(batch);
    return true;
  }

  uint32_t bound_keys() const {
    uint32_t count = 0;
    for (const auto& [key, entry] : keys)
      count += entry.bound;
    return count;
  }
  size_t count(fabric::Op op) const {
    size_t n = 0;
    for (const fabric::SendWr& wr : log)
      n += wr.op == op;
    return n;
  }

 private:
  void take(std::span<const fabric::SendWr> wrs) {
    for (const fabric::SendWr& wr : wrs) {
      posted.push_back(wr);
      if (wr.copied)
        copy(posted.back());
      retired_.push_back(wr.signaled);
      reads_in_flight += wr.op == fabric::Op::kRead;
    }
    max_reads_in_flight = std::max(max_reads_in_flight, reads_in_flight);
  }
  // From here on the engine may change its own bytes.
  void copy(fabric::SendWr& wr) {
    EXPECT_FALSE(wr.signaled);
    Bytes& bytes = copies_.emplace_back();
    for (const MemorySpan& sge : wr.spans())
      bytes.insert(bytes.end(), sge.data, sge.data + sge.length);
    wr.sges[0] = {bytes.data(), static_cast<uint32_t>(bytes.size()), wr.sges[0].region};
    wr.num_sges = 1;
  }
  static fabric::Completion completion(uint64_t wr_id, fabric::Op op) {
    return {wr_id, nullptr, op, fabric::WcStatus::kSuccess, false, 0, 0};
  }
  void flush() {
    for (; !posted.empty(); posted.pop_front()) {
      if (posted.front().quiet)
        continue;
      fabric::Completion done = completion(posted.front().wr_id, posted.front().op);
      done.status = fabric::WcStatus::kFlushed;
      send_completions.push_back(done);
    }
    for (; !receives.empty(); receives.pop_front()) {
      fabric::Completion done = completion(receives.front().wr_id, fabric::Op::kReceive);
      done.status = fabric::WcStatus::kFlushed;
      receive_completions.push_back(done);
    }
  }
  // A signaled request that completes frees its slot of the send queue, and those of the unsignaled
  // requests before it.
  void retire(const fabric::Completion& done) {
    reads_in_flight -= done.op == fabric::Op::kRead;
    if (done.status != fabric::WcStatus::kSuccess) {
      retired_.clear();
      return;
    }
    while (!retired_.empty()) {
      bool signaled = retired_.front();
      retired_.pop_front();
      if (signaled)
        return;
    }
  }
  fabric::WcStatus execute(const fabric::SendWr& wr) {
    using fabric::Op;
    using fabric::WcStatus;
    for (const MemorySpan& sge : wr.spans())
      EXPECT_NE(sge.region, kNoRegion) << "unregistered memory in a work request";
    switch (wr.op) {
      case Op::kSend:
      case Op::kSendInvalidate: {
        Bytes message;
        for (const MemorySpan& sge : wr.spans())
          message.insert(message.end(), sge.data, sge.data + sge.length);
        messages.push_back(message);
        std::optional<uint32_t> key;
        if (wr.op == Op::kSendInvalidate)
          key = wr.invalidate_key;
        bool arrived = remote->receive(message, key);
        EXPECT_TRUE(arrived || expect_refusals) << "no Receive for a Send";
        return arrived ? WcStatus::kSuccess : WcStatus::kRnrExceeded;
      }
      case Op::kRead:
      case Op::kWrite: {
        uint32_t length = 0;
        for (const MemorySpan& sge : wr.spans())
          length += sge.length;
        bool write = wr.op == Op::kWrite;
        std::byte* far =
            remote->access(wr.key, wr.remote_address, length,
                           write ? fabric::Rights::kRemoteWrite : fabric::Rights::kRemoteRead);
        EXPECT_TRUE(far != nullptr || expect_refusals) << "access outside what was offered";
        if (far == nullptr)
          return WcStatus::kRemoteAccess;
        for (const MemorySpan& sge : wr.spans()) {
          std::memcpy(write ? far : sge.data, write ? sge.data : far, sge.length);
          far += sge.length;
        }
        return WcStatus::kSuccess;
      }
      case Op::kBindKey: {
        auto found = keys.find(wr.key);
        EXPECT_TRUE(found != keys.end() && !found->second.was_bound) << "bind of a used key";
        found->second = {true, true, wr.sges[0], wr.rights, {}};
        if (wr.runs != 0)
          bind_list(found->second, wr.runs);
        return WcStatus::kSuccess;
      }
      case Op::kInvalidateKey: {
        if (fail_invalidate != 0) {
          --fail_invalidate;
          return WcStatus::kLocalProtection;
        }
        auto found = keys.find(wr.key);
        EXPECT_TRUE(found != keys.end() && (found->second.bound || expect_refusals))
            << "invalidation of a dead key";
        if (found != keys.end())
          found->second.bound = false;
        return WcStatus::kSuccess;
      }
      case Op::kReceive:
        break;
    }
    ADD_FAILURE() << "not a send-queue request";
    return fabric::WcStatus::kLocalProtection;
  }

  uint32_t next_key_ = 12345;
  std::deque<bool> retired_;
  std::deque<Bytes> copies_;  // of copied Sends
};

}  // namespace rrdk::engine::test

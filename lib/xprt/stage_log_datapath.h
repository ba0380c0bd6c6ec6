// When sampled calls passed which stage (rrdk/stages.h): the last ones of one core.
//
// A record is taken when a call is sampled, and belongs to it until complete(); only then do other
// threads read it. Workers write to it too: the rings between cores order that.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "rrdk/stages.h"

namespace rrdk::xprt {

struct StageRecord {
  std::atomic<uint32_t> sequence = 0;  // odd while a call has it: a seqlock
  std::atomic<uint32_t> xid = 0;
  std::atomic<uint32_t> program = 0;
  std::atomic<uint32_t> version = 0;
  std::atomic<uint32_t> procedure = 0;
  std::atomic<bool> made = false;
  std::atomic<uint64_t> connection = 0;
  std::array<std::atomic<uint64_t>, kStages> ticks = {};

  void stamp(Stage stage, uint64_t when) noexcept {
    put(ticks[static_cast<size_t>(stage)], when);
    show_stage(stage, when);
  }
  void stamp(Stage stage) noexcept { stamp(stage, base::Tsc::ticks()); }
  uint64_t at(Stage stage) const noexcept {
    return ticks[static_cast<size_t>(stage)].load(std::memory_order_relaxed);
  }
  uint64_t ns(Stage from, Stage to) const noexcept { return base::Tsc::to_ns(at(to) - at(from)); }
  void name(uint64_t its_connection, uint32_t its_program, uint32_t its_version,
            uint32_t its_procedure) noexcept {
    put(connection, its_connection);
    put(program, its_program);
    put(version, its_version);
    put(procedure, its_procedure);
  }
  void begin(uint32_t its_xid, bool is_made) noexcept {
    sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    put(xid, its_xid);
    put(made, is_made);
    for (std::atomic<uint64_t>& when : ticks)
      put(when, uint64_t{0});
  }
  // As whoever stamps it sees it.
  StampedCall copy() const noexcept;
  // No call has it any more.
  void complete() noexcept {
    show_call();
    put(sequence, sequence.load(std::memory_order_relaxed) + 1);
  }

  // To whoever has attached to the probes (scripts/rrdk-trace.py); else nothing.
  void show_stage(Stage stage, uint64_t when) const noexcept;
  void show_call() const noexcept;

  // Who reads what was put sees that the sequence was odd by then.
  template <typename T>
  static void put(std::atomic<T>& to, T value) noexcept {
    to.store(value, std::memory_order_release);
  }
};

// Everything on the core's thread, but for sample() and read().
class StageLog {
 public:
  // One call in so many; 0: none. Any thread.
  void sample(uint32_t every) noexcept {
    below_.store(every == 0 ? 0 : UINT32_MAX / every, std::memory_order_relaxed);
  }
  bool on() const noexcept { return below_.load(std::memory_order_relaxed) != 0; }
  bool samples(uint32_t xid) const noexcept {
    constexpr uint32_t kGoldenRatio = 2654435769;  // spreads XIDs that follow each other
    return xid * kGoldenRatio < below_.load(std::memory_order_relaxed);
  }
  // Null: that call is not sampled, or the record whose turn it is still belongs to another one.
  StageRecord* take(uint32_t xid, bool made) noexcept {
    if (!samples(xid)) [[likely]]
      return nullptr;
    return take_next(xid, made);
  }
  // Appends those that are complete, oldest first. Any thread.
  void read(std::vector<StampedCall>& calls) const;

 private:
  StageRecord* take_next(uint32_t xid, bool made) noexcept {
    StageRecord& record = records_[next_.load(std::memory_order_relaxed) % kStampedCalls];
    next_.store(next_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (record.sequence.load(std::memory_order_relaxed) % 2 != 0)
      return nullptr;
    record.begin(xid, made);
    return &record;
  }

  std::atomic<uint32_t> below_ = 0;  // of xid * kGoldenRatio
  std::atomic<uint64_t> next_ = 0;
  std::array<StageRecord, kStampedCalls> records_;
};

// Sampled calls of one connection whose Sends are made and not posted yet. What finds no room here
// goes without that stamp.
class Unposted {
 public:
  void add(StageRecord& record, Stage stage) noexcept {
    if (count_ != entries_.size())
      entries_[count_++] = {&record, record.sequence.load(std::memory_order_relaxed), stage};
  }
  void stamp() noexcept {
    if (count_ != 0) [[unlikely]]
      stamp_all();
  }

 private:
  struct Entry {
    StageRecord* record;
    uint32_t sequence;  // another one: the call has ended meanwhile
    Stage stage;
  };

  void stamp_all() noexcept {
    const uint64_t now = base::Tsc::ticks();
    for (const Entry& entry : std::span(entries_).first(std::exchange(count_, 0))) {
      if (entry.record->sequence.load(std::memory_order_relaxed) == entry.sequence)
        entry.record->stamp(entry.stage, now);
    }
  }

  size_t count_ = 0;
  std::array<Entry, 8> entries_;
};

}  // namespace rrdk::xprt

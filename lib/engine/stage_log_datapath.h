// When sampled calls passed each stage (rrdk/stages.h): the latest calls of one core, and the
// slowest.
//
// A record is taken when a call is sampled and belongs to that call until complete(); only then do
// other threads read it. Workers write to it too; the rings between cores order their accesses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/count.h"
#include "base/dice.h"
#include "rrdk/procedure_stats.h"
#include "rrdk/stages.h"

// Above 0 while a tool is attached to the probe of that name; the tool counts it up (sys/sdt.h).
extern "C" {
[[gnu::visibility("hidden")]] extern unsigned short rrdk_stage_semaphore;
[[gnu::visibility("hidden")]] extern unsigned short rrdk_call_semaphore;
}

namespace rrdk::engine {

// Fault injection (FaultPlan::stage): delays sampled calls at one stage. Any thread.
class LateStage {
 public:
  static constexpr uint8_t kNone = 0xff;

  void set(Stage stage, bool made, uint64_t ns) noexcept {
    ticks_.store(base::Tsc::from_ns(ns) + 1, std::memory_order_relaxed);
    made_.store(made, std::memory_order_relaxed);
    stage_.store(static_cast<uint8_t>(stage), std::memory_order_relaxed);
  }
  base::Dice& dice() noexcept { return dice_; }
  const base::Dice& dice() const noexcept { return dice_; }

  // The stage at which the next call is delayed, or kNone.
  uint8_t next(bool made) noexcept {
    const bool hit = made_.load(std::memory_order_relaxed) == made && dice_.roll();
    return hit ? stage_.load(std::memory_order_relaxed) : kNone;
  }
  uint64_t ticks() const noexcept { return ticks_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> ticks_ = 0;
  std::atomic<bool> made_ = false;
  std::atomic<uint8_t> stage_ = kNone;
  base::Dice dice_;
};

struct StageRecord {
  std::atomic<uint32_t> sequence = 0;  // odd while a call has the record: a seqlock
  std::atomic<uint32_t> xid = 0;
  std::atomic<uint32_t> program = 0;
  std::atomic<uint32_t> version = 0;
  std::atomic<uint32_t> procedure = 0;
  std::atomic<bool> made = false;
  uint8_t late = LateStage::kNone;  // the stage that is delayed on purpose, by `late_ticks`
  std::atomic<uint64_t> connection = 0;
  std::array<std::atomic<uint64_t>, kStages> ticks = {};
  uint64_t late_ticks = 0;

  void stamp(Stage stage, uint64_t when) noexcept {
    put(ticks[static_cast<size_t>(stage)], when);
    if (__atomic_load_n(&rrdk_stage_semaphore, __ATOMIC_RELAXED) != 0) [[unlikely]]
      show_stage(stage, when);
  }
  void stamp(Stage stage) noexcept { stamp(stage, pass(stage, base::Tsc::ticks())); }
  // Returns when the call passes the stage: `now`, or later if it is delayed on purpose.
  uint64_t pass(Stage stage, uint64_t now) const noexcept {
    return static_cast<uint8_t>(stage) == late ? pass_late(now) : now;
  }
  uint64_t at(Stage stage) const noexcept {
    return ticks[static_cast<size_t>(stage)].load(std::memory_order_relaxed);
  }
  // Returns the time from the first stage to the last; 0 if the call has not passed the last.
  uint64_t took() const noexcept {
    return ended() == 0 ? 0 : ended() - ticks.front().load(std::memory_order_relaxed);
  }
  uint64_t ended() const noexcept { return ticks.back().load(std::memory_order_relaxed); }
  uint64_t ns(Stage from, Stage to) const noexcept { return base::Tsc::to_ns(at(to) - at(from)); }
  void name(uint64_t its_connection, uint32_t its_program, uint32_t its_version,
            uint32_t its_procedure) noexcept {
    put(connection, its_connection);
    put(program, its_program);
    put(version, its_version);
    put(procedure, its_procedure);
  }
  void begin(uint32_t its_xid, bool is_made) noexcept {
    RRDK_ASSERT(!taken());
    sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    put(xid, its_xid);
    put(made, is_made);
    name(0, 0, 0, 0);
    for (std::atomic<uint64_t>& when : ticks)
      put(when, uint64_t{0});
  }
  // The writer's view; readers use the sequence number.
  StampedCall copy() const noexcept;
  // Copies the record of a call that is complete.
  void copy_of(const StageRecord& call) noexcept;
  // Ends the call's hold on the record.
  void complete() noexcept {
    RRDK_ASSERT(taken());
    if (__atomic_load_n(&rrdk_call_semaphore, __ATOMIC_RELAXED) != 0) [[unlikely]]
      show_call();
    put(sequence, sequence.load(std::memory_order_relaxed) + 1);
  }

  bool taken() const noexcept { return sequence.load(std::memory_order_relaxed) % 2 != 0; }
  uint64_t pass_late(uint64_t now) const noexcept;
  // Reports the stage to a tool attached to the probes (scripts/rrdk-trace.py).
  void show_stage(Stage stage, uint64_t when) const noexcept;
  void show_call() const noexcept;

  // A reader that sees this value also sees that the sequence was odd.
  template <typename T>
  static void put(std::atomic<T>& to, T value) noexcept {
    to.store(value, std::memory_order_release);
  }
};

// Counts for a DurationHistogram. One thread records; any thread may read.
class Durations {
 public:
  void record(uint64_t ns) noexcept {
    ++buckets_[DurationHistogram::bucket_of(ns)];
    total_ns_ += ns;
  }
  void add_to(DurationHistogram& sum) const noexcept {
    for (size_t i = 0; i < buckets_.size(); ++i)
      sum.buckets[i] += buckets_[i];
    sum.total_ns += total_ns_;
  }

 private:
  std::array<base::Count, DurationHistogram::kBuckets> buckets_;
  base::Count total_ns_;
};

// All functions run on the core's thread, except sample(), inject(), read() and read_slow().
class StageLog {
 public:
  // Samples one call in `every`; 0: no calls. Any thread.
  void sample(uint32_t every) noexcept {
    below_.store(every == 0 ? 0 : UINT32_MAX / every, std::memory_order_relaxed);
  }
  // Any thread. `late` must stay valid.
  void inject(LateStage& late) noexcept { late_.store(&late, std::memory_order_relaxed); }
  bool on() const noexcept { return below_.load(std::memory_order_relaxed) != 0; }
  bool samples(uint32_t xid) const noexcept {
    constexpr uint32_t kGoldenRatio = 2654435769;  // spreads consecutive numbers
    // Calls with neighbouring XIDs, which often come together, are sampled together, so that the
    // processor predicts the branch well.
    constexpr uint32_t kNeighbourBits = 3;
    return (xid >> kNeighbourBits) * kGoldenRatio < below_.load(std::memory_order_relaxed);
  }
  // Returns null if the call is not sampled, or if the next record still belongs to another call.
  StageRecord* take(uint32_t xid, bool made) noexcept {
    if (!samples(xid)) [[likely]]
      return nullptr;
    return take_next(xid, made);
  }
  // Appends the complete records, oldest first. Any thread.
  void read(std::vector<StampedCall>& calls) const;
  // Appends the slowest of the earlier ones.
  void read_slow(std::vector<StampedCall>& calls) const;

 private:
  static constexpr uint64_t kTakenBetweenLooks = 128;

  StageRecord* take_next(uint32_t xid, bool made) noexcept {
    const uint64_t next = next_.load(std::memory_order_relaxed);
    next_.store(next + 1, std::memory_order_relaxed);
    StageRecord& record = records_[next % kStampedCalls];
    if (record.taken())
      return nullptr;
    if (next % kTakenBetweenLooks == 0) [[unlikely]]
      set_bar();
    if (record.took() > bar_) [[unlikely]]
      keep(record);
    record.begin(xid, made);
    LateStage* const late = late_.load(std::memory_order_relaxed);
    record.late = LateStage::kNone;
    if (late != nullptr) [[unlikely]] {
      record.late = late->next(made);
      record.late_ticks = late->ticks();
    }
    return &record;
  }

  void keep(const StageRecord& call) noexcept;
  StageRecord& fastest(uint64_t now) noexcept;
  void set_bar() noexcept;

  std::atomic<uint32_t> below_ = 0;  // compared with xid * kGoldenRatio
  std::atomic<uint64_t> next_ = 0;
  std::atomic<LateStage*> late_ = nullptr;  // null until the first inject()
  std::array<StageRecord, kStampedCalls> records_;
  std::array<StageRecord, kSlowCalls> slow_;
  uint64_t bar_ = 0;  // a call that took longer is slower than one of these
};

// Sampled calls of one connection whose Sends are prepared but not posted yet. A call that does not
// fit here goes without that stamp.
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
    uint32_t sequence;  // differs if the call has ended meanwhile
    Stage stage;
  };

  void stamp_all() noexcept {
    uint64_t now = base::Tsc::ticks();
    for (const Entry& entry : std::span(entries_).first(std::exchange(count_, 0))) {
      if (entry.record->sequence.load(std::memory_order_relaxed) != entry.sequence)
        continue;
      now = entry.record->pass(entry.stage, now);
      entry.record->stamp(entry.stage, now);
    }
  }

  size_t count_ = 0;
  std::array<Entry, 8> entries_;
};

}  // namespace rrdk::engine

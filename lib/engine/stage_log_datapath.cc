#include "engine/stage_log_datapath.h"

#include <algorithm>

#if __has_include(<sys/sdt.h>)
#define _SDT_HAS_SEMAPHORES 1  // its own name: NOLINT(readability-identifier-naming)
#include <sys/sdt.h>
#else  // built without probes
#define DTRACE_PROBE4(provider, name, a, b, c, d) static_cast<void>(a)
#define DTRACE_PROBE5(provider, name, a, b, c, d, e) static_cast<void>(a)
#endif

// In assembly, which link-time optimisation does not rename: the probes' notes use these names.
asm(R"(.pushsection .probes, "aw", @progbits
.balign 2
.hidden rrdk_stage_semaphore
.globl rrdk_stage_semaphore
rrdk_stage_semaphore: .short 0
.hidden rrdk_call_semaphore
.globl rrdk_call_semaphore
rrdk_call_semaphore: .short 0
.popsection
)");

namespace rrdk {

uint64_t ticks_to_ns(uint64_t ticks) noexcept {
  return base::Tsc::to_ns(ticks);
}

uint64_t now_ticks() noexcept {
  return base::Tsc::ticks();
}

}  // namespace rrdk

namespace rrdk::engine {

namespace {

// Whether the record of a slow call is too old to keep.
bool is_old(uint64_t ended, uint64_t now) noexcept {
  constexpr uint64_t kOldNs = 60'000'000'000;
  return now - ended > base::Tsc::from_ns(kOldNs);
}

// Returns false if a call has the record, or took it meanwhile.
bool copy(const StageRecord& record, StampedCall& call) noexcept {
  const uint32_t sequence = record.sequence.load(std::memory_order_acquire);
  if (sequence % 2 != 0 || sequence == 0)
    return false;
  call = record.copy();
  return record.sequence.load(std::memory_order_relaxed) == sequence;
}

}  // namespace

StampedCall StageRecord::copy() const noexcept {
  constexpr auto kAcquire = std::memory_order_acquire;
  StampedCall call = {.made = made.load(kAcquire),
                      .connection = connection.load(kAcquire),
                      .xid = xid.load(kAcquire),
                      .program = program.load(kAcquire),
                      .version = version.load(kAcquire),
                      .procedure = procedure.load(kAcquire)};
  for (size_t i = 0; i < kStages; ++i)
    call.ticks[i] = ticks[i].load(kAcquire);
  return call;
}

void StageRecord::copy_of(const StageRecord& call) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  begin(call.xid.load(kRelaxed), call.made.load(kRelaxed));
  name(call.connection.load(kRelaxed), call.program.load(kRelaxed), call.version.load(kRelaxed),
       call.procedure.load(kRelaxed));
  for (size_t i = 0; i < kStages; ++i)
    put(ticks[i], call.ticks[i].load(kRelaxed));
  put(sequence, sequence.load(kRelaxed) + 1);
}

// Busy-waits, so that the thread is as slow as one that has more work.
uint64_t StageRecord::pass_late(uint64_t now) const noexcept {
  const uint64_t end = now + late_ticks;
  while (now < end)
    now = base::Tsc::ticks();
  return now;
}

void StageRecord::show_stage(Stage stage, uint64_t when) const noexcept {
  const uint32_t its_xid = xid.load(std::memory_order_relaxed);
  const uint32_t is_made = made.load(std::memory_order_relaxed);
  const auto number = static_cast<uint32_t>(stage);
  const uint64_t ns = base::Tsc::to_ns(when);
  DTRACE_PROBE4(rrdk, stage, is_made, its_xid, number, ns);
}

void StageRecord::show_call() const noexcept {
  const uint32_t its_xid = xid.load(std::memory_order_relaxed);
  const uint32_t is_made = made.load(std::memory_order_relaxed);
  const uint64_t its_connection = connection.load(std::memory_order_relaxed);
  const uint32_t its_program = program.load(std::memory_order_relaxed);
  const uint32_t its_procedure = procedure.load(std::memory_order_relaxed);
  DTRACE_PROBE5(rrdk, call, is_made, its_xid, its_connection, its_program, its_procedure);
}

// Keeps one of the slowest calls whose record is needed for another call.
void StageLog::keep(const StageRecord& call) noexcept {
  fastest(base::Tsc::ticks()).copy_of(call);
  set_bar();
}

// Returns the place for the next slow call: an empty one, one whose call ended too long ago, or
// that of the fastest call.
StageRecord& StageLog::fastest(uint64_t now) noexcept {
  return *std::ranges::min_element(slow_, {}, [now](const StageRecord& call) {
    return is_old(call.ended(), now) ? 0 : call.took();
  });
}

void StageLog::set_bar() noexcept {
  const uint64_t now = base::Tsc::ticks();
  const StageRecord& call = fastest(now);
  bar_ = is_old(call.ended(), now) ? 0 : call.took();
}

void StageLog::read(std::vector<StampedCall>& calls) const {
  const uint64_t next = next_.load(std::memory_order_relaxed);
  StampedCall call;
  for (uint64_t i = 0; i < records_.size(); ++i) {
    if (copy(records_[(next + i) % records_.size()], call))
      // datapath-allow: the reader is on a control path
      calls.push_back(call);
  }
}

void StageLog::read_slow(std::vector<StampedCall>& calls) const {
  const uint64_t now = base::Tsc::ticks();
  StampedCall call;
  for (const StageRecord& record : slow_) {
    if (copy(record, call) && !is_old(call.ticks.back(), now))
      // datapath-allow: as above
      calls.push_back(call);
  }
}

}  // namespace rrdk::engine

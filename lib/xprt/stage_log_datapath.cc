#include "xprt/stage_log_datapath.h"

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#else  // built without probes
#define DTRACE_PROBE4(provider, name, a, b, c, d) static_cast<void>(a)
#define DTRACE_PROBE5(provider, name, a, b, c, d, e) static_cast<void>(a)
#endif

namespace rrdk {

uint64_t ticks_to_ns(uint64_t ticks) noexcept {
  return base::Tsc::to_ns(ticks);
}

uint64_t now_ticks() noexcept {
  return base::Tsc::ticks();
}

}  // namespace rrdk

namespace rrdk::xprt {

namespace {

// False: a call has it, or has taken it meanwhile.
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

void StageLog::read(std::vector<StampedCall>& calls) const {
  const uint64_t next = next_.load(std::memory_order_relaxed);
  StampedCall call;
  for (uint64_t i = 0; i < records_.size(); ++i) {
    if (copy(records_[(next + i) % records_.size()], call))
      // datapath-allow: whoever asks is on a control path
      calls.push_back(call);
  }
}

}  // namespace rrdk::xprt

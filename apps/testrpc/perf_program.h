// The perf program (0x20005666, version 1): its numbers, its upper-layer binding, and the server's
// side of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "callback.h"
#include "rrdk/binding.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/server.h"

namespace rrdk::testrpc {

enum PerfProcedure : uint32_t {
  kPerfNull = 0,
  kPerfEcho = 1,
  kPerfRead = 2,
  kPerfWrite = 3,
  kPerfSandwich = 4,
  kPerfRead2 = 5,
  kPerfCallback = 6,
};

enum class PerfStatus : uint32_t { kOk = 0, kInval = 1, kTooBig = 2 };

constexpr uint32_t kPerfVerify = 1;               // PERF_F_VERIFY
constexpr uint32_t kPerfMaxDelayUs = 10'000'000;  // a longer delay is PERF_ERR_INVAL

const Binding& perf_binding();

// What the handlers share. Read-only once made, but for callbacks(), so that any core may run them.
class PerfServer {
 public:
  // `max_size`: a larger count is PERF_ERR_TOOBIG. `touches`: all data that comes in is read.
  // `work_ns`: what each call but callbacks has to compute. Errors: those of Memory::allocate().
  static Result<std::unique_ptr<PerfServer>> create(Memory& memory, uint32_t max_size, bool touches,
                                                    uint32_t work_ns);

  // `once`: repeated writes are answered from the server's duplicate request cache. They are
  // idempotent; this is to see what the cache costs and does.
  Service service(Dispatch dispatch, bool once);
  uint32_t max_size() const { return max_size_; }
  bool touches() const { return touches_; }
  // Keeps the core busy for as long as a call's work takes.
  void work() const;
  Callbacks& callbacks() { return *callbacks_; }
  // Bytes that are unspecified: what a read without kPerfVerify answers, without copying any.
  MemorySpan anything(uint32_t length) const { return data_.span(0, length); }

 private:
  std::array<Procedure, 7> table_;
  uint32_t max_size_ = 0;
  bool touches_ = false;
  uint32_t spin_ns_ = 0;  // for each call
  RegisteredMemory data_;
  std::unique_ptr<Callbacks> callbacks_;
};

}  // namespace rrdk::testrpc

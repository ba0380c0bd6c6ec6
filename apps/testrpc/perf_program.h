// The perf program (0x20005666, version 1): its numbers, its upper-layer binding, and its server.
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

// The state that the handlers share. Read-only except for callbacks(), so that any core may run
// them.
class PerfServer {
 public:
  // `max_size`: a larger count is PERF_ERR_TOOBIG. `touches`: all incoming data is read. `pieces`:
  // of memory from which each item is sent. `work_ns`: the computing time of each call except
  // callbacks. Errors: those of Memory::allocate().
  static Result<std::unique_ptr<PerfServer>> create(Memory& memory, uint32_t max_size, bool touches,
                                                    uint32_t pieces, uint32_t work_ns);

  // `once`: repeated writes are answered from the server's duplicate request cache. Writes are
  // idempotent; this option shows what the cache costs and does.
  Service service(Dispatch dispatch, bool once);
  uint32_t max_size() const { return max_size_; }
  bool touches() const { return touches_; }
  uint32_t pieces() const { return pieces_; }
  // Keeps the core busy for the time of a call's work.
  void work() const;
  Callbacks& callbacks() { return *callbacks_; }
  // Returns unspecified bytes, the answer to a read without kPerfVerify, which needs no copy.
  MemorySpan anything(uint32_t length) const { return data_.span(0, length); }

 private:
  std::array<Procedure, 7> table_;
  uint32_t max_size_ = 0;
  bool touches_ = false;
  uint32_t pieces_ = 1;
  uint32_t spin_ns_ = 0;  // for each call
  RegisteredMemory data_;
  std::unique_ptr<Callbacks> callbacks_;
};

}  // namespace rrdk::testrpc

// Read-copy-update: for data that cores read in each pass and other threads replace occasionally.
// liburcu implements it, in its "bulletproof" flavour, which requires nothing of a program: a
// thread is registered at its first read and unregistered when it ends, and one that stops polling
// is in no read section.
//
// A pass of a core is a read section. What it has read from an atomic pointer is valid until the
// pass ends, since a thread that replaces the object retire()s the old one. The handlers that
// workers run are not read sections, since they may take long (WorkerPool::runs()).
#pragma once

#define _LGPL_SOURCE  // its own name, for inline functions: NOLINT(readability-identifier-naming)
// liburcu declares its pointer to the thread's state as C++'s thread_local, for which the compiler
// calls an initializer first; in a shared library it would also need a call for the address. The
// variable needs neither: liburcu-bp is loaded no later than this library.
#include <urcu/tls-compat.h>
#undef URCU_TLS_STORAGE_CLASS
#define URCU_TLS_STORAGE_CLASS __thread __attribute__((tls_model("initial-exec")))
#ifdef __clang__
// liburcu 0.13 keeps a thread's state at an address without the alignment that it declares, which
// UBSan reports.
#pragma clang attribute push(__attribute__((no_sanitize("alignment"))), apply_to = function)
#endif
#include <urcu/urcu-bp.h>
#ifdef __clang__
#pragma clang attribute pop
#endif

#include <atomic>
#include <memory>

#include "base/sanitizer.h"
#include "rrdk/error.h"

namespace rrdk::base {

// TSan does not see what orders readers and writers: liburcu is not instrumented.
inline char rcu_order;

// Read sections nest.
inline void begin_reading() noexcept {
  urcu_bp_read_lock();
}
inline void end_reading() noexcept {
  tsan_release(&rcu_order);
  urcu_bp_read_unlock();
}
// Whether the thread is in a read section, possibly its program's own. It must then not wait for
// the end of all read sections.
inline bool is_reading() noexcept {
  return urcu_bp_read_ongoing() != 0;
}

class ReadSection {
 public:
  ReadSection() noexcept { begin_reading(); }
  ~ReadSection() { end_reading(); }
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;
};

// Starts the process's thread that destroys what was retired, "rrdk-rcu", unless it exists. Not in
// a pass. Errors: kSystem.
Result<void> start_rcu_thread();

// An object that readers may still have when it is retired.
class Retired {
 public:
  Retired() = default;
  virtual ~Retired() = default;
  Retired(const Retired&) = delete;
  Retired& operator=(const Retired&) = delete;

 private:
  friend class RetiredObjects;
  Retired* next_ = nullptr;  // in the list of those that wait for a grace period
};

// Call it when the object can no longer be found. The object is destroyed, on another thread, when
// all read sections in progress have ended, so its destructor may use nothing that is destroyed
// before the process ends. Any thread, also in a pass; does not wait.
void retire(std::unique_ptr<Retired> object) noexcept;

// Ends when all read sections have ended that were in progress when it began.
class GracePeriod {
 public:
  GracePeriod();
  bool over() const noexcept { return over_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> over_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace rrdk::base

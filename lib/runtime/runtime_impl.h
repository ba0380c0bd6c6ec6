// What servers and clients use of a Runtime beyond its public interface.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/lifetime.h"
#include "observe/capture.h"
#include "rrdk/runtime.h"
#include "runtime/called.h"
#include "runtime/faults.h"
#include "runtime/open_device.h"
#include "runtime/poll_core.h"
#include "runtime/searches.h"
#include "runtime/thread.h"
#include "runtime/worker_pool.h"

namespace rrdk {

namespace runtime {

// Keeps a Memory while a Runtime uses it, in case its owner destroys it too early.
class MemoryUse {
 public:
  explicit MemoryUse(Memory& memory);
  ~MemoryUse();
  MemoryUse(const MemoryUse&) = delete;
  MemoryUse& operator=(const MemoryUse&) = delete;

 private:
  Memory& memory_;
};

// Keeps a Runtime while a server, client or connection uses it, for the same reason.
class RuntimeUse {
 public:
  explicit RuntimeUse(Runtime::Impl& runtime);
  ~RuntimeUse();
  RuntimeUse(const RuntimeUse&) = delete;
  RuntimeUse& operator=(const RuntimeUse&) = delete;

 private:
  Runtime::Impl& runtime_;
};

}  // namespace runtime

struct Runtime::Impl {
  Impl(Memory& memory_in, RuntimeOptions options_in)
      : memory_use(memory_in), memory(memory_in), options(std::move(options_in)) {}
  ~Impl();

  Result<void> start();

  // Returns the device for a URI, opened at its first use, which takes time; every core then
  // watches it. Any thread. Errors do not name the URI.
  Result<runtime::OpenDevice*> device(const fabric::Driver& driver, const std::string& uri,
                                      fabric::Purpose purpose);
  // The same without opening it: null if it has not been opened yet. Any thread.
  runtime::OpenDevice* open_device(const fabric::Driver& driver);
  // The core with the least load; the caller must add to its assigned(). Any thread.
  runtime::PollCore& pick_core();
  // Waits until `done()`, polling embedded cores that no other thread polls. Returns false if the
  // deadline passes first. Control path, and never where in_pass(). When it has taken patience_ns,
  // it logs an error that says what waits (`what`; null: the wait is for a peer, which alone is no
  // error) and which cores were not polled meanwhile.
  bool wait_until(const std::function<bool()>& done, uint64_t deadline_ns = UINT64_MAX,
                  const char* what = nullptr);
  // The same for destructors: waits for patience_ns at most, then logs the error and returns false.
  bool wait_patiently(const std::function<bool()>& done, const char* what);
  // For the destructor: waits, but not for ever, until the passes and the workers' handlers that
  // run now have ended.
  void let_passes_end();
  // Whether a worker is in a handler of `service`; null: of any service.
  bool workers_run(const void* service) const noexcept {
    return workers != nullptr && workers->runs(service);
  }
  // Whether the caller is inside a core's pass, of any Runtime, in a read section of the program's
  // own, or in a handler in a worker: it cannot wait for the end of a grace period.
  static bool in_handler() noexcept;
  // Whether the caller is inside some core's pass, in a callback or a handler.
  bool in_pass() const noexcept;
  // The same for any Runtime: nothing that waits may be called there, since what it waits for may
  // need the core whose pass it is.
  static bool in_any_pass() noexcept {
    return runtime::this_thread != nullptr &&
           runtime::this_thread->pass.load(std::memory_order_relaxed) != nullptr;
  }
  // Whether the application may poll core `core`: it exists and is embedded.
  bool pollable(uint32_t core) const;
  // Embedded: whether the calling thread polls a core, or a core that no thread polls (any more).
  bool embedded_here();
  // Polls those cores once; returns how many things they did.
  uint32_t poll_here();
  Result<void> set_faults(const FaultPlan& plan);
  void clear_faults();
  void place_taps();

  // Runs it on the helper thread. Any thread; the Runtime must outlive it. Errors: kSystem.
  Result<void> run_aside(runtime::AsideThread::Task task) { return aside.run(std::move(task)); }

  Result<void> start_capture(const std::string& file, const CaptureOptions& options);
  CaptureCounts stop_capture();  // never in_handler()
  // Returns false if nothing was written for patience_ns.
  bool wait_until_written(const observe::Capture& stopped);

  base::Users users;
  const runtime::MemoryUse memory_use;  // destroyed last
  Memory& memory;
  const RuntimeOptions options;
  uint64_t patience_ns = 5'000'000'000;
  runtime::Faults faults;
  runtime::CalledPrograms called;  // outlives the cores
  std::atomic<uint32_t> stamp_every = 0;
  std::atomic<bool> memory_has_faults = false;
  std::mutex capture_mutex;
  bool capture_changes = false;               // its file is being opened, or written to its end
  std::unique_ptr<observe::Capture> capture;  // outlives the cores
  std::mutex opening_mutex;                   // held while a device is opened
  std::mutex devices_mutex;
  std::vector<std::unique_ptr<runtime::OpenDevice>> devices;
  std::unique_ptr<runtime::WorkerPool> workers;
  std::vector<std::unique_ptr<runtime::PollCore>> cores;  // destroyed before devices and workers
  std::vector<std::thread> threads;
  runtime::AsideThread aside;
  runtime::Searches searches;

  // What pick_core() knows about a core: its completions as of the last check, and its recent
  // completions, which are halved at each check.
  struct CoreLoad {
    uint64_t seen = 0;
    uint64_t lately = 0;
  };
  std::mutex loads_mutex;
  std::vector<CoreLoad> loads;  // of each core
};

}  // namespace rrdk

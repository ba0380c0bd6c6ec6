// A capture (rrdk/capture.h): what the cores hand over, and the thread that writes it. Not the data
// path: nothing here runs while there is no capture.
//
// Each core has its own ring of bytes. It copies what it sees into the ring, with a few words of
// description; the thread makes frames of that (frames.h), so that a core does no more than it
// must.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/system.h"
#include "fabric/work.h"
#include "observe/frames.h"
#include "rrdk/capture.h"
#include "rrdk/connection.h"
#include "rrdk/error.h"

namespace rrdk::observe {

// Events from a core to the thread that writes the file. An event is there completely, or it is
// lost.
class EventRing {
 public:
  static constexpr uint64_t kBytes = uint64_t{1} << 25;

  EventRing() : pages_(kBytes), bytes_(static_cast<std::byte*>(pages_.data())) {}

  // Puts the event followed by its bytes. Returns false if there is not enough space.
  bool put(const CaptureEvent& event, std::span<const MemorySpan> spans) noexcept;
  // Returns the oldest event, which stays with its bytes until pop(); null if the ring is empty.
  const CaptureEvent* front() noexcept;
  void pop() noexcept;

 private:
  static constexpr uint64_t kAlign = alignof(CaptureEvent);
  static uint64_t room_of(uint32_t bytes) noexcept {
    return (sizeof(CaptureEvent) + bytes + kAlign - 1) / kAlign * kAlign;
  }

  const base::LazyPages pages_;
  std::byte* const bytes_;
  alignas(64) std::atomic<uint64_t> tail_ = 0;  // advanced by the core
  alignas(64) std::atomic<uint64_t> head_ = 0;  // advanced by the thread that writes the file
};

// The connection to which messages belong.
struct CapturedConnection {
  uint64_t id;
  const Peer& peer;
  bool asked_for_by_us;  // this end connected
};

// What one core sees. For the core's thread unless stated otherwise.
class CoreCapture {
 public:
  // `ended` is set when nothing more is written to the file.
  CoreCapture(const CaptureOptions& options, const std::atomic<bool>& ended)
      : most_(options.message_bytes), ended_(ended) {}

  // Called for requests that the queue pair has taken.
  void on_posted(const CapturedConnection& of, std::span<const fabric::SendWr> wrs) noexcept;
  // Called for a completion; `message` is what a Receive holds.
  void on_completion(const CapturedConnection& of, const fabric::Completion& completion,
                     std::span<const std::byte> message) noexcept;
  // The connection is over.
  void forget(uint64_t id) noexcept;

  // For the writing thread.
  EventRing& events() noexcept { return events_; }
  // Any thread.
  CaptureCounts counts() const noexcept {
    return {.captured = captured_.load(std::memory_order_relaxed),
            .lost = lost_.load(std::memory_order_relaxed)};
  }

 private:
  // A Read that was posted, whose data is still to come.
  struct Read {
    uint64_t wr_id;
    uint64_t number;  // the connection's number for it; 0: its request was lost, and its data is
                      // not kept
    std::vector<MemorySpan> sinks;
  };
  // What the next Send offers for reading.
  struct Offered {
    uint32_t key;
    MemorySpan span;
  };
  struct Connection {
    std::deque<Read> reads;
    uint64_t last_read = 0;
    std::vector<Offered> offered;
  };

  // Returns null if there was no space for its description.
  Connection* meet(const CapturedConnection& connection);
  void post(const CapturedConnection& of, const fabric::SendWr& wr);
  void complete(const CapturedConnection& of, const fabric::Completion& completion,
                std::span<const std::byte> message);
  bool put(const Connection* of, CaptureEvent event, std::span<const MemorySpan> spans);
  void count_lost() noexcept;
  void tell_gone();

  const uint32_t most_;  // bytes of an event
  const std::atomic<bool>& ended_;
  std::vector<uint64_t> gone_;  // connections that the other side has yet to forget
  std::unordered_map<uint64_t, Connection> connections_;
  EventRing events_;
  std::atomic<uint64_t> captured_ = 0;
  std::atomic<uint64_t> lost_ = 0;
};

class Capture {
 public:
  // Begins the file and the thread that writes it. Errors: kInvalidArgument (options), kNoMemory,
  // kSystem (the file, the thread).
  static Result<std::unique_ptr<Capture>> start(const std::string& file,
                                                const CaptureOptions& options, size_t cores);
  // No core may use it any more. Writes what is left, and ends the file.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  CoreCapture& core(size_t index) noexcept { return *cores_[index]; }
  CaptureCounts counts() const noexcept;
  // No core may use it any more. Tells the thread to write what is left, and to end.
  void stop();
  bool stopped() const noexcept { return done_.load(std::memory_order_acquire); }
  // Increases as long as the file takes what there is to write.
  uint64_t progress() const noexcept { return progress_.load(std::memory_order_relaxed); }
  // Waits until the thread has ended; called once.
  void finish();

 private:
  Capture(std::string name, base::Fd file, const CaptureOptions& options, size_t cores);
  void run();
  bool drain();  // writes a part; false: there was nothing
  void add(const CaptureEvent& event);
  void end_file(const std::string& why);
  void close_file(uint64_t captured);
  void write_out();

  const std::string name_;
  base::Fd file_;
  const uint64_t most_bytes_;
  std::atomic<bool> ended_ = false;  // nothing more is written to the file
  std::vector<std::unique_ptr<CoreCapture>> cores_;
  Frames frames_;
  uint64_t buffered_ = 0;                  // events that are only in frames_
  uint64_t written_ = 0;                   // bytes
  bool broken_ = false;                    // not even its end can be written
  std::atomic<uint64_t> not_written_ = 0;  // events that were taken, and are not in the file
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> done_ = false;
  std::atomic<uint64_t> progress_ = 0;
  bool stop_ = false;
  std::thread writer_;
};

}  // namespace rrdk::observe

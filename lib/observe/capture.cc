#include "observe/capture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace rrdk::observe {

using fabric::Op;
using fabric::WcStatus;
namespace {

using What = CaptureEvent::What;

constexpr uint32_t kLeastMessage = 64, kMostMessage = 1u << 20;
constexpr uint64_t kLeastFile = 65536;
constexpr auto kPause = std::chrono::milliseconds(2);  // when there was nothing to write
constexpr size_t kWriteBytes = 1u << 18;
constexpr size_t kEventsAtOnce = 256;  // of one core
// Size of the statistics at the end of the file, for which space must be left.
constexpr size_t kEndBytes = 64;

uint64_t now_of(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int64_t real_minus_monotonic_ns() {
  return static_cast<int64_t>(now_of(CLOCK_REALTIME) - now_of(CLOCK_MONOTONIC));
}

// The thread that starts a capture may be pinned to the CPU of a core that polls, where the
// capture's thread would disturb what it records.
void run_anywhere() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    CPU_SET(cpu, &all);
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}

uint32_t length_of(std::span<const MemorySpan> spans) {
  uint64_t length = 0;
  for (const MemorySpan& span : spans)
    length += span.length;
  return static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX));
}

MemorySpan span_of(std::span<const std::byte> bytes) {
  // Only ever read.
  return {const_cast<std::byte*>(bytes.data()), static_cast<uint32_t>(bytes.size()), kNoRegion};
}

Result<base::Fd> refuse(const std::string& file, const char* why) {
  return fail(Errc::kPermission, "capture file " + file + why);
}

// Returns whether the file named `file`, which exists as `there`, begins as a capture does.
bool is_capture(const std::string& file, const struct stat& there) {
  const base::Fd fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat opened = {};
  uint32_t first = 0;
  return fd && ::fstat(fd.get(), &opened) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino &&
         ::pread(fd.get(), &first, sizeof first, 0) == ssize_t{sizeof first} &&
         first == kSectionBlock;
}

// The file has everything that is sent. An existing file must be ours and not readable for
// everybody: a process that could open it before could read it. Without O_NONBLOCK a pipe that no
// process reads would block here.
Result<base::Fd> open_file(const std::string& file) {
  base::Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  if (!fd && errno == ENXIO)
    return fail(Errc::kSystem, "capture file " + file + " is a pipe that no process reads");
  struct stat there = {};
  if (!fd || ::fstat(fd.get(), &there) != 0)
    return base::system_failure(("capture file " + file).c_str());
  if (!S_ISREG(there.st_mode)) {
    ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  if (there.st_uid != ::geteuid())
    return refuse(file, " belongs to another user: name a file that does not exist yet");
  if ((there.st_mode & (S_IWGRP | S_IRWXO)) != 0)
    return refuse(file, " is open to other users: remove it, or run chmod 600");
  // The name may be mistyped, or a link to a file of ours in another user's folder.
  if (there.st_size != 0 && !is_capture(file, there))
    return refuse(file, " exists and is not a capture: remove it, or name another file");
  if (::ftruncate(fd.get(), 0) != 0)
    return base::system_failure(("capture file " + file).c_str());
  return fd;
}

}  // namespace

bool EventRing::put(const CaptureEvent& event, std::span<const MemorySpan> spans) noexcept {
  const uint64_t room = room_of(event.captured);
  uint64_t tail = tail_.load(std::memory_order_relaxed);
  const uint64_t to_end = kBytes - tail % kBytes;
  const uint64_t skipped = room > to_end ? to_end : 0;
  if (tail + skipped + room - head_.load(std::memory_order_acquire) > kBytes)
    return false;
  if (skipped >= sizeof(CaptureEvent))
    ::new (static_cast<void*>(bytes_ + tail % kBytes)) CaptureEvent();
  tail += skipped;
  std::byte* to = bytes_ + tail % kBytes;
  ::new (static_cast<void*>(to)) CaptureEvent(event);
  to += sizeof(CaptureEvent);
  uint32_t left = event.captured;
  for (const MemorySpan& span : spans) {
    const uint32_t length = std::min(left, span.length);
    if (length == 0)
      continue;
    std::memcpy(to, span.data, length);
    to += length;
    left -= length;
  }
  tail_.store(tail + room, std::memory_order_release);
  return true;
}

// What cannot be an event was written by a bug of ours, or through a stray pointer. Everything in
// the ring is dropped then, so that the file still ends.
const CaptureEvent* EventRing::front() noexcept {
  for (;;) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    if (head == tail)
      return nullptr;
    const uint64_t to_end = kBytes - head % kBytes;
    const uint64_t most = std::min(to_end, tail - head);
    if (to_end >= sizeof(CaptureEvent)) {
      const auto* const event =
          std::launder(reinterpret_cast<const CaptureEvent*>(bytes_ + head % kBytes));
      if (event->what != What::kSkip && room_of(event->captured) <= most)
        return event;
      if (event->what != What::kSkip) {
        head_.store(tail, std::memory_order_release);
        return nullptr;
      }
    }
    head_.store(head + most, std::memory_order_release);
  }
}

void EventRing::pop() noexcept {
  if (const CaptureEvent* const event = front(); event != nullptr)
    head_.store(head_.load(std::memory_order_relaxed) + room_of(event->captured),
                std::memory_order_release);
}

// At the first event of a connection its description is put first.
CoreCapture::Connection* CoreCapture::meet(const CapturedConnection& connection) {
  tell_gone();
  const auto [found, is_new] = connections_.try_emplace(connection.id);
  if (!is_new)
    return &found->second;
  const std::string text = describe(connection.peer);
  const MemorySpan bytes = span_of(std::as_bytes(std::span(text)));
  const CaptureEvent event = {.connection = connection.id,
                              .time_ns = base::Tsc::now_ns(),
                              .captured = bytes.length,
                              .what = What::kConnection,
                              .outbound = connection.asked_for_by_us};
  // The peer is not known before our own event reports the connection.
  if (!connection.peer.driver.empty() && events_.put(event, {&bytes, 1}))
    return &found->second;
  connections_.erase(found);
  return nullptr;
}

void CoreCapture::forget(uint64_t id) noexcept {
  try {
    if (connections_.erase(id) != 0)
      gone_.push_back(id);
    tell_gone();
  } catch (const std::bad_alloc&) {
    count_lost();  // an event; the connection's description stays until the capture ends
  }
}

void CoreCapture::tell_gone() {
  while (!gone_.empty() && events_.put({.connection = gone_.back(), .what = What::kGone}, {}))
    gone_.pop_back();
}

void CoreCapture::count_lost() noexcept {
  lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

bool CoreCapture::put(const Connection* of, CaptureEvent event, std::span<const MemorySpan> spans) {
  event.time_ns = base::Tsc::now_ns();
  event.captured = event.what == What::kReadRequested ? 0 : std::min(event.length, most_);
  const bool kept =
      of != nullptr && !ended_.load(std::memory_order_relaxed) && events_.put(event, spans);
  if (kept)
    captured_.store(captured_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  else
    count_lost();
  return kept;
}

// A lack of memory must not end a core.
void CoreCapture::on_posted(const CapturedConnection& of,
                            std::span<const fabric::SendWr> wrs) noexcept {
  for (const fabric::SendWr& wr : wrs) {
    try {
      post(of, wr);
    } catch (const std::bad_alloc&) {
      count_lost();
    }
  }
}

void CoreCapture::on_completion(const CapturedConnection& of, const fabric::Completion& completion,
                                std::span<const std::byte> message) noexcept {
  try {
    complete(of, completion, message);
  } catch (const std::bad_alloc&) {
    count_lost();
  }
}

// What a Send offers for reading was bound before it. The peer will read it before it answers, and
// no driver reports when. It is shown right after the Send, so that this file, too, has whole
// calls.
void CoreCapture::post(const CapturedConnection& of, const fabric::SendWr& wr) {
  Connection* const its = meet(of);
  CaptureEvent event = {.connection = of.id,
                        .address = wr.remote_address,
                        .key = wr.key,
                        .length = length_of(wr.spans())};
  switch (wr.op) {
    case Op::kSend:
    case Op::kSendInvalidate:
      event.what = What::kSent;
      event.invalidates = wr.op == Op::kSendInvalidate;
      event.key = wr.invalidate_key;
      put(its, event, wr.spans());
      if (its == nullptr)
        return;
      for (const Offered& offered : its->offered)
        put(its,
            {.connection = of.id,
             .address = reinterpret_cast<uint64_t>(offered.span.data),
             .read = ++its->last_read,
             .key = offered.key,
             .length = offered.span.length,
             .what = What::kOffered},
            {&offered.span, 1});
      its->offered.clear();
      return;
    case Op::kWrite:
      event.what = What::kWritten;
      put(its, event, wr.spans());
      return;
    case Op::kRead:
      event.what = What::kReadRequested;
      event.read = its != nullptr ? ++its->last_read : 0;
      if (!put(its, event, {}))
        event.read = 0;
      if (its != nullptr)
        its->reads.push_back({wr.wr_id, event.read, {wr.spans().begin(), wr.spans().end()}});
      return;
    case Op::kBindKey:
      if (its != nullptr && wr.rights == fabric::Rights::kRemoteRead)
        its->offered.push_back({wr.key, wr.sges[0]});
      return;
    case Op::kInvalidateKey:
    case Op::kReceive:
      return;  // nothing that the peer sees
  }
}

void CoreCapture::complete(const CapturedConnection& of, const fabric::Completion& completion,
                           std::span<const std::byte> message) {
  const bool good = completion.status == WcStatus::kSuccess;
  if (completion.op == Op::kReceive && good) {
    const MemorySpan bytes = span_of(message);
    put(meet(of),
        {.connection = of.id,
         .key = completion.invalidated_key,
         .length = bytes.length,
         .what = What::kReceived,
         .invalidates = completion.has_invalidated},
        {&bytes, 1});
  }
  if (completion.op != Op::kRead)
    return;
  // Reads of one connection end in the order of their requests. A Read that ends here without a
  // request was posted before the capture began.
  Connection* const its = meet(of);
  if (its == nullptr || its->reads.empty() || its->reads.front().wr_id != completion.wr_id)
    return;
  const Read read = std::move(its->reads.front());
  its->reads.pop_front();
  if (good && read.number != 0)
    put(its,
        {.connection = of.id,
         .read = read.number,
         .length = length_of(read.sinks),
         .what = What::kReadResponded},
        read.sinks);
}

Result<std::unique_ptr<Capture>> Capture::start(const std::string& file,
                                                const CaptureOptions& options, size_t cores) {
  if (options.message_bytes < kLeastMessage || options.message_bytes > kMostMessage)
    return fail(Errc::kInvalidArgument, "CaptureOptions::message_bytes is from 64 to 1048576");
  if (options.file_bytes < kLeastFile)
    return fail(Errc::kInvalidArgument, "CaptureOptions::file_bytes is at least 65536");
  Result<base::Fd> fd = open_file(file);
  if (!fd)
    return tl::unexpected(fd.error());
  try {
    return std::unique_ptr<Capture>(new Capture(file, std::move(*fd), options, cores));
  } catch (const std::bad_alloc&) {
    return fail(Errc::kNoMemory, "there is no memory for the rings of a capture");
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem, std::string("the thread of a capture: ") + error.what());
  }
}

Capture::Capture(std::string name, base::Fd file, const CaptureOptions& options, size_t cores)
    : name_(std::move(name)),
      file_(std::move(file)),
      most_bytes_(options.file_bytes),
      frames_(real_minus_monotonic_ns()) {
  for (size_t i = 0; i < cores; ++i)
    cores_.push_back(std::make_unique<CoreCapture>(options, ended_));
  const base::SignalsBlocked blocked;
  writer_ = std::thread([this] {
    run_anywhere();
    run();
  });
  pthread_setname_np(writer_.native_handle(), "rrdk-capture");
}

Capture::~Capture() {
  finish();
}

void Capture::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
}

void Capture::finish() {
  if (!writer_.joinable())
    return;
  stop();
  writer_.join();
}

CaptureCounts Capture::counts() const noexcept {
  CaptureCounts all;
  for (const auto& core : cores_) {
    const CaptureCounts counts = core->counts();
    all.captured += counts.captured;
    all.lost += counts.lost;
  }
  const uint64_t not_written = not_written_.load(std::memory_order_relaxed);
  all.captured -= std::min(all.captured, not_written);
  all.lost += not_written;
  return all;
}

void Capture::run() {
  try {
    for (bool stop = false; !stop;) {
      while (drain())
        continue;
      std::unique_lock lock(mutex_);
      stop = wake_.wait_for(lock, kPause, [this] { return stop_; });
    }
    while (drain())
      continue;
    const CaptureCounts all = counts();
    frames_.add_statistics(all.captured, all.lost);
    write_out();
    close_file(all.captured);
  } catch (const std::bad_alloc&) {
    end_file("there is no memory left");
  }
  done_.store(true, std::memory_order_release);
}

// Takes a part of each core's events, so that a busy core does not keep the others waiting.
bool Capture::drain() {
  bool some = false;
  for (const auto& core : cores_) {
    EventRing& events = core->events();
    for (size_t i = 0; i < kEventsAtOnce; ++i) {
      const CaptureEvent* const event = events.front();
      if (event == nullptr)
        break;
      some = true;
      add(*event);
      events.pop();
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  write_out();
  return some;
}

void Capture::add(const CaptureEvent& event) {
  const size_t before = frames_.out().size();
  const bool ended = ended_.load(std::memory_order_relaxed);
  if (!ended)
    frames_.add(event);
  if (!ended && written_ + frames_.out().size() + kEndBytes > most_bytes_) {
    frames_.out().resize(before);
    end_file("it would be longer than CaptureOptions::file_bytes");
  }
  if (event.what != What::kConnection && event.what != What::kGone) {
    if (ended_.load(std::memory_order_relaxed))
      not_written_.fetch_add(1, std::memory_order_relaxed);
    else
      ++buffered_;
  }
  if (frames_.out().size() >= kWriteBytes)
    write_out();
}

// Once: events from here on are counted as lost.
void Capture::end_file(const std::string& why) {
  ended_.store(true, std::memory_order_relaxed);
  base::log_error("the capture %s ends here: %s", name_.c_str(), why.c_str());
}

// A file server may report only now that it has no space. It does not say which messages it has.
void Capture::close_file(uint64_t captured) {
  if (::close(file_.release()) == 0 || broken_)
    return;
  not_written_.fetch_add(captured, std::memory_order_relaxed);
  end_file(base::system_message(errno));
}

// A message that was written in part is removed from the file, which then ends with a whole
// message.
void Capture::write_out() {
  const uint64_t before = written_;
  std::span<const std::byte> left = std::as_bytes(std::span(frames_.out()));
  while (!left.empty() && !broken_) {
    const ssize_t written = ::write(file_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      broken_ = true;
      not_written_.fetch_add(buffered_, std::memory_order_relaxed);
      end_file(base::system_message(errno));
      (void)!::ftruncate(file_.get(), static_cast<off_t>(before));
      break;
    }
    progress_.fetch_add(1, std::memory_order_relaxed);
    left = left.subspan(static_cast<size_t>(written));
    written_ += static_cast<uint64_t>(written);
  }
  frames_.out().clear();
  buffered_ = 0;
}

}  // namespace rrdk::observe

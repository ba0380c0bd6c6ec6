// Captures of a Runtime (rrdk/capture.h): which messages they see, and how they begin and end.
#include "observe/capture.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "base/rcu.h"
#include "engine/receive_queue.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"
#include "runtime/runtime_impl.h"

namespace rrdk {

namespace runtime {

namespace {

// Returns what a Receive holds, before anything has examined it.
std::span<const std::byte> message_of(const fabric::Completion& completion) {
  const engine::WorkTag& tag = engine::WorkTag::of(completion.wr_id);
  if (completion.status != fabric::WcStatus::kSuccess || tag.kind != engine::WorkKind::kReceive)
    return {};
  const Buffer& buffer = static_cast<const engine::ReceiveSlot*>(tag.owner)->buffer;
  return {buffer.data(), std::min(completion.byte_length, buffer.capacity())};
}

}  // namespace

uint32_t CoreTap::filter(std::span<fabric::Completion> out, uint32_t count) {
  if (faults_.engaged())
    count = faults_.filter(out, count);
  observe::CoreCapture* const seen_by = capture();
  if (seen_by == nullptr)
    return count;
  for (const fabric::Completion& completion : out.first(count)) {
    const auto& link = *static_cast<const Link*>(completion.owner);
    seen_by->on_completion(link.captured(), completion, message_of(completion));
  }
  return count;
}

// While faults are injected, a capture shows only what completes. A queue pair that is closing
// takes requests in order to flush them; these are not shown.
uint32_t CoreTap::post(void* owner, fabric::QueuePair& queue_pair,
                       std::span<const fabric::SendWr> wrs) {
  auto& link = *static_cast<Link*>(owner);
  if (faults_.engaged())
    return faults_.post(link, queue_pair, wrs);
  const uint32_t taken = queue_pair.post_send(wrs);
  observe::CoreCapture* const seen_by = capture();
  if (seen_by != nullptr && link.state() == LinkState::kUp)
    seen_by->on_posted(link.captured(), wrs.first(taken));
  return taken;
}

}  // namespace runtime

Result<void> Runtime::Impl::start_capture(const std::string& file, const CaptureOptions& wanted) {
  {
    std::lock_guard lock(capture_mutex);
    if (capture != nullptr || capture_changes)
      return fail(
          Errc::kInvalidArgument,
          "a capture of this Runtime is in progress, begins or ends: stop_capture() ends it");
    capture_changes = true;
  }
  auto started = observe::Capture::start(file, wanted, cores.size());  // opening can take long
  {
    std::lock_guard lock(capture_mutex);
    capture_changes = false;
    if (!started)
      return tl::unexpected(started.error());
    capture = std::move(*started);
    for (size_t i = 0; i < cores.size(); ++i)
      cores[i]->tap().set_capture(&capture->core(i));
  }
  place_taps();
  return {};
}

// Waits no longer than a destructor would for a core whose pass does not end, or a file that takes
// nothing. What they may still use is kept then.
CaptureCounts Runtime::Impl::stop_capture() {
  std::unique_ptr<observe::Capture> stopped;
  {
    std::lock_guard lock(capture_mutex);
    stopped = std::exchange(capture, nullptr);
    if (stopped == nullptr)
      return {};
    capture_changes = true;
    for (auto& core : cores)
      core->tap().set_capture(nullptr);
  }
  const base::GracePeriod grace;
  const bool unused = wait_patiently([&] { return grace.over(); },
                                     "Runtime::stop_capture() waits for a core's pass to end");
  stopped->stop();
  const bool written = wait_until_written(*stopped);
  if (written)
    stopped->finish();
  else
    base::log_error("Runtime::stop_capture(): its file takes nothing; it does not wait any longer");
  const CaptureCounts counts = stopped->counts();
  if (!unused || !written)
    base::keep_for_good(std::move(stopped));
  std::lock_guard lock(capture_mutex);
  capture_changes = false;
  return counts;
}

bool Runtime::Impl::wait_until_written(const observe::Capture& stopped) {
  uint64_t seen;
  do {
    seen = stopped.progress();
    if (wait_until([&] { return stopped.stopped(); }, base::Tsc::now_ns() + patience_ns))
      return true;
  } while (stopped.progress() != seen);
  return false;
}

// If the helper thread cannot be started, the capture is not started either, since it could not be
// stopped.
void Runtime::start_capture(const std::string& file, const CaptureOptions& options,
                            CaptureStarted started, void* argument) {
  Impl& runtime = *impl_;
  auto tell = [&runtime, started, argument](Result<void> outcome) {
    runtime.cores[0]->post([started, argument, outcome = std::move(outcome)]() mutable {
      started(std::move(outcome), argument);
    });
  };
  auto asked = runtime.run_aside(
      [&runtime, file, options, tell] { tell(runtime.start_capture(file, options)); });
  if (!asked)
    tell(std::move(asked));
}

void Runtime::stop_capture(CaptureStopped stopped, void* argument) {
  Impl& runtime = *impl_;
  auto tell = [&runtime, stopped, argument](const CaptureCounts& counts) {
    runtime.cores[0]->post([stopped, argument, counts] { stopped(counts, argument); });
  };
  if (!runtime.run_aside([&runtime, tell] { tell(runtime.stop_capture()); }))
    tell({});
}

Result<void> Runtime::start_capture(const std::string& file, const CaptureOptions& options) {
  return impl_->start_capture(file, options);
}

CaptureCounts Runtime::stop_capture() {
  return impl_->stop_capture();
}

CaptureCounts Runtime::capture_counts() const {
  std::lock_guard lock(impl_->capture_mutex);
  return impl_->capture != nullptr ? impl_->capture->counts() : CaptureCounts();
}

}  // namespace rrdk

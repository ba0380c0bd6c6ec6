#include "base/assert.h"
#include "runtime/timers.h"

namespace rrdk::runtime {

void Timers::start(Timer& timer, uint64_t due_ns) noexcept {
  RRDK_ASSERT(!timer.running() && timer.fire != nullptr, timer.place);
  timer.due_ns = due_ns;
  // datapath-allow: grows only with the number of timers that run at once
  heap_.push_back(&timer);
  sift_up(heap_.size() - 1);
}

void Timers::cancel(Timer& timer) noexcept {
  if (!timer.running())
    return;
  size_t place = timer.place;
  RRDK_ASSERT(place < heap_.size() && heap_[place] == &timer, place);
  timer.place = UINT32_MAX;
  Timer* last = heap_.back();
  heap_.pop_back();
  if (last == &timer)
    return;
  put(place, last);
  sift_up(place);
  sift_down(last->place);
}

uint32_t Timers::fire_due(uint64_t now_ns) noexcept {
  if (!budget_.may_begin(base::SlowWork::kTimers))
    return 0;
  uint32_t count = 0;
  do {
    Timer* timer = heap_.front();
    cancel(*timer);
    timer->fire(*timer);
    ++count;
  } while (count < kMostPerPass && peek(now_ns) && budget_.may_go_on());
  return count;
}

void Timers::put(size_t place, Timer* timer) noexcept {
  heap_[place] = timer;
  timer->place = static_cast<uint32_t>(place);
}

void Timers::sift_up(size_t place) noexcept {
  Timer* timer = heap_[place];
  while (place > 0) {
    size_t parent = (place - 1) / 2;
    if (heap_[parent]->due_ns <= timer->due_ns)
      break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, timer);
}

void Timers::sift_down(size_t place) noexcept {
  Timer* timer = heap_[place];
  while (true) {
    size_t child = 2 * place + 1;
    if (child >= heap_.size())
      break;
    if (child + 1 < heap_.size() && heap_[child + 1]->due_ns < heap_[child]->due_ns)
      ++child;
    if (timer->due_ns <= heap_[child]->due_ns)
      break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, timer);
}

}  // namespace rrdk::runtime

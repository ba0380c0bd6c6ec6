// A device's control path with a budget that a slow step exceeds: what is put off is not forgotten.
#include "drivers/common/control_loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>

#include "base/budget.h"
#include "base/clock.h"
#include "base/count.h"
#include "base/system.h"
#include "rrdk/error.h"

namespace rrdk::drivers {
namespace {

constexpr uint32_t kBudgetUs = 1000;  // more than a pass without slow steps takes

class Probe : public Endpoint {
 public:
  explicit Probe(ControlLoop& loop) : loop_(loop) { must(loop.watch(*this, fd_.get(), EPOLLIN)); }
  ~Probe() override { loop_.forget(*this); }

  void make_ready() { ASSERT_EQ(::eventfd_write(fd_.get(), 1), 0); }
  void on_ready() override {
    eventfd_t value;
    ::eventfd_read(fd_.get(), &value);
    ++served;
    if (when_ready)
      when_ready();
  }
  void on_tick(Clock::time_point) override { ++ticks; }

  std::function<void()> when_ready;
  int served = 0, ticks = 0;

 private:
  ControlLoop& loop_;
  base::Fd fd_{::eventfd(0, EFD_NONBLOCK)};
};

struct Loop : ControlLoop {
  explicit Loop(uint32_t budget_us = kBudgetUs) : budget(budget_us, passes) { must(start()); }
  // One pass. Returns whether the core could sleep without forgetting anything.
  bool pass() {
    ++passes;
    poll_events(64, budget);
    pollfd wanted = {event_fd(), POLLIN, 0};
    return ::poll(&wanted, 1, 0) == 0;
  }

  base::Count passes;
  base::Budget budget;
};

void slow_step() {
  const uint64_t end = base::Tsc::now_ns() + 2 * kBudgetUs * 1000;
  while (base::Tsc::now_ns() < end) {
  }
}

// A nudge that comes between the ticks and the end of a pass is for the next pass.
TEST(ControlLoop, TicksWhatIsNudgedBehindTheTicks) {
  Loop loop;
  Probe slow(loop), nudged(loop);
  slow.when_ready = slow_step;
  slow.make_ready();
  EXPECT_FALSE(loop.pass()) << "the ticks were put off: they come first in the next pass";
  nudged.when_ready = [&] { loop.nudge(nudged); };
  nudged.make_ready();
  for (int pass = 0; pass < 10 && nudged.ticks == 0; ++pass)
    ASSERT_TRUE(!loop.pass() || nudged.ticks != 0) << "a core that sleeps now forgets a nudge";
  EXPECT_EQ(nudged.served, 1);
  EXPECT_EQ(nudged.ticks, 1);
}

// A system call alone takes longer than this budget. A core may sleep nevertheless.
TEST(ControlLoop, IsQuietOnceNothingIsLeft) {
  Loop loop(1);
  Probe nudged(loop);
  loop.nudge(nudged);
  int pass = 0;
  while (!loop.pass() && pass < 100)
    ++pass;
  EXPECT_LT(pass, 100);
  EXPECT_NE(nudged.ticks, 0);
}

// However many are nudged, those that only tick have their turn.
TEST(ControlLoop, NudgesDoNotKeepTheOthersFromTicking) {
  Loop loop;
  Probe patient(loop), busy(loop);
  loop.set_ticking(patient, true);
  for (int pass = 0; pass < 1000 && patient.ticks == 0; ++pass) {
    loop.nudge(busy);
    loop.pass();
    pollfd timer = {loop.event_fd(), POLLIN, 0};
    ::poll(&timer, 1, 1);
  }
  EXPECT_NE(patient.ticks, 0);
}

}  // namespace
}  // namespace rrdk::drivers

// Detects that a peer's host has gone while data is in flight to it. TCP's own limits do not:
// TCP_USER_TIMEOUT also ends the connection to a peer that acknowledges everything and only has no
// buffer space, since its process is stopped; without it TCP tries for a quarter of an hour. For an
// idle connection there is TCP's keepalive, which asks hosts and not processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/system.h"
#include "drivers/common/control_loop.h"
#include "drivers/iwarp/address.h"

namespace rrdk::iwarp {

class QueuePair;

// For one connection.
class Silence {
 public:
  // A connection ends within `limit`: there must be a look before the rest of that time is over.
  explicit Silence(std::chrono::seconds limit = kSilence)
      : look_every_(drivers::Clock::duration(limit) / 6), most_(5 * look_every_) {}

  drivers::Clock::duration look_every() const { return look_every_; }
  // Called at looks some seconds apart: `unanswered` segments were sent again, or asked for buffer
  // space, and nothing has come for `since_heard`. Returns true if the host has been silent long
  // enough to be considered gone. One unanswered segment is not enough: after a long wait for
  // buffer space TCP asks only every two minutes.
  bool look(uint32_t unanswered, std::chrono::milliseconds since_heard,
            drivers::Clock::time_point now) {
    if (unanswered == 0 || !silent_ || since_heard < now - since_) {
      silent_ = unanswered != 0;
      since_ = now;
      return false;
    }
    return unanswered >= 2 && now - since_ >= most_;
  }

 private:
  drivers::Clock::duration look_every_;
  drivers::Clock::duration most_;
  bool silent_ = false;
  drivers::Clock::time_point since_;
};

// Looks at a device's connections, each as often as the most impatient one requires. Under the
// control loop's lock.
class SilenceWatch final : public drivers::Endpoint {
 public:
  explicit SilenceWatch(drivers::ControlLoop& control) : control_(control) {}
  ~SilenceWatch() override { control_.forget(*this); }

  Result<void> start();
  void add(QueuePair& qp, drivers::Clock::duration look_every);
  void remove(QueuePair& qp);

  void on_ready() override;
  void on_tick(drivers::Clock::time_point) override {}

 private:
  void arm();

  drivers::ControlLoop& control_;
  base::Fd timer_;  // runs while there are connections
  drivers::Clock::duration look_every_{};
  std::vector<QueuePair*> connections_;
  size_t next_ = 0;  // the next one to be looked at
};

}  // namespace rrdk::iwarp

// An attempt to connect to one of the addresses of a peer: TCP first, then the MPA request and the
// reply. Several can be in progress for one queue pair.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/system.h"
#include "drivers/common/control_loop.h"
#include "drivers/iwarp/address.h"
#include "drivers/iwarp/mpa.h"

namespace rrdk::iwarp {

class Device;
class Attempt;

// The object for which attempts are made. Each call except the first may end the attempt.
class Dialler {
 public:
  virtual void on_tcp_up(Attempt& attempt) = 0;
  virtual void on_failed(Attempt& attempt, const Error& why) = 0;
  virtual void on_reply(Attempt& attempt, const MpaFrame& reply) = 0;

 protected:
  ~Dialler() = default;
};

class Attempt final : public drivers::Endpoint {
 public:
  // `asked`, which must outlive it, says how; `far` is the address.
  Attempt(Device& device, Dialler& dialler, const Endpoint4Or6& far, const Address& asked)
      : device_(device), dialler_(dialler), far_(far), asked_(asked) {}
  ~Attempt() override;

  // `request` is sent when TCP is connected, which on this host happens at once. Errors: immediate
  // failures.
  Result<void> start(std::vector<std::byte> request);
  const Endpoint4Or6& far() const { return far_; }
  bool tcp_up() const { return tcp_up_; }
  base::Fd take_socket();

  void on_ready() override;
  void on_tick(drivers::Clock::time_point) override {}

 private:
  Result<bool> dial();
  Result<void> ask();
  void read_reply();

  Device& device_;
  Dialler& dialler_;
  const Endpoint4Or6 far_;
  const Address& asked_;
  base::Fd socket_;
  bool tcp_up_ = false;
  std::vector<std::byte> request_;
  std::vector<std::byte> reply_;  // the part that has arrived
};

}  // namespace rrdk::iwarp

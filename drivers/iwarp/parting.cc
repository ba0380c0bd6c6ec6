#include "drivers/iwarp/parting.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "drivers/iwarp/device.h"

namespace rrdk::iwarp {

namespace {

constexpr std::chrono::seconds kPartingTime{2};
// Sockets that are parting at once; one more replaces the one that has had the most time.
constexpr size_t kMaxParting = 1024;
// Reads of data that is discarded before others have their turn.
constexpr int kMostReads = 4;
constexpr size_t kMostDiscarded = 64 << 10;

class Parting final : public drivers::Endpoint {
 public:
  Parting(Device& device, base::Fd socket, std::vector<std::byte> rest)
      : device_(device),
        socket_(std::move(socket)),
        rest_(std::move(rest)),
        deadline_(drivers::Clock::now() + kPartingTime),
        place_(device.partings().insert(device.partings().end(), this)) {}
  ~Parting() override {
    device_.partings().erase(place_);
    device_.control().forget(*this);
  }

  // Returns false if it is already over.
  bool start() {
    if (!send_rest() || !device_.control().watch(*this, socket_.get(), interest()))
      return false;
    device_.control().set_ticking(*this, true);
    return true;
  }

  void on_ready() override {
    const bool sending = !closed_;
    if (!send_rest() || !discard()) {
      device_.control().release(*this);  // destroys *this
      return;
    }
    if (sending && closed_)
      device_.control().change(*this, socket_.get(), interest());
  }

  void on_tick(drivers::Clock::time_point now) override {
    if (now > deadline_)
      device_.control().release(*this);  // destroys *this
  }

 private:
  uint32_t interest() const { return closed_ ? EPOLLIN : EPOLLIN | EPOLLOUT; }

  bool send_rest() {
    while (!closed_) {
      const std::span<const std::byte> left = std::span(rest_).subspan(sent_);
      if (left.empty()) {
        closed_ = true;
        return ::shutdown(socket_.get(), SHUT_WR) == 0;
      }
      const ssize_t taken =
          ::send(socket_.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (taken < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      sent_ += static_cast<size_t>(taken);
    }
    return true;
  }

  bool discard() {
    for (int i = 0; i != kMostReads; ++i) {
      // MSG_TRUNC: TCP copies nothing (tcp(7)).
      const ssize_t got = ::recv(socket_.get(), nullptr, kMostDiscarded, MSG_DONTWAIT | MSG_TRUNC);
      if (got == 0)
        return false;
      if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    }
    return true;
  }

  Device& device_;
  base::Fd socket_;
  std::vector<std::byte> rest_;
  size_t sent_ = 0;
  bool closed_ = false;  // our half
  drivers::Clock::time_point deadline_;
  std::list<drivers::Endpoint*>::iterator place_;
};

}  // namespace

void part(Device& device, base::Fd socket, std::vector<std::byte> rest) {
  if (device.partings().size() >= kMaxParting)
    cut_parting(device);
  auto parting = std::make_unique<Parting>(device, std::move(socket), std::move(rest));
  if (parting->start())
    device.control().adopt(std::move(parting));
}

bool cut_parting(Device& device) {
  if (device.partings().empty())
    return false;
  Counters::count(device.counts().partings_cut);
  device.control().release(*device.partings().front());
  return true;
}

}  // namespace rrdk::iwarp

#include "drivers/iwarp/attempt.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "drivers/iwarp/congestion.h"
#include "drivers/iwarp/device.h"

namespace rrdk::iwarp {

namespace {

int error_of(int socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

tl::unexpected<Error> dial_error(int error) {
  return fail(drivers::code_of(error),
              std::string(std::strerror(error)) +
                  (error == ECONNREFUSED ? ": no server listens there" : ""));
}

}  // namespace

Attempt::~Attempt() {
  device_.control().forget(*this);
}

base::Fd Attempt::take_socket() {
  device_.control().unwatch(socket_.get());
  device_.control().forget(*this);
  return std::move(socket_);
}

Result<void> Attempt::start(std::vector<std::byte> request) {
  request_ = std::move(request);
  const Result<bool> up = dial();
  if (!up)
    return tl::unexpected(up.error());
  return device_.control().watch(*this, socket_.get(), EPOLLOUT).and_then([&] {
    return *up ? ask() : Result<void>();
  });
}

// Returns whether the connection is already established.
Result<bool> Attempt::dial() {
  const int family = far_.storage.ss_family;
  socket_ = base::Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_)
    return base::system_failure("socket");
  tune(socket_.get(), asked_.silence);
  if (asked_.congestion.empty())
    set_congestion_of_host(socket_.get(), far_);
  else if (Result<void> set = set_congestion(socket_.get(), asked_.congestion); !set)
    return tl::unexpected(set.error());
  int error = ::connect(socket_.get(), far_.get(), far_.length) == 0 ? 0 : errno;
  // A peer on this host has answered by now.
  pollfd writable{socket_.get(), POLLOUT, 0};
  if (error == EINPROGRESS && ::poll(&writable, 1, 0) == 1)
    error = error_of(socket_.get());
  if (error == 0 || error == EINPROGRESS)
    return error == 0;
  return dial_error(error);
}

// A socket that has carried nothing yet takes all bytes.
Result<void> Attempt::ask() {
  const ssize_t sent =
      ::send(socket_.get(), request_.data(), request_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request_.size()))
    return fail(Errc::kConnectionLost, "the MPA request could not be sent");
  tcp_up_ = true;
  device_.control().change(*this, socket_.get(), EPOLLIN);
  dialler_.on_tcp_up(*this);
  return {};
}

void Attempt::on_ready() {
  if (tcp_up_)
    return read_reply();
  const int error = error_of(socket_.get());
  const Result<void> asked = error != 0 ? dial_error(error) : ask();
  if (!asked)
    dialler_.on_failed(*this, asked.error());
}

// Not a byte more than the reply: what follows belongs to the data path.
void Attempt::read_reply() {
  for (;;) {
    uint32_t wanted = kMpaHeader;
    uint32_t rest = 0;
    if (reply_.size() >= kMpaHeader) {
      const MpaVerdict verdict =
          check_header(std::span(reply_).first<kMpaHeader>(), MpaKind::kReply, rest);
      if (verdict != MpaVerdict::kOk)
        return dialler_.on_failed(
            *this, {Errc::kNotAPeer, std::string("the answer is ") + to_string(verdict)});
      wanted += rest;
    }
    if (reply_.size() >= kMpaHeader && reply_.size() == wanted) {
      MpaFrame frame;
      (void)decode(reply_, MpaKind::kReply, frame);
      return dialler_.on_reply(*this, frame);
    }
    std::array<std::byte, kMpaHeader + kMpaMaxPrivate> bytes;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), wanted - reply_.size(), MSG_DONTWAIT);
    if (got > 0) {
      reply_.insert(reply_.end(), bytes.begin(), bytes.begin() + got);
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
      return;
    return dialler_.on_failed(
        *this,
        got == 0 ? Error{Errc::kConnectionLost, "the peer closed the connection without an answer"}
                 : Error{drivers::code_of(errno), std::strerror(errno)});
  }
}

}  // namespace rrdk::iwarp

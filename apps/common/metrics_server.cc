#include "metrics_server.h"

#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <list>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace rrdk::apps {
namespace {

using Clock = std::chrono::steady_clock;
using Text = std::shared_ptr<const std::string>;

constexpr size_t kMostConnections = 64;
constexpr size_t kMostRequest = 8192;
constexpr size_t kMostAddresses = 8;                  // of a name
constexpr auto kMostTime = std::chrono::seconds(10);  // of a connection; Prometheus waits as long
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr std::string_view kPath = "/metrics";

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0)
      close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool is_same(std::string_view text, std::string_view lower) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(text, lower, {}, small);
}

// Removes the part up to `end` from `text`, and returns it without blanks around it.
std::string_view take_part(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  part.remove_prefix(std::min(part.find_first_not_of(" \t\r"), part.size()));
  return part.substr(0, part.find_last_not_of(" \t\r") + 1);
}

// The head of a request: "GET /metrics?x HTTP/1.1", and lines of headers.
struct Request {
  explicit Request(std::string_view head) {
    const std::string_view line = take_part(head, '\n');
    const size_t first = line.find(' '), last = line.rfind(' ');
    is_one = first != 0 && last != std::string_view::npos && first < last &&
             line.substr(last + 1).starts_with("HTTP/");
    if (!is_one)
      return;
    is_version_1 = line.substr(last + 1).starts_with("HTTP/1.");
    method = line.substr(0, first);
    const std::string_view target = line.substr(first + 1, last - first - 1);
    path = target.substr(0, target.find('?'));
    while (!head.empty()) {
      std::string_view value = take_part(head, '\n');
      const std::string_view name = take_part(value, ':');
      if (is_same(name, "accept"))
        accept += (accept.empty() ? "" : ",") + std::string(value);
      else if (is_same(name, "accept-encoding"))
        takes_gzip = takes_gzip || has_gzip(value);
    }
  }

  // "gzip;q=0" refuses it.
  static bool has_gzip(std::string_view list) {
    while (!list.empty()) {
      std::string_view one = take_part(list, ',');
      if (is_same(take_part(one, ';'), "gzip"))
        return one.empty() || one.find_first_of("123456789") != std::string_view::npos;
    }
    return false;
  }

  bool is_one = false;
  bool is_version_1 = false;
  bool takes_gzip = false;
  std::string_view method, path;
  std::string accept;
};

struct Answer {
  const char* content_type = "";
  bool for_gzip = false;
  bool is_packed = false;
  Text body;  // null: there is no memory for it
};

// Compresses by gzip. Returns an empty string on failure.
std::string packed(const std::string& text) {
  constexpr size_t kMostAdded = 512;  // to incompressible data, besides 5 bytes for each 64 KiB
  std::string to(text.size() + text.size() / 8192 + kMostAdded, '\0');
  std::string work(ISAL_DEF_LVL1_DEFAULT, '\0');
  isal_zstream stream = {};
  isal_deflate_stateless_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.level = 1;
  stream.level_buf = reinterpret_cast<uint8_t*>(work.data());
  stream.level_buf_size = static_cast<uint32_t>(work.size());
  stream.end_of_stream = 1;
  // igzip only reads it.
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uint32_t>(text.size());
  stream.next_out = reinterpret_cast<uint8_t*>(to.data());
  stream.avail_out = static_cast<uint32_t>(to.size());
  if (isal_deflate_stateless(&stream) != COMP_OK)
    return "";
  to.resize(stream.total_out);
  return to;
}

// What was answered since the last forget(): the metrics are read once for each format, and
// compressed once, however many readers ask, and whatever their headers look like.
class Answers {
 public:
  explicit Answers(const Telemetry& telemetry) : telemetry_(telemetry) {}

  void forget() { made_.clear(); }

  Answer to(std::string_view accept, bool takes_gzip) {
    try {
      const char* const content_type = Telemetry::content_type(accept);
      const Answer* plain = find(content_type, false);
      if (plain == nullptr) {
        auto text = std::make_shared<const std::string>(telemetry_.answer(accept).text);
        plain = &made_.emplace_back(Answer{content_type, false, false, std::move(text)});
      }
      if (!takes_gzip)
        return *plain;
      if (const Answer* made = find(content_type, true))
        return *made;
      auto text = std::make_shared<const std::string>(packed(*plain->body));
      const bool is_packed = !text->empty();
      if (!is_packed)
        text = plain->body;
      return made_.emplace_back(Answer{content_type, true, is_packed, std::move(text)});
    } catch (const std::bad_alloc&) {
      return {};
    }
  }

 private:
  const Answer* find(std::string_view content_type, bool for_gzip) const {
    const auto found = std::ranges::find_if(made_, [&](const Answer& one) {
      return one.content_type == content_type && one.for_gzip == for_gzip;
    });
    return found != made_.end() ? &*found : nullptr;
  }

  const Telemetry& telemetry_;
  std::vector<Answer> made_;
};

// Reads until the end of the request's head, writes the answer, and then waits until the peer has
// taken it: a close with bytes that were not read would take it away from it.
class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)), end_(Clock::now() + kMostTime) {}

  int fd() const { return socket_.fd(); }
  short wants() const { return writes() ? POLLOUT : POLLIN; }
  bool waits() const { return head_.empty(); }  // for its request
  bool writes() const { return !waits() && !is_answered(); }
  bool over() const { return over_ || Clock::now() >= end_; }
  Clock::time_point end() const { return end_; }

  // Makes progress as far as possible without waiting. `make` returns the answer to a request.
  template <typename Make>
  void step(Make&& make) {
    if (waits())
      read_request(make);
    if (writes())
      write();
    if (is_answered())
      discard();
  }

 private:
  bool is_answered() const {
    return !waits() && written_ == head_.size() + (body_ != nullptr ? body_->size() : 0);
  }

  // Returns the number of bytes received, which may be 0. When the peer closes, and on an error,
  // this connection ends.
  size_t receive(char* to, size_t size) {
    const ssize_t n = recv(fd(), to, size, 0);
    over_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    return n > 0 ? static_cast<size_t>(n) : 0;
  }

  template <typename Make>
  void read_request(Make&& make) {
    char part[2048];
    while (const size_t n = receive(part, sizeof part)) {
      request_.append(part, n);
      const bool whole = request_.find("\r\n\r\n") != std::string::npos ||
                         request_.find("\n\n") != std::string::npos;
      if (whole)
        return answer(Request(request_), make);
      if (request_.size() > kMostRequest)
        return refuse("431 Request Header Fields Too Large", Request(request_));
    }
  }

  template <typename Make>
  void answer(const Request& request, Make&& make) {
    if (!request.is_one)
      return refuse("400 Bad Request", request);
    if (!request.is_version_1)
      return refuse("505 HTTP Version Not Supported", request);
    if (request.path != kPath)
      return refuse("404 Not Found", request);
    if (request.method != "GET" && request.method != "HEAD")
      return refuse("405 Method Not Allowed", request, "Allow: GET, HEAD\r\n");
    const Answer made = make(request);
    body_ = made.body;
    if (body_ == nullptr)
      return refuse("503 Service Unavailable", request);
    begin_answer("200 OK",
                 std::string("Content-Type: ") + made.content_type + "\r\n" +
                     (made.is_packed ? "Content-Encoding: gzip\r\n" : "") +
                     "Vary: Accept, Accept-Encoding\r\n",
                 request);
  }

  void refuse(const char* status, const Request& request, const std::string& more = "") {
    body_ = std::make_shared<const std::string>(std::string(status) + "\n");
    begin_answer(status, "Content-Type: text/plain\r\n" + more, request);
  }

  void begin_answer(const char* status, const std::string& more, const Request& request) {
    head_ = std::string("HTTP/1.1 ") + status +
            "\r\nContent-Length: " + std::to_string(body_->size()) + "\r\nConnection: close\r\n" +
            more + "\r\n";
    if (request.method == "HEAD")
      body_ = nullptr;
  }

  void write() {
    while (!is_answered()) {
      std::string_view left = head_;
      if (written_ < head_.size())
        left.remove_prefix(written_);
      else
        left = std::string_view(*body_).substr(written_ - head_.size());
      const ssize_t n = send(fd(), left.data(), left.size(), MSG_NOSIGNAL);
      if (n < 0) {
        over_ = errno != EAGAIN && errno != EINTR;
        return;
      }
      written_ += static_cast<size_t>(n);
    }
    shutdown(fd(), SHUT_WR);
  }

  void discard() {
    char part[2048];
    for (int i = 0; i < 16 && receive(part, sizeof part) != 0; ++i)
      continue;
  }

  Socket socket_;
  Clock::time_point end_;
  bool over_ = false;
  std::string request_;
  std::string head_;  // of the answer; empty until a request is complete
  Text body_;
  size_t written_ = 0;
};

std::string system_text(int error) {
  return std::system_category().message(error);
}

// HOST, with or without brackets, and PORT.
struct Address {
  std::string host, port;
  std::string name() const {
    return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
  }
};

Result<Address> parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  Address address = {colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon),
                     text.substr(colon == std::string::npos ? 0 : colon + 1)};
  const std::string& port = address.port;
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  // An IPv6 address without brackets could be read in two ways.
  const bool bare = address.name().find(':') != std::string::npos && address.name() == address.host;
  if (address.name().empty() || port.empty() || error != std::errc() ||
      end != port.data() + port.size() || bare)
    return fail(Errc::kBadUri, "'" + text + "' is neither PORT nor HOST:PORT");
  return address;
}

uint16_t port_of(const Socket& listener) {
  sockaddr_storage at = {};
  socklen_t size = sizeof at;
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    return 0;
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&at)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&at)->sin_port);
}

// An error is in errno.
Socket listen_at(const addrinfo& at, uint16_t port) {
  sockaddr_storage address = {};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  if (port != 0 && at.ai_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = htons(port);
  if (port != 0 && at.ai_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(port);
  Socket listener(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (listener.fd() < 0 ||
      setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) != 0 ||
      listen(listener.fd(), 128) != 0)
    return Socket(-1);
  return listener;
}

// Listens at each address of the host that belongs to this machine, at one port.
Result<std::vector<Socket>> listen_at(const Address& address) {
  const std::string where = "metrics cannot be served at " + address.host + ":" + address.port;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.name().c_str(), address.port.c_str(), &hints, &found);
  if (error != 0)
    return fail(Errc::kSystem, where + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  std::vector<Socket> listeners;
  int reason = 0;
  for (const addrinfo* at = all.get(); at != nullptr && listeners.size() < kMostAddresses;
       at = at->ai_next) {
    Socket listener = listen_at(*at, listeners.empty() ? 0 : port_of(listeners.front()));
    if (listener.fd() >= 0)
      listeners.push_back(std::move(listener));
    else if (reason = errno; reason != EADDRNOTAVAIL && reason != EAFNOSUPPORT)
      return fail(Errc::kSystem, where + ": " + system_text(reason));
  }
  if (listeners.empty())
    return fail(Errc::kSystem, where + ": " + system_text(reason));
  return listeners;
}

// Makes the server's thread take no signals, which are for the program's threads, and run on any
// CPU: the affinity inherited from a pinned thread would keep it on a CPU that polls.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

void run_anywhere() {
  cpu_set_t any;
  CPU_ZERO(&any);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    CPU_SET(cpu, &any);
  pthread_setaffinity_np(pthread_self(), sizeof any, &any);
}

}  // namespace

class MetricsServer::Loop {
 public:
  Loop(std::vector<Socket> listeners, Socket stop, std::string url, const Telemetry& telemetry)
      : listeners_(std::move(listeners)),
        stop_(std::move(stop)),
        url_(std::move(url)),
        answers_(telemetry) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] {
      run_anywhere();
      while (look_with_little_memory())
        continue;
    });
    pthread_setname_np(thread_.native_handle(), "metrics");
  }
  ~Loop() {
    eventfd_write(stop_.fd(), 1);
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  const std::string& url() const { return url_; }

 private:
  bool look_with_little_memory() {
    try {
      return look();
    } catch (const std::bad_alloc&) {
      connections_.clear();
      return true;
    }
  }

  // Makes one pass. Returns false if the server is to end.
  bool look() {
    answers_.forget();
    std::vector<pollfd> events = {{stop_.fd(), POLLIN, 0}};
    for (const Socket& listener : listeners_)
      events.push_back({listener.fd(), POLLIN, 0});
    for (const Connection& connection : connections_)
      events.push_back({connection.fd(), connection.wants(), 0});
    poll(events.data(), events.size(), wait_ms());
    if (events.front().revents != 0)
      return false;
    for (Connection& connection : connections_)
      step(connection);
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (events[i + 1].revents != 0)
        accept_from(listeners_[i]);
    }
    std::erase_if(connections_, [](const Connection& c) { return c.over(); });
    return true;
  }

  int wait_ms() const {
    if (connections_.empty())
      return -1;
    const auto left = connections_.front().end() - Clock::now();  // the oldest one's
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::max<int64_t>(ms, 0));
  }

  void accept_from(const Socket& listener) {
    for (size_t i = 0; i < kMostConnections; ++i) {
      Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      const bool no_descriptor = socket.fd() < 0 && (errno == EMFILE || errno == ENFILE ||
                                                     errno == ENOBUFS || errno == ENOMEM);
      if (socket.fd() < 0 && !no_descriptor)
        return;
      if (no_descriptor && connections_.empty())
        return std::this_thread::sleep_for(kPause);  // the listener is ready until there is one
      if (no_descriptor || connections_.size() >= kMostConnections)
        make_room();
      if (!no_descriptor)
        step(connections_.emplace_back(std::move(socket)));
    }
  }

  // Closes the oldest connection that has sent nothing so far or has its answer already.
  void make_room() {
    auto oldest = connections_.begin();
    for (; oldest != connections_.end(); ++oldest) {
      step(*oldest);
      if (!oldest->writes())
        break;
    }
    connections_.erase(oldest != connections_.end() ? oldest : connections_.begin());
  }

  void step(Connection& connection) {
    connection.step(
        [this](const Request& request) { return answers_.to(request.accept, request.takes_gzip); });
  }

  const std::vector<Socket> listeners_;
  const Socket stop_;
  const std::string url_;
  std::list<Connection> connections_;  // the oldest first
  Answers answers_;                    // of this pass
  std::thread thread_;
};

MetricsServer::MetricsServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::url() const {
  return loop_->url();
}

Result<void> MetricsServer::check(const std::string& address) {
  return parse(address).map([](const Address&) {});
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            const Telemetry& telemetry) {
  Result<Address> at = parse(address);
  if (!at)
    return tl::unexpected(at.error());
  Result<std::vector<Socket>> listeners = listen_at(*at);
  if (!listeners)
    return tl::unexpected(listeners.error());
  Socket stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop.fd() < 0)
    return fail(Errc::kSystem, "eventfd: " + system_text(errno));
  const std::string url =
      "http://" + at->host + ":" + std::to_string(port_of(listeners->front())) + std::string(kPath);
  try {
    return std::unique_ptr<MetricsServer>(new MetricsServer(
        std::make_unique<Loop>(std::move(*listeners), std::move(stop), url, telemetry)));
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem, std::string("the thread of --metrics: ") + error.what());
  }
}

}  // namespace rrdk::apps

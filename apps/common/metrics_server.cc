#include "metrics_server.h"

#include <pthread.h>
#include <sched.h>

#include <charconv>
#include <csignal>
#include <new>
#include <utility>

#ifdef RRDK_HAS_CIVETWEB
#include <civetweb.h>
#endif

namespace rrdk::apps {

#ifdef RRDK_HAS_CIVETWEB

namespace {

constexpr bool kSupported = true;

// Exceptions do not cross civetweb, which is C.
std::string body_of(const std::function<std::string()>& text) noexcept {
  try {
    return text();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

int answer(mg_connection* connection, void* text) {
  const std::string body = body_of(*static_cast<const std::function<std::string()>*>(text));
  if (body.empty()) {
    mg_send_http_error(connection, 500, "%s", "there is no memory");
    return 500;
  }
  mg_printf(connection,
            "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; "
            "charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
            body.size());
  mg_write(connection, body.data(), body.size());
  return 200;
}

}  // namespace

bool MetricsServer::listen(const std::string& host, const std::string& port) {
  const std::string at = host + ":" + port;
  const char* options[] = {"listening_ports", at.c_str(), "num_threads", "2", nullptr};
  const mg_callbacks callbacks = {};
  // Its threads take no signals, which are for the program's, and run on any CPU: what they inherit
  // from a thread that is pinned would keep them on a CPU that polls.
  sigset_t all, before;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
    sigdelset(&all, fault);
  cpu_set_t any, pinned;
  CPU_ZERO(&any);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    CPU_SET(cpu, &any);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool known = pthread_getaffinity_np(pthread_self(), sizeof pinned, &pinned) == 0;
  if (known)
    pthread_setaffinity_np(pthread_self(), sizeof any, &any);
  context_ = mg_start(&callbacks, nullptr, options);
  if (known)
    pthread_setaffinity_np(pthread_self(), sizeof pinned, &pinned);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  mg_server_port chosen = {};
  if (context_ == nullptr || mg_get_server_ports(context_, 1, &chosen) != 1)
    return false;
  mg_set_request_handler(context_, "/metrics", answer,
                         const_cast<std::function<std::string()>*>(&text_));
  url_ = "http://" + host + ":" + std::to_string(chosen.port) + "/metrics";
  return true;
}

MetricsServer::~MetricsServer() {
  if (context_ != nullptr)
    mg_stop(context_);
}

#else

namespace {
constexpr bool kSupported = false;
}

bool MetricsServer::listen(const std::string&, const std::string&) {
  return false;
}

MetricsServer::~MetricsServer() = default;

#endif

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            std::function<std::string()> text) {
  const size_t colon = address.rfind(':');
  const std::string host = colon == std::string::npos ? "127.0.0.1" : address.substr(0, colon);
  const std::string port = address.substr(colon == std::string::npos ? 0 : colon + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || port.empty() || error != std::errc() || end != port.data() + port.size())
    return fail(Errc::kBadUri, "'" + address + "' is neither PORT nor HOST:PORT");
  if (!kSupported)
    return fail(Errc::kUnsupported,
                "metrics are not served: this program was built without civetweb (Debian: "
                "libcivetweb-dev)");
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(text)));
  if (!server->listen(host, port))
    return fail(Errc::kSystem, "metrics can not be served at " + host + ":" + port +
                                   ": the port is taken, or the host is none of ours");
  return server;
}

}  // namespace rrdk::apps

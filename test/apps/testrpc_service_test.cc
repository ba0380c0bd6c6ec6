// The watchdog of a service: it is told that the service is alive only while the poll cores make
// passes.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "apps/testrpc/service_manager.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

// The socket at which a service manager would listen.
class NotifySocket {
 public:
  NotifySocket() : name_("rrdk-notify-" + std::to_string(getpid())) {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    name_.copy(address.sun_path + 1, sizeof address.sun_path - 2);  // an abstract name
    auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    setenv("NOTIFY_SOCKET", ("@" + name_).c_str(), 1);
    setenv("WATCHDOG_USEC", "2", 1);  // each beat is due
  }
  ~NotifySocket() {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    close(socket_);
  }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // The oldest message not taken yet; empty if there is no such message.
  std::string take() {
    char text[512];
    ssize_t length = recv(socket_, text, sizeof text, MSG_DONTWAIT);
    return length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
  }

 private:
  std::string name_;
  int socket_;
};

TEST(ServiceManager, TellsOfLifeOnlyAfterAPassOfEachCore) {
  must(ensure_eal());
  auto memory = must(Memory::create({.bytes = 64 << 20}));
  auto runtime = must(Runtime::create(*memory, {.embedded_cores = 2}));
  NotifySocket heard;
  ServiceManager manager(*runtime);
  manager.ready("shm:@here");
  if (heard.take().empty())
    GTEST_SKIP() << "built without libsystemd";
  manager.beat();
  EXPECT_EQ(heard.take(), "");
  runtime->poll(0);
  uint64_t later = Runtime::now_ns() + 200'000'000;
  while (Runtime::now_ns() < later)
    manager.beat();
  EXPECT_EQ(heard.take(), "");
  runtime->poll(1);
  while (heard.take() != "WATCHDOG=1")
    manager.beat();
  manager.stopping();
  EXPECT_TRUE(heard.take().starts_with("STOPPING=1"));
}

}  // namespace
}  // namespace rrdk::testrpc

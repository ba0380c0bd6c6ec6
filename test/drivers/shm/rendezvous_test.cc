// What servers and clients may find at the path of an address.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "drivers/shm/handshake.h"
#include "drivers/shm/socket.h"
#include "test/drivers/shm/raw_peer.h"
#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"

namespace rrdk::shm::test {
namespace {

using fabric::EventType;
using fabric::test::End;
using fabric::test::pump_until;

class Rendezvous : public testing::Test {
 protected:
  ~Rendezvous() override { ::unlink(path_.c_str()); }
  // A socket of another program, bound at the path.
  Fd foreign_socket(int type) {
    Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd.get(), 8), 0);
    return fd;
  }
  Errc listen_error() {
    auto listener = end_.device->listen(uri_);
    EXPECT_FALSE(listener);
    return listener ? Errc::kSystem : listener.error().code;
  }
  // How connecting fails, at once or by an event.
  Errc connect_error(const std::string& options = {}) {
    auto qp = end_.queue_pair();
    if (auto connecting = end_.device->connect(*qp, uri_ + options, {}); !connecting)
      return connecting.error().code;
    EXPECT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectFailed); }));
    return end_.take_event(EventType::kConnectFailed).ending.code;
  }
  bool exists() const {
    struct stat st{};
    return ::lstat(path_.c_str(), &st) == 0;
  }

  const std::string uri_ = fabric::test::fabrics()[0].new_uri();
  const std::string path_ = uri_.substr(4);
  End end_{uri_};
};

// Even with a visitor that has connected and was not accepted.
TEST_F(Rendezvous, AnAddressIsFreeWhenItsListenerIsGone) {
  const std::string name = "@rrdk-free-again-" + std::to_string(::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof(address.sun_path));
  address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  for (int i = 0; i < 200; ++i) {
    auto listener = end_.device->listen("shm:" + name);
    ASSERT_TRUE(listener) << i << ": " << listener.error().message;
    const Fd visitor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(visitor.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    listener->reset();
    std::array<std::byte, 1> nothing;
    EXPECT_LE(::recv(visitor.get(), nothing.data(), 1, 0), 0) << "the visitor's connection is over";
  }
}

// The same process is recognised again, and distinguished from another one.
TEST_F(Rendezvous, AProcessHasAnIdentity) {
  auto listener = end_.device->listen(uri_).value();
  auto identity = [&] {
    EXPECT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectRequest); }));
    return end_.take_event(EventType::kConnectRequest).request->identity();
  };
  auto one = end_.queue_pair();
  ASSERT_TRUE(end_.device->connect(*one, uri_, {}));
  const fabric::Identity first = identity();
  auto two = end_.queue_pair();
  ASSERT_TRUE(end_.device->connect(*two, uri_, {}));
  EXPECT_TRUE(first.known());
  EXPECT_EQ(first, identity());
  EXPECT_EQ(first.words[0], static_cast<uint64_t>(getpid()));
  EXPECT_EQ(first.words[1], getuid());
  EXPECT_NE(first.words[2], 0u);

  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets.data()), 0);
  EXPECT_EQ(peer_identity(sockets[0]), first);
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  const std::string other_path = path_ + "-other";
  auto listening = ListeningSocket::open(other_path).value();
  const pid_t child = ::fork();
  if (child == 0) {
    auto socket = connect_socket(other_path);
    char end = 0;
    ::close(gate[1]);
    _exit(socket && ::read(gate[0], &end, 1) == 0 ? 0 : 1);
  }
  // It connects and waits; that does not need an accept().
  pollfd incoming = {listening.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&incoming, 1, -1), 1);
  const Fd accepted(::accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  const fabric::Identity other = peer_identity(accepted.get());
  EXPECT_EQ(other.words[0], static_cast<uint64_t>(child));
  EXPECT_NE(other.words[2], 0u);
  EXPECT_EQ(user_identity(accepted.get()), user_identity(sockets[0]));
  EXPECT_TRUE(user_identity(accepted.get()).known());
  EXPECT_FALSE(process_has_ended(first));
  EXPECT_FALSE(process_has_ended(other));
  ::close(gate[0]);
  ::close(gate[1]);
  int status = 0;
  siginfo_t zombie{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child), &zombie, WEXITED | WNOWAIT), 0);
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (pidfd.get() >= 0)
    EXPECT_TRUE(process_has_ended(other)) << "it was not waited for";
  else
    std::puts("pidfd_open() is refused here: zombies count as alive");
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(process_has_ended(other));
  for (int socket : sockets)
    ::close(socket);
  EXPECT_FALSE(peer_identity(-1).known());
}

TEST_F(Rendezvous, AFileIsNotReplaced) {
  const Fd file(::open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(listen_error(), Errc::kAddressInUse);
  EXPECT_TRUE(exists());
  EXPECT_EQ(connect_error(), Errc::kNotAPeer);
}

TEST_F(Rendezvous, ASocketOfSomethingElseIsNotReplaced) {
  const Fd foreign = foreign_socket(SOCK_STREAM);
  EXPECT_EQ(listen_error(), Errc::kAddressInUse);
  EXPECT_TRUE(exists());
  EXPECT_EQ(connect_error(), Errc::kNotAPeer);
}

TEST_F(Rendezvous, AnUnservedSocketIsReplaced) {
  foreign_socket(SOCK_SEQPACKET).reset();
  ASSERT_TRUE(exists());
  EXPECT_EQ(connect_error(), Errc::kNotFound);
  EXPECT_TRUE(end_.device->listen(uri_));
}

TEST_F(Rendezvous, TheSocketGoesWithItsListener) {
  {
    auto listener = end_.device->listen(uri_);
    ASSERT_TRUE(listener);
    EXPECT_EQ((*listener)->uri(), uri_);
    EXPECT_TRUE(exists());
  }
  EXPECT_FALSE(exists());
}

TEST_F(Rendezvous, ASocketThatIsNoLongerOursStays) {
  auto listener = end_.device->listen(uri_);
  ASSERT_TRUE(listener);
  ::unlink(path_.c_str());
  const Fd successor = foreign_socket(SOCK_SEQPACKET);
  listener->reset();
  EXPECT_TRUE(exists());
}

// A daemon that listens at a relative path and changes to another folder, which is then renamed.
TEST_F(Rendezvous, ASocketGoesWithItsListenerFromTheFolderThatItWasMadeIn) {
  namespace fs = std::filesystem;
  const fs::path here = fs::current_path();
  const fs::path there = path_ + "-folder", moved = path_ + "-moved", elsewhere = path_ + "-else";
  fs::create_directory(there);
  fs::create_directory(elsewhere);
  fs::current_path(there);
  auto listener = end_.device->listen("shm:relative.sock");
  fs::current_path(elsewhere);
  const Fd strange(::open("relative.sock", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  fs::rename(there, moved);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_TRUE(fs::is_socket(moved / "relative.sock"));
  listener->reset();
  EXPECT_FALSE(fs::exists(moved / "relative.sock"));
  EXPECT_TRUE(fs::exists(elsewhere / "relative.sock"));
  fs::current_path(here);
  fs::remove_all(moved);
  fs::remove_all(elsewhere);
}

// It may be an RRDK server that is busy: worth another attempt.
TEST_F(Rendezvous, ASilentServerTakesTooLong) {
  const Fd silent = foreign_socket(SOCK_SEQPACKET);
  EXPECT_EQ(connect_error("?timeout=1"), Errc::kTimeout);
}

TEST_F(Rendezvous, AServerThatTalksOtherwiseIsNoPeer) {
  const Fd other = foreign_socket(SOCK_SEQPACKET);
  auto qp = end_.queue_pair();
  ASSERT_TRUE(end_.device->connect(*qp, uri_, {}));
  const Fd accepted(::accept(other.get(), nullptr, nullptr));
  ::send(accepted.get(), "220 ready", 9, 0);
  ASSERT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectFailed); }));
  EXPECT_EQ(end_.take_event(EventType::kConnectFailed).ending.code, Errc::kNotAPeer);
}

TEST_F(Rendezvous, AServerWhoseMemoryCanShrinkIsRefused) {
  RawServer server(end_, uri_);
  const Fd memory = plain_memfd(1 << 20);
  std::array<int, kConnectDescriptors> descriptors = server.descriptors();
  descriptors[0] = memory.get();
  server.send(server.offer(MessageType::kAccept), descriptors);
  ASSERT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectFailed); }));
  EXPECT_NE(end_.take_event(EventType::kConnectFailed).ending.text.find("not sealed"),
            std::string::npos);
  EXPECT_EQ(end_.counter("handshakes_refused"), 1u);
}

TEST_F(Rendezvous, AServerOfAnotherVersionIsNamed) {
  RawServer server(end_, uri_);
  Message accept = server.offer(MessageType::kAccept);
  accept.version = 1;
  server.send(accept, server.descriptors());
  ASSERT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectFailed); }));
  const fabric::Event failed = end_.take_event(EventType::kConnectFailed);
  EXPECT_EQ(failed.ending.code, Errc::kNotAPeer);
  EXPECT_NE(failed.ending.text.find("speaks version 1"), std::string::npos) << failed.ending.text;
  EXPECT_EQ(end_.counter("other_versions"), 1u);
}

TEST_F(Rendezvous, AServerThatGoesWhileTheClientGivesUpIsOneEvent) {
  const Fd other = foreign_socket(SOCK_SEQPACKET);
  auto qp = end_.queue_pair();
  ASSERT_TRUE(end_.device->connect(*qp, uri_, {}));
  {
    const Fd accepted(::accept(other.get(), nullptr, nullptr));
    qp->disconnect();
  }
  ASSERT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectFailed); }));
  end_.take_event(EventType::kConnectFailed);
  for (int i = 0; i < 100; ++i)
    end_.pump();
  EXPECT_TRUE(end_.events.empty());
}

TEST_F(Rendezvous, AbstractNamesWork) {
  const std::string uri = "shm:@rrdk-test-" + std::to_string(::getpid());
  auto listener = end_.device->listen(uri);
  ASSERT_TRUE(listener) << listener.error().message;
  auto again = end_.device->listen(uri);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::kAddressInUse);
  auto qp = end_.queue_pair();
  ASSERT_TRUE(end_.device->connect(*qp, uri, {}));
  ASSERT_TRUE(pump_until({&end_}, [&] { return end_.has_event(EventType::kConnectRequest); }));
}

TEST_F(Rendezvous, MissingDirectory) {
  auto listener = end_.device->listen("shm:/nonexistent-directory/x.sock");
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, Errc::kNotFound);
}

TEST_F(Rendezvous, BadAddresses) {
  for (const std::string& uri :
       {std::string("shm:"), std::string("shm:@"), std::string("shm://"), std::string("tcp:/x"),
        "shm:/" + std::string(200, 'x'), std::string("shm:/a\0b", 8), std::string("shm:/x?"),
        std::string("shm:/x?peer_memory"), std::string("shm:/x?peer_memory=0"),
        std::string("shm:/x?peer_memory=4T"), std::string("shm:/x?peer_memory=4GB"),
        std::string("shm:/x?peer_memory=99999999999G"), std::string("shm:/x?memory=4G"),
        std::string("shm:/x?timeout=0"), std::string("shm:/x?timeout=1&memory=4G")}) {
    auto listener = end_.device->listen(uri);
    ASSERT_FALSE(listener) << uri;
    EXPECT_EQ(listener.error().code, Errc::kBadUri) << uri;
    auto qp = end_.queue_pair();
    auto connecting = end_.device->connect(*qp, uri, {});
    ASSERT_FALSE(connecting) << uri;
    EXPECT_EQ(connecting.error().code, Errc::kBadUri) << uri;
  }
}

TEST_F(Rendezvous, AnAddressSaysHowMuchOfAPeerMayBeMapped) {
  EXPECT_EQ(parse_address("shm:/x").value().peer_memory, 0u);
  EXPECT_EQ(parse_address("shm:/x?peer_memory=4097").value().peer_memory, 4097u);
  EXPECT_EQ(parse_address("shm:/x?timeout=7&peer_memory=4097").value().peer_memory, 4097u);
  EXPECT_EQ(parse_address("shm:/x?peer_memory=4097&timeout=7").value().timeout,
            std::chrono::seconds(7));
  EXPECT_EQ(parse_address("shm:@x?peer_memory=3M").value().peer_memory, uint64_t{3} << 20);
  const Address address = parse_address("shm:///run/x.sock?peer_memory=16G").value();
  EXPECT_EQ(address.path, "/run/x.sock");
  EXPECT_EQ(address.peer_memory, uint64_t{16} << 30);
}

TEST_F(Rendezvous, LimitsOfQueuePairsAreSaid) {
  for (const fabric::QueuePairOptions& options :
       {fabric::QueuePairOptions{.cq = nullptr},
        fabric::QueuePairOptions{.cq = end_.cq.get(), .send_wrs = 0},
        fabric::QueuePairOptions{.cq = end_.cq.get(), .send_wrs = 1u << 30},
        fabric::QueuePairOptions{.cq = end_.cq.get(), .receive_wrs = 1u << 30},
        fabric::QueuePairOptions{.cq = end_.cq.get(), .keys = 1u << 30}}) {
    auto qp = end_.device->create_queue_pair(options);
    ASSERT_FALSE(qp);
    EXPECT_EQ(qp.error().code, Errc::kInvalidArgument);
  }
}

}  // namespace
}  // namespace rrdk::shm::test

// Memory that a peer shows us, and that we show the peer: neither writes to the other's memory,
// takes pages from under it, or has more mapped than its limit allows.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "test/drivers/shm/hostile_test.h"

namespace rrdk::shm::test {
namespace {

using fabric::EventType;
using fabric::WcStatus;
using fabric::test::pump_until;
using fabric::test::test_memory;

class PeerMemory : public HostileToBoth {};

size_t mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:" + name + " ") != std::string::npos;
  return count;
}

void expect_read_only(int fd) {
  const Fd again(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC));
  for (const int way : {fd, again.get()}) {
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, way, 0), MAP_FAILED);
    EXPECT_NE(::fallocate(way, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    EXPECT_LT(::pwrite(way, "x", 1, 0), 0);
    EXPECT_NE(::ftruncate(way, 0), 0);
  }
  void* const seen = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_NE(::mprotect(seen, 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(::madvise(seen, 4096, MADV_REMOVE), 0);
  ::munmap(seen, 4096);
}

// All memory that one end shows the other, except the page of its doorbells.
void expect_all_read_only(RawEnd& peer) {
  Received region;
  for (int tries = 0; region.kind != Received::Kind::kMessage && tries < 1000; ++tries)
    region = peer.receive(MessageType::kRegion);
  ASSERT_EQ(region.descriptors.size(), kRegionDescriptors);
  expect_read_only(region.descriptors[0].get());
  ASSERT_EQ(peer.told.back().descriptors.size(), kConnectDescriptors);
  expect_read_only(peer.told.back().descriptors[0].get());
}

TEST_F(PeerMemory, AClientCannotWriteAServersMemory) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  expect_all_read_only(peer);
}

TEST_F(PeerMemory, AServerCannotWriteAClientsMemory) {
  RawServer server(client_, new_uri());
  server.establish();
  expect_all_read_only(server);
}

// A file of hugepages whose owner only has a reservation, or can give pages back, raises SIGBUS in
// any process that touches it when the system has none left.
TEST_F(PeerMemory, HugepagesStayWhereTheyAre) {
  constexpr size_t kHugepage = size_t{2} << 20;
  const Fd probe(::memfd_create("probe", MFD_CLOEXEC | MFD_HUGETLB));
  if (::ftruncate(probe.get(), kHugepage) != 0 || ::fallocate(probe.get(), 0, 0, kHugepage) != 0)
    GTEST_SKIP() << "no hugepages here: sysctl vm.nr_hugepages=16 makes some";
  struct Case {
    const char* what;
    int seals;
    bool holes;
    off_t part = 0;  // of another page
  };
  for (const Case& c : {Case{"can lose its pages", kSizeSeals, false},
                        Case{"reserved, not there", kRegionSeals, true},
                        Case{"its last page is not whole", kRegionSeals, false, 4096}}) {
    SCOPED_TRACE(c.what);
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    const Fd file = sealed_memfd(kHugepage, 0, MFD_HUGETLB, c.holes);
    if (c.part != 0) {
      ASSERT_EQ(::fallocate(file.get(), 0, kHugepage, c.part), 0);
    }
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, c.seals), 0);
    peer.send_region(file.get(), 8, kHugepage);
    expect_disconnected("broken_sockets");
  }
  for (const bool doorbells : {true, false}) {
    SCOPED_TRACE(doorbells ? "doorbells" : "a segment");
    RawPeer peer(honest_.server, honest_.uri);
    const Fd page = sealed_memfd(kHugepage, doorbells ? kSizeSeals : kRegionSeals, MFD_HUGETLB);
    std::array<int, kConnectDescriptors> fds = peer.descriptors();
    fds[doorbells ? 1 : 0] = page.get();
    peer.send(peer.connect_message(), fds);
    expect_refused(peer);
  }
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  const Fd good = sealed_memfd(kHugepage, kRegionSeals, MFD_HUGETLB);
  ASSERT_EQ(peer.send_region(good.get(), 8, kHugepage), SendResult::kSent);
  EXPECT_NE(::fallocate(good.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kHugepage), 0);
  Buffer inbox = test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
  peer.publish({.length = 8, .num_sges = 1, .sges = {RemoteSge{kHugepage - 8, 8, 8}}});
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
  EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kSuccess);
}

// From now on madvise() fails in this process, as on a kernel or in a sandbox without the advice.
bool refuse_madvise(uint32_t error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(code), .filter = code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Whether a page is present does not depend on the kernel's version: without MADV_POPULATE_READ
// present pages are found, and a missing one is an error and no SIGBUS.
TEST(PageTables, AreFilledWithoutMadvise) {
  constexpr size_t kPage = 4096, kPages = 2500;
  const Fd file = plain_memfd(kPages * kPage);
  auto* base = static_cast<std::byte*>(
      ::mmap(nullptr, (kPages + 1) * kPage, PROT_READ, MAP_SHARED, file.get(), 0));
  ASSERT_NE(base, MAP_FAILED);
  for (const int error : {0, EINVAL, ENOSYS, EPERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (error != 0 && !refuse_madvise(static_cast<uint32_t>(error)))
        ::_exit(77);
      const bool all = fill_page_tables(base, kPages * kPage, kPage).has_value();
      const auto beyond = fill_page_tables(base, (kPages + 1) * kPage, kPage);
      ::_exit(all && !beyond && beyond.error().code == Errc::kNotAPeer ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      GTEST_SKIP() << "no seccomp filters here";
    EXPECT_EQ(status, 0) << error;
  }
  ::munmap(base, (kPages + 1) * kPage);
}

TEST_F(PeerMemory, NothingOfAPeerIsMappedBeforeItIsAccepted) {
  RawPeer peer(honest_.server, honest_.uri);
  const size_t before = mappings_of("raw");
  ASSERT_EQ(peer.send(peer.connect_message(), peer.descriptors()), SendResult::kSent);
  ASSERT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.has_event(EventType::kConnectRequest); }));
  EXPECT_EQ(mappings_of("raw"), before);
}

TEST_F(PeerMemory, AFileIsMappedOnceHoweverManyRegionsItHas) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  constexpr uint32_t kRegions = 100;
  const Fd file = sealed_memfd(kRegions * 4096, kRegionSeals);
  const size_t before = mappings_of("sealed");
  for (uint32_t i = 0; i < kRegions; ++i)
    ASSERT_TRUE(pump_until({&honest_.server}, [&] {
      return peer.send_region(file.get(), 100 + i, (i + 1) * 4096) == SendResult::kSent;
    }));
  Buffer inbox = test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
  peer.publish({.length = 8, .num_sges = 1, .sges = {RemoteSge{0, 100 + kRegions - 1, 8}}});
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
  EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(mappings_of("sealed"), before + 1);
  peer.socket.reset();
  expect_disconnected("peers_lost");
  peer.victim.reset();
  EXPECT_EQ(mappings_of("sealed"), before);
}

// An end fills its memory as it uses it: a region may be shown again, and then further.
TEST_F(PeerMemory, MoreOfARegionMayBeShown) {
  constexpr size_t kFilled = 8192;
  const Fd file(::memfd_create("growing", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), off_t{1} << 20), 0);
  ASSERT_EQ(::fallocate(file.get(), 0, 0, kFilled), 0);
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, kRegionSeals), 0);
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  ASSERT_EQ(peer.send_region(file.get(), 8, 4096), SendResult::kSent);
  ASSERT_EQ(peer.send_region(file.get(), 8, kFilled), SendResult::kSent);
  for (int i = 0; i < 100; ++i)
    honest_.server.pump();
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 0u);
  // But not a part without pages.
  ASSERT_EQ(peer.send_region(file.get(), 8, kFilled + 4096), SendResult::kSent);
  expect_disconnected("broken_sockets");
}

TEST_F(PeerMemory, ARegionIsNotShownTwiceForNothing) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  const Fd file = sealed_memfd(8192, kRegionSeals);
  ASSERT_EQ(peer.send_region(file.get(), 8, 8192), SendResult::kSent);
  ASSERT_EQ(peer.send_region(file.get(), 8, 4096), SendResult::kSent);
  expect_disconnected("broken_sockets");
}

// Not at once: unmapping a peer's memory takes longer than a polling thread has.
TEST_F(PeerMemory, ALargeFileIsUnmapped) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  constexpr size_t kBytes = size_t{64} << 20;
  const size_t before = mappings_of("sealed");
  {
    const Fd file = sealed_memfd(kBytes, kRegionSeals);
    ASSERT_EQ(peer.send_region(file.get(), 8, kBytes), SendResult::kSent);
  }
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return mappings_of("sealed") == before + 1; }));
  peer.socket.reset();
  expect_disconnected("peers_lost");
  peer.victim.reset();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return mappings_of("sealed") == before; }));
}

// While it lives, this process may have only this much more address space than now.
class LittleMemory {
 public:
  explicit LittleMemory(rlim_t more) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit little{pages * static_cast<size_t>(::getpagesize()) + more, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  }
  ~LittleMemory() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;

 private:
  rlimit before_{};
};

// The shortage is ours, and both ends say so.
TEST_F(PeerMemory, ThatCannotBeMappedIsNotThePeersFault) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  constexpr size_t kBytes = size_t{64} << 20;
  const Fd file = sealed_memfd(kBytes, kRegionSeals);
  {
    const LittleMemory now(kBytes / 2);
    ASSERT_EQ(peer.send_region(file.get(), 8, kBytes), SendResult::kSent);
    ASSERT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.has_event(EventType::kDisconnected); }));
  }
  const std::string reason = honest_.server.take_event(EventType::kDisconnected).ending.text;
  EXPECT_NE(reason.find("lack of memory"), std::string::npos) << reason;
  EXPECT_EQ(peer.theirs.state->closed.load(), static_cast<uint32_t>(CloseReason::kNotMapped));
  EXPECT_EQ(honest_.server.counter("not_mapped"), 1u);
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 0u);
  expect_bystanders_unharmed();
}

// Each connection has its own limit, and a peer that exceeds it is told so.
TEST_F(PeerMemory, APeersMemoryHasABound) {
  const std::string uri = new_uri();
  auto listener = honest_.server.device->listen(uri + "?peer_memory=12K").value();
  RawPeer peer(honest_.server, uri);
  peer.establish();  // with 8 KiB
  const Fd file = sealed_memfd(4096, kRegionSeals);
  ASSERT_EQ(peer.send_region(file.get(), 8, 4096), SendResult::kSent);
  ASSERT_EQ(peer.send_region(file.get(), 9, 4096), SendResult::kSent);  // the same
  for (int i = 0; i < 100; ++i)
    honest_.server.pump();
  EXPECT_EQ(honest_.server.counter("too_much_memory"), 0u);
  ASSERT_EQ(peer.send_region(sealed_memfd(4096, kRegionSeals).get(), 10, 4096), SendResult::kSent);
  expect_disconnected("too_much_memory");
  EXPECT_EQ(peer.theirs.state->closed.load(), static_cast<uint32_t>(CloseReason::kTooMuchMemory));
}

// Memory that comes and goes counts while it is there, even if more of it was shown meanwhile.
TEST_F(PeerMemory, RemovedRegionsNoLongerCount) {
  constexpr uint32_t kComesAndGoes = 8;
  const std::string uri = new_uri();
  auto listener = honest_.server.device->listen(uri + "?peer_memory=16K").value();
  RawPeer peer(honest_.server, uri);
  peer.establish();  // with 8 KiB
  for (int round = 0; round < 20; ++round) {
    const Fd file = sealed_memfd(8192, kRegionSeals);
    for (const uint64_t length : {4096u, 8192u})
      ASSERT_EQ(peer.send_region(file.get(), kComesAndGoes, length), SendResult::kSent);
    Message gone{.type = MessageType::kRegionGone};
    gone.region = kComesAndGoes;
    ASSERT_EQ(peer.send(gone, {}), SendResult::kSent);
    for (int i = 0; i < 20; ++i)
      honest_.server.pump();
  }
  EXPECT_EQ(honest_.server.counter("too_much_memory"), 0u);
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 0u);
  // This is still within the limit.
  for (const uint32_t id : {9u, 10u, 11u})
    ASSERT_EQ(peer.send_region(sealed_memfd(4096, kRegionSeals).get(), id, 4096),
              SendResult::kSent);
  expect_disconnected("too_much_memory");
}

TEST_F(PeerMemory, AServersMemoryHasABoundToo) {
  const std::string uri = new_uri();
  RawServer server(client_, uri + "?peer_memory=8K");
  server.establish();
  ASSERT_EQ(server.send_region(sealed_memfd(4096, kRegionSeals).get(), 8, 4096), SendResult::kSent);
  ASSERT_TRUE(pump_until({&client_}, [&] { return client_.has_event(EventType::kDisconnected); }));
  EXPECT_EQ(client_.counter("too_much_memory"), 1u);
}

TEST(Mappings, AreNotAllOfOneUser) {
  constexpr uid_t kGreedy = 1;
  constexpr uid_t kOther = 2;
  MappingCache cache;
  std::vector<std::shared_ptr<Mapping>> kept;
  const auto map_another = [&](uid_t user) {
    const Fd file = sealed_memfd(4096, kRegionSeals);
    return cache.map(file.get(), check_peer_file(file.get(), Writers::kOwner).value(), user);
  };
  for (Result<std::shared_ptr<Mapping>> next = map_another(kGreedy);; next = map_another(kGreedy)) {
    if (!next) {
      EXPECT_EQ(next.error().code, Errc::kLimit);
      break;
    }
    kept.push_back(std::move(*next));
  }
  EXPECT_EQ(kept.size(), MappingCache::kMaxMappings / 2);
  EXPECT_TRUE(map_another(kOther));
  kept.pop_back();
  EXPECT_TRUE(map_another(kGreedy));
}

// Its region is behind much else in the socket, which is not all read in one turn.
TEST_F(PeerMemory, AMessageWaitsForItsRegion) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer inbox = test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
  constexpr uint32_t kOther = 8;
  constexpr uint32_t kLate = 9;
  for (int i = 0; i < 80; ++i) {
    ASSERT_EQ(peer.send_region(peer.region.fd.get(), kOther, 4096), SendResult::kSent);
    Message gone{.type = MessageType::kRegionGone};
    gone.region = kOther;
    ASSERT_EQ(peer.send(gone, {}), SendResult::kSent);
  }
  ASSERT_EQ(peer.send_region(peer.region.fd.get(), kLate, 4096), SendResult::kSent);
  peer.publish({.length = 8, .num_sges = 1, .sges = {RemoteSge{0, kLate, 8}}});
  std::array<fabric::Completion, 4> completions;
  ASSERT_EQ(honest_.server.cq->poll(completions), 0u);
  ASSERT_EQ(honest_.server.cq->poll(completions), 1u);
  EXPECT_EQ(completions[0].status, WcStatus::kSuccess);
}

}  // namespace
}  // namespace rrdk::shm::test

// A capture's way from a core into its file: whole and in order, whatever the thread that writes it
// is doing, and with lost messages counted. What tshark says about the file is in test/apps.
#include "observe/capture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "test/seed.h"

namespace rrdk::observe {
namespace {

using fabric::Op;
using fabric::SendWr;

uint32_t word(const std::string& file, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

// The bytes of each packet block in a file that must be whole.
std::vector<std::string> packets(const std::string& file) {
  std::vector<std::string> found;
  size_t at = 0;
  while (at + 12 <= file.size()) {
    const uint32_t length = word(file, at + 4);
    EXPECT_LE(at + length, file.size());
    EXPECT_EQ(word(file, at + length - 4), length) << "block at " << at;
    if (length < 12 || at + length > file.size())
      break;
    if (word(file, at) == 6)
      found.push_back(file.substr(at + 28, word(file, at + 20)));
    at += length;
  }
  EXPECT_EQ(at, file.size());
  return found;
}

class Captures : public testing::Test {
 protected:
  Captures() {
    char folder[] = "/tmp/rrdk-capture.XXXXXX";
    folder_ = ::mkdtemp(folder);
    peer_.driver = "shm";
    peer_.process = ProcessIdentity{.pid = 4711};
  }
  ~Captures() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "test.pcapng"; }
  std::string file() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  CapturedConnection connection(uint64_t id = 7) const { return {id, peer_, true}; }

  static SendWr send(std::string& bytes) {
    SendWr wr;
    wr.num_sges = 1;
    wr.sges[0] = {reinterpret_cast<std::byte*>(bytes.data()), static_cast<uint32_t>(bytes.size()),
                  kNoRegion};
    return wr;
  }
  // The messages among the packets: behind Ethernet, IPv4, UDP and the base header, before the pad
  // and the CRC. Three packets that establish the connection come before them.
  std::vector<std::string> messages(size_t length_of_one = 0) const {
    constexpr size_t kHeaders = 14 + 20 + 8 + 12, kCrc = 4;
    std::vector<std::string> all;
    for (const std::string& packet : packets(file())) {
      const size_t pad = static_cast<uint8_t>(packet[14 + 20 + 8 + 1]) >> 4;
      all.push_back(packet.substr(
          kHeaders, length_of_one != 0 ? length_of_one : packet.size() - kHeaders - pad - kCrc));
    }
    if (all.size() >= 3)
      all.erase(all.begin(), all.begin() + 3);
    return all;
  }

  std::filesystem::path folder_;
  Peer peer_;
};

TEST_F(Captures, HaveEachMessageWholeAndInOrder) {
  std::mt19937_64 random(test::run_seed());
  auto capture = Capture::start(path(), {}, 1);
  ASSERT_TRUE(capture) << capture.error().message;
  std::vector<std::string> sent;
  // More than the ring holds, so that it wraps around; events that do not fit are left out and
  // counted.
  uint64_t bytes = 0;
  CoreCapture& core = (*capture)->core(0);
  for (uint64_t lost = 0; bytes < (uint64_t{50} << 20);) {
    std::string message(random() % 4000, '\0');
    for (size_t i = 0; i < message.size(); i += 16)
      message[i] = static_cast<char>(random());
    bytes += message.size();
    const SendWr wr = send(message);
    core.on_posted(connection(), {&wr, 1});
    if (core.counts().lost == lost)
      sent.push_back(message);
    lost = core.counts().lost;
  }
  (*capture)->finish();
  const CaptureCounts counts = (*capture)->counts();
  EXPECT_EQ(counts.captured, sent.size());
  EXPECT_GT(counts.captured, 8000u);
  EXPECT_EQ(messages(), sent);
}

// Puts events into a ring and takes them out again, at a known place.
class RingWalk {
 public:
  static constexpr uint64_t kEvent = sizeof(CaptureEvent);
  static constexpr uint32_t kMost = 1u << 20;

  // A message of this many bytes; its event goes to the start if the end has too little space for
  // it.
  void step(uint64_t captured) {
    const uint64_t room = (kEvent + captured + 7) / 8 * 8;
    bytes_.assign(captured, static_cast<char>(0x80 | ++number_));
    const MemorySpan span = {reinterpret_cast<std::byte*>(bytes_.data()),
                             static_cast<uint32_t>(captured), kNoRegion};
    ASSERT_TRUE(ring.put({.connection = number_,
                          .captured = static_cast<uint32_t>(captured),
                          .what = CaptureEvent::What::kSent},
                         {&span, 1}));
    at_ = (room > to_end() ? room : at_ + room) % EventRing::kBytes;
    const CaptureEvent* const event = ring.front();
    ASSERT_NE(event, nullptr);
    ASSERT_EQ(event->connection, number_);
    ASSERT_EQ(event->captured, captured);
    ASSERT_EQ(std::memcmp(event->bytes().data(), bytes_.data(), captured), 0);
    ring.pop();
    ASSERT_EQ(ring.front(), nullptr);
  }
  // Advances to where this many bytes are left before the end.
  void go_to_end(uint64_t rest) {
    while (to_end() >= rest + 2 * kEvent + kMost)
      ASSERT_NO_FATAL_FAILURE(step(kMost));
    ASSERT_NO_FATAL_FAILURE(step(to_end() - rest - kEvent));
  }

  EventRing ring;

 private:
  uint64_t to_end() const { return EventRing::kBytes - at_; }

  std::string bytes_;
  uint64_t number_ = 0;
  uint64_t at_ = 0;
};

// From the second round on the ring is full of other bytes.
TEST(EventRings, WrapAroundWithAnyRestAtTheEnd) {
  RingWalk walk;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t rest : {uint64_t{0}, uint64_t{8}, RingWalk::kEvent - 8, RingWalk::kEvent,
                          RingWalk::kEvent + 8, uint64_t{4096}}) {
      SCOPED_TRACE(rest);
      ASSERT_NO_FATAL_FAILURE(walk.go_to_end(rest));
      ASSERT_NO_FATAL_FAILURE(walk.step(4999));
    }
  }
}

TEST(EventRings, DropImpossibleEvents) {
  EventRing ring;
  auto put = [&](uint64_t connection) {
    return ring.put({.connection = connection, .what = CaptureEvent::What::kSent}, {});
  };
  ASSERT_TRUE(put(1) && put(2));
  const_cast<CaptureEvent*>(ring.front())->captured = 1u << 30;
  EXPECT_EQ(ring.front(), nullptr);
  ring.pop();
  ASSERT_TRUE(put(3));
  ASSERT_NE(ring.front(), nullptr);
  EXPECT_EQ(ring.front()->connection, 3u);
  ring.pop();
  EXPECT_EQ(ring.front(), nullptr);
}

TEST_F(Captures, CutLongMessages) {
  auto capture = Capture::start(path(), {.message_bytes = 64}, 1);
  ASSERT_TRUE(capture);
  std::string message(1000, 'x');
  const SendWr wr = send(message);
  (*capture)->core(0).on_posted(connection(), {&wr, 1});
  (*capture)->finish();
  EXPECT_EQ(messages(1000), std::vector<std::string>{std::string(64, 'x')});
}

TEST_F(Captures, EndBeforeTheFileIsTooLong) {
  auto capture = Capture::start(path(), {.file_bytes = 65536}, 1);
  ASSERT_TRUE(capture);
  std::string message(4096, 'x');
  const SendWr wr = send(message);
  for (int i = 0; i < 100; ++i)
    (*capture)->core(0).on_posted(connection(), {&wr, 1});
  (*capture)->finish();
  const CaptureCounts counts = (*capture)->counts();
  EXPECT_EQ(counts.captured + counts.lost, 100u);
  EXPECT_EQ(counts.captured, messages().size());
  EXPECT_GE(counts.captured, 10u);
  EXPECT_LE(file().size(), 65536u);
}

TEST_F(Captures, PairReadsWithTheirData) {
  auto capture = Capture::start(path(), {}, 1);
  ASSERT_TRUE(capture);
  CoreCapture& core = (*capture)->core(0);
  std::string sink(5000, 'r');
  SendWr read = send(sink);
  read.op = Op::kRead;
  read.wr_id = 42;
  read.key = 0x1234;
  const fabric::Completion done = {.wr_id = 42,
                                   .owner = nullptr,
                                   .op = Op::kRead,
                                   .status = fabric::WcStatus::kSuccess,
                                   .has_invalidated = false,
                                   .byte_length = 5000,
                                   .invalidated_key = 0};
  core.on_completion(connection(), done, {});  // posted before the capture began: left out
  core.on_posted(connection(), {&read, 1});
  core.on_completion(connection(), done, {});
  (*capture)->finish();
  std::vector<int> opcodes;
  for (const std::string& packet : packets(file()))
    opcodes.push_back(packet[14 + 20 + 8]);
  // Three packets of the connection manager's; Read Request, first and last of its response.
  EXPECT_EQ(opcodes, (std::vector<int>{0x64, 0x64, 0x64, 0x0C, 0x0D, 0x0F}));
}

// Whatever happened to the one before it.
TEST_F(Captures, AttributeDataToItsRead) {
  auto capture = Capture::start(path(), {}, 1);
  ASSERT_TRUE(capture);
  CoreCapture& core = (*capture)->core(0);
  std::string sink(5000, 'r');
  SendWr read = send(sink);
  read.op = Op::kRead;
  for (uint64_t id : {1, 2}) {
    read.wr_id = id;
    core.on_posted(connection(), {&read, 1});
  }
  for (uint64_t id : {1, 2})
    core.on_completion(
        connection(),
        {.wr_id = id,
         .owner = nullptr,
         .op = Op::kRead,
         .status = id == 1 ? fabric::WcStatus::kRemoteAccess : fabric::WcStatus::kSuccess,
         .has_invalidated = false,
         .byte_length = 5000,
         .invalidated_key = 0},
        {});
  (*capture)->finish();
  std::vector<std::pair<int, int>> seen;  // opcode, number
  for (const std::string& packet : packets(file()))
    seen.emplace_back(packet[14 + 20 + 8], packet[14 + 20 + 8 + 11]);
  seen.erase(seen.begin(), seen.begin() + 3);
  EXPECT_EQ(seen, (std::vector<std::pair<int, int>>{{0x0C, 0}, {0x0C, 2}, {0x0D, 2}, {0x0F, 3}}));
}

// A full disk or a size limit: the file ends with a whole message, and the rest counts as lost.
TEST_F(Captures, HaveWholeMessagesOnAFullDisk) {
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);  // the thread that writes has SIGXFSZ blocked
  auto capture = Capture::start(path(), {}, 1);
  ASSERT_TRUE(capture);
  std::string message(4096, 'x');
  const SendWr wr = send(message);
  for (int i = 0; i < 100; ++i)
    (*capture)->core(0).on_posted(connection(), {&wr, 1});
  (*capture)->finish();
  setrlimit(RLIMIT_FSIZE, &before);
  const CaptureCounts counts = (*capture)->counts();
  EXPECT_EQ(counts.captured + counts.lost, 100u);
  EXPECT_GE(counts.lost, 70u);
  EXPECT_EQ(counts.captured, messages().size());
}

TEST_F(Captures, RefuseFilesThatOthersCanOpen) {
  const auto make = [this](mode_t mode) {
    std::ofstream(path()) << "precious";
    ::chmod(path().c_str(), mode);
  };
  for (mode_t mode : {0666, 0604, 0602, 0620}) {
    make(mode);
    auto refused = Capture::start(path(), {}, 1);
    ASSERT_FALSE(refused) << mode;
    EXPECT_EQ(refused.error().code, Errc::kPermission);
    EXPECT_NE(refused.error().message.find(path()), std::string::npos);
    EXPECT_EQ(file(), "precious");
  }
  for (mode_t mode : {0600, 0640}) {
    std::ofstream(path()).close();
    ::chmod(path().c_str(), mode);
    auto taken = Capture::start(path(), {}, 1);
    ASSERT_TRUE(taken) << taken.error().message;
    (*taken)->finish();
    EXPECT_EQ(packets(file()).size(), 0u);
  }
  if (::geteuid() != 0)
    GTEST_SKIP() << "a file of another user takes root to make";
  make(0600);
  ASSERT_EQ(::chown(path().c_str(), 1, 1), 0);
  EXPECT_EQ(Capture::start(path(), {}, 1).error().code, Errc::kPermission);
  EXPECT_EQ(file(), "precious");
}

TEST_F(Captures, DoNotOverwriteOtherFiles) {
  const std::string private_file = path() + ".private";
  std::ofstream(private_file) << "precious";
  ::chmod(private_file.c_str(), 0600);
  ASSERT_EQ(::symlink(private_file.c_str(), path().c_str()), 0);
  const auto refused = Capture::start(path(), {}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kPermission);
  EXPECT_NE(refused.error().message.find("is not a capture"), std::string::npos);
  EXPECT_EQ(file(), "precious");

  ASSERT_EQ(::unlink(private_file.c_str()), 0);
  for (int round = 0; round < 2; ++round) {  // an earlier capture is replaced
    const auto taken = Capture::start(path(), {}, 1);
    ASSERT_TRUE(taken) << taken.error().message;
    (*taken)->finish();
  }
  EXPECT_EQ(packets(file()).size(), 0u);
  ::unlink(private_file.c_str());
}

TEST_F(Captures, GoIntoAPipeThatHasAReader) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0666), 0);
  auto unread = Capture::start(path(), {}, 1);
  ASSERT_FALSE(unread);
  EXPECT_NE(unread.error().message.find("a pipe that no process reads"), std::string::npos);
  const base::Fd reader(::open(path().c_str(), O_RDONLY | O_NONBLOCK));
  auto capture = Capture::start(path(), {}, 1);
  ASSERT_TRUE(capture) << capture.error().message;
  (*capture)->finish();
  char magic[4] = {};
  ASSERT_EQ(::read(reader.get(), magic, sizeof magic), 4);
  EXPECT_EQ(word({magic, 4}, 0), 0x0A0D0D0Au);
}

TEST_F(Captures, RefuseInvalidOptionsAndPaths) {
  EXPECT_EQ(Capture::start(path(), {.message_bytes = 10}, 1).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(Capture::start(path(), {.file_bytes = 10}, 1).error().code, Errc::kInvalidArgument);
  auto none = Capture::start("/nowhere/at/all.pcapng", {}, 1);
  EXPECT_EQ(none.error().code, Errc::kSystem);
  EXPECT_NE(none.error().message.find("/nowhere/at/all.pcapng"), std::string::npos);
}

}  // namespace
}  // namespace rrdk::observe

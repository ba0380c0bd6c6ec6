// A request for more memory than there is ends in an error with the numbers; no process is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "mem/arena.h"
#include "mem/system_memory.h"
#include "memory_fixture.h"

namespace rrdk::mem {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// A machine's /proc and /sys, as files.
class MadeUpMachine : public testing::Test {
 protected:
  MadeUpMachine() { std::filesystem::create_directories(root_); }
  ~MadeUpMachine() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void has(uint64_t mebibytes) {
    write("/proc/meminfo", "MemTotal:  99999999 kB\nMemFree: 1 kB\nMemAvailable:   " +
                               std::to_string(mebibytes * 1024) + " kB\n");
  }
  uint64_t left() { return memory_headroom(root_).bytes / kMiB; }
  std::string source() { return memory_headroom(root_).source; }

  const std::string root_ = testing::TempDir() + "rrdk-machine-" + std::to_string(getpid());
};

TEST_F(MadeUpMachine, WithoutLimitsHasAllAvailableMemory) {
  has(500);
  EXPECT_EQ(left(), 500u);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(left(), 500u);
  EXPECT_THAT(source(), HasSubstr("MemAvailable"));
}

TEST_F(MadeUpMachine, WithoutReadableFilesHasNoLimit) {
  EXPECT_EQ(memory_headroom(root_).bytes, UINT64_MAX);
  EXPECT_TRUE(check_headroom(UINT64_MAX, memory_headroom(root_)));
}

TEST_F(MadeUpMachine, KeepsToTheLimitOfACgroupOfVersion2) {
  has(500);
  write("/proc/self/cgroup", "0::/pod/box\n");
  const std::string pod = "/sys/fs/cgroup/pod/";
  write(pod + "box/memory.max", "max\n");
  write(pod + "box/memory.current", std::to_string(150 * kMiB));
  EXPECT_EQ(left(), 500u);
  write(pod + "memory.max", std::to_string(300 * kMiB));  // of the one above
  write(pod + "memory.current", std::to_string(250 * kMiB));
  EXPECT_EQ(left(), 50u);
  write(pod + "memory.stat", "anon 5\ninactive_file " + std::to_string(70 * kMiB) + "\n");
  EXPECT_EQ(left(), 120u);
  EXPECT_THAT(source(), HasSubstr(pod + "memory.max is " + std::to_string(300 * kMiB) +
                                  ", of which " + std::to_string(180 * kMiB)));
  write(pod + "box/memory.max", std::to_string(100 * kMiB));  // it has more already
  EXPECT_EQ(left(), 0u);
  EXPECT_FALSE(check_headroom(1, memory_headroom(root_)));
}

TEST_F(MadeUpMachine, KeepsToTheLimitOfACgroupOfVersion1) {
  has(500);
  write("/proc/self/cgroup", "5:cpu,cpuacct:/other\n4:hugetlb,memory:/box\n0::/\n");
  const std::string box = "/sys/fs/cgroup/memory/box/";
  write(box + "memory.limit_in_bytes", std::to_string(300 * kMiB));
  write(box + "memory.usage_in_bytes", std::to_string(100 * kMiB));
  write(box + "memory.stat", "total_inactive_file " + std::to_string(20 * kMiB) + "\n");
  EXPECT_EQ(left(), 220u);
  write(box + "memory.limit_in_bytes", "9223372036854771712");  // none
  EXPECT_EQ(left(), 500u);
}

// Its path is that of the host, which does not exist here; its files are at the root.
TEST_F(MadeUpMachine, InAContainerKeepsToTheLimitThatCanBeSeen) {
  has(500);
  write("/proc/self/cgroup", "0::/system.slice/docker-0123.scope\n");
  write("/sys/fs/cgroup/memory.max", std::to_string(64 * kMiB));
  write("/sys/fs/cgroup/memory.current", "0");
  EXPECT_EQ(left(), 64u);
}

TEST(Headroom, LeavesSomeToOthersAndNamesTheNumbers) {
  const Headroom headroom = {.bytes = 3200, .source = "a limit of 7000"};
  EXPECT_TRUE(check_headroom(3100, headroom));
  const Result<void> refused = check_headroom(3101, headroom);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kNoMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("3101 bytes"));
  EXPECT_THAT(refused.error().message, HasSubstr("3100 can be had"));
  EXPECT_THAT(refused.error().message, HasSubstr("a limit of 7000"));
}

class Headrooms : public test::MemoryTest {};

TEST_F(Headrooms, MoreThanTheMachineHasIsAnError) {
  const uint64_t left = memory_headroom().bytes;
  ASSERT_NE(left, UINT64_MAX);
  const auto gigabytes = static_cast<uint32_t>(left / (1 << 30)) + 1;
  const auto memory =
      Memory::create({.classes = {{1u << 30, gigabytes}}, .hugepages = HugepagePolicy::kNever});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Errc::kNoMemory);
  EXPECT_THAT(memory.error().message, HasSubstr(std::to_string(uint64_t{gigabytes} << 30)));
  EXPECT_THAT(memory.error().message, HasSubstr("can be had"));

  const auto small = create({{4096, 64}});
  const auto more = small->allocate(uint64_t{gigabytes} << 30);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Errc::kNoMemory);
  EXPECT_TRUE(small->allocate(1 << 20));
}

// Runs `body`, which returns what is wrong, or an empty text, in its own process.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string fault = body();
    (void)!write(ends[1], fault.data(), fault.size());
    _exit(0);
  }
  close(ends[1]);
  std::string fault;
  char chunk[1024];
  for (ssize_t n; (n = read(ends[0], chunk, sizeof chunk)) > 0;)
    fault.append(chunk, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return status == 0 ? fault : "the child's status is " + std::to_string(status);
}

// The error for an arena of that size; 8 MiB must not be too much.
std::string refusal_of(uint64_t bytes, const std::string& reason) {
  if (const auto small = Arena::create({.bytes = 8 * kMiB, .hugepages = HugepagePolicy::kNever});
      !small)
    return "8 MiB: " + small.error().message;
  const auto arena = Arena::create({.bytes = bytes, .hugepages = HugepagePolicy::kNever});
  if (arena)
    return "it was made";
  if (arena.error().code != Errc::kNoMemory ||
      arena.error().message.find(reason) == std::string::npos)
    return arena.error().message;
  return {};
}

TEST(Headroom, LimitsOfTheProcessAreErrors) {
  const std::pair<decltype(RLIMIT_FSIZE), const char*> limits[] = {{RLIMIT_FSIZE, "ulimit -f"},
                                                                   {RLIMIT_AS, "ulimit -v"}};
  for (const auto& [resource, reason] : limits) {
    const uint64_t bytes = uint64_t{1} << 60;  // more than a sanitizer's shadow takes
    EXPECT_EQ(in_child([&, which = resource, why = reason]() -> std::string {
                const rlimit limit = {bytes, bytes};
                if (setrlimit(which, &limit) != 0)
                  return std::strerror(errno);
                return refusal_of(bytes + 4096, why);
              }),
              "");
  }
}

// A memory cgroup below this process's own, or below the root; empty, with the reason, if there
// cannot be one.
std::string make_cgroup(uint64_t limit, std::string& why) {
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const bool version2 = line.starts_with("0::");
    const size_t name = version2 ? 0 : line.find(":memory:");
    if (name == std::string::npos)
      continue;
    const std::string folder = "/sys/fs/cgroup" + std::string(version2 ? "" : "/memory") +
                               line.substr(version2 ? 3 : name + 8) + "/rrdk-test-" +
                               std::to_string(getpid());
    if (mkdir(folder.c_str(), 0755) != 0) {
      why += folder + ": " + std::strerror(errno) + "; ";
      continue;
    }
    std::ofstream file(folder + (version2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (file << limit << std::flush)
      return folder;
    why += folder + " has no memory controller; ";
    rmdir(folder.c_str());
  }
  return {};
}

TEST(Headroom, ALimitOfTheCgroupIsAnError) {
  constexpr uint64_t kLimit = 64 * kMiB;
  std::string why;
  const std::string folder = make_cgroup(kLimit, why);
  if (folder.empty())
    GTEST_SKIP() << "no memory cgroup can be made here: " << why;
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!(std::ofstream(folder + "/cgroup.procs") << getpid() << std::flush))
                return "the cgroup takes no process";
              return refusal_of(kLimit, folder);
            }),
            "");
  EXPECT_EQ(rmdir(folder.c_str()), 0) << std::strerror(errno);
}

}  // namespace
}  // namespace rrdk::mem

// EAL can be started once in a process: each of these tests runs in its own child.
#include "rrdk/eal.h"

#include <gtest/gtest.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rrdk/memory.h"

namespace rrdk {
namespace {

struct Child {
  int status;
  std::string output;  // stdout and stderr
};

// `body` returns what went wrong, or an empty text.
Child run_in_child(const std::function<std::string()>& body) {
  std::array<int, 2> pipe_fds;
  EXPECT_EQ(pipe(pipe_fds.data()), 0);
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pipe_fds[1], STDOUT_FILENO);
    dup2(pipe_fds[1], STDERR_FILENO);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    const std::string fault = body();
    fputs(fault.c_str(), stdout);
    fflush(nullptr);
    _exit(fault.empty() ? 0 : 1);
  }
  close(pipe_fds[1]);
  Child child{};
  std::array<char, 4096> chunk;
  for (ssize_t n; (n = read(pipe_fds[0], chunk.data(), chunk.size())) > 0;)
    child.output.append(chunk.data(), static_cast<size_t>(n));
  close(pipe_fds[0]);
  EXPECT_EQ(waitpid(pid, &child.status, 0), pid);
  return child;
}

void expect_success(const std::function<std::string()>& body) {
  const Child child = run_in_child(body);
  EXPECT_TRUE(WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0)
      << "status " << child.status << ", output: " << child.output;
  EXPECT_EQ(child.output, "");
}

TEST(Eal, StartsQuietlyAndOnlyOnce) {
  expect_success([]() -> std::string {
    if (eal_running())
      return "runs before it was started";
    for (int i = 0; i < 2; ++i) {
      if (Result<void> started = ensure_eal(); !started)
        return started.error().message;
      if (!eal_running())
        return "does not run";
    }
    return {};
  });
}

TEST(Eal, DefaultArgumentsLeaveTheAffinityOfTheCaller) {
  expect_success([]() -> std::string {
    cpu_set_t before;
    cpu_set_t after;
    sched_getaffinity(0, sizeof(before), &before);
    if (Result<void> started = ensure_eal(); !started)
      return started.error().message;
    sched_getaffinity(0, sizeof(after), &after);
    return CPU_EQUAL(&before, &after) ? "" : "the affinity changed";
  });
}

TEST(Eal, StartsWhereOnlyTheLastCpuIsAllowed) {
  expect_success([]() -> std::string {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    int last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      last = CPU_ISSET(cpu, &allowed) ? cpu : last;
    CPU_ZERO(&allowed);
    CPU_SET(last, &allowed);
    sched_setaffinity(0, sizeof(allowed), &allowed);
    Result<void> started = ensure_eal();
    return started ? "" : started.error().message;
  });
}

// An application on DPDK, which calls rte_eal_init() before it uses this library.
std::vector<std::string> application_words() {
  return {"application",    "--no-huge", "--no-shconf", "--no-pci",
          "--no-telemetry", "-m",        "64",          "--log-level=*:error"};
}

TEST(Eal, AdoptsTheApplicationsEal) {
  expect_success([]() -> std::string {
    std::vector<std::string> words = application_words();
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
      return "rte_eal_init failed";
    const unsigned lcores = rte_lcore_count();
    if (!eal_running())
      return "not seen to be running";
    const std::vector<std::string> nonsense = {"--no-such-option"};
    if (Result<void> adopted = ensure_eal(nonsense); !adopted)
      return adopted.error().message;
    if (rte_lcore_count() != lcores)
      return "started a second time";
    Result<std::unique_ptr<Memory>> memory =
        Memory::create({.classes = {{4096, 64}}, .hugepages = HugepagePolicy::kNever});
    if (!memory)
      return memory.error().message;
    return (*memory)->get(1) ? "" : "no buffer";
  });
}

TEST(Eal, RefusedArgumentsAreAnErrorThatNamesThemAndNothingIsPrinted) {
  expect_success([]() -> std::string {
    const std::vector<std::string> arguments = {"--no-such-option"};
    const Result<void> started = ensure_eal(arguments);
    if (started)
      return "accepted";
    if (started.error().code != Errc::kInvalidArgument)
      return "wrong kind: " + started.error().message;
    if (started.error().message.find("no-such-option") == std::string::npos)
      return "the option is not named: " + started.error().message;
    return started.error().message.find('\n') == std::string::npos ? "" : "more than one line";
  });
}

// No PCI scan, no hugepages, no telemetry, nothing on the screen; and the core that was asked for.
TEST(Eal, LcoresOverTheQuietDefaults) {
  expect_success([]() -> std::string {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    int last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      last = CPU_ISSET(cpu, &allowed) ? cpu : last;
    const std::vector<std::string> arguments = {"-l", std::to_string(last)};
    if (Result<void> started = ensure_eal(arguments, EalArguments::kOverDefaults); !started)
      return started.error().message;
    if (rte_eal_has_pci() != 0)
      return "PCI devices are looked for";
    if (rte_eal_has_hugepages() != 0)
      return "hugepages are asked for";
    if (eal_cpus() != std::vector<int>{last})
      return "not the lcore that was asked for";
    return sched_getcpu() == last ? "" : "not on the CPU that was asked for";
  });
}

// Lcores that share a CPU do not count as two CPUs.
TEST(Eal, EachCpuOfTheLcoresIsNamedOnce) {
  expect_success([]() -> std::string {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    int first = 0;
    while (!CPU_ISSET(first, &allowed))
      ++first;
    const std::vector<std::string> arguments = {"--lcores", "(0,1)@" + std::to_string(first)};
    if (Result<void> started = ensure_eal(arguments, EalArguments::kOverDefaults); !started)
      return started.error().message;
    if (rte_lcore_count() != 2)
      return "not the lcores that were asked for";
    return eal_cpus() == std::vector<int>{first} ? "" : "the CPU is not named, or named twice";
  });
}

TEST(Eal, SaysThatAFilePrefixIsTooLong) {
  expect_success([]() -> std::string {
    const std::string prefix(200, 'x');
    const std::vector<std::string> arguments = {"--file-prefix=" + prefix, "--telemetry"};
    Result<void> started = ensure_eal(arguments, EalArguments::kOverDefaults);
    std::error_code never_mind;
    std::filesystem::remove_all("/var/run/dpdk/" + prefix, never_mind);
    if (started)
      return "it was taken";
    return started.error().message.find("--file-prefix has 200 bytes") != std::string::npos
               ? ""
               : started.error().message;
  });
}

// The second user of a host finds the first one's folder for shared files, which no process needs.
TEST(Eal, IsQuietWhereAnotherUserHasItsFolder) {
  expect_success([]() -> std::string {
    setenv("XDG_RUNTIME_DIR", "/proc/self", 1);  // where no folder can be made
    if (getuid() == 0 && setuid(65534) != 0)
      return "cannot become nobody";
    Result<void> started = ensure_eal();
    return started ? "" : started.error().message;
  });
}

// An argument replaces its own default, and the other defaults stay.
TEST(Eal, ArgumentsTakeThePlaceOfDefaults) {
  expect_success([]() -> std::string {
    const std::vector<std::string> arguments = {"-m", "64", "-a", "ffff:ff:1f.7"};
    cpu_set_t before;
    cpu_set_t after;
    sched_getaffinity(0, sizeof(before), &before);
    if (Result<void> started = ensure_eal(arguments, EalArguments::kOverDefaults); !started)
      return started.error().message;
    sched_getaffinity(0, sizeof(after), &after);
    if (!CPU_EQUAL(&before, &after))
      return "the affinity changed";
    if (rte_eal_has_pci() == 0)
      return "PCI devices are not looked for, although one was named";
    return rte_eal_has_hugepages() == 0 ? "" : "hugepages are asked for";
  });
}

TEST(Eal, ImpossibleLcoresAreAnError) {
  expect_success([]() -> std::string {
    const std::vector<std::string> arguments = {"--no-huge", "--no-shconf", "-l", "1000"};
    const Result<void> started = ensure_eal(arguments);
    if (started)
      return "accepted";
    return started.error().code == Errc::kInvalidArgument ? "" : started.error().message;
  });
}

TEST(Eal, StartsAfterRefusedArguments) {
  expect_success([]() -> std::string {
    const std::vector<std::string> arguments = {"--no-such-option"};
    if (ensure_eal(arguments))
      return "accepted";
    const Result<void> started = ensure_eal();
    return started ? "" : started.error().message;
  });
}

// EAL's memory is then a file, which may not be that large: the kernel sends a signal besides the
// error. The program gets the signal only if it caused it.
TEST(Eal, StartsWhereFilesMayNotBeLargeAndLeavesNoSignal) {
  expect_success([]() -> std::string {
    const rlimit limit = {.rlim_cur = 100 << 20, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    if (Result<void> started = ensure_eal(); !started)
      return started.error().message;
    struct sigaction now = {};
    sigaction(SIGXFSZ, nullptr, &now);
    return now.sa_handler == SIG_DFL ? "" : "the signal's disposition was changed";
  });
}

TEST(Eal, AFileSizeSignalOfTheProgramStaysPending) {
  expect_success([]() -> std::string {
    sigset_t signal;
    sigemptyset(&signal);
    sigaddset(&signal, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &signal, nullptr);
    raise(SIGXFSZ);
    if (Result<void> started = ensure_eal(); !started)
      return started.error().message;
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) == 1 ? "" : "it was taken away";
  });
}

TEST(Eal, WithoutSysTheErrorNamesIt) {
  const Child child = run_in_child([]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/sys", "tmpfs", 0, nullptr) != 0)
      return "may not mount";
    const Result<void> started = ensure_eal();
    return started ? "started" : started.error().message;
  });
  if (child.output == "may not mount")
    GTEST_SKIP() << "this user may not mount anything over /sys";
  EXPECT_NE(child.output.find("mount sysfs at /sys"), std::string::npos) << child.output;
}

TEST(Eal, ThreadsRegisterOnceAndGiveTheirIdentityBack) {
  expect_success([]() -> std::string {
    if (register_thread())
      return "registered without EAL";
    if (Result<void> started = ensure_eal(); !started)
      return started.error().message;
    if (!register_thread())
      return "the main thread has no identity";
    // More threads, one after the other, than there are identities.
    for (int i = 0; i < 2 * RTE_MAX_LCORE; ++i) {
      bool registered = false;
      unsigned lcore = LCORE_ID_ANY;
      std::thread([&] {
        registered = register_thread() && register_thread();
        lcore = rte_lcore_id();
      }).join();
      if (!registered || lcore == LCORE_ID_ANY)
        return "thread " + std::to_string(i) + " was not registered";
    }
    return {};
  });
}

TEST(Eal, CleanedUpIsNotRunningAndCannotStartAgain) {
  expect_success([]() -> std::string {
    if (Result<void> started = ensure_eal(); !started)
      return started.error().message;
    rte_eal_cleanup();
    if (eal_running())
      return "still runs";
    const Result<void> again = ensure_eal();
    if (again)
      return "started again";
    if (again.error().code != Errc::kSystem)
      return "wrong kind: " + again.error().message;
    if (register_thread())
      return "a thread was registered";
    return again.error().message.find("cleaned up") != std::string::npos ? ""
                                                                         : again.error().message;
  });
}

TEST(Eal, AnAdoptedOneThatIsCleanedUpIsNotRunning) {
  expect_success([]() -> std::string {
    std::vector<std::string> words = application_words();
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
      return "rte_eal_init failed";
    if (!ensure_eal())
      return "not adopted";
    rte_eal_cleanup();
    return eal_running() ? "still runs" : "";
  });
}

TEST(Eal, MemoryWithoutEalIsAnErrorThatSaysWhatToDo) {
  expect_success([]() -> std::string {
    const Result<std::unique_ptr<Memory>> memory = Memory::create({});
    if (memory)
      return "created";
    if (memory.error().code != Errc::kInvalidArgument)
      return "wrong kind";
    return memory.error().message.find("ensure_eal") != std::string::npos ? ""
                                                                          : memory.error().message;
  });
}

}  // namespace
}  // namespace rrdk

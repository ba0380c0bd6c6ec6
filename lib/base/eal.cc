#include "rrdk/eal.h"

#include <fcntl.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_memory.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/lifetime.h"
#include "base/log.h"
#include "base/system.h"

namespace rrdk {

namespace {

// EAL's memory holds only rings; buffers are in arenas of their own. Untouched pages cost nothing.
constexpr const char* kEalMegabytes = "256";

// Returns the first CPU that the calling thread may run on, mapped to lcore 0, so that EAL works in
// a container that does not own CPU 0, and on machines with more CPUs than EAL has lcores.
std::string first_lcore(const cpu_set_t& allowed) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed))
      return "0@" + std::to_string(cpu);
  }
  return "0@0";
}

// A default, and the arguments that replace it.
struct Default {
  std::vector<std::string> words;
  std::vector<std::string_view> unless;
};

std::vector<Default> defaults(const cpu_set_t& allowed) {
  return {
      {{"--no-huge"},
       {"--no-huge", "--in-memory", "--socket-mem", "--numa-mem", "--socket-limit", "--numa-limit",
        "--huge-dir", "--huge-unlink", "--legacy-mem", "--single-file-segments",
        "--match-allocations", "--huge-worker-stack"}},
      {{"-m", kEalMegabytes}, {"-m", "--socket-mem", "--numa-mem", "--in-memory"}},
      {{"--no-shconf"}, {"--no-shconf", "--in-memory", "--file-prefix", "--proc-type"}},
      {{"--no-pci"}, {"--no-pci", "-a", "--allow", "-b", "--block"}},
      {{"--no-telemetry"}, {"--no-telemetry", "--telemetry"}},
      {{"--lcores", first_lcore(allowed)}, {"-l", "-c", "--lcores", "--main-lcore"}},
      {{"--log-level=*:error"}, {"--log-level"}},
  };
}

// "--name", "--name=value", and for a short option "-l" and "-l0,1".
bool is_argument(std::string_view word, std::string_view name) {
  if (!word.starts_with(name))
    return false;
  return word.size() == name.size() || !name.starts_with("--") || word[name.size()] == '=';
}

bool any_argument(std::span<const std::string> arguments, std::span<const std::string_view> names) {
  return std::ranges::any_of(arguments, [&](const std::string& word) {
    return std::ranges::any_of(names,
                               [&](std::string_view name) { return is_argument(word, name); });
  });
}

// EAL's own error does not say that a prefix is invalid for its sockets.
std::string long_prefix_in(std::span<const std::string> arguments) {
  constexpr std::string_view kName = "--file-prefix";
  constexpr size_t kMost = 64;  // of 107 bytes of a socket's path, next to EAL's folder and name
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_argument(arguments[i], kName))
      continue;
    const bool apart = arguments[i].size() == kName.size();
    const size_t length = !apart                     ? arguments[i].size() - kName.size() - 1
                          : i + 1 < arguments.size() ? arguments[i + 1].size()
                                                     : 0;
    if (length > kMost)
      return " (--file-prefix has " + std::to_string(length) + " bytes, and " +
             std::to_string(kMost) + " fit into the names of EAL's sockets)";
  }
  return {};
}

bool names_lcores(std::span<const std::string> arguments) {
  static constexpr std::array<std::string_view, 4> kNames = {"-l", "-c", "--lcores",
                                                             "--main-lcore"};
  return any_argument(arguments, kNames);
}

std::vector<std::string> over_defaults(std::span<const std::string> arguments,
                                       const cpu_set_t& allowed) {
  std::vector<std::string> all;
  for (const Default& one : defaults(allowed)) {
    if (!any_argument(arguments, one.unless))
      all.insert(all.end(), one.words.begin(), one.words.end());
  }
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

// EAL and getopt report errors only by printing them, with the whole usage text. This captures what
// they print while it runs, to show it or to extract an error message.
class OutputCapture {
 public:
  OutputCapture() : stdout_(stdout), stderr_(stderr) {
    stream_ = open_memstream(&text_, &size_);
    if (stream_ == nullptr)
      return;
    stdout = stderr = stream_;
    rte_openlog_stream(stream_);
  }

  // The stream stays open: one of EAL's own threads may be about to write to it.
  std::string_view stop() {
    if (stream_ == nullptr)
      return {};
    stdout = stdout_;
    stderr = stderr_;
    rte_openlog_stream(nullptr);
    std::fflush(stream_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  FILE* stream_;
  FILE* stdout_;
  FILE* stderr_;
};

// One attempt to start EAL. Never destroyed: EAL keeps pointers into the arguments.
struct Attempt {
  std::vector<std::string> words = {"rrdk"};
  std::vector<char*> argv;
  OutputCapture output;
};

// Returns the lines that name the fault: getopt's start with the program's name, EAL's with "EAL:
// ".
std::string fault_in(std::string_view output) {
  std::string fault;
  while (!output.empty()) {
    const size_t end = output.find('\n');
    std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    const bool is_notice = line.starts_with("EAL: Detected") || line.starts_with("EAL: Selected") ||
                           line.starts_with("EAL: Multi-process") || line.starts_with("EAL: FATAL");
    if (is_notice || !(line.starts_with("EAL: ") || line.starts_with("rrdk: ")))
      continue;
    if (!fault.empty())
      fault += "; ";
    fault += line.substr(line.find(' ') + 1);
  }
  return fault;
}

// Leaves out complaints about what EAL does not need: with --no-shconf the folder for files that
// processes share, which belongs to the first user; and a memfd for its own memory.
std::string worth_showing(std::string_view output, std::span<const std::string> arguments) {
  const bool shares = std::ranges::find(arguments, "--no-shconf") == arguments.end();
  std::string lines;
  while (!output.empty()) {
    const size_t end = std::min(output.find('\n'), output.size() - 1) + 1;
    const std::string_view line = output.substr(0, end);
    const bool needless = (!shares && line.starts_with("EAL: Error creating '")) ||
                          line.starts_with("EAL: Cannot create memfd: ") ||
                          line.starts_with("EAL: Cannot resize memfd: ") ||
                          line.starts_with("EAL: Falling back to anonymous map");
    if (!needless)
      lines += line;
    output.remove_prefix(end);
  }
  return lines;
}

// EAL opens files and event descriptors without O_CLOEXEC; a program that the application runs
// would keep them, and with them EAL's memory. Returns the numbers of this process's descriptors.
std::set<int> open_descriptors() {
  std::set<int> open;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
    open.insert(std::atoi(entry.path().filename().c_str()));
  return open;
}

void close_at_exec(const std::set<int>& opened_before) {
  for (int fd : open_descriptors()) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && !opened_before.contains(fd))
      (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  }
}

// While signals are blocked: discards a SIGXFSZ that comes meanwhile. EAL's ordinary pages are a
// memfd, which RLIMIT_FSIZE may not allow. EAL then uses memory that is not a file, but the kernel
// has sent that signal besides the error; if it stayed pending, it would kill the process later.
class FileSizeSignal {
 public:
  FileSizeSignal() : pending_before_(is_pending()) { sigaddset(&only_, SIGXFSZ); }
  ~FileSizeSignal() {
    constexpr timespec kAtOnce = {};
    if (!pending_before_ && is_pending())
      (void)sigtimedwait(&only_, nullptr, &kAtOnce);
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  static bool is_pending() {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  }
  sigset_t only_ = {};
  bool pending_before_;
};

Result<void> start_eal(std::span<const std::string> arguments) {
  static std::deque<Attempt>& attempts =
      *new std::deque<Attempt>;  // EAL's threads also run at exit
  Attempt& attempt = attempts.emplace_back();
  attempt.words.insert(attempt.words.end(), arguments.begin(), arguments.end());
  for (std::string& word : attempt.words)
    attempt.argv.push_back(word.data());
  attempt.argv.push_back(nullptr);

  const std::set<int> opened_before = open_descriptors();
  base::SignalsBlocked blocked;  // inherited by EAL's own threads
  FileSizeSignal too_large;
  const int parsed = rte_eal_init(static_cast<int>(attempt.words.size()), attempt.argv.data());
  const int reason = rte_errno;
  const std::string_view output = attempt.output.stop();
  if (parsed >= 0) {
    (void)eal_running();  // records where its memory is
    close_at_exec(opened_before);
    std::fputs(worth_showing(output, arguments).c_str(), stderr);
    return {};
  }
  if (reason == EALREADY && eal_running())
    return {};
  std::string fault = fault_in(output);
  if (fault.empty())
    fault = rte_strerror(reason) + long_prefix_in(arguments);
  if (access("/sys/devices/system/cpu", F_OK) != 0)  // EAL calls that a wrong argument
    return fail(
        Errc::kSystem,
        "EAL did not start: it looks for CPUs in /sys/devices/system/cpu, which is not there: "
        "mount sysfs at /sys (EAL says: " +
            fault + ")");
  const bool by_arguments = reason == EINVAL || reason == 0;
  return fail(by_arguments ? Errc::kInvalidArgument : Errc::kSystem,
              (by_arguments ? "EAL refused its arguments: " : "EAL did not start: ") + fault);
}

// The start of EAL's memory, when EAL was last seen to run.
std::atomic<const void*>& seen_memory() {
  static std::atomic<const void*> memory{nullptr};
  return memory;
}

// EAL keeps its address range reserved for as long as it runs, whatever the range holds.
bool cleaned_up() {
  const void* memory = seen_memory().load(std::memory_order_relaxed);
  if (memory == nullptr)
    return false;
  unsigned char resident;
  // The range starts on a page boundary. Only an unmapped page gives ENOMEM.
  return mincore(const_cast<void*>(memory), 1, &resident) != 0 && errno == ENOMEM;
}

struct LcoreRegistration {
  bool held = false;
  ~LcoreRegistration() {
    if (held && !base::forked)
      rte_thread_unregister();
  }
};

}  // namespace

bool eal_running() {
  // EAL has no function that tells. Its list of memory segments is empty until rte_eal_init() has
  // set memory up. Walking the list is safe before that, but not after rte_eal_cleanup(), which
  // unmaps the segments.
  if (base::forked || cleaned_up())
    return false;
  const void* memory = nullptr;
  rte_memseg_list_walk(
      [](const rte_memseg_list* list, void* found) {
        *static_cast<const void**>(found) = list->base_va;
        return 1;
      },
      static_cast<void*>(&memory));
  if (memory == nullptr)
    return false;
  seen_memory().store(memory, std::memory_order_relaxed);
  base::notice_forks();
  return true;
}

Result<void> ensure_eal(std::span<const std::string> arguments, EalArguments meaning) {
  if (eal_running())
    return {};
  if (base::forked)
    return fail(
        Errc::kSystem,
        "EAL belongs to the process that this one was forked from: call exec() after fork()");
  if (cleaned_up())
    return fail(Errc::kSystem, "EAL was cleaned up, and starts only once in a process");
  cpu_set_t affinity;
  if (const int error = pthread_getaffinity_np(pthread_self(), sizeof(affinity), &affinity))
    return fail(Errc::kSystem, std::string("pthread_getaffinity_np: ") + rte_strerror(error));
  if (!arguments.empty() && meaning == EalArguments::kAll)
    return start_eal(arguments);

  Result<void> started = start_eal(over_defaults(arguments, affinity));
  // rte_eal_init() pins its caller to the main lcore's CPU. An application that named no lcores did
  // not ask for that, and threads that it starts later would inherit it.
  if (started && !names_lcores(arguments) && rte_thread_set_affinity(&affinity) != 0)
    base::log_warning("the main thread's CPU affinity could not be restored after EAL started");
  return started;
}

std::vector<int> eal_cpus() {
  std::vector<int> cpus;
  if (!eal_running())
    return cpus;
  for (unsigned lcore = rte_get_next_lcore(UINT_MAX, 0, 0); lcore < RTE_MAX_LCORE;
       lcore = rte_get_next_lcore(lcore, 0, 0)) {
    const rte_cpuset_t set = rte_lcore_cpuset(lcore);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set) && std::ranges::find(cpus, cpu) == cpus.end()) {
        cpus.push_back(cpu);
        break;
      }
    }
  }
  return cpus;
}

bool register_thread() {
  if (!eal_running())
    return false;
  if (rte_lcore_id() != LCORE_ID_ANY)
    return true;
  thread_local LcoreRegistration registration;
  registration.held = rte_thread_register() == 0;
  return registration.held;
}

}  // namespace rrdk

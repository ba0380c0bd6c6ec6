#include "supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "child.h"
#include "journal.h"
#include "program.h"

namespace rrdk::survival {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr int kStartMs = 20000;  // that a server may take to listen
constexpr double kClientGraceSeconds = 120;
// The growth that is allowed after the first quarter of a run: allocators and page tables settle,
// and the pages of a server's memory are counted once they are touched.
constexpr int64_t kAnonymousSlackKib = 6 * 1024;
constexpr int64_t kSlackKib = kAnonymousSlackKib + 18 * 1024;
constexpr int64_t kConnectionSlackKib = 8;  // not each has been broken in the first quarter

// A folder for the socket and the journal.
class Folder {
 public:
  Folder() {
    std::string name = "/tmp/rrdk-survival-XXXXXX";
    if (mkdtemp(name.data()) != nullptr)
      path_ = name;
  }
  ~Folder() {
    for (const char* name : {"/sock", "/journal", "/uri"})
      unlink((path_ + name).c_str());
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Supervisor {
 public:
  explicit Supervisor(const Options& options)
      : options_(options),
        uri_(options.transport == "shm" ? "shm:" + folder_.path() + "/sock"
                                        : "iwarp://127.0.0.1:0"),
        announce_(folder_.path() + "/uri"),
        journal_(folder_.path() + "/journal"),
        dice_(options.seed) {}

  int run();

 private:
  // A client process, and its reports.
  struct Client {
    Child process;
    int report_fd = -1;
    std::string unread;
    ordered_json last;
    ordered_json result;
  };

  Child start_server() { return start("server", -1); }
  Child start(const char* role, int report_fd);
  bool wait_for_server();
  void watch();
  Result<void> start_clients();
  bool read_reports(int timeout_ms);
  bool read_report(Client& client);
  void take_line(Client& client, const std::string& line);
  void print_progress();
  ordered_json sum(ordered_json Client::* report) const;
  void check(const char* what, bool held);
  void judge(bool server_whole);
  void print() const;

  const Options& options_;
  Folder folder_;
  std::string uri_;  // where the server is to listen; later where it does
  const std::string announce_;
  const std::string journal_;
  Dice dice_;
  Child server_;
  std::vector<Client> clients_;
  uint64_t kills_ = 0;
  uint64_t server_died_ = 0;  // by itself
  uint64_t last_calls_ = 0;
  ordered_json result_;
  ordered_json summary_;
  bool all_held_ = true;
};

Child Supervisor::start(const char* role, int report_fd) {
  std::vector<std::string> arguments = {"--role",        role,
                                        "--mode",        to_string(options_.mode),
                                        "--seed",        std::to_string(dice_.next()),
                                        "--seconds",     std::to_string(options_.seconds),
                                        "--uri",         uri_,
                                        "--announce",    announce_,
                                        "--connections", std::to_string(options_.connections),
                                        "--calls",       std::to_string(options_.calls),
                                        "--processes",   std::to_string(options_.processes),
                                        "--journal",     journal_};
  if (options_.server_cache)
    arguments.emplace_back("--server-cache");
  if (report_fd >= 0)
    arguments.insert(arguments.end(), {"--report-fd", std::to_string(report_fd)});
  return Child(arguments, report_fd);
}

bool Supervisor::wait_for_server() {
  for (int ms = 0; ms < kStartMs; ms += 10) {
    if (std::ifstream(announce_) >> uri_)
      return true;
    if (server_.ended())
      return false;
    usleep(10000);
  }
  return false;
}

Result<void> Supervisor::start_clients() {
  clients_.resize(options_.processes);
  for (Client& client : clients_) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      return fail(Errc::kSystem, "no pipe for a client's report");
    client.report_fd = ends[0];
    client.process = start("client", ends[1]);
    ::close(ends[1]);
  }
  return {};
}

// Until the clients end. Servers are killed until shortly before the end of the time.
void Supervisor::watch() {
  Clock::time_point start = Clock::now();
  auto elapsed_ms = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
  };
  auto next_kill_ms = static_cast<int64_t>(dice_.between(1000, 4000));
  while (read_reports(50)) {
    auto now_ms = static_cast<double>(elapsed_ms());
    if (now_ms > (options_.seconds + kClientGraceSeconds) * 1000) {
      std::cerr << "survival: a client does not end\n";
      return;
    }
    if (server_.ended()) {
      ++server_died_;
      server_ = start_server();
    }
    if (options_.mode == Mode::kKill && elapsed_ms() >= next_kill_ms &&
        now_ms < options_.seconds * 1000) {
      server_.kill_hard();
      ++kills_;
      server_ = start_server();
      next_kill_ms = elapsed_ms() + static_cast<int64_t>(dice_.between(1000, 4000));
    }
  }
}

// Returns false at the end of the clients' reports.
bool Supervisor::read_reports(int timeout_ms) {
  std::vector<pollfd> readable;
  for (const Client& client : clients_)
    readable.push_back({.fd = client.report_fd, .events = POLLIN, .revents = 0});
  if (::poll(readable.data(), readable.size(), timeout_ms) <= 0)
    return true;
  bool more = false;
  for (size_t i = 0; i < clients_.size(); ++i)
    more |= readable[i].revents == 0 ? clients_[i].report_fd >= 0 : read_report(clients_[i]);
  return more;
}

bool Supervisor::read_report(Client& client) {
  char bytes[4096];
  ssize_t length = ::read(client.report_fd, bytes, sizeof bytes);
  if (length <= 0) {
    ::close(std::exchange(client.report_fd, -1));
    return false;
  }
  std::string& unread = client.unread;
  unread.append(bytes, static_cast<size_t>(length));
  for (size_t end = 0; (end = unread.find('\n')) != std::string::npos; unread.erase(0, end + 1))
    take_line(client, unread.substr(0, end));
  return true;
}

void Supervisor::take_line(Client& client, const std::string& line) {
  ordered_json report = ordered_json::parse(line, nullptr, false);
  if (!report.is_object())
    return;
  if (report["kind"] == "result") {
    client.result = report;
    return;
  }
  client.last = report;
  if (&client == &clients_.front())
    print_progress();
}

// The combined result of all clients: numbers are summed, and a boolean is true if it is true for
// all. Null if a client has not reported.
ordered_json Supervisor::sum(ordered_json Client::* report) const {
  ordered_json all;
  for (const Client& client : clients_) {
    const ordered_json& own = client.*report;
    if (!own.is_object())
      return {};
    if (all.is_null()) {
      all = own;
      continue;
    }
    for (auto& [name, value] : all.items()) {
      if (value.is_number_integer())
        value = value.get<int64_t>() + own[name].get<int64_t>();
      else if (value.is_boolean())
        value = value.get<bool>() && own[name].get<bool>();
    }
  }
  return all;
}

void Supervisor::print_progress() {
  ordered_json report = sum(&Client::last);
  if (report.is_null())
    return;
  auto number = [&](const char* name) { return report[name].get<uint64_t>(); };
  uint64_t calls = number("adds_ok") + number("reads_ok") + number("writes_ok");
  std::printf("%7.0f s %11lu calls %8lu/s  %4lu kills %5lu reconnections %7lu sent again\n",
              report["seconds"].get<double>(), calls, calls - last_calls_, kills_,
              number("reconnects"), number("retransmissions"));
  std::fflush(stdout);
  last_calls_ = calls;
}

void Supervisor::check(const char* what, bool held) {
  std::printf("  %-4s %s\n", held ? "ok" : "FAIL", what);
  summary_["checks"].push_back({{"check", what}, {"held", held}});
  all_held_ = all_held_ && held;
}

void Supervisor::judge(bool server_whole) {
  auto journal = Journal::open(journal_);
  uint64_t count = journal ? (*journal)->count() : 0;
  summary_ = {{"mode", to_string(options_.mode)},
              {"seconds", options_.seconds},
              {"seed", options_.seed},
              {"server_cache", options_.server_cache},
              {"transport", options_.transport},
              {"connections", options_.connections},
              {"processes", options_.processes},
              {"kills", kills_},
              {"counter", count},
              {"answered_from_record", journal ? (*journal)->answered_from_record() : 0},
              {"client", result_},
              {"checks", ordered_json::array()}};
  if (!result_.is_object()) {
    check("the clients came to a result", false);
    return;
  }
  auto number = [&](const char* name) { return result_[name].get<int64_t>(); };
  auto counter = static_cast<int64_t>(count);
  check("every call ended, and with ok", number("never_ended") == 0 && number("failed") == 0);
  check("the counter is the number of additions that ended with ok", number("adds_ok") == counter);
  // With several clients, only the number of values can show that one came twice or not at all.
  if (options_.processes == 1)
    check("every value came exactly once", number("values_all_up_to") == counter &&
                                               number("values_doubled") == 0 &&
                                               number("values_astray") == 0);
  check("all data was right", number("wrong_bytes") == 0 && number("undecodable") == 0);
  check("no XID came with two calls", journal && (*journal)->clashes() == 0);
  // Most connections each time, in most of the seconds that a busy machine leaves; many take longer
  // to come back.
  const int64_t connections = int64_t{options_.connections} * options_.processes;
  const auto times = static_cast<int64_t>(options_.seconds) * 100 / (400 + connections);
  int64_t breaks = options_.mode == Mode::kAll ? connections * std::max<int64_t>(times, 1) : 0;
  check("connections broke, and came back", number("reconnects") > breaks);
  if (options_.mode == Mode::kAll)
    std::printf("  calls run minus calls that ended with ok: %ld\n", counter - number("adds_ok"));
  const int64_t slack = connections * kConnectionSlackKib;
  check("the client's anonymous memory does not grow",
        number("anonymous_end_kib") <= number("anonymous_first_quarter_kib") +
                                           options_.processes * kAnonymousSlackKib + slack);
  check("the client's memory does not grow",
        number("rss_end_kib") <=
            number("rss_first_quarter_kib") + options_.processes * kSlackKib + slack);
  check("the client's pools are whole", result_["pools_whole"].get<bool>());
  check("the last server's pools are whole", server_whole);
  check("no server ended by itself", server_died_ == 0);
}

void Supervisor::print() const {
  if (!result_.is_object())
    return;
  auto number = [&](const char* name) { return result_[name].get<int64_t>(); };
  std::printf(
      "\n%ld additions, %ld reads, %ld writes; %lu kills, %ld reconnections, %ld attempts in "
      "vain\n%ld calls carried over, %ld sent again, %lu answered from the record\n"
      "%ld keepalives, %ld connections ended by them; memory %ld -> %ld KiB, of it anonymous "
      "%ld -> %ld KiB\n",
      number("adds_ok"), number("reads_ok"), number("writes_ok"), kills_, number("reconnects"),
      number("failed_attempts"), number("carried_over"), number("retransmissions"),
      summary_["answered_from_record"].get<uint64_t>(), number("keepalives"),
      number("keepalive_ends"), number("rss_first_quarter_kib"), number("rss_end_kib"),
      number("anonymous_first_quarter_kib"), number("anonymous_end_kib"));
}

int Supervisor::run() {
  std::printf("survival: mode %s, %s, %u connections of %u processes, %.0f s, seed %lu\n",
              to_string(options_.mode), options_.transport.c_str(),
              options_.connections * options_.processes, options_.processes, options_.seconds,
              options_.seed);
  std::fflush(stdout);
  if (folder_.path().empty()) {
    std::perror("survival: a folder in /tmp");
    return 1;
  }
  server_ = start_server();
  if (!wait_for_server()) {
    std::cerr << "survival: the server did not start\n";
    return 1;
  }
  if (Result<void> started = start_clients(); !started) {
    std::cerr << "survival: " << started.error().message << '\n';
    return 1;
  }
  watch();
  for (Client& client : clients_)
    client.process.kill_hard();
  result_ = sum(&Client::result);
  bool server_whole = server_.finish() == 0;
  std::printf("\n");
  judge(server_whole);
  print();
  std::printf("survival: %s\n", all_held_ ? "everything held" : "FAILED");
  summary_["held"] = all_held_;
  if (!options_.json.empty() && !(std::ofstream(options_.json) << summary_.dump(2) << '\n')) {
    std::cerr << "survival: cannot write " << options_.json << '\n';
    return 1;
  }
  return all_held_ ? 0 : 1;
}

}  // namespace

int run_supervisor(const Options& given) {
  Options options = given;
  if (options.seed == 0)
    options.seed = std::random_device{}();
  return Supervisor(options).run();
}

}  // namespace rrdk::survival

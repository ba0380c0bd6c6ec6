#include "sites.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <semaphore>
#include <utility>

#include "kv.h"
#include "memory.h"
#include "rrdk/tirpc.h"
#include "rrdk/tirpc_items.h"

extern "C" void kv_prog_1(svc_req*, SVCXPRT*);

namespace {

std::counting_semaphore<> blocked(0), entered(0);

bool_t never(XDR*, ...) {
  return FALSE;
}

std::string caller_of(const svc_req* request) {
  const netbuf* address = svc_getrpccaller(request->rq_xprt);
  std::string text = "family " + std::to_string(static_cast<sockaddr*>(address->buf)->sa_family);
  if (request->rq_prog == kOddLoopback) {
    const auto* caller = static_cast<const sockaddr_in*>(address->buf);
    text += ntohl(caller->sin_addr.s_addr) == INADDR_LOOPBACK ? " loopback" : " other";
    text += ntohs(caller->sin_port) < IPPORT_RESERVED ? " reserved" : "";
  }
  if (request->rq_cred.oa_flavor == RPCSEC_GSS) {
    const auto* who = static_cast<const rrdk_svc_gss_caller*>(request->rq_clntcred);
    return text + ", " + who->principal + " by " + std::to_string(who->service);
  }
  if (request->rq_cred.oa_flavor != AUTH_SYS)
    return text + ", flavour " + std::to_string(request->rq_cred.oa_flavor);
  const auto* who = static_cast<const authunix_parms*>(request->rq_clntcred);
  text += std::string(", ") + who->aup_machname + " " + std::to_string(who->aup_uid) + "/" +
          std::to_string(who->aup_gid);
  for (u_int i = 0; i < who->aup_len; ++i)
    text += " " + std::to_string(who->aup_gids[i]);
  return text;
}

// Two words, the second one first.
bool_t swapped(XDR* xdrs, ...) {
  va_list arguments;
  va_start(arguments, xdrs);
  int* words = va_arg(arguments, int*);
  va_end(arguments);
  const u_int start = xdr_getpos(xdrs);
  return xdr_setpos(xdrs, start + 4) && xdr_int(xdrs, &words[1]) && xdr_setpos(xdrs, start) &&
         xdr_int(xdrs, &words[0]) && xdr_setpos(xdrs, start + 8) && !xdr_setpos(xdrs, start + 4096);
}

void answer_text(SVCXPRT* transport, const std::string& text) {
  const char* to_send = text.c_str();
  svc_sendreply(transport, routine(xdr_wrapstring), &to_send);
}

void list_of(SVCXPRT* transport) {
  char* uri = nullptr;
  if (!svc_getargs(transport, routine(xdr_wrapstring), &uri))
    return svcerr_decode(transport);
  ClientPointer client(rrdk_clnt_create(uri, KV_PROG, KV_V1));
  const bool listed = client != nullptr && kv_list_1(nullptr, client.get()) != nullptr;
  answer_text(transport, listed ? "listed" : rrdk_tirpc_error());
  svc_freeargs(transport, routine(xdr_wrapstring), &uri);
}

int logged = 0;

void log_line(SVCXPRT* transport) {
  OddLine line = {};
  if (!svc_getargs(transport, routine(xdr_odd_line), &line))
    return svcerr_decode(transport);
  logged = line.number == logged ? logged + 1 : -1;
  svc_freeargs(transport, routine(xdr_odd_line), &line);
}

void answer_number(SVCXPRT* transport, int number) {
  svc_sendreply(transport, routine(xdr_int), &number);
}

struct Words {
  char* elements;
  u_int count;
};
struct Wide {
  int word;
  char rest[60'000];
};
struct Node {
  int word;
  Node* next;
};

bool_t xdr_words(XDR* xdrs, Words* words) {
  return xdr_array(xdrs, &words->elements, &words->count, UINT32_MAX, sizeof(int),
                   routine(xdr_int));
}

bool_t xdr_wide(XDR* xdrs, Words* words) {
  return xdr_array(xdrs, &words->elements, &words->count, UINT32_MAX, sizeof(Wide),
                   routine(xdr_int));
}

bool_t xdr_list(XDR* xdrs, Node** list);
bool_t xdr_node(XDR* xdrs, Node* node) {
  return xdr_int(xdrs, &node->word) && xdr_list(xdrs, &node->next);
}
bool_t xdr_list(XDR* xdrs, Node** list) {
  return xdr_pointer(xdrs, reinterpret_cast<char**>(list), sizeof(Node), routine(xdr_node));
}

void count_words(SVCXPRT* transport, xdrproc_t decode) {
  Words words = {};
  if (!svc_getargs(transport, decode, &words))
    return svcerr_decode(transport);
  answer_number(transport, static_cast<int>(words.count));
  svc_freeargs(transport, decode, &words);
}

void count_nodes(SVCXPRT* transport) {
  Node* list = nullptr;
  if (!svc_getargs(transport, routine(xdr_list), &list))
    return svcerr_decode(transport);
  int count = 0;
  for (const Node* node = list; node != nullptr; node = node->next)
    ++count;
  answer_number(transport, count);
  svc_freeargs(transport, routine(xdr_list), &list);
}

std::string fresh_name() {
  static std::atomic<int> count = 0;
  return "shm:@rrdk-tirpc-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

SVCXPRT* once_more = nullptr;

void odd(svc_req* request, SVCXPRT* transport);

void serve_once_more(SVCXPRT* transport) {
  once_more = rrdk_svc_create(fresh_name().c_str());
  if (once_more == nullptr || !rrdk_svc_reg(once_more, kOddProgram, kOddVersion, odd, 0))
    return svcerr_systemerr(transport);
  answer_text(transport, rrdk_svc_uri(once_more));
}

void odd(svc_req* request, SVCXPRT* transport) {
  int words[2] = {};
  switch (request->rq_proc) {
    case NULLPROC:
      svc_sendreply(transport, nothing, nullptr);
      return;
    case kOddBlock:
      entered.release();
      blocked.acquire();
      svc_sendreply(transport, nothing, nullptr);
      return;
    case kOddSilent:
      return;
    case kOddCaller:
      return answer_text(transport, caller_of(request));
    case kOddWeak:
      return svcerr_weakauth(transport);
    case kOddPositions:
      if (!svc_getargs(transport, swapped, words))
        return svcerr_decode(transport);
      words[0] += words[1];
      svc_sendreply(transport, routine(xdr_int), words);
      return;
    case kOddUnencodable:
      if (svc_sendreply(transport, never, words))
        return;
      return svcerr_systemerr(transport);
    case kOddCallsAnother:
      return list_of(transport);
    case kOddLog:
      return log_line(transport);
    case kOddLogged:
      return answer_number(transport, std::exchange(logged, 0));
    case kOddEcho:
      if (!svc_getargs(transport, routine(xdr_int), words))
        return svcerr_decode(transport);
      return answer_number(transport, words[0]);
    case kOddWords:
      return count_words(transport, routine(xdr_words));
    case kOddWide:
      return count_words(transport, routine(xdr_wide));
    case kOddList:
      return count_nodes(transport);
    case kOddLeaveEvents:
      for (int i = 0; i < svc_max_pollfd; ++i)
        svc_pollfd[i].revents = POLLNVAL;
      svc_sendreply(transport, nothing, nullptr);
      return;
    case kOddLater:
      defer_call(transport);
      return entered.release();
    case kOddAnswerLater:
      return answer_deferred(transport);
    case kOddServe:
      return serve_once_more(transport);
    case kOddEndServing:
      svc_destroy(once_more);  // a macro that uses it twice
      svc_sendreply(transport, nothing, nullptr);
      return;
    case kOddVersions:
      return svcerr_progvers(transport, 3, 7);
    default:
      if (request->rq_proc >= kOddOther)
        return answer_number(transport, static_cast<int>(request->rq_proc));
      return svcerr_noproc(transport);
  }
}

// A TCP transport of libtirpc, and its port; null if it cannot be made.
SVCXPRT* listen_on_tcp(uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 8) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return nullptr;
  port = ntohs(address.sin_port);
  return svctcp_create(fd, 0, 0);
}

// State of the serving thread. Empty if all is as it should be.
std::string try_registrations(SVCXPRT* shm) {
  constexpr rpcprog_t kOther = 0x20004b58;
  if (rrdk_svc_create("shm:/nowhere/at.all") != nullptr ||
      std::string(rrdk_tirpc_error()).find("/nowhere/at.all") == std::string::npos)
    return "an address where nothing can be created was served";
  if (rrdk_svc_reg(shm, KV_PROG, KV_V1, kv_prog_1, 0))
    return "a program was registered twice";
  if (rrdk_svc_reg(shm, kOther, 1, odd, RRDK_SVC_RPCBIND) ||
      std::string(rrdk_tirpc_error()).find("no port") == std::string::npos)
    return "rpcbind was told of an address without a port";
  if (!rrdk_svc_reg(shm, kOther, 1, odd, 0) || !rrdk_svc_reg(shm, kOther, 2, odd, 0))
    return rrdk_tirpc_error();
  rrdk_svc_unreg(shm, kOther, 1);
  return "";
}

// As a program does that has a loop of its own.
void serve_in_own_loop() {
  while (true) {
    std::vector<pollfd> sources(svc_pollfd, svc_pollfd + svc_max_pollfd);
    for (pollfd& source : sources)
      source.revents = 0;
    sources.push_back({.fd = rrdk_svc_fd(), .events = POLLIN, .revents = 0});
    ::poll(sources.data(), sources.size(), -1);
    if (sources.back().revents != 0 && rrdk_svc_poll() < 0)
      return;
    sources.pop_back();
    svc_getreq_poll(sources.data(), static_cast<int>(sources.size()));
  }
}

}  // namespace

bool has_own_loop() {
  return std::getenv("RRDK_TIRPC_OWN_LOOP") != nullptr;
}

StubServer::StubServer() {
  std::promise<std::string> ready;  // what went wrong
  thread_ = std::thread([this, &ready] {
    SVCXPRT* tcp = listen_on_tcp(tcp_port_);
    if (tcp == nullptr || !svc_reg(tcp, KV_PROG, KV_V1, kv_prog_1, nullptr) ||
        !svc_reg(tcp, kOddProgram, kOddVersion, odd, nullptr))
      return ready.set_value("no TCP");
    std::map<std::string, SVCXPRT*> made = {{"shm", rrdk_svc_create(fresh_name().c_str())},
                                            {"iwarp", rrdk_svc_create("iwarp://127.0.0.1:0")}};
    if (std::getenv("RRDK_TEST_REALM") != nullptr)
      made["gss"] = rrdk_svc_create_gss("iwarp://127.0.0.1:0", "nfs@localhost", nullptr);
    std::vector<SVCXPRT*> transports;
    for (const auto& [name, transport] : made) {
      if (transport == nullptr || !rrdk_svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, 0) ||
          !rrdk_svc_reg(transport, kOddProgram, kOddVersion, odd, 0) ||
          !rrdk_svc_reg(transport, kOddLoopback, kOddVersion, odd, RRDK_SVC_LOOPBACK))
        return ready.set_value(rrdk_tirpc_error());
      uris_[name] = rrdk_svc_uri(transport);
      transports.push_back(transport);
    }
    const std::string wrong = try_registrations(made["shm"]);
    ready.set_value(wrong);
    if (wrong.empty())
      has_own_loop() ? serve_in_own_loop() : rrdk_svc_run();
    for (SVCXPRT* transport : transports)
      svc_destroy(transport);
    svc_unreg(KV_PROG, KV_V1);
    svc_unreg(kOddProgram, kOddVersion);
    svc_destroy(tcp);
  });
  const std::string wrong = ready.get_future().get();
  if (!wrong.empty())
    ADD_FAILURE() << wrong;
}

StubServer::~StubServer() {
  rrdk_svc_exit();
  thread_.join();
}

void StubServer::unblock() {
  blocked.release();
}

void StubServer::wait_until_blocked() {
  entered.acquire();
}

namespace {

std::atomic<bool> held = false, holds = false;

pid_t thread_named(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm == name)
      return std::stoi(task.path().filename());
  }
  return 0;
}

bool sleeps_in_poll(pid_t thread) {
  int number = -1;
  std::ifstream("/proc/self/task/" + std::to_string(thread) + "/syscall") >> number;
#ifdef SYS_poll
  if (number == SYS_poll)
    return true;
#endif
  return number == SYS_ppoll;
}

}  // namespace

// The keeper takes no signals except those of faults and profilers.
void StubServer::without_keeper(const std::function<void()>& during) {
  struct sigaction waits = {}, before = {};
  waits.sa_handler = [](int) {
    holds = true;
    while (held)
      ::sched_yield();
    holds = false;
  };
  ::sigaction(SIGPROF, &waits, &before);
  const pid_t keeper = thread_named("rrdk-tirpc");
  while (!sleeps_in_poll(keeper))
    std::this_thread::yield();
  held = true;
  ::syscall(SYS_tgkill, ::getpid(), keeper, SIGPROF);
  while (!holds)
    std::this_thread::yield();
  during();
  held = false;
  while (holds)
    std::this_thread::yield();
  ::sigaction(SIGPROF, &before, nullptr);
}

void StubServer::spin() {
  constexpr int64_t kMillisecond = 1'000'000;
  clockid_t clock = 0;
  ::pthread_getcpuclockid(thread_.native_handle(), &clock);
  const auto used = [clock] {
    timespec now = {};
    ::clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  };
  const int64_t start = used();
  while (used() - start < kMillisecond)
    std::this_thread::yield();
}

bool_t xdr_odd_line(XDR* xdrs, OddLine* line) {
  return xdr_int(xdrs, &line->number) && xdr_bytes(xdrs, &line->text, &line->length, 1u << 20);
}

CLIENT* StubServer::connect(const std::string& transport, rpcprog_t program,
                            rpcvers_t version) const {
  if (transport != "tcp")
    return rrdk_clnt_create(uris_.at(transport).c_str(), program, version);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(tcp_port_);
  int fd = RPC_ANYSOCK;
  return clnttcp_create(&address, program, version, &fd, 0, 0);
}

namespace {

class Environment : public testing::Environment {
 public:
  void SetUp() override {
    for (const char* file : {RRDK_KV_BINDING, RRDK_PERF_BINDING, RRDK_ODD_BINDING})
      ASSERT_TRUE(rrdk_tirpc_bind(file)) << rrdk_tirpc_error();
    server = std::make_unique<StubServer>();
  }
  void TearDown() override {
    server.reset();
    EXPECT_EQ(rrdk::tirpc::lent(), 0u) << "memory that was decoded in place is not back";
  }
  std::unique_ptr<StubServer> server;
};

Environment& environment =
    *static_cast<Environment*>(testing::AddGlobalTestEnvironment(new Environment));

}  // namespace

StubServer& stub_server() {
  return *environment.server;
}

RawServer::RawServer(const rrdk::Binding& binding, std::map<uint32_t, Answer> answers)
    : answers_(std::move(answers)) {
  rrdk::Memory& memory = *rrdk::must(rrdk::tirpc::process_memory());
  runtime_ = rrdk::must(rrdk::Runtime::create(memory, {.poll_cpus = {-1}}));
  server_ = rrdk::must(rrdk::Server::create(*runtime_));
  std::vector<rrdk::Procedure> procedures;
  for (auto& [number, answer] : answers_)
    procedures.push_back(
        {.number = number,
         .handler = [](rrdk::ServerCall call,
                       void* context) { (*static_cast<Answer*>(context))(std::move(call)); },
         .context = &answer});
  rrdk::must(server_->add_service({.binding = &binding, .procedures = procedures}));
  uri_ = rrdk::must(server_->listen(fresh_name()));
}

RawServer::~RawServer() = default;

RawClient::RawClient(const std::string& uri) {
  rrdk::Memory& memory = *rrdk::must(rrdk::tirpc::process_memory());
  runtime_ = rrdk::must(rrdk::Runtime::create(memory));
  client_ = rrdk::must(rrdk::Client::create(*runtime_));
  connection_ = rrdk::must(client_->connect(uri));
}

RawClient::~RawClient() = default;

// Errors between stubs and the other end, whichever end is at fault.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kv.h"
#include "rrdk/tirpc.h"
#include "sites.h"
#include "test/no_descriptors.h"

namespace {
std::atomic<size_t> largest_allocation = 0;  // 0 for ever if a sanitizer has the allocator
}  // namespace

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The functions with which libtirpc allocates.
extern "C" void* __libc_calloc(size_t count, size_t size);
extern "C" void* calloc(size_t count, size_t size) noexcept {
  if (count * size > largest_allocation)
    largest_allocation = count * size;
  return __libc_calloc(count, size);
}
#endif

namespace {

using rrdk::AcceptStat;
using rrdk::CallStatus;
using rrdk::Encoder;

constexpr rrdk::Binding kOdd = {
    .program = kOddProgram, .version = kOddVersion, .name = "odd", .procedures = {}};

rpc_err error_of(const ClientPointer& client) {
  rpc_err error = {};
  clnt_geterr(client.get(), &error);
  return error;
}

class Errors : public testing::TestWithParam<const char*> {
 protected:
  ClientPointer connect(rpcprog_t program, rpcvers_t version) {
    return ClientPointer(stub_server().connect(GetParam(), program, version));
  }
  clnt_stat call(const ClientPointer& client, rpcproc_t procedure, timeval patience = kPatience) {
    return clnt_call(client.get(), procedure, nothing, nullptr, nothing, nullptr, patience);
  }
};

// Over TCP these errors are libtirpc's own, so that both agree.
TEST_P(Errors, UnknownProgramsVersionsAndProcedures) {
  EXPECT_EQ(call(connect(KV_PROG, KV_V1), 99), RPC_PROCUNAVAIL);
  EXPECT_EQ(call(connect(KV_PROG, KV_V1), 70000), RPC_PROCUNAVAIL);
  EXPECT_EQ(call(connect(KV_PROG + 77, KV_V1), 0), RPC_PROGUNAVAIL);
  auto client = connect(KV_PROG, 7);
  EXPECT_EQ(call(client, 0), RPC_PROGVERSMISMATCH);
  EXPECT_EQ(error_of(client).re_vers.low, static_cast<rpcvers_t>(KV_V1));
  EXPECT_EQ(error_of(client).re_vers.high, static_cast<rpcvers_t>(KV_V1));
}

// The dispatch routine decides, not a table: for any number.
TEST_P(Errors, ProcedureErrorsComeFromTheDispatchRoutine) {
  auto client = connect(kOddProgram, kOddVersion);
  constexpr rpcproc_t kKnown[] = {kOddOther, 70'000, 0x7fffffff, 0xfffffffe, 0xffffffff};
  for (rpcproc_t procedure : kKnown) {
    int answer = 0;
    EXPECT_EQ(clnt_call(client.get(), procedure, nothing, nullptr, routine(xdr_int),
                        reinterpret_cast<char*>(&answer), kPatience),
              RPC_SUCCESS);
    EXPECT_EQ(static_cast<rpcproc_t>(answer), procedure);
  }
  for (rpcproc_t procedure : {255u, 256u, 999u})
    EXPECT_EQ(call(client, procedure), RPC_PROCUNAVAIL);
}

TEST_P(Errors, UndecodableArguments) {
  auto client = connect(KV_PROG, KV_V1);
  EXPECT_EQ(call(client, KV_PUT), RPC_CANTDECODEARGS);
  EXPECT_EQ(call(client, NULLPROC), RPC_SUCCESS);
}

TEST_P(Errors, ErrorsFromDispatchRoutines) {
  auto client = connect(kOddProgram, kOddVersion);
  EXPECT_EQ(call(client, kOddWeak), RPC_AUTHERROR);
  EXPECT_EQ(error_of(client).re_why, AUTH_TOOWEAK);
  EXPECT_EQ(call(client, kOddVersions), RPC_PROGVERSMISMATCH);
  EXPECT_EQ(error_of(client).re_vers.low, 3u);
  EXPECT_EQ(error_of(client).re_vers.high, 7u);
  EXPECT_EQ(call(client, NULLPROC), RPC_SUCCESS);
}

TEST_P(Errors, Timeouts) {
  auto client = connect(kOddProgram, kOddVersion);
  EXPECT_EQ(call(client, kOddBlock, {0, 20'000}), RPC_TIMEDOUT);
  stub_server().wait_until_blocked();
  stub_server().unblock();
  EXPECT_EQ(call(client, NULLPROC), RPC_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Over, Errors, testing::Values("shm", "iwarp", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

// An answer that does not come at all is an error at once, unlike over TCP.
TEST(TirpcErrors, DispatchRoutinesThatDoNotAnswer) {
  ClientPointer client(stub_server().connect("shm", kOddProgram, kOddVersion));
  EXPECT_EQ(clnt_call(client.get(), kOddSilent, nothing, nullptr, nothing, nullptr, kPatience),
            RPC_SYSTEMERROR);
}

// Over TCP the client gets an invalid reply.
TEST(TirpcErrors, UnencodableResults) {
  ClientPointer client(stub_server().connect("shm", kOddProgram, kOddVersion));
  EXPECT_EQ(clnt_call(client.get(), kOddUnencodable, nothing, nullptr, nothing, nullptr, kPatience),
            RPC_SYSTEMERROR);
}

TEST(TirpcErrors, ZeroTimeout) {
  ClientPointer client(stub_server().connect("shm", kOddProgram, kOddVersion));
  EXPECT_EQ(clnt_call(client.get(), NULLPROC, nothing, nullptr, nothing, nullptr, kPatience),
            RPC_SUCCESS);
  EXPECT_EQ(clnt_call(client.get(), kOddBlock, nothing, nullptr, nothing, nullptr, timeval{}),
            RPC_TIMEDOUT);
  EXPECT_EQ(clnt_call(client.get(), kOddBlock, nothing, nullptr, nullptr, nullptr, timeval{}),
            RPC_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    stub_server().wait_until_blocked();
    stub_server().unblock();
  }
  EXPECT_EQ(clnt_call(client.get(), NULLPROC, nothing, nullptr, nothing, nullptr, kPatience),
            RPC_SUCCESS);
}

// A batched call is either sent, or refused if there was no credit in time.
TEST(TirpcErrors, UnansweredBatchedCalls) {
  std::mutex mutex;
  std::vector<rrdk::ServerCall> kept;
  RawServer server(kKv, {{KV_LIST,
                          [](rrdk::ServerCall call) {
                            call.results().put_u32(0);
                            std::move(call).reply();
                          }},
                         {KV_REMOVE, [&](rrdk::ServerCall call) {
                            std::lock_guard lock(mutex);
                            kept.push_back(std::move(call));
                          }}});
  ClientPointer client(rrdk_clnt_create(server.uri().c_str(), KV_PROG, KV_V1));
  const auto call = [&](rpcproc_t procedure, timeval limit) {
    return clnt_call(client.get(), procedure, nothing, nullptr, nullptr, nullptr, limit);
  };
  ASSERT_EQ(call(KV_LIST, {0, 200'000}), RPC_SUCCESS);
  size_t sent = 0;
  while (sent < 1000 && call(KV_REMOVE, {}) == RPC_SUCCESS)
    ++sent;
  EXPECT_EQ(error_of(client).re_status, RPC_CANTSEND);
  EXPECT_EQ(error_of(client).re_errno, ETIMEDOUT);
  EXPECT_GT(sent, 0u);
  client.reset();
  std::lock_guard lock(mutex);
  EXPECT_EQ(kept.size(), sent);
  for (rrdk::ServerCall& entry : kept)
    std::move(entry).reply();
  kept.clear();
}

// A client that connects meanwhile, and one that only asks whether the server is there.
TEST_P(Errors, SlowDispatchRoutines) {
  auto client = connect(kOddProgram, kOddVersion);
  std::thread slow([&] { EXPECT_EQ(call(client, kOddBlock), RPC_SUCCESS); });
  stub_server().wait_until_blocked();
  auto other = connect(kOddProgram, kOddVersion);
  EXPECT_NE(other, nullptr) << rrdk_tirpc_error();
  if (std::string(GetParam()) != "tcp" && other != nullptr) {
    EXPECT_EQ(call(other, NULLPROC), RPC_SUCCESS);
    EXPECT_EQ(call(other, kOddWeak, {0, 20'000}), RPC_TIMEDOUT);
  }
  stub_server().unblock();
  slow.join();
  EXPECT_EQ(call(other, NULLPROC), RPC_SUCCESS);
}

// libtirpc sets no events in svc_pollfd; events that are there before poll() has looked are left
// over.
TEST(TirpcErrors, SpuriousEvents) {
  if (has_own_loop())
    GTEST_SKIP() << "that loop clears the events itself";
  ClientPointer client(stub_server().connect("shm", kOddProgram, kOddVersion));
  const auto call = [&client](rpcproc_t procedure) {
    return clnt_call(client.get(), procedure, nothing, nullptr, nothing, nullptr, kPatience);
  };
  EXPECT_EQ(call(kOddLeaveEvents), RPC_SUCCESS);
  std::thread slow([&] { EXPECT_EQ(call(kOddBlock), RPC_SUCCESS); });
  stub_server().wait_until_blocked();
  stub_server().without_keeper([&slow] {
    stub_server().unblock();
    slow.join();
    stub_server().spin();
  });
  client.reset(stub_server().connect("tcp", kOddProgram, kOddVersion));
  EXPECT_EQ(call(NULLPROC), RPC_SUCCESS);
}

// In a child of fork() the CLIENT belongs to the parent.
TEST(TirpcErrors, ForkedProcesses) {
  for (const char* transport : {"shm", "iwarp"}) {
    ClientPointer client(stub_server().connect(transport, kOddProgram, kOddVersion));
    const auto null = [&] {
      return clnt_call(client.get(), NULLPROC, nothing, nullptr, nothing, nullptr, kPatience);
    };
    ASSERT_EQ(null(), RPC_SUCCESS);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool refused = null() == RPC_CANTSEND && std::strstr(rrdk_tirpc_error(), "exec()");
      client.reset();
      const bool none = stub_server().connect(transport, kOddProgram, kOddVersion) == nullptr;
      ::_exit(refused && none ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(null(), RPC_SUCCESS) << rrdk_tirpc_error();
  }
}

// This process lacks descriptors, not the other host. Existing connections outlive it.
TEST(TirpcErrors, TooManyDescriptors) {
  for (const char* transport : {"shm", "iwarp"}) {
    ClientPointer first(stub_server().connect(transport, kOddProgram, kOddVersion));
    {
      rrdk::test::NoDescriptors now;
      EXPECT_EQ(stub_server().connect(transport, kOddProgram, kOddVersion), nullptr);
    }
    EXPECT_EQ(rpc_createerr.cf_stat, RPC_SYSTEMERROR);
    EXPECT_EQ(rpc_createerr.cf_error.re_errno, EMFILE) << rrdk_tirpc_error();
    EXPECT_EQ(clnt_call(first.get(), NULLPROC, nothing, nullptr, nothing, nullptr, kPatience),
              RPC_SUCCESS);
  }
}

ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// In a process that has made no CLIENT yet: with more descriptors each time, until they are enough
// for what all CLIENTs share. Returns how many times something was left behind, or the error did
// not say what to do; -1 if they were never enough.
int start_with_too_few() {
  constexpr rlim_t kEnough = 200;
  int leaks = 0;
  for (rlim_t few = 0; few < kEnough; ++few) {
    const ptrdiff_t before = open_descriptors();
    {
      const rrdk::test::NoDescriptors now(few);
      if (stub_server().connect("shm", kOddProgram, kOddVersion) != nullptr ||
          std::strstr(rrdk_tirpc_error(), "shm:") != nullptr)
        return leaks;
    }
    if (std::strstr(rrdk_tirpc_error(), "RLIMIT_NOFILE") == nullptr) {
      std::cerr << few << " without a remedy: " << rrdk_tirpc_error() << '\n';
      ++leaks;
    }
    if (open_descriptors() != before) {
      std::cerr << few << ": " << rrdk_tirpc_error() << '\n';
      ++leaks;
    }
  }
  return -1;
}

// Descriptors that were opened before one was lacking are closed.
TEST(TirpcErrors, TooManyDescriptorsAtFirst) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // another process
  EXPECT_EXIT(::_exit(start_with_too_few()), testing::ExitedWithCode(0), "");
}

TEST(TirpcErrors, UnknownHosts) {
  EXPECT_EQ(rrdk_clnt_create("iwarp://nobody.invalid:7471", KV_PROG, KV_V1), nullptr);
  EXPECT_EQ(rpc_createerr.cf_stat, RPC_UNKNOWNHOST) << rrdk_tirpc_error();
  EXPECT_EQ(rrdk_clnt_create("iwarp://nobody.invalid:0", KV_PROG, KV_V1), nullptr);
  EXPECT_EQ(rpc_createerr.cf_stat, RPC_UNKNOWNHOST) << rrdk_tirpc_error();
}

// Version 1 of this program was registered, and no longer is.
TEST(TirpcErrors, UnregisteredProgram) {
  ClientPointer client(stub_server().connect("shm", 0x20004b58, 1));
  EXPECT_EQ(clnt_call(client.get(), NULLPROC, nothing, nullptr, nothing, nullptr, kPatience),
            RPC_PROGVERSMISMATCH);
  EXPECT_EQ(error_of(client).re_vers.low, 2u);
}

// Either there is no rpcbind, or it does not know the program.
TEST(TirpcErrors, PortUnknownToRpcbind) {
  EXPECT_EQ(rrdk_clnt_create("iwarp://127.0.0.1:0", KV_PROG + 77, KV_V1), nullptr);
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("127.0.0.1"));
}

// kElsewhere leads to this host, and its rpcbind is at this port of ::1; 0 means no change.
std::atomic<uint16_t> rpcbind_port = 0;
constexpr in_addr_t kElsewhere = 0xcb007101;  // 203.0.113.1

}  // namespace

// Replaces the C library's function.
extern "C" int connect(int fd, const sockaddr* to, socklen_t length) {
  static const auto real = reinterpret_cast<decltype(&::connect)>(::dlsym(RTLD_NEXT, "connect"));
  if (rpcbind_port == 0 || (to->sa_family != AF_INET && to->sa_family != AF_INET6))
    return real(fd, to, length);
  sockaddr_storage there = {};
  std::memcpy(&there, to, length);
  auto& v4 = reinterpret_cast<sockaddr_in&>(there);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(there);
  if (to->sa_family == AF_INET6 && v6.sin6_port == htons(111))
    v6.sin6_port = htons(rpcbind_port);
  if (to->sa_family == AF_INET && v4.sin_addr.s_addr == htonl(kElsewhere))
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return real(fd, reinterpret_cast<const sockaddr*>(&there), length);
}

namespace {

// Reads a call, and answers that KV is listed under rdma at this universal address.
void answer_as_rpcbind(int listener, const std::string& listed) {
  std::vector<uint32_t> call(11);  // a record mark, the header, AUTH_NONE twice
  const int caller = ::accept(listener, nullptr, nullptr);
  ::recv(caller, call.data(), 4 * call.size(), MSG_WAITALL);
  std::vector<uint32_t> reply = {0, ntohl(call[1]), 1, 0, 0, 0, 0, 1, KV_PROG, KV_V1};
  for (const std::string& text : {std::string("rdma"), listed, std::string("superuser")}) {
    reply.push_back(static_cast<uint32_t>(text.size()));
    for (size_t at = 0; at < text.size(); at += 4) {
      uint32_t word = 0;
      std::memcpy(&word, text.data() + at, std::min<size_t>(4, text.size() - at));
      reply.push_back(ntohl(word));
    }
  }
  reply.push_back(0);
  reply[0] = 1u << 31 | static_cast<uint32_t>(4 * (reply.size() - 1));
  for (uint32_t& word : reply)
    word = htonl(word);
  ::send(caller, reply.data(), 4 * reply.size(), MSG_NOSIGNAL);
  ::close(caller);
}

TEST(TirpcRpcbind, TellsTheAddressTooAndNotThePortAlone) {
  const int listener = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 at = {};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof at;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&at), length) != 0) {
    ::close(listener);
    GTEST_SKIP() << "this machine has no IPv6 loopback";
  }
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length), 0);
  const std::string& uri = stub_server().uri("iwarp");
  const int port = std::stoi(uri.substr(uri.rfind(':') + 1));
  std::thread rpcbind(
      answer_as_rpcbind, listener,
      "203.0.113.1." + std::to_string(port >> 8) + "." + std::to_string(port & 255));
  rpcbind_port = ntohs(at.sin6_port);
  ClientPointer client(rrdk_clnt_create("iwarp://[::1]:0", KV_PROG, KV_V1));
  ::shutdown(listener, SHUT_RDWR);  // without a request
  rpcbind.join();
  rpcbind_port = 0;
  ::close(listener);
  ASSERT_NE(client, nullptr) << rrdk_tirpc_error();
  EXPECT_NE(kv_list_1(nullptr, client.get()), nullptr);
}

TEST(TirpcErrors, FailedConnects) {
  EXPECT_EQ(rrdk_clnt_create("nonsense", KV_PROG, KV_V1), nullptr);
  EXPECT_EQ(rpc_createerr.cf_stat, RPC_UNKNOWNPROTO);
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("nonsense"));
  EXPECT_EQ(rrdk_clnt_create("shm:/nowhere/at.all", KV_PROG, KV_V1), nullptr);
  EXPECT_EQ(rpc_createerr.cf_stat, RPC_SYSTEMERROR);
  EXPECT_EQ(rpc_createerr.cf_error.re_errno, ENOENT);
  EXPECT_THAT(clnt_spcreateerror("kv"), testing::HasSubstr("kv: RPC: "));
}

// A flavour that is neither AUTH_NONE nor AUTH_SYS.
TEST(TirpcErrors, UnsupportedFlavour) {
  ClientPointer client(stub_server().connect("shm", KV_PROG, KV_V1));
  AUTH* none = client->cl_auth;
  AUTH other = *none;
  other.ah_cred.oa_flavor = 6;
  client->cl_auth = &other;
  EXPECT_EQ(kv_list_1(nullptr, client.get()), nullptr);
  EXPECT_EQ(error_of(client).re_status, RPC_AUTHERROR);
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("flavour 6"));
  client->cl_auth = none;
  EXPECT_NE(kv_list_1(nullptr, client.get()), nullptr);
}

CallStatus raw_call(RawClient& client, const rrdk::Binding& binding, uint32_t procedure,
                    const std::function<void(Encoder&)>& write, rrdk::AuthStat* why = nullptr) {
  rrdk::Call call(client.connection());
  write(call.begin(binding, procedure));
  const CallStatus status = call.submit_and_wait();
  if (why != nullptr)
    *why = call.auth_stat();
  return status;
}

TEST(TirpcErrors, CredentialsThatTheServerRejects) {
  RawClient client(stub_server().uri("shm"));
  const auto no_arguments = [](Encoder&) {};
  rrdk::AuthStat why = {};
  const std::byte few[] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  rrdk::must(client.connection().set_auth(rrdk::AuthFlavor::kRpcsecGss, few));
  EXPECT_EQ(raw_call(client, kOdd, 0, no_arguments, &why), CallStatus::kAuthError);
  EXPECT_EQ(why, rrdk::AuthStat::kRejectedCred);
  rrdk::must(client.connection().set_auth(rrdk::AuthFlavor::kSys, few));
  EXPECT_EQ(raw_call(client, kOdd, 0, no_arguments, &why), CallStatus::kAuthError);
  EXPECT_EQ(why, rrdk::AuthStat::kBadCred);
  rrdk::must(client.connection().set_auth(rrdk::AuthFlavor::kNone, {}));
  EXPECT_EQ(raw_call(client, kOdd, 0, no_arguments), CallStatus::kOk);
}

// False counts that cost no memory.
TEST(TirpcErrors, HostileArguments) {
  RawClient client(stub_server().uri("shm"));
  const auto garbage = [&](uint32_t procedure, const std::function<void(Encoder&)>& write) {
    return raw_call(client, kKv, procedure, write) == CallStatus::kGarbageArgs;
  };
  EXPECT_TRUE(garbage(KV_GET, [](Encoder& out) { out.put_u32(255); }));
  EXPECT_TRUE(garbage(KV_GET, [](Encoder& out) { out.put_u32(UINT32_MAX); }));
  EXPECT_TRUE(garbage(KV_GET, [](Encoder& out) {
    out.put_u32(8);
    out.put_u32(0);
  }));
  for (uint32_t size : {1u, 4096u, 4194304u, 4194305u, UINT32_MAX}) {
    EXPECT_TRUE(garbage(KV_PUT, [&](Encoder& out) {
      out.put_string("name");
      out.put_u32(size);
    })) << size;
  }
  EXPECT_EQ(raw_call(client, kKv, 0, [](Encoder&) {}), CallStatus::kOk);
}

// Arrays of words that are not there: next to nothing is allocated.
TEST(TirpcErrors, MissingArrays) {
  RawClient client(stub_server().uri("shm"));
  for (uint32_t count : {0x3fffffffu, 0x00fffff0u, 2u}) {
    largest_allocation = 0;
    EXPECT_EQ(raw_call(client, kOdd, kOddWords,
                       [count](Encoder& out) {
                         out.put_u32(count);
                         out.put_u32(0);
                       }),
              CallStatus::kGarbageArgs)
        << count;
    EXPECT_LT(largest_allocation, 1u << 20) << count;
  }
}

// Short data that becomes large.
TEST(TirpcErrors, HugeArrays) {
  RawClient client(stub_server().uri("shm"));
  const auto wide = [&](uint32_t count) {
    return raw_call(client, kOdd, kOddWide, [count](Encoder& out) {
      out.put_u32(count);
      for (uint32_t i = 0; i < count; ++i)
        out.put_u32(i);
    });
  };
  EXPECT_EQ(wide(100), CallStatus::kOk);
  EXPECT_EQ(wide(2000), CallStatus::kGarbageArgs);
  EXPECT_EQ(wide(100), CallStatus::kOk);
}

TEST(TirpcErrors, ListsDeeperThanTheStack) {
  RawClient client(stub_server().uri("shm"));
  const auto list = [&](uint32_t nodes) {
    return raw_call(client, kOdd, kOddList, [nodes](Encoder& out) {
      for (uint32_t i = 0; i < nodes; ++i) {
        out.put_u32(1);
        out.put_u32(i);
      }
      out.put_u32(0);
    });
  };
  EXPECT_EQ(list(1000), CallStatus::kOk);
  EXPECT_EQ(list(500'000), CallStatus::kGarbageArgs);
  EXPECT_EQ(list(1000), CallStatus::kOk);
}

class HostileReplies : public testing::Test {
 protected:
  // The result of KV_GET if the server answers like this.
  clnt_stat get(std::function<void(Encoder&)> write) {
    RawServer server(kKv, {{KV_GET, [&](rrdk::ServerCall call) {
                              write(call.results());
                              std::move(call).reply();
                            }}});
    ClientPointer client(rrdk_clnt_create(server.uri().c_str(), KV_PROG, KV_V1));
    char name[] = "name";
    char* text = name;
    kv_get_res result = {};
    const clnt_stat status = clnt_call(client.get(), KV_GET, routine(xdr_kv_name), &text,
                                       routine(xdr_kv_get_res), &result, kPatience);
    clnt_freeres(client.get(), routine(xdr_kv_get_res), &result);
    return status;
  }
};

TEST_F(HostileReplies, EndBeforeTheResultsDo) {
  EXPECT_EQ(get([](Encoder&) {}), RPC_CANTDECODERES);
  EXPECT_EQ(get([](Encoder& out) { out.put_u32(KV_OK); }), RPC_CANTDECODERES);
  EXPECT_EQ(get([](Encoder& out) {
              out.put_u32(KV_OK);
              out.put_u32(1);
              out.put_u32(4);
            }),
            RPC_CANTDECODERES);
}

TEST_F(HostileReplies, HaveCountsThatLie) {
  for (uint32_t size : {5u, 4194304u, 4194305u, UINT32_MAX}) {
    EXPECT_EQ(get([size](Encoder& out) {
                out.put_u32(KV_OK);
                out.put_u32(1);
                out.put_u32(size);
                out.put_u32(0);
              }),
              RPC_CANTDECODERES)
        << size;
  }
}

TEST_F(HostileReplies, ThatAreRightAreTaken) {
  EXPECT_EQ(get([](Encoder& out) { out.put_u32(KV_NOT_FOUND); }), RPC_SUCCESS);
  EXPECT_EQ(get([](Encoder& out) { out.put_u32(12345); }), RPC_SUCCESS);
}

TEST(TirpcErrors, RepliesLargerThanTheCallerSaid) {
  RawServer server(kKv, {{KV_LIST, [](rrdk::ServerCall call) {
                            Encoder& out = call.results();
                            for (int i = 0; i < 1000; ++i) {
                              out.put_u32(1);
                              out.put_string("an entry of the list");
                              out.put_u32(0);
                            }
                            out.put_u32(0);
                            std::move(call).reply();
                          }}});
  ClientPointer client(rrdk_clnt_create(server.uri().c_str(), KV_PROG, KV_V1));
  uint32_t most = 20000;
  ASSERT_TRUE(clnt_control(client.get(), RRDK_CLSET_MAX_REPLY, &most));
  EXPECT_EQ(kv_list_1(nullptr, client.get()), nullptr);
  EXPECT_EQ(error_of(client).re_status, RPC_CANTRECV);
  EXPECT_EQ(error_of(client).re_errno, EMSGSIZE);
  most = 100000;
  ASSERT_TRUE(clnt_control(client.get(), RRDK_CLSET_MAX_REPLY, &most));
  kv_list* list = kv_list_1(nullptr, client.get());
  ASSERT_NE(list, nullptr) << rrdk_tirpc_error();
  clnt_freeres(client.get(), routine(xdr_kv_list), list);
  most = (8u << 20) + 1;
  EXPECT_FALSE(clnt_control(client.get(), RRDK_CLSET_MAX_REPLY, &most));
}

TEST(TirpcErrors, AServerThatGoesAway) {
  auto server = std::make_unique<RawServer>(
      kKv,
      std::map<uint32_t, Answer>{{KV_LIST, [](rrdk::ServerCall call) { std::move(call).drop(); }}});
  ClientPointer client(rrdk_clnt_create(server->uri().c_str(), KV_PROG, KV_V1));
  EXPECT_EQ(kv_list_1(nullptr, client.get()), nullptr);
  EXPECT_EQ(error_of(client).re_status, RPC_CANTRECV);
  EXPECT_EQ(error_of(client).re_errno, ECONNRESET);
  EXPECT_EQ(kv_list_1(nullptr, client.get()), nullptr);
  EXPECT_EQ(error_of(client).re_status, RPC_CANTSEND);
}

}  // namespace

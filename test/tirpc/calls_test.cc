// Stubs that rpcgen wrote, over shm:, iwarp: and TCP in the same way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "kv.h"
#include "rrdk/tirpc.h"
#include "sites.h"
#include "timeout.h"

namespace {

class Calls : public testing::TestWithParam<const char*> {
 protected:
  ClientPointer connect(rpcprog_t program = KV_PROG, rpcvers_t version = KV_V1) {
    ClientPointer client(stub_server().connect(GetParam(), program, version));
    EXPECT_NE(client, nullptr) << rrdk_tirpc_error();
    return client;
  }
};

bool put(CLIENT* client, const std::string& name, std::string value) {
  std::string copy = name;
  kv_put_args args = {copy.data(), {static_cast<u_int>(value.size()), value.data()}};
  kv_status* result = kv_put_1(&args, client);
  return result != nullptr && *result == KV_OK;
}

// "(none)" if there is no such name, "(failed)" if the call does not succeed.
std::string get(CLIENT* client, const std::string& name, u_int* changes = nullptr) {
  std::string copy = name;
  char* text = copy.data();
  kv_get_res* result = kv_get_1(&text, client);
  if (result == nullptr)
    return "(failed)";
  if (result->status != KV_OK)
    return "(none)";
  const kv_value& found = result->kv_get_res_u.found;
  std::string value(found.value.value_val, found.value.value_len);
  if (changes != nullptr)
    *changes = found.changes;
  clnt_freeres(client, routine(xdr_kv_get_res), reinterpret_cast<char*>(result));
  return value;
}

std::string pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

TEST_P(Calls, CarryValuesOfAllSizes) {
  auto client = connect();
  for (size_t size : {0, 1, 3, 4, 4093, 4096, 5000, 16384, 65535, 1000001, KV_LARGEST_VALUE}) {
    const std::string value = pattern(size);
    ASSERT_TRUE(put(client.get(), "some", value)) << size << ": " << rrdk_tirpc_error();
    ASSERT_EQ(get(client.get(), "some"), value) << size;
  }
  std::string name = "some";
  char* text = name.data();
  EXPECT_EQ(*kv_remove_1(&text, client.get()), KV_OK);
  EXPECT_EQ(*kv_remove_1(&text, client.get()), KV_NOT_FOUND);
  EXPECT_EQ(get(client.get(), "some"), "(none)");
}

TEST_P(Calls, CarryUnionsAndWords) {
  auto client = connect();
  u_int changes = 0;
  EXPECT_EQ(get(client.get(), "twice"), "(none)");
  EXPECT_TRUE(put(client.get(), "twice", "first"));
  EXPECT_TRUE(put(client.get(), "twice", "second"));
  EXPECT_EQ(get(client.get(), "twice", &changes), "second");
  EXPECT_EQ(changes, 2u);
  std::string name = "twice";
  char* text = name.data();
  EXPECT_EQ(*kv_remove_1(&text, client.get()), KV_OK);
}

TEST_P(Calls, CarryLinkedLists) {
  auto client = connect();
  std::vector<std::string> names;
  for (int i = 0; i < 500; ++i)
    names.push_back("name " + std::to_string(i));
  for (const std::string& name : names)
    ASSERT_TRUE(put(client.get(), name, name));
  kv_list* list = kv_list_1(nullptr, client.get());
  ASSERT_NE(list, nullptr) << rrdk_tirpc_error();
  std::vector<std::string> seen;
  for (kv_list entry = *list; entry != nullptr; entry = entry->next) {
    EXPECT_EQ(entry->size, std::string(entry->name).size());
    seen.emplace_back(entry->name);
  }
  EXPECT_THAT(seen, testing::UnorderedElementsAreArray(names));
  clnt_freeres(client.get(), routine(xdr_kv_list), reinterpret_cast<char*>(list));
  for (std::string& name : names) {
    char* text = name.data();
    EXPECT_EQ(*kv_remove_1(&text, client.get()), KV_OK);
  }
}

// As the stubs do, whose results are static.
template <typename Result>
clnt_stat call(CLIENT* client, rpcproc_t procedure, xdrproc_t encode, void* args, xdrproc_t decode,
               Result& result) {
  result = {};
  return clnt_call(client, procedure, encode, args, decode, &result, kPatience);
}

TEST_P(Calls, ThreadsHaveTheirOwnClients) {
  auto work = [this](std::string name) {
    auto client = connect();
    std::string value = pattern(20000) + name;
    char* text = name.data();
    kv_status status;
    for (int k = 0; k < 20; ++k) {
      kv_put_args args = {text, {static_cast<u_int>(value.size()), value.data()}};
      ASSERT_EQ(call(client.get(), KV_PUT, routine(xdr_kv_put_args), &args, routine(xdr_kv_status),
                     status),
                RPC_SUCCESS);
      kv_get_res result;
      ASSERT_EQ(
          call(client.get(), KV_GET, routine(xdr_kv_name), &text, routine(xdr_kv_get_res), result),
          RPC_SUCCESS);
      ASSERT_EQ(result.status, KV_OK);
      const auto& found = result.kv_get_res_u.found.value;
      ASSERT_EQ(std::string(found.value_val, found.value_len), value);
      xdr_free(routine(xdr_kv_get_res), reinterpret_cast<char*>(&result));
    }
    ASSERT_EQ(
        call(client.get(), KV_REMOVE, routine(xdr_kv_name), &text, routine(xdr_kv_status), status),
        RPC_SUCCESS);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(work, "thread " + std::to_string(i));
  for (std::thread& thread : threads)
    thread.join();
}

TEST_P(Calls, AClientMovesBetweenThreads) {
  auto client = connect();
  EXPECT_EQ(get(client.get(), "nobody's"), "(none)");
  std::thread([&] { EXPECT_EQ(get(client.get(), "nobody's"), "(none)"); }).join();
  EXPECT_EQ(get(client.get(), "nobody's"), "(none)");
  std::thread([&] { client.reset(); }).join();
}

std::string seen_as(CLIENT* client) {
  char* text = nullptr;
  EXPECT_EQ(
      clnt_call(client, kOddCaller, nothing, nullptr, routine(xdr_wrapstring), &text, kPatience),
      RPC_SUCCESS);
  std::string seen = text != nullptr ? text : "";
  free(text);
  return seen;
}

TEST_P(Calls, CarryCredentials) {
  auto client = connect(kOddProgram, kOddVersion);
  const int network = std::string(GetParam()) == "shm" ? AF_UNIX : AF_INET;
  const std::string family = "family " + std::to_string(network);
  EXPECT_EQ(seen_as(client.get()), family + ", flavour 0");
  AUTH* none = client->cl_auth;
  gid_t groups[] = {5, 6, 7};
  char machine[] = "somewhere";
  client->cl_auth = authunix_create(machine, 4711, 815, 3, groups);
  EXPECT_EQ(seen_as(client.get()), family + ", somewhere 4711/815 5 6 7");
  EXPECT_EQ(seen_as(client.get()), family + ", somewhere 4711/815 5 6 7");
  auth_destroy(client->cl_auth);
  client->cl_auth = none;
  EXPECT_EQ(seen_as(client.get()), family + ", flavour 0");
}

TEST_P(Calls, MayShowTheirCallersAsThisHost) {
  if (std::string(GetParam()) == "tcp")
    return;  // it does so by itself
  auto client = connect(kOddLoopback, kOddVersion);
  EXPECT_EQ(seen_as(client.get()), "family " + std::to_string(AF_INET) + " loopback, flavour 0");
  client = connect(kOddProgram, kOddVersion);
  const int network = std::string(GetParam()) == "shm" ? AF_UNIX : AF_INET;
  EXPECT_EQ(seen_as(client.get()), "family " + std::to_string(network) + ", flavour 0");
}

bool_t two_words(XDR* xdrs, ...) {
  int first = 40, second = 2;
  return xdr_int(xdrs, &first) && xdr_int(xdrs, &second);
}

// libtirpc's TCP cannot do that.
TEST(TirpcStream, IsReadOutOfOrder) {
  ClientPointer client(stub_server().connect("shm", kOddProgram, kOddVersion));
  int sum = 0;
  EXPECT_EQ(
      clnt_call(client.get(), kOddPositions, two_words, nullptr, routine(xdr_int), &sum, kPatience),
      RPC_SUCCESS);
  EXPECT_EQ(sum, 42);
}

TEST_P(Calls, AreMadeByDispatchRoutinesToo) {
  RawServer other(kKv, {{KV_LIST, [](rrdk::ServerCall call) {
                           call.results().put_u32(0);
                           std::move(call).reply();
                         }}});
  auto client = connect(kOddProgram, kOddVersion);
  std::string where = other.uri();
  char* uri = where.data();
  char* text = nullptr;
  ASSERT_EQ(clnt_call(client.get(), kOddCallsAnother, routine(xdr_wrapstring), &uri,
                      routine(xdr_wrapstring), &text, kPatience),
            RPC_SUCCESS);
  EXPECT_STREQ(text, "listed");
  free(text);
}

// Long ones, which the server fetches, among short ones. All have arrived when one is waited for,
// or when the CLIENT is destroyed.
TEST_P(Calls, BatchedCallsArriveInOrder) {
  constexpr int kMany = 300;
  std::string text(40000, 'x');
  int number = 0;
  const auto log_many = [&](CLIENT* client) {
    for (int i = 0; i < kMany; ++i) {
      OddLine line = {number++, text.data(), static_cast<u_int>(i % 20 == 7 ? text.size() : 5)};
      ASSERT_EQ(
          clnt_call(client, kOddLog, routine(xdr_odd_line), &line, nullptr, nullptr, timeval{}),
          RPC_SUCCESS)
          << i << ": " << rrdk_tirpc_error();
    }
  };
  const auto logged = [](CLIENT* client) {
    int count = 0;
    EXPECT_EQ(clnt_call(client, kOddLogged, nothing, nullptr, routine(xdr_int), &count, kPatience),
              RPC_SUCCESS);
    return count;
  };
  auto client = connect(kOddProgram, kOddVersion);
  log_many(client.get());
  EXPECT_EQ(logged(client.get()), kMany);
  if (std::string(GetParam()) == "tcp")
    return;  // libtirpc's own does not send its buffered calls when it is destroyed
  number = 0;
  log_many(client.get());
  client = connect(kOddProgram, kOddVersion);
  EXPECT_EQ(logged(client.get()), kMany);
}

TEST_P(Calls, SeveralThreadsShareAClient) {
  auto client = connect(kOddProgram, kOddVersion);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int from : {0, 1000, 2000, 3000})
    threads.emplace_back([&, from] {
      for (int sent = from; sent < from + 200; ++sent) {
        int back = 0;
        if (clnt_call(client.get(), kOddEcho, routine(xdr_int), &sent, routine(xdr_int), &back,
                      kPatience) == RPC_SUCCESS)
          right += back == sent;
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(right, 800);
}

// Threads with their own CLIENTs, some of which wait long.
TEST_P(Calls, BesideOneThatIsWaitedForLong) {
  if (std::string(GetParam()) == "tcp")
    return;  // its server answers no other call meanwhile
  auto slow = connect(kOddProgram, kOddVersion);
  std::thread waits([&] {
    EXPECT_EQ(clnt_call(slow.get(), kOddBlock, nothing, nullptr, nothing, nullptr, kPatience),
              RPC_SUCCESS);
  });
  stub_server().wait_until_blocked();
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      auto client = connect(kOddProgram, kOddVersion);
      for (int k = 0; k < 50; ++k)
        EXPECT_EQ(clnt_call(client.get(), NULLPROC, nothing, nullptr, nothing, nullptr, kPatience),
                  RPC_SUCCESS);
    });
  for (std::thread& thread : threads)
    thread.join();
  stub_server().unblock();
  waits.join();
}

size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// The descriptors of both ends belong to this process.
TEST_P(Calls, ManyClientsTakeFewThreadsAndDescriptors) {
  constexpr size_t kMany = 60;
  auto first = connect(kOddProgram, kOddVersion);
  const size_t threads = entries_of("/proc/self/task"), files = entries_of("/proc/self/fd");
  std::vector<ClientPointer> clients;
  for (size_t i = 0; i < kMany; ++i) {
    clients.push_back(connect(kOddProgram, kOddVersion));
    int number = 5;
    ASSERT_EQ(clnt_call(clients.back().get(), kOddEcho, routine(xdr_int), &number, routine(xdr_int),
                        &number, kPatience),
              RPC_SUCCESS);
  }
  EXPECT_LE(entries_of("/proc/self/task"), threads + 1);  // shm: one of those that close
  const size_t each = std::string(GetParam()) == "shm" ? 6 : 2;
  EXPECT_LE(entries_of("/proc/self/fd"), files + kMany * each + 10);
}

TEST_P(Calls, AreControlled) {
  auto client = connect();
  timeval timeout = {3, 0};
  EXPECT_TRUE(clnt_control(client.get(), CLSET_TIMEOUT, &timeout));
  timeout = {};
  EXPECT_TRUE(clnt_control(client.get(), CLGET_TIMEOUT, &timeout));
  EXPECT_EQ(timeout.tv_sec, 3);
  timeout = {-1, 0};
  EXPECT_FALSE(clnt_control(client.get(), CLSET_TIMEOUT, &timeout));
  timeout = {0, 0};
  uint32_t program = 0, version = 0;
  EXPECT_TRUE(clnt_control(client.get(), CLGET_PROG, &program));
  EXPECT_TRUE(clnt_control(client.get(), CLGET_VERS, &version));
  EXPECT_EQ(program, static_cast<uint32_t>(KV_PROG));
  EXPECT_EQ(version, static_cast<uint32_t>(KV_V1));
  version = 9;
  EXPECT_TRUE(clnt_control(client.get(), CLSET_VERS, &version));
  EXPECT_EQ(kv_list_1(nullptr, client.get()), nullptr);
  version = KV_V1;
  EXPECT_TRUE(clnt_control(client.get(), CLSET_VERS, &version));
  EXPECT_NE(kv_list_1(nullptr, client.get()), nullptr);
}

TEST(TirpcTimeout, IsAtMostWhatACallTakes) {
  using rrdk::tirpc::milliseconds;
  EXPECT_EQ(milliseconds({25, 0}), 25'000u);
  EXPECT_EQ(milliseconds({0, 1}), 1u);
  EXPECT_EQ(milliseconds({1'000'000, 500'000}), 1'000'000'500u);
  for (const time_t seconds : {time_t{4'294'967}, time_t{100'000'000}, time_t{INT64_MAX}})
    EXPECT_EQ(milliseconds({seconds, 999'999}), UINT32_MAX);
}

INSTANTIATE_TEST_SUITE_P(Over, Calls, testing::Values("shm", "iwarp", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace

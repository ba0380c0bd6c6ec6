// RPCSEC_GSS with Kerberos, at both ends of the bridge. Needs the realm of test/gss/realm.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "kv.h"
#include "rrdk/tirpc.h"
#include "sites.h"

// Kerberos leaks the name of a service whose key it does not find (1.20, gss_acquire_cred_from).
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libkrb5.so";
}

namespace {

struct AuthDeleter {
  void operator()(AUTH* auth) const { auth_destroy(auth); }
};
using AuthPointer = std::unique_ptr<AUTH, AuthDeleter>;

class TirpcGss : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("RRDK_TEST_REALM") == nullptr)
      GTEST_SKIP() << "it needs the Kerberos realm that test/gss/realm.py makes";
  }
  static ClientPointer connect(const char* transport, rpcprog_t program, rpcvers_t version) {
    return ClientPointer(stub_server().connect(transport, program, version));
  }
  static AuthPointer alice(const ClientPointer& client, unsigned service) {
    AuthPointer made(rrdk_authgss_create(client.get(), "nfs@localhost", service, nullptr));
    EXPECT_NE(made, nullptr) << rrdk_tirpc_error();
    return made;
  }
  static std::string alice_by(unsigned service) {
    return std::string("family 2, alice@") + std::getenv("RRDK_TEST_REALM") + " by " +
           std::to_string(service);
  }
};

std::string seen_as(const ClientPointer& client) {
  char* text = nullptr;
  if (clnt_call(client.get(), kOddCaller, nothing, nullptr, routine(xdr_wrapstring), &text,
                kPatience) != RPC_SUCCESS)
    return rrdk_tirpc_error();
  const std::string seen = text;
  free(text);
  return seen;
}

rpc_err error_of(const ClientPointer& client) {
  rpc_err error = {};
  clnt_geterr(client.get(), &error);
  return error;
}

// Puts a value and gets it back.
void carry(CLIENT* client, std::string value) {
  std::string name = "secured " + std::to_string(value.size());
  char* text = name.data();
  kv_put_args args = {text, {static_cast<u_int>(value.size()), value.data()}};
  kv_status* put = kv_put_1(&args, client);
  ASSERT_TRUE(put != nullptr && *put == KV_OK) << value.size() << ": " << rrdk_tirpc_error();
  kv_get_res* got = kv_get_1(&text, client);
  ASSERT_TRUE(got != nullptr && got->status == KV_OK) << value.size() << ": " << rrdk_tirpc_error();
  const auto& found = got->kv_get_res_u.found.value;
  EXPECT_EQ(std::string(found.value_val, found.value_len), value) << value.size();
  clnt_freeres(client, routine(xdr_kv_get_res), reinterpret_cast<char*>(got));
  kv_remove_1(&text, client);
}

TEST_F(TirpcGss, CarriesValuesOfAllSizesWithEachProtection) {
  auto client = connect("gss", KV_PROG, KV_V1);
  AUTH* const none = client->cl_auth;
  for (unsigned service : {1, 2, 3}) {
    const AuthPointer auth = alice(client, service);
    client->cl_auth = auth.get();
    for (size_t size : {0, 3, 4096, 5000, 65535, 1000001, KV_LARGEST_VALUE})
      carry(client.get(), std::string(size, static_cast<char>('a' + service)));
    EXPECT_NE(kv_list_1(nullptr, client.get()), nullptr);
    client->cl_auth = none;
  }
}

TEST_F(TirpcGss, TellsTheServerWhoCalls) {
  auto client = connect("gss", kOddProgram, kOddVersion);
  AUTH* const none = client->cl_auth;
  EXPECT_EQ(seen_as(client), "family 2, flavour 0");
  for (unsigned service : {1, 2, 3}) {
    const AuthPointer auth = alice(client, service);
    client->cl_auth = auth.get();
    EXPECT_EQ(seen_as(client), alice_by(service));
    EXPECT_EQ(seen_as(client), alice_by(service));
    client->cl_auth = none;
    EXPECT_EQ(seen_as(client), "family 2, flavour 0");
  }
}

TEST_F(TirpcGss, AnAuthServesManyClientsAndThreads) {
  auto first = connect("gss", kOddProgram, kOddVersion);
  const AuthPointer auth = alice(first, 3);
  auto work = [&auth] {
    auto client = connect("gss", kOddProgram, kOddVersion);
    AUTH* const none = client->cl_auth;
    client->cl_auth = auth.get();
    for (int k = 0; k < 20; ++k)
      EXPECT_EQ(seen_as(client), alice_by(3));
    client->cl_auth = none;
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
}

// The thread that made the CLIENT has not ended, and does nothing.
TEST_F(TirpcGss, AThreadMakesAnAuthForAClientOfAnother) {
  auto client = connect("gss", kOddProgram, kOddVersion);
  AUTH* const none = client->cl_auth;
  AuthPointer auth;
  std::thread([&] {
    auth = alice(client, 3);
    client->cl_auth = auth.get();
    EXPECT_EQ(seen_as(client), alice_by(3));
  }).join();
  EXPECT_EQ(seen_as(client), alice_by(3));
  client->cl_auth = none;
}

TEST_F(TirpcGss, SaysWhyThereIsNoContext) {
  auto client = connect("gss", KV_PROG, KV_V1);
  const struct {
    const char *target, *principal;
    unsigned service;
    const char* words;
  } wrong[] = {{"nfs@elsewhere", nullptr, 2, "nfs@elsewhere"},
               {"other@localhost", nullptr, 2, "refused"},
               {"nfs@localhost", "carol", 2, "carol"},
               {"nfs@localhost", nullptr, 4, "protection"},
               {nullptr, nullptr, 2, "service is NULL"}};
  for (const auto& each : wrong) {
    EXPECT_EQ(rrdk_authgss_create(client.get(), each.target, each.service, each.principal),
              nullptr);
    EXPECT_EQ(rpc_createerr.cf_stat, RPC_AUTHERROR) << each.words;
    EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr(each.words));
  }
  auto without = connect("shm", KV_PROG, KV_V1);
  EXPECT_EQ(rrdk_authgss_create(without.get(), "nfs@localhost", 2, nullptr), nullptr);
  EXPECT_EQ(rpc_createerr.cf_stat, RPC_AUTHERROR);
  auto tcp = connect("tcp", KV_PROG, KV_V1);
  EXPECT_EQ(rrdk_authgss_create(tcp.get(), "nfs@localhost", 2, nullptr), nullptr);
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("authgss_create()"));
  EXPECT_EQ(rrdk_svc_create_gss("iwarp://127.0.0.1:0", "other@localhost", nullptr), nullptr);
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("other@localhost"));
}

// It belongs to a CLIENT of RRDK.
TEST_F(TirpcGss, AnAuthIsOfNoUseToLibtirpc) {
  auto client = connect("gss", KV_PROG, KV_V1);
  const AuthPointer auth = alice(client, 2);
  auto tcp = connect("tcp", KV_PROG, KV_V1);
  AUTH* const none = tcp->cl_auth;
  tcp->cl_auth = auth.get();
  EXPECT_EQ(kv_list_1(nullptr, tcp.get()), nullptr);
  EXPECT_EQ(error_of(tcp).re_status, RPC_CANTENCODEARGS);
  tcp->cl_auth = none;
}

// As that of libtirpc's authgss_create(), which makes its first call with it.
TEST(TirpcErrors, AnAuthOfLibtirpcsGss) {
  ClientPointer client(stub_server().connect("shm", KV_PROG, KV_V1));
  AUTH* none = client->cl_auth;
  AUTH::auth_ops ops = *none->ah_ops;
  ops.ah_wrap = [](AUTH*, XDR*, xdrproc_t, caddr_t) { return TRUE; };
  AUTH other = {};
  other.ah_ops = &ops;
  client->cl_auth = &other;
  rpc_createerr = {};
  EXPECT_EQ(kv_list_1(nullptr, client.get()), nullptr);
  EXPECT_EQ(error_of(client).re_status, RPC_AUTHERROR);
  EXPECT_EQ(error_of(client).re_why, AUTH_FAILED);
  EXPECT_EQ(rpc_createerr.cf_stat, RPC_AUTHERROR);
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("rrdk_authgss_create()"));
  client->cl_auth = none;
  EXPECT_NE(kv_list_1(nullptr, client.get()), nullptr);
}

}  // namespace

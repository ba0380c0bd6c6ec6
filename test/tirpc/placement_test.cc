// Items of the binding file move by RDMA, and are not copied on arrival.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kv.h"
#include "memory.h"
#include "perf.h"
#include "rrdk/tirpc.h"
#include "sites.h"

namespace {

constexpr uint32_t kSize = 1'000'000;
constexpr uint32_t kLargest = 4u << 20;

std::string pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<char>(i * 11 + i / 257);
  return bytes;
}

void answer_with_value(rrdk::ServerCall call) {
  const std::string value = pattern(kSize);
  rrdk::Buffer buffer = call.result_buffer(kSize);
  std::memcpy(buffer.data(), value.data(), kSize);
  call.results().put_u32(KV_OK);
  call.results().put_u32(1);
  call.results().put_item(std::move(buffer), kSize, rrdk::Ddp::kEligible);
  std::move(call).reply();
}

TEST(TirpcPlacement, AResultIsLentToTheProgram) {
  RawServer server(kKv, {{KV_GET, answer_with_value}});
  ClientPointer client(rrdk_clnt_create(server.uri().c_str(), KV_PROG, KV_V1));
  char name[] = "name";
  char* text = name;
  const size_t before = rrdk::tirpc::lent();
  std::vector<kv_get_res> results;
  for (int i = 0; i < 3; ++i) {
    kv_get_res* result = kv_get_1(&text, client.get());
    ASSERT_NE(result, nullptr) << rrdk_tirpc_error();
    results.push_back(*result);
  }
  EXPECT_EQ(rrdk::tirpc::lent(), before + 3);
  EXPECT_EQ(server.stats()[rrdk::Counter::kRdmaWrittenBytes], 3u * kSize);
  client.reset();
  const std::string value = pattern(kSize);
  for (kv_get_res& result : results) {
    const auto& found = result.kv_get_res_u.found.value;
    EXPECT_EQ(std::string(found.value_val, found.value_len), value);
    xdr_free(routine(xdr_kv_get_res), reinterpret_cast<char*>(&result));
    EXPECT_EQ(found.value_val, nullptr);
  }
  EXPECT_EQ(rrdk::tirpc::lent(), before);
}

TEST(TirpcPlacement, AResultGoesWhereTheProgramAsks) {
  RawServer server(kKv, {{KV_GET, answer_with_value}});
  ClientPointer client(rrdk_clnt_create(server.uri().c_str(), KV_PROG, KV_V1));
  char name[] = "name";
  char* text = name;
  std::string room(kSize, '\0');
  kv_get_res result = {};
  result.kv_get_res_u.found.value.value_val = room.data();
  const size_t before = rrdk::tirpc::lent();
  ASSERT_EQ(clnt_call(client.get(), KV_GET, routine(xdr_kv_name), &text, routine(xdr_kv_get_res),
                      &result, kPatience),
            RPC_SUCCESS);
  EXPECT_EQ(result.kv_get_res_u.found.value.value_val, room.data());
  EXPECT_EQ(room, pattern(kSize));
  EXPECT_EQ(rrdk::tirpc::lent(), before);
}

TEST(TirpcPlacement, AnArgumentIsReadByTheServer) {
  const std::string value = pattern(kSize);
  std::atomic<int> right = 0;
  RawServer server(kKv, {{KV_PUT, [&](rrdk::ServerCall call) {
                            char name[8];
                            right += call.args().get_string(name) == "name";
                            std::string seen(kSize, '\0');
                            const rrdk::ItemView item = call.args().get_item(kSize);
                            if (item.size() == kSize)
                              item.copy_to(reinterpret_cast<std::byte*>(seen.data()));
                            right += seen == value && call.args().at_end();
                            call.results().put_u32(KV_OK);
                            std::move(call).reply();
                          }}});
  ClientPointer client(rrdk_clnt_create(server.uri().c_str(), KV_PROG, KV_V1));
  char name[] = "name";
  auto* own = static_cast<char*>(rrdk_tirpc_alloc(kSize + 100));
  ASSERT_NE(own, nullptr);
  std::memcpy(own + 100, value.data(), kSize);
  std::string copied = value;
  for (char* from : {copied.data(), own + 100}) {
    kv_put_args args = {name, {kSize, from}};
    kv_status* status = kv_put_1(&args, client.get());
    ASSERT_NE(status, nullptr) << rrdk_tirpc_error();
    EXPECT_EQ(*status, KV_OK);
  }
  rrdk_tirpc_free(own);
  EXPECT_EQ(right, 4);
  EXPECT_EQ(server.stats()[rrdk::Counter::kRdmaReadBytes], 2u * kSize);
}

TEST(TirpcPlacement, AStubServersResultIsPlaced) {
  const std::string value = pattern(kSize);
  RawClient client(stub_server().uri("shm"));
  rrdk::Call call(client.connection());
  rrdk::Encoder& put = call.begin(kKv, KV_PUT);
  put.put_string("placed");
  rrdk::Memory& memory = *rrdk::must(rrdk::tirpc::process_memory());
  rrdk::Buffer data = memory.get(kSize);
  std::memcpy(data.data(), value.data(), kSize);
  put.put_item(std::move(data), kSize, rrdk::Ddp::kEligible);
  ASSERT_EQ(call.submit_and_wait(), rrdk::CallStatus::kOk);

  rrdk::Buffer room = memory.get(kLargest);
  call.begin(kKv, KV_GET).put_string("placed");
  call.offer(room.first(kLargest));
  ASSERT_EQ(call.submit_and_wait(), rrdk::CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), static_cast<uint32_t>(KV_OK));
  EXPECT_EQ(call.results().get_u32(), 1u);
  const rrdk::ItemView item = call.results().get_item(kLargest);
  ASSERT_EQ(item.size(), kSize);
  EXPECT_EQ(item.data(), room.data());
  EXPECT_EQ(std::memcmp(item.data(), value.data(), kSize), 0);

  call.begin(kKv, KV_REMOVE).put_string("placed");
  EXPECT_EQ(call.submit_and_wait(), rrdk::CallStatus::kOk);
}

// The first item has arrived, and the data behind it has not: nothing stays lent.
TEST(TirpcPlacement, AnUndecodableReplyIsTakenBack) {
  static constexpr rrdk::ProcedureBinding kRead2[] = {
      {.procedure = 5, .name = "READ2", .eligible_results = 2, .fixed_results = 20}};
  static constexpr rrdk::Binding kPerf = {
      .program = PERF_PROG, .version = PERF_V1, .name = "perf", .procedures = kRead2};
  RawServer server(kPerf, {{5, [](rrdk::ServerCall call) {
                              call.results().put_u32(PERF_OK);
                              call.results().put_item(call.result_buffer(kSize), kSize,
                                                      rrdk::Ddp::kEligible);
                              call.results().put_u32(0);
                              call.results().put_u32(17);
                              std::move(call).reply();
                            }}});
  ClientPointer client(rrdk_clnt_create(server.uri().c_str(), PERF_PROG, PERF_V1));
  const size_t before = rrdk::tirpc::lent();
  perf_read2_args args = {};
  perf_read2_res result = {};
  EXPECT_EQ(clnt_call(client.get(), PERF_READ2, routine(xdr_perf_read2_args), &args,
                      routine(xdr_perf_read2_res), &result, kPatience),
            RPC_CANTDECODERES);
  EXPECT_EQ(rrdk::tirpc::lent(), before);
  EXPECT_EQ(result.perf_read2_res_u.ok.first.first_val, nullptr);
}

TEST(TirpcPlacement, MemoryOfAllSizes) {
  for (size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{kLargest}, size_t{20'000'000}}) {
    void* memory = rrdk_tirpc_alloc(size);
    ASSERT_NE(memory, nullptr) << size;
    std::memset(memory, 1, size);
    rrdk_tirpc_free(memory);
  }
  rrdk_tirpc_free(nullptr);
  rrdk_tirpc_free(std::malloc(10));
  EXPECT_EQ(rrdk_tirpc_alloc(size_t{1} << 50), nullptr);
}

}  // namespace

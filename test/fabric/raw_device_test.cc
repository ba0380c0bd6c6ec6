// Peers that make their RDMA device do what none of our drivers asks for.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <future>

#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"

namespace rrdk::fabric::test {
namespace {

std::vector<FabricUnderTest> devices() {
  std::vector<FabricUnderTest> all = fabrics();
  std::erase_if(all, [](const FabricUnderTest& f) { return std::string_view(f.name) != "verbs"; });
  return all;
}

class RawDevice : public testing::TestWithParam<FabricUnderTest> {};
INSTANTIATE_TEST_SUITE_P(Fabric, RawDevice, testing::ValuesIn(devices()), fabric_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RawDevice);

struct IdDeleter {
  void operator()(rdma_cm_id* id) const {
    if (id->qp != nullptr)
      rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
};
using Id = std::unique_ptr<rdma_cm_id, IdDeleter>;

// Connects to the URI; null if that fails. Waits.
Id connect_to(std::string uri) {
  uri = uri.substr(std::string_view("verbs://").size());
  uri.resize(std::min(uri.find('?'), uri.size()));
  const size_t colon = uri.rfind(':');
  const std::string port = uri.substr(colon + 1);
  std::string host = uri.substr(0, colon);
  if (host.starts_with('['))
    host = host.substr(1, host.size() - 2);
  rdma_addrinfo* to = nullptr;
  rdma_cm_id* made = nullptr;
  if (rdma_getaddrinfo(host.c_str(), port.c_str(), nullptr, &to) != 0 ||
      rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP) != 0)
    return nullptr;
  Id id(made);
  const std::unique_ptr<rdma_addrinfo, decltype(&rdma_freeaddrinfo)> freed(to, &rdma_freeaddrinfo);
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  rdma_conn_param param{};
  param.initiator_depth = param.responder_resources = 1;
  param.rnr_retry_count = 7;
  if (rdma_resolve_addr(made, nullptr, to->ai_dst_addr, 5000) != 0 ||
      rdma_create_qp(made, nullptr, &attr) != 0 || rdma_resolve_route(made, 5000) != 0 ||
      rdma_connect(made, &param) != 0)
    return nullptr;
  return id;
}

// It takes a Receive, and leaves nothing there that could be a message: even its length says
// nothing about the content of the Receive's buffer.
TEST_P(RawDevice, AWriteWithImmediateDataEndsTheConnection) {
  End server(GetParam().new_uri());
  const std::string uri = GetParam().new_uri();
  auto listener = server.device->listen(uri).value();
  std::future<Id> connecting = std::async(std::launch::async, connect_to, uri);
  ASSERT_TRUE(pump_until({&server}, [&] { return server.has_event(EventType::kConnectRequest); }));
  Event request = server.take_event(EventType::kConnectRequest);
  auto qp = request.request->create_queue_pair({.cq = server.cq.get()}).value();
  Buffer buffer = test_memory().get(4096);
  const ReceiveWr receive{7, buffer.span()};
  ASSERT_EQ(qp->post_receive(std::span(&receive, 1)), 1u);
  ASSERT_TRUE(request.request->accept(*qp, {}));
  ASSERT_TRUE(pump_until({&server}, [&] { return server.has_event(EventType::kEstablished); }));
  const Id peer = connecting.get();
  ASSERT_TRUE(peer);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(peer->qp, &wr, &bad) != 0)
    GTEST_SKIP() << "this device has no immediate data";  // RFC 5040 does not have these
  ASSERT_TRUE(pump_until({&server}, [&] { return !server.completions.empty(); }));
  const Completion done = server.take_completions().at(0);
  EXPECT_EQ(done.wr_id, 7u);
  EXPECT_NE(done.status, WcStatus::kSuccess);
  EXPECT_EQ(server.counter("immediates_refused"), 1u);
  EXPECT_TRUE(pump_until({&server}, [&] { return server.has_event(EventType::kDisconnected); }));
}

}  // namespace
}  // namespace rrdk::fabric::test

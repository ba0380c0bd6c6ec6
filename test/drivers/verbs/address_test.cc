// Addresses, the names of outcomes, and a machine without RDMA.
#include "drivers/verbs/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "drivers/verbs/completion_queue.h"
#include "fabric/device.h"
#include "test/fabric/end.h"

namespace rrdk::verbs {
namespace {

// Shows: BIND-02
TEST(Address, HasAHostAPortAndADevice) {
  const Address plain = parse_address("verbs://10.0.0.1").value();
  EXPECT_EQ(drivers::to_text(plain.endpoints.at(0)), "10.0.0.1:20049");
  EXPECT_EQ(plain.device, "");
  const Address full = parse_address("verbs://[::1]:7000?device=mlx5_0").value();
  EXPECT_EQ(drivers::to_text(full.endpoints.at(0)), "[::1]:7000");
  EXPECT_EQ(full.device, "mlx5_0");
  EXPECT_FALSE(full.without_windows);
  EXPECT_EQ(parse_address("verbs://10.0.0.1?timeout=60").value().timeout, std::chrono::minutes(1));
  EXPECT_TRUE(parse_address("verbs://10.0.0.1?windows=no&device=mlx5_0").value().without_windows);
}

TEST(Address, ThatIsWrongSaysWhy) {
  struct Wrong {
    const char* uri;
    const char* fault;
  };
  for (const Wrong& wrong : {Wrong{"verbs:/run/x.sock", "a host is missing"},
                             Wrong{"verbs://", "nothing follows the scheme"},
                             Wrong{"verbs://10.0.0.1/export", "it has a path"},
                             Wrong{"verbs://10.0.0.1?crc=1", "\"crc=1\" is not an option"},
                             Wrong{"verbs://10.0.0.1?device=", "\"device=\" is not an option"},
                             Wrong{"verbs://10.0.0.1?windows=yes", "windows=no"}}) {
    const Result<Address> address = parse_address(wrong.uri);
    ASSERT_FALSE(address) << wrong.uri;
    EXPECT_EQ(address.error().code, Errc::kBadUri) << wrong.uri;
    EXPECT_NE(address.error().message.find(wrong.fault), std::string::npos)
        << address.error().message;
  }
}

TEST(Status, NamesTheEndAtFault) {
  using fabric::WcStatus;
  EXPECT_EQ(status_of(IBV_WC_SUCCESS), WcStatus::kSuccess);
  EXPECT_EQ(status_of(IBV_WC_WR_FLUSH_ERR), WcStatus::kFlushed);
  EXPECT_EQ(status_of(IBV_WC_LOC_LEN_ERR), WcStatus::kLocalLength);
  EXPECT_EQ(status_of(IBV_WC_LOC_PROT_ERR), WcStatus::kLocalProtection);
  EXPECT_EQ(status_of(IBV_WC_MW_BIND_ERR), WcStatus::kLocalProtection);
  EXPECT_EQ(status_of(IBV_WC_REM_INV_REQ_ERR), WcStatus::kRemoteInvalid);
  EXPECT_EQ(status_of(IBV_WC_REM_ACCESS_ERR), WcStatus::kRemoteAccess);
  EXPECT_EQ(status_of(IBV_WC_REM_OP_ERR), WcStatus::kRemoteOperation);
  EXPECT_EQ(status_of(IBV_WC_RNR_RETRY_EXC_ERR), WcStatus::kRnrExceeded);
  EXPECT_EQ(status_of(IBV_WC_RETRY_EXC_ERR), WcStatus::kPeerLost);
  EXPECT_EQ(status_of(IBV_WC_FATAL_ERR), WcStatus::kPeerLost);
  // Only one status means success.
  for (int status = IBV_WC_SUCCESS + 1; status <= IBV_WC_GENERAL_ERR; ++status)
    EXPECT_NE(status_of(static_cast<ibv_wc_status>(status)), WcStatus::kSuccess) << status;
}

TEST(Status, TooShortReceiveIsALengthError) {
  using fabric::WcStatus;
  for (const ibv_wc_status status :
       {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_INV_REQ_ERR})
    EXPECT_EQ(status_of_receive(status), WcStatus::kLocalLength) << status;
  EXPECT_EQ(status_of_receive(IBV_WC_SUCCESS), WcStatus::kSuccess);
  EXPECT_EQ(status_of_receive(IBV_WC_WR_FLUSH_ERR), WcStatus::kFlushed);
  EXPECT_EQ(status_of_receive(IBV_WC_LOC_PROT_ERR), WcStatus::kLocalProtection);
}

TEST(Status, RefusedByUsIsALocalError) {
  EXPECT_EQ(status_of_refused(IBV_WC_REM_ACCESS_ERR), fabric::WcStatus::kLocalProtection);
  EXPECT_EQ(status_of_refused(IBV_WC_WR_FLUSH_ERR), fabric::WcStatus::kFlushed);
}

TEST(Status, FailedConnectsHaveErrorCodes) {
  EXPECT_EQ(drivers::code_of(-ECONNREFUSED), Errc::kNotFound);
  EXPECT_EQ(drivers::code_of(ENODEV), Errc::kNotFound);
  EXPECT_EQ(drivers::code_of(-ETIMEDOUT), Errc::kTimeout);
  EXPECT_EQ(drivers::code_of(EINVAL), Errc::kSystem);
}

TEST(Open, WithoutRdmaSaysWhatToDo) {
  if (::access("/dev/infiniband/rdma_cm", F_OK) == 0)
    GTEST_SKIP() << "this machine has RDMA";
  const std::string uri = "verbs://127.0.0.1:20049";
  const auto device = fabric::find_driver(uri).value()->open(fabric::test::test_memory(), uri,
                                                             fabric::Purpose::kConnecting);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Errc::kUnsupported);
  for (const char* part : {"no RDMA", "rdma_ucm", "iwarp:"})
    EXPECT_NE(device.error().message.find(part), std::string::npos) << device.error().message;
}

}  // namespace
}  // namespace rrdk::verbs

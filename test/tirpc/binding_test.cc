// Binding files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "bindings.h"
#include "rrdk/tirpc.h"

namespace {

using rrdk::tirpc::items_of;

class BindingFile : public testing::Test {
 protected:
  ~BindingFile() override { std::remove(path_.c_str()); }
  // Empty: it was read.
  std::string read(const std::string& text) {
    std::ofstream(path_) << text;
    return rrdk_tirpc_bind(path_.c_str()) ? "" : rrdk_tirpc_error();
  }
  std::string path_ = testing::TempDir() + "rrdk-" + std::to_string(::getpid()) + ".bind";
};

TEST_F(BindingFile, NamesItems) {
  ASSERT_EQ(read("# comment\n\n"
                 "0x30000001 2 5 results reply_type.data 1M  # the data\n"
                 "0x30000001 2 5 results blob 64K copy\n"
                 "0x30000001 2 5 reply 100\n"
                 "805306369 2 3 args args_type.bytes 17\n"),
            "");
  auto items = rrdk::must(items_of(0x30000001, 2));
  EXPECT_TRUE(rrdk::check(items->binding()).has_value());
  ASSERT_NE(items->find(5), nullptr);
  EXPECT_EQ(items->find(4), nullptr);
  ASSERT_EQ(items->find(5)->results.size(), 2u);
  EXPECT_EQ(items->find(5)->results[0].largest, 1u << 20);
  EXPECT_FALSE(items->find(5)->results[0].copy);
  EXPECT_TRUE(items->find(5)->results[1].copy);
  EXPECT_EQ(items->find(5)->reply, 100u);
  EXPECT_EQ(items->find(3)->args.size(), 1u);
  EXPECT_EQ(items->find(3)->reply, std::nullopt);
  EXPECT_EQ(items->binding().find(5)->eligible_results, 2u);
}

TEST_F(BindingFile, AddsToWhatIsThere) {
  ASSERT_EQ(read("0x30000002 1 1 args a.x 1K\n"), "");
  ASSERT_EQ(read("0x30000002 1 1 args a.y 2K\n0x30000002 1 1 args a.x 3K\n"), "");
  auto items = rrdk::must(items_of(0x30000002, 1));
  ASSERT_EQ(items->find(1)->args.size(), 2u);
  EXPECT_EQ(items->find(1)->args[0].largest, 3u << 10);
}

TEST_F(BindingFile, MayHaveALineOfAllProceduresWithoutOne) {
  ASSERT_EQ(read("0x30000004 1 0xffffffff reply 8\n0x30000004 1 2 reply 40\n"), "");
  auto items = rrdk::must(items_of(0x30000004, 1));
  EXPECT_EQ(items->find(2)->reply, 40u);
  for (uint32_t other : {1u, 3u, 70'000u, UINT32_MAX}) {
    ASSERT_NE(items->find(other), nullptr);
    EXPECT_EQ(items->find(other)->reply, 8u);
  }
}

TEST_F(BindingFile, MatchesWhatRpcgenWrites) {
  const rrdk::tirpc::Item field = {"kv_value", "value", 1, false};
  EXPECT_TRUE(field.matches("xdr_kv_value", "(char **)&objp->value.value_val"));
  EXPECT_TRUE(field.matches("xdr_kv_value", "(char **)&objp->kv_value_u.value.value_val"));
  EXPECT_FALSE(field.matches("xdr_kv_value", "(char **)&objp->other_value.other_value_val"));
  EXPECT_FALSE(field.matches("xdr_kv_values", "(char **)&objp->value.value_val"));
  EXPECT_FALSE(field.matches("kv_value", "(char **)&objp->value.value_val"));
  EXPECT_FALSE(field.matches("xdr_kv_value", "&value"));
  EXPECT_FALSE(field.matches("xdr_kv_value", "value_val"));
  const rrdk::tirpc::Item whole = {"blob", "blob", 1, false};
  EXPECT_TRUE(whole.matches("xdr_blob", "(char **)&objp->blob_val"));
}

TEST_F(BindingFile, SaysWhatIsWrongAndWhere) {
  const std::string good = "0x30000003 1 1 args a.x 1K\n";
  for (const char* bad :
       {"0x30000003 1 1 args", "nonsense 1 1 args a.x 1K", "1 1 1 args a.x", "1 1 1 args a.x 9M",
        "1 1 1 args a.x 1G", "1 1 1 args a.x.y 1K", "1 1 1 args .x 1K", "1 1 0 args a.x 1K",
        "1 1 1 neither a.x 1K", "1 1 1 args a.x 1K copies", "1 1 1 reply 10 20",
        "1 1 99999999999 args a.x 1K", "0x 1 1 args a.x 1K", "1 1 1 args a.x -1"}) {
    EXPECT_THAT(read(good + bad + "\n"), testing::HasSubstr(path_ + ":2: ")) << bad;
  }
  EXPECT_EQ(rrdk::must(items_of(0x30000003, 1))->find(1), nullptr)
      << "nothing of a bad file counts";
  std::string many;
  for (int i = 0; i < 17; ++i)
    many += "0x30000003 1 1 args a.x" + std::to_string(i) + " 1K\n";
  EXPECT_THAT(read(many), testing::HasSubstr(":17: "));
}

TEST_F(BindingFile, MayBeMissing) {
  EXPECT_FALSE(rrdk_tirpc_bind("/nowhere/at.all"));
  EXPECT_THAT(rrdk_tirpc_error(), testing::HasSubstr("/nowhere/at.all"));
}

}  // namespace

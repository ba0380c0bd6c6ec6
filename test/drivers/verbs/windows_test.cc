// How the driver uses devices that support only a part of memory windows, on a made-up device: only
// those functions of libibverbs are called that go through a device's own table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "drivers/verbs/keys.h"
#include "drivers/verbs/probe.h"

namespace rrdk::verbs {
namespace {

class MadeUpDevice {
 public:
  MadeUpDevice() {
    context_.self = this;
    context_.context.ops.alloc_mw = alloc_mw;
    context_.context.ops.dealloc_mw = dealloc_mw;
    context_.context.ops.post_send = post_send;
    pd.context = &context_.context;
    qp.context = &context_.context;
    qp.pd = &pd;
    mr.addr = &mr;
    mr.length = sizeof(mr);
  }

  ibv_pd pd{};
  ibv_qp qp{};
  ibv_mr mr{};
  uint32_t windows_left = UINT32_MAX;
  std::set<ibv_wr_opcode> refused;  // when they are posted
  std::vector<ibv_wr_opcode> posted;
  uint32_t asked = 0;  // for windows
  std::set<ibv_mw*> alive;

 private:
  struct Context {
    ibv_context context{};
    MadeUpDevice* self = nullptr;
  };

  static MadeUpDevice& of(ibv_context* context) {
    return *reinterpret_cast<Context*>(context)->self;
  }
  static ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
    MadeUpDevice& device = of(pd->context);
    ++device.asked;
    if (device.windows_left == 0 || type != IBV_MW_TYPE_2) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    --device.windows_left;
    auto* mw = new ibv_mw{};
    mw->context = pd->context;
    mw->rkey = (++device.next_index_ << 8) | 7;
    device.alive.insert(mw);
    return mw;
  }
  static int dealloc_mw(ibv_mw* mw) {
    of(mw->context).alive.erase(mw);
    delete mw;
    return 0;
  }
  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    MadeUpDevice& device = of(qp->context);
    for (; wr != nullptr; wr = wr->next) {
      if (device.refused.contains(wr->opcode)) {
        *bad = wr;
        return EINVAL;
      }
      device.posted.push_back(wr->opcode);
    }
    return 0;
  }

  Context context_;
  uint32_t next_index_ = 0;
};

TEST(Probe, ADeviceThatTakesEverythingCanDoIt) {
  MadeUpDevice device;
  const Requests can = probe_requests(&device.qp, &device.mr);
  EXPECT_TRUE(can.windows);
  EXPECT_TRUE(can.sends_invalidations);
  EXPECT_EQ(std::set(device.posted.begin(), device.posted.end()),
            (std::set{IBV_WR_SEND_WITH_INV, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV}));
  EXPECT_TRUE(device.alive.empty());
}

// Shows: V2D4-RINV-06
TEST(Probe, WindowsTakeAllOfTheirRequests) {
  for (const ibv_wr_opcode lacking : {IBV_WR_BIND_MW, IBV_WR_LOCAL_INV}) {
    MadeUpDevice device;
    device.refused = {lacking};
    const Requests can = probe_requests(&device.qp, &device.mr);
    EXPECT_FALSE(can.windows);
    EXPECT_TRUE(can.sends_invalidations);
    EXPECT_TRUE(device.alive.empty());
  }
  MadeUpDevice none;
  none.windows_left = 0;
  EXPECT_FALSE(probe_requests(&none.qp, &none.mr).windows);
  MadeUpDevice unbound;
  EXPECT_FALSE(probe_requests(&unbound.qp, nullptr).windows);
}

TEST(Probe, SendingInvalidationsIsAnotherMatter) {
  MadeUpDevice device;
  device.refused = {IBV_WR_SEND_WITH_INV};
  const Requests can = probe_requests(&device.qp, &device.mr);
  EXPECT_TRUE(can.windows);
  EXPECT_FALSE(can.sends_invalidations);
}

class WindowsTest : public testing::Test {
 protected:
  std::unique_ptr<Windows> windows(uint32_t most) {
    return std::make_unique<Windows>(&device_.pd, most, counts_);
  }
  static std::vector<uint32_t> take(Windows& windows, size_t count) {
    std::vector<uint32_t> keys(count);
    return windows.reserve(keys) ? keys : std::vector<uint32_t>();
  }

  MadeUpDevice device_;
  Counters counts_;
};

TEST_F(WindowsTest, WaitingIsInVainOnlyWhileNoKeyIsOut) {
  device_.windows_left = 3;
  const auto windows = this->windows(256);
  const std::vector<uint32_t> out = take(*windows, 2);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(take(*windows, 2).empty());
  EXPECT_FALSE(windows->is_hopeless()) << "two may come back";
  for (const uint32_t key : out)
    windows->release(key);
  const std::vector<uint32_t> three = take(*windows, 3);
  ASSERT_EQ(three.size(), 3u);
  for (const uint32_t key : three)
    windows->release(key);
  EXPECT_TRUE(take(*windows, 4).empty());
  EXPECT_TRUE(windows->is_hopeless());
  // The device may have some again later, and smaller calls continue.
  EXPECT_EQ(take(*windows, 3).size(), 3u);
  EXPECT_FALSE(windows->is_hopeless());
}

TEST_F(WindowsTest, ADeviceWithoutAnyIsNotAskedAgainAndAgain) {
  device_.windows_left = 0;
  const auto windows = this->windows(256);
  for (int i = 0; i != 100; ++i) {
    EXPECT_TRUE(take(*windows, 1).empty());
    EXPECT_TRUE(windows->is_hopeless());
  }
  EXPECT_EQ(device_.asked, 1u);
  EXPECT_EQ(counts_.windows_refused, 1u);
}

TEST_F(WindowsTest, MoreThanTheConnectionMayHaveIsNoLackOfTheDevices) {
  const auto windows = this->windows(4);
  EXPECT_TRUE(take(*windows, 5).empty());
  EXPECT_FALSE(windows->is_hopeless());
  EXPECT_EQ(device_.asked, 0u);
}

// The device chooses the upper 24 bits of a key.
// Shows: V1-MEM-09
TEST_F(WindowsTest, TagsAreHardToPredict) {
  constexpr uint32_t kKeys = 4096;
  const auto windows = this->windows(1);
  std::map<uint8_t, uint32_t> steps;
  uint32_t last = 0;
  for (uint32_t i = 0; i != kKeys; ++i) {
    const std::vector<uint32_t> key = take(*windows, 1);
    ASSERT_EQ(key.size(), 1u);
    ASSERT_EQ(key[0] >> 8, 1u);
    ++steps[static_cast<uint8_t>(key[0] - last)];
    last = key[0];
    windows->release(key[0]);
  }
  for (const auto& [step, count] : steps)
    EXPECT_LT(count, kKeys / 20) << "step " << int{step};
}

}  // namespace
}  // namespace rrdk::verbs

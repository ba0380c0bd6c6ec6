// The assumptions of tests that run in a process without descriptors.
#include "test/no_descriptors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>

namespace rrdk::test {
namespace {

struct Shape {
  virtual ~Shape() = default;
  virtual int corners() const = 0;
};
struct Square : Shape {
  int corners() const override { return 4; }
};
struct Triangle : Shape {
  int corners() const override { return 3; }
};

// UBSan needs some itself for a class that it meets for the first time; it knows neither class.
TEST(NoDescriptors, AreLeftToTheProgramAloneInAnyThread) {
  const NoDescriptors now;
  EXPECT_EQ(::dup(0), -1);
  EXPECT_EQ(errno, EMFILE);
  std::unique_ptr<Shape> shape = std::make_unique<Square>();
  EXPECT_EQ(shape->corners(), 4);
  std::thread([&shape] {
    shape = std::make_unique<Triangle>();
    EXPECT_EQ(shape->corners(), 3);
  }).join();
  EXPECT_EQ(::dup(0), -1);
}

}  // namespace
}  // namespace rrdk::test

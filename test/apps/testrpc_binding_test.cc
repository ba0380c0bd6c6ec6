// The perf program's binding agrees with perf.x for each procedure.
#include <gtest/gtest.h>

#include "apps/testrpc/perf_program.h"

namespace rrdk::testrpc {
namespace {

TEST(PerfBinding, MatchesItsProgram) {
  const Binding& binding = perf_binding();
  ASSERT_TRUE(check(binding));
  EXPECT_EQ(binding.program, 0x20005666u);
  EXPECT_EQ(binding.version, 1u);
  auto is = [&](uint32_t procedure, uint8_t args, uint8_t results, uint32_t fixed) {
    const ProcedureBinding* p = binding.find(procedure);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(p->eligible_args, args) << p->name;
    EXPECT_EQ(p->eligible_results, results) << p->name;
    EXPECT_EQ(p->fixed_results, fixed) << p->name;
  };
  is(kPerfNull, 0, 0, 0);
  is(kPerfEcho, 0, 0, 4);          // the blob's length
  is(kPerfRead, 0, 1, 3 * 4);      // status, crc32c, length
  is(kPerfWrite, 1, 0, 3 * 4);     // status, count, crc32c
  is(kPerfSandwich, 1, 0, 5 * 4);  // status, three crc32c, count
  is(kPerfRead2, 0, 2, 5 * 4);     // status, two lengths, two crc32c
  is(kPerfCallback, 0, 0, 4);      // how many were right
}

TEST(PerfBinding, ClientsProgramIsValid) {
  Service service = callback_service();
  ASSERT_TRUE(check(*service.binding));
  EXPECT_EQ(service.binding->program, 0x20005667u);
  EXPECT_EQ(service.binding->version, 1u);
  const ProcedureBinding* echo = service.binding->find(1);
  ASSERT_NE(echo, nullptr);
  EXPECT_EQ(echo->eligible_args + echo->eligible_results, 0);
  EXPECT_EQ(echo->fixed_results, 4u);
}

}  // namespace
}  // namespace rrdk::testrpc

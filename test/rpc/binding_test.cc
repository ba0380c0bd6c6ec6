#include "rrdk/binding.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rrdk/nfs3.h"

namespace rrdk {
namespace {

constexpr ProcedureBinding kSparseProcedures[] = {
    {.procedure = 0, .name = "NULL"},
    {.procedure = 3, .name = "GET", .eligible_results = 2, .fixed_results = 16},
    {.procedure = 100, .name = "PUT", .eligible_args = 1, .fixed_results = 4},
    {.procedure = UINT32_MAX - 1, .name = "LAST", .fixed_results = 8},
};
constexpr Binding kSparse = {
    .program = 0x20000001, .version = 2, .name = "sparse", .procedures = kSparseProcedures};

Result<void> check_one(const ProcedureBinding& entry) {
  return check({.program = 1, .version = 1, .name = "one", .procedures = {&entry, 1}});
}

std::string message(const Result<void>& result) {
  return result ? "" : result.error().message;
}

TEST(Binding, BindingsOfTheLibraryAreValid) {
  EXPECT_EQ(message(check(nfs3::kBinding)), "");
  EXPECT_EQ(message(check(kSparse)), "");
  EXPECT_TRUE(check({.program = 1, .version = 1, .name = "bare", .procedures = {}}).has_value());
}

TEST(Binding, FindsDenseAndSparseProcedures) {
  for (const Binding* binding : {&kSparse, &nfs3::kBinding}) {
    for (const ProcedureBinding& entry : binding->procedures)
      EXPECT_EQ(binding->find(entry.procedure), &entry);
  }
  for (uint32_t absent : {1u, 2u, 4u, 99u, 101u, UINT32_MAX - 2, UINT32_MAX})
    EXPECT_EQ(kSparse.find(absent), nullptr);
  EXPECT_EQ(nfs3::kBinding.find(22), nullptr);
  EXPECT_EQ(Binding{}.find(0), nullptr);
}

TEST(Binding, ADefaultEntryCoversOtherProcedures) {
  constexpr ProcedureBinding kProcedures[] = {
      {.procedure = 3, .name = "GET", .eligible_results = 2, .fixed_results = 16},
      {.procedure = kOtherProcedures,
       .name = "OTHER",
       .eligible_args = 1,
       .fixed_results = 8,
       .no_long_calls = true}};
  const Binding binding = {
      .program = 0x20000001, .version = 2, .name = "others", .procedures = kProcedures};
  EXPECT_EQ(message(check(binding)), "");
  EXPECT_EQ(binding.find(3), &kProcedures[0]);
  for (uint32_t other : {1u, 2u, 4u, 70'000u, UINT32_MAX - 1, UINT32_MAX}) {
    EXPECT_EQ(binding.find(other), &kProcedures[1]);
    EXPECT_TRUE(binding.allows(other, 1, 0));
    EXPECT_FALSE(binding.allows(other, 1, 1));
    EXPECT_FALSE(binding.allows_long(other));
  }
  EXPECT_EQ(binding.find(0), nullptr);  // NULL has neither arguments nor results
  EXPECT_TRUE(binding.allows_long(3));
}

// Shows: EXP-23, V1-WL-16
TEST(Binding, CapsChunksPerProcedure) {
  EXPECT_TRUE(kSparse.allows(3, 0, 0));
  EXPECT_TRUE(kSparse.allows(3, 0, 2));
  EXPECT_FALSE(kSparse.allows(3, 0, 3));
  EXPECT_FALSE(kSparse.allows(3, 1, 0));
  EXPECT_TRUE(kSparse.allows(100, 1, 0));
  EXPECT_FALSE(kSparse.allows(100, 2, 0));
  EXPECT_FALSE(kSparse.allows(100, 1, 1));
  EXPECT_FALSE(kSparse.allows(100, UINT32_MAX, 0));
}

// Shows: EXP-19, V1-CHUNK-02
TEST(Binding, UnmentionedItemsAreNotEligible) {
  EXPECT_TRUE(kSparse.allows(1, 0, 0));
  EXPECT_FALSE(kSparse.allows(1, 1, 0));
  EXPECT_FALSE(kSparse.allows(1, 0, 1));
}

TEST(Binding, ReplyBoundCoversHeaderFixedAndVariableParts) {
  EXPECT_EQ(kSparse.max_reply(3, 0), 24u + 16);
  EXPECT_EQ(kSparse.max_reply(3, 1000), 24u + 16 + 1000);
  // A server may always answer PROG_MISMATCH, which is longer than an empty success.
  EXPECT_EQ(kSparse.max_reply(0, 0), 32u);
  EXPECT_EQ(kSparse.max_reply(1, 0), 32u);
  EXPECT_EQ(kSparse.max_reply(1, 100), 124u);
  EXPECT_EQ(kSparse.max_reply(3, UINT64_MAX), UINT64_MAX);
}

TEST(Binding, FaultsAreNamed) {
  EXPECT_NE(message(check_one({.procedure = 1, .name = nullptr})).find("has no name"),
            std::string::npos);
  EXPECT_NE(message(check_one({.procedure = 1, .name = "A", .eligible_args = 17})).find("argum"),
            std::string::npos);
  EXPECT_FALSE(
      check_one({.procedure = 1, .name = "A", .eligible_results = 17, .fixed_results = 400}));
  EXPECT_FALSE(check_one({.procedure = 1, .name = "A", .eligible_results = 2, .fixed_results = 4}));
  EXPECT_FALSE(check_one({.procedure = 1, .name = "A", .fixed_results = 5}));
  EXPECT_FALSE(check_one({.procedure = 1, .name = "A", .fixed_results = 65540}));
  EXPECT_FALSE(check_one({.procedure = 0, .name = "NULL", .eligible_args = 1}));
  EXPECT_FALSE(check_one({.procedure = 0, .name = "NULL", .fixed_results = 4}));
  EXPECT_FALSE(check({.program = 1, .version = 1, .name = nullptr, .procedures = {}}));

  std::string text = message(check_one({.procedure = 9, .name = "A", .fixed_results = 5}));
  EXPECT_EQ(text,
            "binding \"one\" (program 1, version 1): procedure 9 has a size of fixed results that "
            "is not a multiple of four");
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Binding, OrderAndDuplicatesAreChecked) {
  const ProcedureBinding twice[] = {{.procedure = 1, .name = "A"}, {.procedure = 1, .name = "B"}};
  const ProcedureBinding mixed[] = {{.procedure = 2, .name = "A"}, {.procedure = 1, .name = "B"}};
  EXPECT_NE(message(check({.program = 1, .version = 1, .name = "x", .procedures = twice}))
                .find("procedure 1 is listed twice"),
            std::string::npos);
  EXPECT_NE(message(check({.program = 1, .version = 1, .name = "x", .procedures = mixed}))
                .find("procedure 1 is out of order"),
            std::string::npos);
}

// RFC 8267 section 2 names four eligible items; RFC 1813's longest reply of each procedure.
TEST(Nfs3Binding, MatchesItsProgram) {
  EXPECT_EQ(nfs3::kBinding.program, 100003u);
  EXPECT_EQ(nfs3::kBinding.version, 3u);
  ASSERT_EQ(nfs3::kBinding.procedures.size(), 22u);
  for (const ProcedureBinding& p : nfs3::kBinding.procedures) {
    bool args = p.procedure == nfs3::kWrite || p.procedure == nfs3::kSymlink;
    bool results = p.procedure == nfs3::kRead || p.procedure == nfs3::kReadlink;
    EXPECT_EQ(p.eligible_args, args ? 1 : 0) << p.name;
    EXPECT_EQ(p.eligible_results, results ? 1 : 0) << p.name;
  }
  const std::vector<uint32_t> longest = {0,   88,  120, 248, 96,  96,  104, 136, 280, 280, 280,
                                         280, 120, 120, 236, 208, 108, 108, 144, 140, 116, 128};
  for (const ProcedureBinding& p : nfs3::kBinding.procedures)
    EXPECT_EQ(p.fixed_results, longest[p.procedure]) << p.name;
}

// Procedures that change something, and do not do the same when they run again.
TEST(Nfs3Binding, KnowsWhatMayRunTwice) {
  std::string once;
  for (const ProcedureBinding& p : nfs3::kBinding.procedures)
    once += nfs3::is_idempotent(p.procedure) ? "" : std::string(p.name) + " ";
  EXPECT_EQ(once, "SETATTR CREATE MKDIR SYMLINK MKNOD REMOVE RMDIR RENAME LINK ");
}

TEST(Mount3Binding, MatchesItsProgram) {
  EXPECT_EQ(message(check(nfs3::mount::kBinding)), "");
  EXPECT_EQ(nfs3::mount::kBinding.program, 100005u);
  const std::vector<uint32_t> longest = {0, 76, 4, 0, 0, 4};
  ASSERT_EQ(nfs3::mount::kBinding.procedures.size(), longest.size());
  for (const ProcedureBinding& p : nfs3::mount::kBinding.procedures) {
    EXPECT_EQ(p.fixed_results, longest[p.procedure]) << p.name;
    EXPECT_EQ(p.eligible_args + p.eligible_results, 0) << p.name;
  }
}

}  // namespace
}  // namespace rrdk

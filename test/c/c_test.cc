// The C API as C programs use it: scenarios.c. The functions underneath are tested elsewhere.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "scenarios.h"

// Kerberos leaks the name of a service whose key it does not find (1.20, gss_acquire_cred_from).
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libkrb5.so";
}

namespace {

constexpr const char* kNeedsRealm = "it needs the Kerberos realm that test/gss/realm.py makes";

using OverAFabric = const char* (*)(const char* uri);

class C : public testing::TestWithParam<std::string> {
 protected:
  void expect(OverAFabric scenario) {
    const std::string uri = GetParam() == "shm"
                                ? "shm:@rrdk-c-test-" + std::to_string(getpid()) + "-" +
                                      testing::UnitTest::GetInstance()->current_test_info()->name()
                                : "iwarp://127.0.0.1:0";
    EXPECT_STREQ(scenario(uri.c_str()), nullptr);
  }
};
INSTANTIATE_TEST_SUITE_P(Drivers, C, testing::Values("shm", "iwarp"),
                         [](const auto& each) { return each.param; });

TEST_P(C, CallsOfAllKinds) {
  expect(calls_of_all_kinds);
}

TEST_P(C, AnswersFromAnotherThread) {
  expect(answers_from_another_thread);
}

TEST_P(C, CallsBeyondTheBound) {
  expect(calls_beyond_the_bound);
}

TEST_P(C, CallsThatAreWatched) {
  expect(calls_that_are_watched);
}

TEST_P(C, CallsInTheOtherDirection) {
  expect(calls_in_the_other_direction);
}

TEST_P(C, CallsThatDoNotSucceed) {
  expect(calls_that_do_not_succeed);
}

TEST_P(C, ACallSubmittedTwice) {
  expect(a_call_submitted_twice);
}

TEST_P(C, ACallAnsweredTwice) {
  expect(a_call_answered_twice);
}

TEST_P(C, ServerConnectionsThatHaveGone) {
  expect(server_connections_that_have_gone);
}

TEST_P(C, ConnectionsThatComeAndGo) {
  expect(connections_that_come_and_go);
}

TEST_P(C, AServerThatIsAskedToEnd) {
  expect(a_server_that_is_asked_to_end);
}

TEST_P(C, MissingAndGoneObjects) {
  expect(missing_and_gone_objects);
}

TEST_P(C, CountersAndStats) {
  expect(counters_and_stats);
}

TEST_P(C, Credentials) {
  expect(credentials);
}

TEST_P(C, Captures) {
  expect(captures);
}

TEST_P(C, AServerThatDemandsKerberos) {
  if (std::getenv("RRDK_TEST_REALM") == nullptr)
    GTEST_SKIP() << kNeedsRealm;
  expect(a_server_that_demands_kerberos);
}

TEST(CSetUp, AcceptorsThatCannotBeMade) {
  if (std::getenv("RRDK_TEST_REALM") == nullptr)
    GTEST_SKIP() << kNeedsRealm;
  EXPECT_STREQ(acceptors_that_cannot_be_made(), nullptr);
}

TEST(CSetUp, TimersAndTasks) {
  EXPECT_STREQ(timers_and_tasks(), nullptr);
}

TEST(CSetUp, APassHasABudget) {
  EXPECT_STREQ(a_pass_has_a_budget(), nullptr);
}

TEST(CSetUp, OptionsOfOtherReleases) {
  EXPECT_STREQ(options_of_other_releases(), nullptr);
}

TEST(CSetUp, OptionsThatAreWrong) {
  EXPECT_STREQ(options_that_are_wrong(), nullptr);
}

TEST(CSetUp, ErrorsHaveNames) {
  EXPECT_STREQ(errors_have_names(), nullptr);
}

TEST(CSetUp, MemoryOfAllKinds) {
  EXPECT_STREQ(memory_of_all_kinds(), nullptr);
}

TEST(CSetUp, LinesOfTheLog) {
  EXPECT_STREQ(lines_of_the_log(), nullptr);
}

}  // namespace

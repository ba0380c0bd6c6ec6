#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "apps/testrpc/nfs3_site.h"
#include "apps/testrpc/options.h"
#include "apps/testrpc/plan.h"
#include "apps/testrpc/values.h"

namespace rrdk::testrpc {
namespace {

Result<Options> parse(std::vector<std::string> words) {
  words.insert(words.begin(), "testrpc");
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

TEST(Sizes, SuffixesArePowersOf1024) {
  EXPECT_EQ(parse_size("1000", kLargestSize).value(), 1000u);
  EXPECT_EQ(parse_size("4K", kLargestSize).value(), 4096u);
  EXPECT_EQ(parse_size("1m", kLargestSize).value(), 1u << 20);
  for (const char* bad :
       {"", "K", "4G", "-1", "1.5K", "33M", "0x10", "4 K", "99999999999999999999"})
    EXPECT_FALSE(parse_size(bad, kLargestSize)) << bad;
}

TEST(Options, EalArgumentsComeBeforeTheDivider) {
  Options o = parse({"-l", "0,1", "--", "--client", "shm:/x", "--size=4K,1M", "--verify"}).value();
  EXPECT_EQ(o.eal, (std::vector<std::string>{"-l", "0,1"}));
  EXPECT_EQ(o.role, Role::kClient);
  EXPECT_EQ(o.uri, "shm:/x");
  EXPECT_EQ(o.sizes, (std::vector<uint32_t>{4096, 1u << 20}));
  EXPECT_TRUE(o.verify);
}

TEST(Options, SurvivalIsForClients) {
  Options o =
      parse({"--client", "shm:/x", "--reconnect", "--retransmit", "--keepalive-ms", "50"}).value();
  EXPECT_TRUE(o.reconnect);
  EXPECT_TRUE(o.retransmit);
  EXPECT_EQ(o.keepalive_ms, 50u);
  EXPECT_FALSE(parse({"--client", "shm:/x"}).value().reconnect);
  EXPECT_FALSE(parse({"--server", "shm:/x", "--reconnect"}));
  EXPECT_FALSE(parse({"--server", "shm:/x", "--keepalive-ms", "50"}));
  EXPECT_FALSE(parse({"--client", "shm:/x", "--retransmit"}));
}

TEST(Options, NfsServers) {
  Options o = parse({"--client", "iwarp://h:20049", "--engine", "nfs3"}).value();
  EXPECT_EQ(o.nfs_export, "/");
  EXPECT_EQ(o.nfs_calls, kAllNfs3Calls);
  o = parse({"--client", "shm:/x", "--engine", "nfs3", "--nfs-export", "/e", "--nfs-mount", "h:77",
             "--nfs-calls", "read,write", "--nfs-names", "5"})
          .value();
  EXPECT_EQ(o.nfs_export, "/e");
  EXPECT_EQ(nfs3_call_names(o.nfs_calls), "read,write");
  EXPECT_EQ(o.nfs_names, 5u);
  EXPECT_EQ(o.access, Access::kNear);
  o = parse({"--client", "shm:/x", "--engine", "nfs3", "--access", "sequential"}).value();
  EXPECT_EQ(o.access, Access::kSequential);
  EXPECT_FALSE(parse({"--client", "shm:/x", "--engine", "nfs3", "--access", "backwards"}));
  EXPECT_FALSE(parse({"--client", "shm:/x", "--engine", "read", "--access", "random"}));
  EXPECT_FALSE(parse({"--self", "--engine", "nfs3"}));
  EXPECT_FALSE(parse({"--client", "shm:/x", "--nfs-mount", "h:0"}));
  EXPECT_FALSE(parse({"--client", "shm:/x", "--nfs-mount", "65536"}));
  EXPECT_FALSE(parse({"--client", "shm:/x", "--nfs-calls", "read,erase"}));
  EXPECT_FALSE(parse({"--client", "shm:/x", "--nfs-calls", ""}));
}

TEST(Options, WhereMountIs) {
  auto target = [](const char* given, const char* uri) {
    nfs3::MountTarget found = mount_target(given, uri).value();
    return found.host + " " + std::to_string(found.port);
  };
  EXPECT_EQ(target("", "iwarp://10.6.0.1:20049"), "10.6.0.1 0");
  EXPECT_EQ(target("20048", "iwarp://10.6.0.1:20049"), "10.6.0.1 20048");
  EXPECT_EQ(target("", "iwarp://[fe80::1%eth0]:20049"), "fe80::1%eth0 0");
  EXPECT_EQ(target("", "iwarp://server"), "server 0");
  EXPECT_EQ(target("", "shm:/tmp/nfs.sock"), "127.0.0.1 0");
  EXPECT_EQ(target("other", "iwarp://10.6.0.1:20049"), "other 0");
  EXPECT_EQ(target("other:9", "shm:/x"), "other 9");
  EXPECT_EQ(target("[::1]:9", "shm:/x"), "::1 9");
  EXPECT_EQ(target("[::1]", "shm:/x"), "::1 0");
}

TEST(Plan, Nfs3DrawsItsSizesInOneRun) {
  Options o = parse({"--client", "shm:/x", "--engine", "nfs3"}).value();
  std::vector<RunSpec> plan = make_plan(o);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].sizes, (std::vector<uint32_t>{1, 1u << 20}));
  EXPECT_TRUE(has_nfs3(plan));
  o = parse({"--client", "shm:/x", "--engine", "nfs3,all", "--size", "5,7"}).value();
  plan = make_plan(o);
  EXPECT_EQ(plan[0].sizes, (std::vector<uint32_t>{5, 7}));
  EXPECT_EQ(plan[1].engine->name, std::string("null"));
  EXPECT_GE(largest_size(plan), 64u << 10);  // listings have their space, too
}

TEST(Options, WithoutDividerAllAreOurs) {
  Options o = parse({"--self", "--engine", "read", "--engine", "write,null"}).value();
  EXPECT_TRUE(o.eal.empty());
  EXPECT_EQ(o.role, Role::kSelf);
  EXPECT_EQ(o.uri, "");
  EXPECT_EQ(o.engines, (std::vector<std::string>{"read", "write", "null"}));
  EXPECT_EQ(parse({"--self=shm:/y"}).value().uri, "shm:/y");
}

TEST(Options, HowAServerTreatsItsClients) {
  Options o = parse({"--server", "shm:/x"}).value();
  EXPECT_FALSE(o.replay_cache);
  EXPECT_FALSE(o.connections_per_client);
  EXPECT_EQ(o.idle_timeout_ms, 0u);
  EXPECT_EQ(o.send_timeout_ms, 60'000u);
  EXPECT_EQ(o.drain_timeout_ms, 10'000u);
  EXPECT_EQ(o.server_work_ns, 0u);
  EXPECT_EQ(parse({"--self", "--server-work", "250"}).value().server_work_ns, 250u);
  o = parse({"--server", "shm:/x", "--drc", "on", "--max-connections-per-client", "3",
             "--idle-timeout", "5", "--send-timeout", "0", "--drain-timeout", "0"})
          .value();
  EXPECT_TRUE(o.replay_cache);
  EXPECT_EQ(o.replay_entries, ReplayOptions{}.entries);
  EXPECT_EQ(o.connections_per_client, 3u);
  EXPECT_EQ(o.idle_timeout_ms, 5u);
  EXPECT_EQ(o.send_timeout_ms, 0u);
  EXPECT_EQ(o.drain_timeout_ms, 0u);
  EXPECT_EQ(parse({"--server", "shm:/x", "--drc", "77"}).value().replay_entries, 77u);
  EXPECT_FALSE(parse({"--server", "shm:/x", "--drc", "off"}).value().replay_cache);
}

TEST(Options, MemoryIsABudgetInBytes) {
  EXPECT_EQ(parse({"--server", "shm:/x"}).value().memory, 0u);
  EXPECT_EQ(parse({"--server", "shm:/x", "--memory", "512M"}).value().memory, 512u << 20);
  EXPECT_EQ(parse({"--client", "shm:/x", "--memory", "6G"}).value().memory, uint64_t{6} << 30);
  EXPECT_EQ(parse({"--self", "--memory", "131072K"}).value().memory, 128u << 20);
}

TEST(Options, EveryMistakeIsToldInOneLine) {
  const std::vector<std::vector<std::string>> mistakes = {
      {},
      {"--self", "--client", "shm:/x"},
      {"--server"},
      {"--server", ""},
      {"--self", "--frobnicate"},
      {"--server", "shm:/x", "--drc", "maybe"},
      {"--server", "shm:/x", "--drc", "0"},
      {"--self", "--server-work", "1000000001"},
      {"--client", "shm:/x", "--server-work", "5"},
      {"--client", "shm:/x", "--drc", "on"},
      {"--client", "shm:/x", "--idle-timeout", "5"},
      {"--self", "stray"},
      {"--self", "--engine", "nul"},
      {"--self", "--size", "4Q"},
      {"--self", "--window", "0"},
      {"--self", "--connections", "x"},
      {"--self", "--connections", "10", "--active", "11"},
      {"--self", "--connections", "10", "--active", "0"},
      {"--self", "--memory", "1"},
      {"--self", "--memory", "17T"},
      {"--self", "--rate", "0"},
      {"--self", "--rate", "-5"},
      {"--self", "--rate", "nan"},
      {"--self", "--warmup", "0"},
      {"--client", "shm:/x,"},
      {"--client", "shm:/x,,shm:/y"},
      {"--client", "shm:/x,shm:/y,shm:/z", "--connections", "2"},
      {"--client", "iwarp://x,iwarp://y", "--engine", "nfs3"},
      {"--self", "--think", "0"},
      {"--self", "--think", "5", "--rate", "100"},
      {"--self", "--engine", "null", "--think", "5", "--find-knee"},
      {"--self", "--size", "4K:70,64K"},
      {"--self", "--size", "4K,64K:30"},
      {"--self", "--size", "4K:0"},
      {"--self", "--size", "4K:1000001"},
      {"--self", "--size", "4K:"},
      {"--self", "--size", ":5"},
      {"--self", "--size", "4K-64K:5"},
      {"--self", "--size", "4K:1", "--size", "64K"},
      {"--self", "--size", "64K", "--size", "4K:1"},
      {"--client", "shm:/x", "--engine", "nfs3", "--size", "4K:1,64K:1"},
      {"--self", "--arrivals", "poisson"},
      {"--self", "--rate", "5", "--arrivals", "uneven"},
      {"--self", "--rate", "5", "--arrivals", "burst"},
      {"--self", "--rate", "5", "--arrivals", "burst:0"},
      {"--server", "shm:/x", "--csv", "y"},
      {"--self", "--json", ""},
      {"--self", "--csv", ""},
      {"--self", "--capture", ""},
      {"--self", "--capture", "-"},
      {"--self", "--repeat", "0"},
      {"--self", "--repeat", "1.5"},
      {"--self", "--engine", "null", "--repeat", "2", "--find-knee"},
      {"--self", "--warmup", "-1"},
      {"--server", "shm:/x", "--warmup", "1"},
      {"--self", "--verify=yes"},
      {"--self", "--dispatch", "both"},
      {"--self", "--idle", "lazy"},
      {"--self", "--inline", "1000"},
      {"--self", "--count", "10", "--duration", "1"},
      {"--self", "--cpu", "1"},
      {"--self", "--max-size", "1M"},
      {"--self", "--workers", "2"},
      {"--server", "shm:/x", "--engine", "null"},
      {"--client", "shm:/x", "--poll-cpus", "1"},
  };
  for (const std::vector<std::string>& words : mistakes) {
    Result<Options> options = parse(words);
    std::string line;
    for (const std::string& word : words)
      line += word + " ";
    ASSERT_FALSE(options) << line;
    EXPECT_EQ(options.error().message.find('\n'), std::string::npos) << line;
    EXPECT_GT(options.error().message.size(), 10u) << line;
  }
}

TEST(Options, ListsAddUpAndOtherOptionsTakeTheLastValue) {
  Options o = parse({"--self", "--size", "4K", "--size", "64K,1M", "--window", "1", "--window", "8",
                     "--engine", "read", "--engine", "write", "--timeout", "5", "--timeout", "6"})
                  .value();
  EXPECT_EQ(o.sizes, (std::vector<uint32_t>{4096, 65536, 1u << 20}));
  EXPECT_EQ(o.windows, (std::vector<uint32_t>{1, 8}));
  EXPECT_EQ(o.engines, (std::vector<std::string>{"read", "write"}));
  EXPECT_EQ(o.timeout_ms, 6u);
  ASSERT_TRUE(set_option(o, "size", "1K"));
  EXPECT_EQ(o.sizes, std::vector<uint32_t>{1024});
}

TEST(Options, RangesGoUpByDoublingToTheirEnd) {
  Options o = parse({"--self", "--size", "4K-32K,1M,3-10", "--window", "1-8,3"}).value();
  EXPECT_EQ(o.sizes, (std::vector<uint32_t>{4096, 8192, 16384, 32768, 1u << 20, 3, 6, 10}));
  EXPECT_EQ(o.windows, (std::vector<uint32_t>{1, 2, 4, 8, 3}));
  for (const char* bad : {"8K-4K", "0-4K", "4K-", "-4K", "1-2-3"})
    EXPECT_FALSE(set_option(o, "size", bad)) << bad;
  EXPECT_FALSE(set_option(o, "window", "1-100000"));
  ASSERT_TRUE(set_option(o, "size", "7-7"));
  EXPECT_EQ(o.sizes, std::vector<uint32_t>{7});
}

TEST(Options, AClientMayHaveSeveralServers) {
  Options o = parse({"--client", "shm:/x,iwarp://[::1]:5?crc=1,verbs://h"}).value();
  EXPECT_EQ(o.targets, (std::vector<std::string>{"shm:/x", "iwarp://[::1]:5?crc=1", "verbs://h"}));
  EXPECT_EQ(o.connections, 3u);
  o = parse({"--client", "shm:/a,b/c:d,shm:@e,f", "--connections", "9"}).value();
  EXPECT_EQ(o.targets, (std::vector<std::string>{"shm:/a,b/c:d", "shm:@e,f"}));
  EXPECT_EQ(o.connections, 9u);
  EXPECT_EQ(parse({"--client", "shm:/x"}).value().connections, 1u);
  EXPECT_EQ(parse({"--server", "shm:/x,shm:/y"}).value().uri, "shm:/x,shm:/y");
}

TEST(Options, AMixOfSizesHasWeights) {
  Options o =
      parse({"--self", "--engine", "read", "--size", "4K:70,64K:25", "--size=1M:5"}).value();
  EXPECT_EQ(o.sizes, (std::vector<uint32_t>{4096, 65536, 1u << 20}));
  EXPECT_EQ(o.weights, (std::vector<uint32_t>{70, 25, 5}));
  EXPECT_NE(show_settable(o).find("size 4K:70,64K:25,1M:5\n"), std::string::npos);
  ASSERT_TRUE(set_option(o, "size", "4K"));
  EXPECT_TRUE(o.weights.empty());
  o = parse({"--client", "shm:/x", "--engine", "nfs3"}).value();
  EXPECT_FALSE(set_option(o, "size", "4K:1,8K:1"));
}

TEST(Options, Arrivals) {
  using Kind = ArrivalPattern::Kind;
  EXPECT_EQ(parse({"--self", "--rate", "5"}).value().arrivals, ArrivalPattern{});
  Options o = parse({"--self", "--rate", "5", "--arrivals", "burst:32"}).value();
  EXPECT_EQ(o.arrivals, (ArrivalPattern{Kind::kBurst, 32}));
  ASSERT_TRUE(set_option(o, "arrivals", "poisson"));
  EXPECT_EQ(o.arrivals.kind, Kind::kPoisson);
  EXPECT_NE(show_settable(o).find("arrivals poisson\n"), std::string::npos);
  EXPECT_TRUE(parse({"--self", "--engine", "null", "--find-knee", "--arrivals", "poisson"}));
}

TEST(Options, SetCanUndoItsChanges) {
  Options o = parse({"--self"}).value();
  for (const char* name : {"rate", "count", "duration", "warmup", "think"}) {
    EXPECT_TRUE(set_option(o, name, "100"));
    EXPECT_TRUE(set_option(o, name, "off"));
    EXPECT_FALSE(set_option(o, name, "0"));
  }
  EXPECT_EQ(o.rate, 0);
  EXPECT_EQ(o.count, 0u);
  EXPECT_EQ(o.duration_s, 0);
  EXPECT_EQ(o.warmup_s, 0);
  EXPECT_EQ(o.think_us, 0);
  EXPECT_TRUE(set_option(o, "think", "2.5"));
  EXPECT_FALSE(set_option(o, "rate", "100"));
  EXPECT_TRUE(set_option(o, "think", "off"));
  EXPECT_FALSE(set_option(o, "retransmit", "on"));  // without --reconnect
  EXPECT_TRUE(set_option(o, "faults", "delay-us=1:0.5"));
  EXPECT_TRUE(set_option(o, "faults", "off"));
  EXPECT_FALSE(o.faults);
}

// Completion offers the accepted values, and no others.
TEST(Options, ValuesThatAreOfferedAreTaken) {
  for (const std::string& name : settable_options()) {
    for (const std::string& value : values_of(name)) {
      Options o = parse({"--client", "shm:/x", "--reconnect"}).value();
      if (!value.ends_with("=")) {
        EXPECT_TRUE(set_option(o, name, value)) << name << " " << value;
      }
    }
    EXPECT_TRUE(about_option(name).starts_with(name + " "));
  }
}

TEST(Options, SetChangesTheNextRunOnly) {
  Options o = parse({"--self", "--duration", "5"}).value();
  EXPECT_TRUE(set_option(o, "size", "64K"));
  EXPECT_TRUE(set_option(o, "count", "100"));
  EXPECT_TRUE(set_option(o, "verify", "on"));
  EXPECT_EQ(o.sizes, std::vector<uint32_t>{65536});
  EXPECT_EQ(o.count, 100u);
  EXPECT_EQ(o.duration_s, 0);
  EXPECT_FALSE(set_option(o, "size", "much"));
  EXPECT_FALSE(set_option(o, "server", "shm:/x"));
  EXPECT_FALSE(set_option(o, "nonsense", "1"));
  EXPECT_EQ(o.sizes, std::vector<uint32_t>{65536});
}

TEST(Plan, OneRunPerEngineSizeAndWindow) {
  Options o =
      parse({"--self", "--engine", "null,read", "--size", "0,4K", "--window", "1,32"}).value();
  std::vector<RunSpec> plan = make_plan(o);
  ASSERT_EQ(plan.size(), 6u);  // null has no size
  EXPECT_STREQ(plan[0].engine->name, "null");
  EXPECT_EQ(plan[1].window, 32u);
  EXPECT_EQ(plan[5].sizes, std::vector<uint32_t>{4096});
  EXPECT_GT(o.duration_s, 0);
}

// Windows that no client and server could hold in flight are not tried.
TEST(Plan, TheStandardRunsOfManyConnectionsAreSmaller) {
  for (const char* connections : {"1", "100", "9000", "65536"}) {
    SCOPED_TRACE(connections);
    Options o = parse({"--client", "iwarp://h", "--connections", connections}).value();
    const std::vector<RunSpec> plan = make_plan(o);
    EXPECT_LE(most_in_flight(plan), uint64_t{256} << 20);
    EXPECT_STREQ(plan.front().engine->name, "null");
    for (const RunSpec& run : plan)
      EXPECT_LE(uint64_t{run.window} * run.active, std::max<uint64_t>(16384, run.active));
    EXPECT_GE(plan.size(), 4u);
  }
  Options few = parse({"--client", "iwarp://h", "--connections", "4"}).value();
  EXPECT_EQ(make_plan(few).size(), 14u);
  EXPECT_EQ(largest_window(make_plan(few)), 32u);
}

TEST(Values, ThatAreOutOfRangeAreToldTheRange) {
  const auto error_of = [](const char* option, const char* value) {
    auto parsed = parse({"--client", "shm:/x", option, value});
    return parsed ? std::string("it was taken") : parsed.error().message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(error_of("--rate", "2e9"), HasSubstr("above 0 and at most 1000000000"));
  EXPECT_THAT(error_of("--duration", "1e10"), HasSubstr("above 0 and at most 1000000000"));
  EXPECT_THAT(error_of("--memory", "99T"), HasSubstr("from 16M to 16T"));
  EXPECT_THAT(error_of("--memory", "1K"), HasSubstr("from 16M to 16T"));
  EXPECT_EQ(parse({"--client", "shm:/x", "--memory", "1T"}).value().memory, uint64_t{1} << 40);
}

// testrpc's user does not know the library's structures.
TEST(Errors, NameOptionsOfTestrpc) {
  EXPECT_EQ(in_own_words("raise MemoryOptions::bytes, or lower credits or backward_credits"),
            "raise --memory, or lower --credits or --backward-credits");
  EXPECT_EQ(in_own_words("lower ServerOptions::credits, first_credits or backward_credits"),
            "lower --credits or --backward-credits");
}

TEST(Plan, OneRunPerNumberOfConnectionsThatCall) {
  Options o = parse({"--self", "--engine", "null", "--connections", "100", "--active", "10,100",
                     "--window", "1,8"})
                  .value();
  std::vector<RunSpec> plan = make_plan(o);
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan[0].active, 10u);
  EXPECT_EQ(plan[0].idle, 90u);
  EXPECT_EQ(plan[1].idle, 0u);
  EXPECT_EQ(plan[2].window, 8u);
  EXPECT_FALSE(set_option(o, "active", "101"));
  ASSERT_TRUE(set_option(o, "active", "5"));
  EXPECT_EQ(make_plan(o)[0].active, 5u);
}

TEST(Plan, MixedDrawsAmongAllSizesInOneRun) {
  Options o = parse({"--self", "--engine", "mixed", "--size", "0,4K,1M"}).value();
  std::vector<RunSpec> plan = make_plan(o);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].sizes.size(), 3u);
  EXPECT_EQ(plan[0].largest_size(), 1u << 20);
}

TEST(Plan, AMixIsOneRunOfAllSizes) {
  Options o =
      parse({"--self", "--engine", "all", "--size", "1K:3,64K:1", "--window", "1,8"}).value();
  std::vector<RunSpec> plan = make_plan(o);
  ASSERT_EQ(plan.size(), 16u);
  for (const RunSpec& run : plan) {
    EXPECT_EQ(run.sizes.size(), run.engine->sized ? 2u : 0u);
    EXPECT_EQ(run.weights.size(), run.sizes.size());
  }
  EXPECT_LT(plan.back().sizes[1], 4096u);  // callback's are inline
}

TEST(Plan, WithoutEnginesAndSizesAStandardBenchmark) {
  Options o = parse({"--self"}).value();
  std::vector<RunSpec> plan = make_plan(o);
  EXPECT_GT(plan.size(), 5u);
  double seconds = static_cast<double>(plan.size()) * o.duration_s;
  EXPECT_GT(seconds, 5);
  EXPECT_LT(seconds, 30);
}

}  // namespace
}  // namespace rrdk::testrpc

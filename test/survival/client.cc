// The client process: calls in flight on connections that survive, with each result checked.
#include "client.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program.h"
#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/log.h"
#include "values.h"

namespace rrdk::survival {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kReadsPerConnection = 12;  // with the rest, more than there are credits
constexpr uint32_t kWritesPerConnection = 12;
constexpr uint64_t kGraceNs = 60 * kSecondNs;  // to end in, after the last call was submitted
constexpr uint32_t kClockPasses = 256;
constexpr uint64_t kClientBudget = 2048ull << 20;
constexpr uint64_t kSampleNs = kSecondNs / 4;

// Kibibytes.
struct Resident {
  long all = 0;
  long anonymous = 0;

  static Resident now() {
    long pages[3] = {};
    if (FILE* file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%ld %ld %ld", &pages[0], &pages[1], &pages[2]) != 3)
        pages[1] = pages[2] = 0;
      std::fclose(file);
    }
    long kib = sysconf(_SC_PAGESIZE) / 1024;
    return {pages[1] * kib, (pages[1] - pages[2]) * kib};
  }
};

class Load;

// One call at a time, of one kind.
struct Slot {
  Slot(Load& load_in, ClientConnection& connection, uint32_t number, uint32_t procedure_in)
      : load(load_in), call(connection), connection_number(number), procedure(procedure_in) {}
  Load& load;
  Call call;
  uint32_t connection_number;
  uint32_t procedure;
  uint64_t serial = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  MemorySpan room;
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), dice_(options.seed) {}

  Result<void> open();
  void run();
  void close();  // whether the pools are whole afterwards
  void report(const char* kind, double seconds) const;

 private:
  void submit(Slot& slot);
  void on_ended(Slot& slot);
  void judge(Slot& slot);
  void sample(uint64_t elapsed_ns);
  Stats stats() const;

  const Options& options_;
  Dice dice_;
  FILE* out_ = nullptr;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<ClientConnection>> connections_;
  RegisteredMemory area_;
  std::vector<std::unique_ptr<Slot>> slots_;

  bool stopping_ = false;
  uint32_t in_flight_ = 0;
  uint64_t next_serial_ = 1;
  uint64_t adds_ok_ = 0, reads_ok_ = 0, writes_ok_ = 0;
  uint64_t wrong_bytes_ = 0, failed_ = 0, undecodable_ = 0;
  const char* first_failure_ = "";
  Values values_;
  Stats last_stats_{CounterOwner::kClient};
  Resident first_quarter_;  // the most in it
  Resident last_;
  bool pools_whole_ = false;
};

Result<void> Load::open() {
  out_ = fdopen(options_.report_fd, "w");
  if (out_ == nullptr)
    return fail(Errc::kInvalidArgument, "--report-fd names no open file");
  set_log_level(LogLevel::kWarning);
  if (auto eal = ensure_eal(); !eal)
    return eal;
  auto memory = Memory::create({.bytes = kClientBudget, .hugepages = HugepagePolicy::kNever});
  if (!memory)
    return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  auto runtime = Runtime::create(*memory_, {});
  if (!runtime)
    return tl::unexpected(runtime.error());
  runtime_ = std::move(*runtime);
  constexpr uint32_t kFewCredits = 8;  // each takes a Receive on each connection
  const uint32_t credits = options_.calls <= kFewCredits ? kFewCredits : ClientOptions{}.credits;
  auto client = Client::create(
      *runtime_, {.credits = credits,
                  .connect_timeout_ms = 60'000,  // a machine under load may stand still for seconds
                  .call_timeout_ms = 0,
                  .reconnect = {.enabled = true, .first_delay_ms = 5, .max_delay_ms = 200},
                  .retransmit = true,
                  // Among many, some are not served at once.
                  .keepalive_ms = 500 + options_.connections,
                  .keepalive_patience = 4});
  if (!client)
    return tl::unexpected(client.error());
  client_ = std::move(*client);
  const std::array<std::pair<uint32_t, uint32_t>, 3> mix = {
      {{kAdd, options_.calls}, {kRead, kReadsPerConnection}, {kWrite, kWritesPerConnection}}};
  for (uint32_t number = 0; number < options_.connections; ++number) {
    auto connection = client_->connect(options_.uri);
    if (!connection)
      return tl::unexpected(connection.error());
    connections_.push_back(std::move(*connection));
    for (auto [procedure, count] : mix) {
      if (options_.mode == Mode::kAll && procedure != kAdd)
        continue;
      for (uint32_t i = 0; i < count; ++i)
        slots_.push_back(std::make_unique<Slot>(*this, *connections_.back(), number, procedure));
    }
  }
  if (options_.mode == Mode::kAll)
    return {};  // additions need no space
  auto area = memory_->allocate(slots_.size() * kMostBytes);
  if (!area)
    return tl::unexpected(area.error());
  area_ = std::move(*area);
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i]->room = area_.span(i * kMostBytes, kMostBytes);
  return {};
}

void Load::submit(Slot& slot) {
  slot.offset = dice_.next();
  slot.bytes = static_cast<uint32_t>(dice_.between(1, kMostBytes));
  Encoder& args = slot.call.begin(kBinding, slot.procedure);
  MemorySpan data = slot.room;
  data.length = slot.bytes;
  if (slot.procedure == kAdd) {
    slot.serial = next_serial_++;
    args.put_u32(slot.connection_number);
    args.put_u64(slot.serial);
  } else if (slot.procedure == kRead) {
    std::fill_n(data.data, data.length, std::byte{0x5a});
    args.put_u64(slot.offset);
    args.put_u32(slot.bytes);
    slot.call.offer(data);
  } else {
    for (uint32_t i = 0; i < slot.bytes; ++i)
      data.data[i] = pattern(slot.offset + i);
    args.put_u64(slot.offset);
    args.put_item(data, Ddp::kEligible);
  }
  ++in_flight_;
  slot.call.submit(
      [](Call&, void* argument) {
        auto& ended = *static_cast<Slot*>(argument);
        ended.load.on_ended(ended);
      },
      &slot);
}

void Load::on_ended(Slot& slot) {
  --in_flight_;
  if (slot.call.status() == CallStatus::kOk) {
    judge(slot);
  } else {
    if (failed_++ == 0)
      first_failure_ = to_string(slot.call.status());
  }
  if (!stopping_)
    submit(slot);
}

void Load::judge(Slot& slot) {
  Decoder& results = slot.call.results();
  if (slot.procedure == kAdd) {
    ++adds_ok_;
    values_.take(results.get_u64());
  } else if (slot.procedure == kRead) {
    ++reads_ok_;
    ItemView data = results.get_item(kMostBytes);
    if (data.size() != slot.bytes)
      wrong_bytes_ += slot.bytes;
    uint64_t at = slot.offset;
    data.for_each([&](const std::byte* bytes, size_t length) {
      wrong_bytes_ += count_wrong(at, bytes, length);
      at += length;
    });
  } else {
    ++writes_ok_;
    wrong_bytes_ += results.get_u32();
  }
  undecodable_ += !results.at_end();
}

void Load::sample(uint64_t elapsed_ns) {
  last_ = Resident::now();
  if (static_cast<double>(elapsed_ns) > options_.seconds * 0.25e9)
    return;
  first_quarter_.all = std::max(first_quarter_.all, last_.all);
  first_quarter_.anonymous = std::max(first_quarter_.anonymous, last_.anonymous);
}

void Load::run() {
  uint64_t start = Runtime::now_ns();
  uint64_t stop_at = start + static_cast<uint64_t>(options_.seconds * 1e9);
  uint64_t next_sample = start;
  uint64_t next_report = start + kSecondNs;
  for (const std::unique_ptr<Slot>& slot : slots_)
    submit(*slot);
  for (uint32_t passes = 0; in_flight_ != 0; ++passes) {
    bool idle = runtime_->poll() == 0;
    if (idle)
      std::this_thread::yield();
    if (!idle && passes % kClockPasses != 0)
      continue;
    uint64_t now = Runtime::now_ns();
    stopping_ = now >= stop_at;
    if (now >= next_sample && !stopping_) {
      next_sample = now + kSampleNs;
      sample(now - start);
    }
    if (now >= next_report) {
      next_report = now + kSecondNs;
      report("progress", static_cast<double>(now - start) / 1e9);
    }
    if (now > stop_at + kGraceNs)
      break;
  }
}

Stats Load::stats() const {
  Stats sum(CounterOwner::kClient);
  for (const std::unique_ptr<ClientConnection>& connection : connections_)
    sum += connection->stats();
  return sum;
}

void Load::close() {
  last_stats_ = stats();
  if (in_flight_ != 0)
    return;  // they are lost: nothing can be taken down under them
  slots_.clear();
  connections_.clear();
  client_.reset();
  runtime_.reset();
  area_ = RegisteredMemory();
  pools_whole_ = memory_->whole();
}

void Load::report(const char* kind, double seconds) const {
  Stats s = connections_.empty() ? last_stats_ : stats();
  std::fprintf(out_,
               "{\"kind\": \"%s\", \"seconds\": %.1f, \"adds_ok\": %lu, \"reads_ok\": %lu, "
               "\"writes_ok\": %lu, \"failed\": %lu, \"first_failure\": \"%s\", "
               "\"never_ended\": %u, \"wrong_bytes\": %lu, \"undecodable\": %lu, "
               "\"values_all_up_to\": %lu, \"values_doubled\": %lu, \"values_astray\": %lu, "
               "\"reconnects\": %lu, \"failed_attempts\": %lu, \"carried_over\": %lu, "
               "\"retransmissions\": %lu, \"keepalives\": %lu, \"keepalive_ends\": %lu, "
               "\"protocol_breaches\": %lu, "
               "\"rss_first_quarter_kib\": %ld, \"rss_end_kib\": %ld, "
               "\"anonymous_first_quarter_kib\": %ld, \"anonymous_end_kib\": %ld, "
               "\"pools_whole\": %s}\n",
               kind, seconds, adds_ok_, reads_ok_, writes_ok_, failed_, first_failure_, in_flight_,
               wrong_bytes_, undecodable_, values_.all_up_to(), values_.doubled(), values_.astray(),
               s[Counter::kReconnections], s[Counter::kAttemptsFailed],
               s[Counter::kCallsCarriedOver], s[Counter::kCallsResent], s[Counter::kKeepalives],
               s[Counter::kKeepaliveEnds], s[Counter::kProtocolBreaches], first_quarter_.all,
               last_.all, first_quarter_.anonymous, last_.anonymous,
               pools_whole_ ? "true" : "false");
  std::fflush(out_);
}

}  // namespace

int run_client(const Options& options) {
  Load load(options);
  if (Result<void> opened = load.open(); !opened) {
    std::fprintf(stderr, "survival: client: %s\n", opened.error().message.c_str());
    return 1;
  }
  uint64_t start = Runtime::now_ns();
  load.run();
  load.close();
  load.report("result", static_cast<double>(Runtime::now_ns() - start) / 1e9);
  std::_Exit(0);  // calls that never ended may still be in their slots
}

}  // namespace rrdk::survival

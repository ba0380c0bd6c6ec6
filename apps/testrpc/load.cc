#include "load.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "audit.h"
#include "machine_limits.h"
#include "nfs3_protocol.h"
#include "plan.h"
#include "repetitions.h"

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kTickNs = 10 * kMs;
constexpr uint32_t kCollectTicks = 25;
// While all calls are in flight, one pass in this many reads the clock, because that takes as long
// as an idle pass.
constexpr uint32_t kClockPasses = 16;
constexpr uint64_t kForever = UINT64_MAX;
constexpr auto kOpenLoopGraceNs = static_cast<uint64_t>(kOpenLoopGraceSeconds * 1e9);
constexpr uint64_t kWarmUpCallsPerSlot = 16;
// A disturbed machine or a slow server makes few calls in less time, and what the first calls make
// grow, such as the receive buffers of a server, would grow while calls are measured.
constexpr uint64_t kWarmUpNs = 1000 * kMs;
constexpr uint64_t kOpenWarmUpNs = 200 * kMs;  // a schedule may be slow, and the server not
// A closed-loop run is made in pieces of this length, with a probe of the machine in between.
constexpr uint64_t kPieceNs = 250 * kMs;
// When a run is stopped, its calls have this time to end by themselves; then they are cancelled. If
// they still do not end within kHopelessNs, the library is broken.
constexpr uint64_t kGraceNs = 2000 * kMs;
constexpr uint64_t kPutOffNs = 100 * kMs;  // until a call that the server has deferred is repeated
constexpr uint64_t kHopelessNs = 10'000 * kMs;
constexpr size_t kWatchedConnections = 16;  // connections whose waits are counted
constexpr uint32_t kOutliers = 8;

}  // namespace

uint32_t RunSpec::largest_size() const {
  return sizes.empty() ? 0 : *std::ranges::max_element(sizes);
}

Latencies Latencies::of(const Histogram& all) {
  return {.min = all.min(),
          .mean = all.mean(),
          .p50 = all.percentile(50),
          .p90 = all.told(90),
          .p99 = all.told(99),
          .p999 = all.told(99.9),
          .max = all.max()};
}

double RunResult::of_memcpy() const {
  return memcpy_bytes_per_s > 0 ? bytes_per_s() / memcpy_bytes_per_s : 0;
}

bool RunResult::flawless() const {
  return calls != 0 && failures.total() == 0 && wrong_bytes == 0 && !connection_lost;
}

bool RunResult::saturated() const {
  constexpr double kAsGoodAsOffered = 0.95;
  double ended_per_s = seconds > 0 ? static_cast<double>(calls) / seconds : 0;
  // With few calls, the last call's own time makes the run longer than its schedule.
  return not_made != 0 || (rate != 0 && calls > 100 && ended_per_s < kAsGoodAsOffered * rate);
}

void Share::count(bool came_right, uint64_t data, uint64_t latency_ns) {
  if (!came_right) {
    ++wrong;
    return;
  }
  ++right;
  bytes += data;
  latency.record(latency_ns);
}

void Share::add(const Share& more) {
  right += more.right;
  wrong += more.wrong;
  bytes += more.bytes;
  latency.add(more.latency);
}

uint64_t Failures::total() const {
  uint64_t sum = perf_status_ + undecodable_;
  for (uint64_t n : by_status_)
    sum += n;
  for (const auto& [status, n] : by_nfs_status_)
    sum += n;
  return sum;
}

void Failures::add_nfs_status(uint32_t status, uint64_t count) {
  if (count == 0)
    return;
  auto free_or_same = [status](const auto& entry) {
    return entry.count == 0 || entry.status == status;
  };
  auto* entry = std::ranges::find_if(by_nfs_status_, free_or_same);
  if (entry == by_nfs_status_.end())
    --entry;
  entry->status = status;
  entry->count += count;
}

void Failures::add(const Failures& more) {
  for (size_t i = 0; i < kStatuses; ++i)
    by_status_[i] += more.by_status_[i];
  perf_status_ += more.perf_status_;
  undecodable_ += more.undecodable_;
  for (const auto& [status, n] : more.by_nfs_status_)
    add_nfs_status(status, n);
}

void Failures::for_each(const std::function<void(uint64_t, const char*)>& fn) const {
  auto any = [&fn](uint64_t n, const char* what) {
    if (n != 0)
      fn(n, what);
  };
  for (size_t i = 0; i < by_status_.size(); ++i)
    any(by_status_[i], rrdk::to_string(static_cast<CallStatus>(i)));
  any(perf_status_, "refused by the perf program (size above the server's --max-size?)");
  for (const auto& [status, n] : by_nfs_status_)
    any(n, nfs3::to_string(static_cast<nfs3::Status>(status)));
  any(undecodable_, "with results that are not what was asked for");
}

std::string Failures::text() const {
  std::string text;
  for_each([&text](uint64_t n, const char* what) {
    text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + what;
  });
  return text;
}

Result<std::unique_ptr<Load>> Load::create(Session& session, std::span<const std::string> targets,
                                           uint32_t max_window, uint64_t in_flight) {
  std::unique_ptr<Load> load(new Load(session, targets));
  size_t slots = max_window * session.connections().size();
  Result<RegisteredMemory> area = session.memory().allocate(2 * in_flight);
  if (!area)
    return tl::unexpected(area.error());
  load->area_ = std::move(*area);
  std::fill_n(load->area_.data(), load->area_.size(), std::byte{0x33});
  for (size_t i = 0; i < slots; ++i) {
    const size_t connection = i % session.connections().size();
    load->slots_.push_back(std::make_unique<Slot>(*load, *session.connections()[connection],
                                                  static_cast<uint32_t>(connection)));
    load->slots_.back()->target = connection % targets.size();
  }
  load->idle_.reserve(slots);
  load->resting_.reserve(slots);
  return load;
}

Load::~Load() = default;

void Load::use(const Nfs3Site& site) {
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i]->nfs3 = std::make_unique<Nfs3Work>(site, i);
}

void Load::run(const RunSpec& spec, const Options& options, const RunHooks& hooks,
               RunResult& result) {
  spec_ = &spec;
  options_ = &options;
  hooks_ = &hooks;
  result_ = &result;
  result.spec = spec;
  result.duration_s = options.count == 0 ? options.duration_s : 0;
  result.count = options.count;
  result.rate = options.rate;
  result.arrivals = options.arrivals;
  result.seed = options.seed;
  result.think_us = options.think_us;
  result.verify = options.verify;
  random_state_ = options.seed * 2 + 1;
  sum_of_weights_ = std::accumulate(spec.weights.begin(), spec.weights.end(), uint64_t{0});
  result.by_size.resize(spec.weights.size());
  choose_slots();
  tell_targets_apart();
  stopping_ = false;
  for (Slot* slot : active_) {
    slot->draw.nfs3 = is_nfs3(*spec.engine) ? slot->nfs3.get() : nullptr;
    if (slot->draw.nfs3 != nullptr)
      slot->draw.nfs3->start_run(*std::ranges::min_element(spec.sizes), spec.largest_size(),
                                 options.access);
  }
  Survival before = session_.survival();
  hooks.begin();
  warm_up();
  hooks.begin();
  recent_.clear();
  next_tick_ns_ = Runtime::now_ns() + kTickNs;
  changer_.begin(session_.connections(), options.size_changes, options.max_receive_size);
  measure();
  compare_connections();
  result.size_changes = changer_.end();
  result.survival = session_.survival().since(before);
}

// The first connections call; the others are idle. Sources and sinks are page-aligned, and separate
// from those of other slots.
void Load::choose_slots() {
  const size_t connections = session_.connections().size();
  active_.clear();
  for (size_t i = 0; i < spec_->window * connections; ++i) {
    if (i % connections < spec_->active)
      active_.push_back(slots_[i].get());
  }
  stride_ = bytes_of_call(*spec_);
  for (size_t i = 0; i < active_.size(); ++i) {
    active_[i]->right = 0;
    active_[i]->draw.sink = area_.span(i * stride_, stride_);
    active_[i]->draw.source = area_.span((active_.size() + i) * stride_, stride_);
  }
}

void Load::tell_targets_apart() {
  if (targets_.size() == 1)
    return;
  result_->targets = targets_;
  result_->by_target.resize(targets_.size());
  result_->connections_of_target.resize(targets_.size());
  for (uint32_t i = 0; i < spec_->active; ++i)
    ++result_->connections_of_target[i % targets_.size()];
}

void Load::compare_connections() {
  std::vector<uint64_t> right(spec_->active);
  for (size_t i = 0; i < active_.size(); ++i)
    right[i % right.size()] += active_[i]->right;
  result_->slowest_connection = *std::ranges::min_element(right);
  result_->fastest_connection = *std::ranges::max_element(right);
}

// Makes calls that are not measured: they fault pages in and fill caches and pools. Their failures
// count.
void Load::warm_up() {
  recording_ = false;
  next_tick_ns_ = Runtime::now_ns() + kTickNs;
  uint64_t calls = kWarmUpCallsPerSlot * active_.size();
  if (options_->count != 0)
    calls = std::min(calls, std::max<uint64_t>(options_->count, active_.size()));
  const bool open = options_->rate != 0;
  // A slow schedule would leave most connections without a call.
  if (open)
    phase(false, kWarmUpCallsPerSlot * spec_->active, kWarmUpNs, 0);
  if (options_->warmup_s != 0)
    phase(open, kForever, static_cast<uint64_t>(options_->warmup_s * 1e9), 0);
  else
    phase(open, calls, open ? kOpenWarmUpNs : kWarmUpNs, 0);
  recording_ = result_->measuring = true;
}

void Load::measure() {
  // Each piece begins with all calls at once and ends when the last one has ended, which would cut
  // short the think time.
  bool in_pieces = options_->rate == 0 && options_->count == 0 && options_->think_us == 0;
  uint64_t left_ns = options_->count != 0 || options_->duration_s == 0
                         ? kForever
                         : static_cast<uint64_t>(options_->duration_s * 1e9);
  uint64_t calls = options_->count != 0 ? options_->count : kForever;
  std::vector<double> lines = {hooks_->probe_line()};
  uint64_t preemptions =
      hooks_->preemptions ? hooks_->preemptions() : 0;  // the server's: as of the last probe
  uint64_t registrations = hooks_->registrations();     // the server's: as of the last probe, too
  std::vector<double> ratios;
  begin_watch(lines.back() > 0 ? hooks_->server : nullptr);
  series_.begin(options_->interval_s);
  while (left_ns != 0 && !stopping_ && !result_->connection_lost) {
    uint64_t piece_ns = in_pieces ? std::min(left_ns, kPieceNs) : left_ns;
    piece_.clear();
    const uint64_t allocated = hooks_->allocations() - allocated_reading_;
    // A piece takes longer if the connection breaks in it; that time counts, too.
    uint64_t taken_ns =
        std::max(piece_ns, phase(options_->rate != 0, calls, piece_ns, kOpenLoopGraceNs));
    result_->allocations += hooks_->allocations() - allocated_reading_ - allocated;
    lines.push_back(hooks_->probe_line());
    double around = (lines.back() + lines[lines.size() - 2]) / 2;
    if (around > 0)
      ratios.push_back(static_cast<double>(piece_.percentile(50)) / around);
    if (!in_pieces)
      break;
    left_ns -= left_ns == kForever ? 0 : std::min(left_ns, taken_ns);
    hooks_->between();
  }
  end_watch(lines.back() > 0 ? hooks_->server : nullptr);
  result_->series = series_.end(result_->seconds);
  result_->noise.line_before_ns = lines.front();
  result_->noise.line_after_ns = lines.back();
  result_->line_ns = median(lines);
  result_->p50_per_line = median(ratios);
  result_->registrations = hooks_->registrations() - registrations;
  if (hooks_->preemptions)
    result_->preemptions = hooks_->preemptions() - preemptions;
  result_->stopped = stopping_;
}

void Load::begin_watch(const ThreadState* server) {
  outliers_.begin(options_->outliers.value_or(kOutliers));
  watch_.connections_changed();
  noise_.begin(watch_, server, wait_counters());
  began_ns_ = Runtime::now_ns();
}

void Load::end_watch(const ThreadState* server) {
  Noise noise = noise_.end(watch_, server, wait_counters());
  noise.sized = spec_->engine->sized;
  noise.busy = session_.idle() == IdlePolicy::kBusy;
  result_->noise = std::move(noise);
  outliers_.explain(gap_logs(), kForever);
  result_->outliers = outliers_.sorted();
  for (Outlier& call : result_->outliers)
    call.start_ns -= std::min(call.start_ns, began_ns_);
  result_->list_outliers = options_->outliers.has_value();
}

// Reading statistics allocates memory, which must not count as a call's.
WaitCounters Load::wait_counters() {
  const uint64_t before = allocations();
  WaitCounters sum;
  auto connections = session_.connections();
  for (const auto& connection :
       connections.first(std::min(connections.size(), kWatchedConnections))) {
    const Stats stats = connection->stats();
    sum.credit_waits += stats[Counter::kWaitsCredit];
    sum.sent_again += stats[Counter::kCallsResent];
  }
  allocated_reading_ += allocations() - before;
  return sum;
}

void Load::keep_outlier(const Slot& slot, uint64_t latency) {
  outliers_.offer({.start_ns = slot.intended_ns,
                   .total_ns = latency,
                   .behind_since_ns = options_->rate == 0 ? slot.intended_ns : slot.behind_since_ns,
                   .engine = slot.engine,
                   .size = slot.engine->sized ? slot.draw.size : 0,
                   .connection = slot.connection,
                   .stamps = stamps_of(slot.call)});
}

// Makes calls until `calls` were submitted or the time is up, and waits until all have ended.
// Returns how long that took. An open loop that is behind its schedule when the time is up has
// `grace_ns` more to make the calls that were due. Without a duration all `calls` are made, however
// long that takes.
uint64_t Load::phase(bool open, uint64_t calls, uint64_t duration_ns, uint64_t grace_ns) {
  submitted_ = 0;
  open_ = open;
  budget_ = calls;
  start_ns_ = Runtime::now_ns();
  deadline_ns_ = duration_ns > kForever - start_ns_ ? kForever : start_ns_ + duration_ns;
  last_start_ns_ = grace_ns > kForever - deadline_ns_ ? kForever : deadline_ns_ + grace_ns;
  stopped_ns_ = 0;
  think_ns_ = static_cast<uint64_t>(options_->think_us * 1000);
  first_thinking_ = last_thinking_ = nullptr;
  if (open_)
    schedule_.begin(Arrivals(options_->arrivals, options_->rate, options_->seed, options_->lead),
                    spec_->active, spec_->window, calls,
                    deadline_ns_ == kForever ? kForever : duration_ns);
  watch_.start(start_ns_);
  idle_.clear();
  free_.assign(spec_->active, nullptr);
  resting_.clear();
  for (Slot* slot : active_)
    open_ ? free(*slot) : idle_.push_back(slot);
  uint64_t now = start_ns_;
  for (uint32_t passes = 0;; ++passes) {
    if (has_idle() || first_thinking_ != nullptr || passes % kClockPasses == 0) {
      now = Runtime::now_ns();
      watch_.look(now);
    }
    end_thinking(now);
    open_ ? start_due_calls(now) : start_idle_calls(now);
    if (over(now))
      break;
    loop_.step(wake_ns(now));
    if (changer_.busy()) [[unlikely]]
      changer_.step();
    if (now >= next_tick_ns_)
      housekeeping(now);
  }
  now = Runtime::now_ns();
  collect();
  if (recording_) {
    result_->seconds += static_cast<double>(now - start_ns_) / 1e9;
    // The rest of a stopped run does not count as due.
    result_->due = stopping_ || !open_ ? submitted_ : schedule_.due_by(now - start_ns_);
    result_->not_made = result_->due - std::min(result_->due, submitted_);
  } else {
    result_->warmup_seconds += static_cast<double>(now - start_ns_) / 1e9;
    result_->warmup_calls += submitted_;
  }
  return now - start_ns_;
}

// Returns whether the phase is over: no call is in flight, and none will be made.
bool Load::over(uint64_t now) const {
  if (in_flight_ != 0)
    return false;
  const bool usable = open_ ? !schedule_.all_lost() : !idle_.empty();
  const bool no_slot = !usable && resting_.empty() && first_thinking_ == nullptr;
  if (no_slot || stopping_)
    return true;
  if (may_submit(now) || (!resting_.empty() && may_resume(now)))
    return false;
  // An open loop lasts for the requested time, even if no more calls are due.
  return !open_ || submitted_ >= budget_ || deadline_ns_ == kForever || now >= deadline_ns_;
}

bool Load::has_idle() const {
  return open_ ? !schedule_.full() : !idle_.empty();
}

// Returns until when only arriving messages need work.
uint64_t Load::wake_ns(uint64_t now) const {
  if (first_thinking_ != nullptr)
    return std::min(next_tick_ns_, first_thinking_->resumes_ns);
  if (!open_)
    return next_tick_ns_;
  uint64_t next_ns = deadline_ns_;
  if (may_submit(now)) {
    const uint64_t due_ns = schedule_.wake_ns();
    next_ns = due_ns == Schedule::kNever ? kForever : start_ns_ + due_ns;
  }
  return next_ns < now ? next_tick_ns_ : std::min(next_tick_ns_, next_ns);
}

// Called from the loop: starts all idle slots.
void Load::start_idle_calls(uint64_t now) {
  while (!idle_.empty() && may_submit(now)) {
    Slot* slot = idle_.back();
    idle_.pop_back();
    submit(*slot, now);
  }
}

// Called from the loop: starts the calls that are due. Their latency counts from the due time,
// however late they are.
void Load::start_due_calls(uint64_t now) {
  while (may_submit(now)) {
    const std::optional<Schedule::Turn> turn = schedule_.next(now - start_ns_);
    if (!turn)
      return;
    Slot* slot = free_[turn->connection];
    free_[turn->connection] = slot->next_free;
    slot->behind_since_ns = start_ns_ + turn->behind_since_ns;
    submit(*slot, start_ns_ + turn->due_ns);
  }
}

// Open loop: the slot has no call and is available for one.
void Load::free(Slot& slot) {
  slot.next_free = free_[slot.connection];
  free_[slot.connection] = &slot;
}

bool Load::may_submit(uint64_t now) const {
  if (stopping_)
    return false;
  if (changer_.busy()) [[unlikely]]
    return true;
  if (submitted_ >= budget_)
    return false;
  if (!open_)
    return now < deadline_ns_;
  // Open loop: calls due before the deadline may be made for a while after it.
  return schedule_.has_more() && now <= last_start_ns_;
}

// Returns whether the open loop may still make a deferred call, which its schedule has released
// already.
bool Load::may_resume(uint64_t now) const {
  return open_ && !stopping_ && submitted_ < budget_ && now <= last_start_ns_;
}

uint64_t Load::random() {
  random_state_ ^= random_state_ >> 12;
  random_state_ ^= random_state_ << 25;
  random_state_ ^= random_state_ >> 27;
  return random_state_ * 0x2545f4914f6cdd1dull;
}

// Draws an index among the run's sizes, of which there is at least one.
size_t Load::draw_size() {
  const RunSpec& spec = *spec_;
  if (spec.weights.empty())
    return random() % spec.sizes.size();
  uint64_t drawn = random() % sum_of_weights_;
  size_t index = 0;
  for (; drawn >= spec.weights[index]; ++index)
    drawn -= spec.weights[index];
  return index;
}

void Load::draw(Slot& slot) {
  const RunSpec& spec = *spec_;
  std::span<const Engine> plain = plain_engines();
  slot.engine = spec.engine->prepare != nullptr ? spec.engine : &plain[random() % plain.size()];
  Draw& draw = slot.draw;
  slot.size_index = spec.sizes.empty() ? 0 : draw_size();
  draw.size = spec.sizes.empty() ? 0 : spec.sizes[slot.size_index];
  draw.offset = random();
  draw.procedure = slot.engine->procedure;
  if (draw.nfs3 != nullptr)
    draw.nfs3->draw(draw, random());
  draw.verify = options_->verify;
  draw.touch = options_->touch;
  draw.place = draw.size >= options_->chunk_threshold;
  draw.segments = options_->segments;
  draw.pieces = options_->pieces;
}

void Load::submit(Slot& slot, uint64_t intended_ns) {
  draw(slot);
  slot.intended_ns = intended_ns;
  ++submitted_;
  ++in_flight_;
  Encoder& args = slot.call.begin(slot.engine->binding(), slot.draw.procedure);
  if (options_->timeout_ms != session_.call_timeout_ms())
    slot.call.set_timeout_ms(options_->timeout_ms);
  if (options_->retransmit != session_.retransmits())
    slot.call.set_retransmit(options_->retransmit);
  slot.engine->prepare(slot.draw, args, slot.call);
  slot.call.submit(
      [](Call&, void* argument) {
        auto* ended = static_cast<Slot*>(argument);
        ended->load.on_ended(*ended);
      },
      &slot);
}

void Load::on_ended(Slot& slot) {
  --in_flight_;
  uint64_t now = Runtime::now_ns();
  watch_.look(now);
  uint64_t latency = now - slot.intended_ns;
  bool right = judge(slot);
  if (slot.put_off)
    return rest(slot, now);
  if (recording_) {
    ++result_->calls;
    if (right) {
      ++result_->right;
      fresh_.record(latency);
      if (hooks_->stages != nullptr)
        hooks_->stages->count(slot.call);
      if (latency > outliers_.bar_ns()) [[unlikely]]
        keep_outlier(slot, latency);
    }
    count_share(slot, right, latency);
  }
  CallStatus status = slot.call.status();
  bool lost = status == CallStatus::kConnectionLost && !options_->reconnect;
  if (lost || status == CallStatus::kShutdown) {
    result_->connection_lost = true;
    if (open_)
      schedule_.lost(slot.connection);
    return;
  }
  if (think_ns_ != 0)
    return think(slot, now);
  // Only after a reply is it certain that submit() does not end the call at once and call back
  // here.
  if (status == CallStatus::kOk && !open_ && may_submit(now))
    submit(slot, now);
  else
    make_idle(slot);
}

void Load::make_idle(Slot& slot) {
  if (!open_)
    return idle_.push_back(&slot);
  free(slot);
  schedule_.ended(slot.connection);
}

void Load::think(Slot& slot, uint64_t now) {
  slot.resumes_ns = now + think_ns_;
  slot.next_thinking = nullptr;
  (first_thinking_ == nullptr ? first_thinking_ : last_thinking_->next_thinking) = &slot;
  last_thinking_ = &slot;
}

void Load::end_thinking(uint64_t now) {
  while (first_thinking_ != nullptr && now >= first_thinking_->resumes_ns) {
    idle_.push_back(first_thinking_);
    first_thinking_ = first_thinking_->next_thinking;
  }
}

// The call does not count as made: it will be repeated.
void Load::rest(Slot& slot, uint64_t now) {
  ++result_->tried_later;
  --submitted_;
  slot.resumes_ns = now + kPutOffNs;
  resting_.push_back(&slot);
}

// A call of the open loop's schedule keeps its due time.
void Load::end_rests(uint64_t now) {
  std::erase_if(resting_, [&](Slot* slot) {
    if (now < slot->resumes_ns)
      return false;
    if (may_resume(now))
      submit(*slot, slot->intended_ns);
    else
      make_idle(*slot);
    return true;
  });
}

// Returns whether the call succeeded. A failure that repeating cannot cure ends the run.
bool Load::judge(Slot& slot) {
  CallStatus status = slot.call.status();
  slot.put_off = false;
  if (status != CallStatus::kOk) {
    result_->failures.add(status);
    if (slot.draw.nfs3 != nullptr)
      slot.draw.nfs3->on_no_reply();
    if (status == CallStatus::kTooLarge)
      stopping_ = true;
    return false;
  }
  Verdict verdict = slot.engine->check(slot.draw, slot.call.results());
  result_->wrong_bytes += verdict.wrong_bytes;
  slot.put_off = verdict.decoded && verdict.try_later;
  if (slot.put_off)
    return false;
  if (!verdict.decoded) {
    result_->failures.add_undecodable();
  } else if (verdict.perf_status != 0) {
    result_->failures.add_perf_status();
    stopping_ = true;
  } else if (verdict.nfs_status != 0) {
    result_->failures.add_nfs_status(verdict.nfs_status);
  } else if (verdict.wrong_bytes == 0) {
    if (recording_)
      count_right(slot);
    return true;
  }
  return false;
}

void Load::count_right(Slot& slot) {
  ++slot.right;
  if (slot.engine->sized)
    result_->bytes += slot.draw.size;
  if (slot.draw.nfs3 != nullptr)
    ++result_->nfs3_calls[slot.draw.procedure];
}

void Load::count_share(const Slot& slot, bool right, uint64_t latency) {
  const uint64_t data = slot.engine->sized ? slot.draw.size : 0;
  if (!result_->by_size.empty())
    result_->by_size[slot.size_index].count(right, data, latency);
  if (!result_->by_target.empty())
    result_->by_target[slot.target].count(right, data, latency);
}

void Load::collect() {
  result_->latency.add(fresh_);
  piece_.add(fresh_);
  recent_.add(fresh_);
  if (recording_)
    series_.add(fresh_);
  fresh_.clear();
}

// Returns the seconds of the run, without the time between its pieces.
double Load::measured_s(uint64_t now) const {
  return result_->seconds + static_cast<double>(now - start_ns_) / 1e9;
}

void Load::housekeeping(uint64_t now) {
  next_tick_ns_ = now + kTickNs;
  end_rests(now);
  const bool slice_ends = recording_ && series_.due(measured_s(now));
  if (++ticks_ % kCollectTicks == 0 || slice_ends)
    collect();
  if (slice_ends) {
    const uint64_t before = allocations();  // the following ones are not a call's
    series_.end_slice(measured_s(now));
    allocated_reading_ += allocations() - before;
  }
  if (!hooks_->tick(*result_, recent_))
    stopping_ = true;
  watch_.after_own_work(Runtime::now_ns());
  watch_.tick(Runtime::now_ns());
  outliers_.explain(gap_logs(), now);
  if (!stopping_)
    return;
  if (stopped_ns_ == 0)
    stopped_ns_ = now;
  if (now - stopped_ns_ > kGraceNs)
    cancel_all();
  if (now - stopped_ns_ > kHopelessNs) {
    std::fprintf(stderr, "testrpc: %u calls never ended\n", in_flight_);
    std::_Exit(1);
  }
}

void Load::cancel_all() {
  for (Slot* slot : active_) {
    if (slot->call.in_flight())
      slot->call.cancel();
  }
}

double Load::memcpy_limit(const RunSpec& spec, bool touched) {
  uint32_t size = spec.largest_size();
  if (size == 0 || !spec.engine->sized)
    return 0;
  size_t buffers = size_t{spec.window} * spec.active;
  void (*reader)(std::span<const std::byte>) = nullptr;
  if (touched)
    reader = touch;
  return apps::memcpy_bytes_per_s(slots_[0]->draw.source.data, slots_[0]->draw.sink.data, size,
                                  stride_, buffers, 20 * kMs, reader);
}

}  // namespace rrdk::testrpc

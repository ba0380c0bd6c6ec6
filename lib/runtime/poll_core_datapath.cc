// A pass of a core, what its links do in it, and the turns.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rcu.h"
#include "runtime/fair_share.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

// One thread polls at a time, and another may follow it between two passes. That is Dekker's
// algorithm. Its fence is executed by the thread that takes over (begin_first_pass()), since here
// it would cost more than the rest of an idle pass.
inline bool PollCore::begin_pass() noexcept {
  if (!here()) [[unlikely]]
    return begin_first_pass();
  if (in_pass_.load(std::memory_order_relaxed)) [[unlikely]]
    return false;  // from a callback: refused rather than recursed
  ThreadToken& me = *this_thread;
  const void* outer = me.pass.load(std::memory_order_relaxed);
  me.pass.store(this, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (owner_.load(std::memory_order_relaxed) != &me) [[unlikely]] {
    me.pass.store(outer, std::memory_order_relaxed);
    return begin_first_pass();
  }
  outer_pass_ = outer;
  in_pass_.store(true, std::memory_order_relaxed);
  return true;
}

inline void PollCore::end_pass() noexcept {
  RRDK_ASSERT(here() && in_pass_.load(std::memory_order_relaxed));
  in_pass_.store(false, std::memory_order_release);
  owner_token_->pass.store(outer_pass_, std::memory_order_release);
}

uint32_t PollCore::poll() {
  if (!begin_pass()) [[unlikely]]
    return 0;
  base::begin_reading();
  ++counters_.passes;  // first: the budget begins anew
  if (armed_) [[unlikely]]
    disarm();

  flushed_ = flush();  // before polling, which may be a system call
  uint32_t work = 0;
  for (Completions& source : completions_)
    work += source.poll(now_);
  if (!turns_.empty()) [[unlikely]]
    work += serve_turns();
  work += control_.poll(now_);  // before the inbox: Runtime::Impl::place_taps()
  work += inbox_.poll(now_);
  flushed_ = flush();  // calls and replies, before what can wait
  work += deferred_.empty() ? 0 : run_deferred();
  work += timers_.poll(now_);
  work += housekeeping_.poll(now_);
  flushed_ = flush();

  if (work != 0)
    ++counters_.busy_passes;
  // After the work, not before it, and not always: reading the counter can take longer than an idle
  // pass.
  if (++clock_age_ >= kClockPasses || timers_.next_due() != UINT64_MAX) {
    clock_age_ = 0;
    now_ = base::Tsc::now_ns();
  }
  base::end_reading();
  end_pass();  // last: from here on another thread may poll
  return work;
}

// Handles one batch, in runs of completions of the same connection. What lanes have taken counts as
// work too.
uint32_t PollCore::Completions::poll(uint64_t) {
  std::array<fabric::Completion, kCompletionBurst> batch;
  const uint64_t lane_before = queue->lane_messages();
  const uint32_t count = polled->poll(batch);
  const auto in_lanes = static_cast<uint32_t>(queue->lane_messages() - lane_before);
  const fabric::Completion* const done = batch.data();
  for (uint32_t i = 0; i < count; ++i)
    static_cast<const Link*>(done[i].owner)->prefetch();
  core->counters_.completions += count + in_lanes;
  if (count == 0)
    return in_lanes;
  const Exclusive who = exclusive({done, count});
  for (uint32_t i = 0, end = 0; i < count; i = end) {
    auto& link = *static_cast<Link*>(done[i].owner);
    while (end < count && done[end].owner == &link)
      ++end;
    if (end != count)
      static_cast<const Link*>(done[end].owner)->prefetch_engine();
    link.on_completions({&done[i], end - i}, who);
  }
  return count + in_lanes;
}

// Heuristic: if another connection were busy, its completions would come in between. Connections
// that we made do not count as clients here.
Exclusive PollCore::Completions::exclusive(std::span<const fabric::Completion> batch) noexcept {
  const auto* const link = static_cast<const Link*>(batch.front().owner);
  const bool same_link = batch.back().owner == link;
  const CoreClient* client = nullptr;
  for (const fabric::Completion& completion : batch) {
    const CoreClient& its = static_cast<const Link*>(completion.owner)->core_client();
    if (&its == &core->outgoing_)
      continue;
    core->last_in_lane_ = nullptr;
    if (client != nullptr && client != &its) {
      last_client = nullptr;
      last_link = nullptr;
      return Exclusive::kNone;
    }
    client = &its;
  }
  if (client == nullptr)
    return Exclusive::kNone;
  const bool client_again = std::exchange(last_client, client) == client;
  const bool link_again = std::exchange(last_link, same_link ? link : nullptr) == link;
  if (!client_again)
    return Exclusive::kNone;
  return link_again && same_link ? Exclusive::kConnection : Exclusive::kClient;
}

void Link::on_completions(std::span<const fabric::Completion> completions, Exclusive exclusive) {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(engine_.has_value() && state_ != LinkState::kDead, state_);
  // The peer may use the connection before our own event queue reports it. Sends then wait in the
  // engine until it does.
  if (state_ == LinkState::kConnecting && accepting_) [[unlikely]]
    establish(accepted_);
  core_.turns().allow(*this, exclusive, core_.passes());
  active_ns_.store(core_.now(), std::memory_order_relaxed);
  if (completions.size() == 1) [[likely]]
    engine_->on_completions(completions);
  else
    on_many_completions(completions);
  hold_back();
  core_.mark_dirty(*this);
}

// One doorbell at the end of the pass costs least if completions take little time. If they take
// long, as with checksums of RPCSEC_GSS and handlers that compute, the peer would have nothing to
// do until all were done, and this end would have nothing to do then.
void Link::on_many_completions(std::span<const fabric::Completion> completions) {
  uint64_t begun = base::Tsc::ticks();
  uint64_t posted = begun;
  for (;;) {
    const size_t count = std::min(completions.size(), works_long_ ? 1 : kCompletionsAtOnce);
    engine_->on_completions(completions.first(count));
    const uint64_t now = base::Tsc::ticks();
    works_long_ = base::Tsc::to_ns(now - begun) > count * kLongNs;
    begun = now;
    completions = completions.subspan(count);
    if (completions.empty())
      return;
    if (base::Tsc::to_ns(now - posted) > kPostNs) {
      (void)post();  // what is left stays with the pass
      posted = base::Tsc::ticks();
    }
  }
}

void Link::begin_turn() noexcept {
  const bool exclusive = core_.note_lane_burst(*this);
  core_.turns().allow(*this, exclusive ? Exclusive::kConnection : Exclusive::kNone, core_.passes());
  active_ns_.store(core_.now(), std::memory_order_relaxed);
}

void Link::note_replies() noexcept {
  active_ns_.store(core_.now(), std::memory_order_relaxed);
}

void Link::on_sent_in_lane() noexcept {
  engine_->note_sent_now();  // post() wakes the peer
  core_.mark_dirty(*this);
}

// What they defer waits for the next pass, behind what is left of them.
uint32_t PollCore::run_deferred() {
  ItemList now = deferred_.take();
  const uint32_t ran = run_some(now, kDeferredBurst);
  deferred_.push_front(now.take());
  return ran;
}

// First takes more batches, so that connections whose completions are queued behind those of a busy
// one are seen before its turn.
uint32_t PollCore::serve_turns() {
  uint32_t work = 0;
  for (Completions& source : completions_) {
    for (uint32_t batches = 1; batches < kBatchesPerPass && !budget_.known_spent(); ++batches) {
      uint32_t count = source.poll(now_);
      work += count;
      if (count < kCompletionBurst)
        break;
    }
  }
  return work + turns_.serve(budget_);
}

void Link::catch_up() {
  const uint64_t round = client_.rounds.number;
  engine_->responder().turn.allowance.refill(round - std::exchange(round_, round));
}

void Link::start_waiting_calls() {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(engine_.has_value() && !waits_turn_);
  catch_up();
  if (client_.links.empty())
    engine_->responder().turn.allowance.fill();
  engine_->start_waiting();
  core_.mark_dirty(*this);
}

void PollCore::to_worker(WorkerQueue& queue, WorkItem& item) noexcept {
  RRDK_ON_CORE(*this);
  RRDK_ASSERT(workers_ != nullptr && item.run != nullptr);
  worker_turns_.push(queue, item);
  for_workers_ = true;
}

// Pushes only as much as keeps the workers busy until the next pass: items that wait here are taken
// in turns, those in the ring are not.
bool PollCore::push_workers() {
  for (uint32_t room = workers_->room(); room != 0 && !worker_turns_.empty(); --room)
    to_workers_.push(worker_turns_.pop());
  for_workers_ = !workers_->push(to_workers_) || !worker_turns_.empty();
  return !for_workers_;
}

uint32_t PollCore::Housekeeping::poll(uint64_t now_ns) {
  uint32_t work = 0;
  if (now_ns >= next_tick) {
    next_tick = now_ns + kTickNs;
    core->tick(now_ns);
  }
  if (now_ns >= next_events && !core->devices_.empty()) {
    events_left = !core->budget_.may_begin(base::SlowWork::kEvents);
    if (!events_left) {
      const uint32_t events = core->route_events();
      events_left = events != 0 && !core->budget_.may_go_on();
      work += events;
    }
    next_events = events_left ? 0 : now_ns + kEventsNs;
  }
  return work;
}

// Ticks some of the links each time, in turn, so that the cost of a tick does not grow with their
// number. The list does not grow meanwhile, since links are added only in flush().
uint32_t PollCore::tick(uint64_t now_ns) {
  const size_t ticked = std::min(ticking_.size(), kTickedAtOnce);
  if (ticked > kBetweenClocks)
    budget_.begin();
  for (size_t i = 0; i < ticked; ++i) {
    if (i != 0 && i % kBetweenClocks == 0 && !budget_.may_go_on())
      break;
    if (next_ticked_ >= ticking_.size())
      next_ticked_ = 0;
    Link* const link = ticking_[next_ticked_];
    link->tick(now_ns);
    mark_dirty(*link);
    link->ticking_ = link->needs_tick();
    if (link->ticking_) {
      ++next_ticked_;
    } else {
      ticking_[next_ticked_] = ticking_.back();
      ticking_.pop_back();
    }
  }
  if (tapped_ && tap_.idle()) [[unlikely]]
    take_tap_away();
  for (PeriodicTask* task : periodic_tasks_)
    task->look(now_ns);
  call_pool_.look(now_ns);
  return static_cast<uint32_t>(ticked);
}

void PollCore::mark_dirty(Link& link) noexcept {
  RRDK_ON_CORE(*this);
  RRDK_ASSERT(&link.core() == this && link.state() != LinkState::kDead, link.state());
  if (link.dirty_)
    return;
  link.dirty_ = true;
  dirty_.push(link);
}

// By then, a message that has begun to arrive has its Receive, beyond those that were promised.
void Link::hold_back(bool hold) {
  RRDK_ASSERT(hold != held_back_);
  held_back_ = hold;
  queue_pair_->hold_receives(hold);
  engine_->count_begun(hold && queue_pair_->holds_receive());
}

bool Link::post() {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(engine_.has_value() && queue_pair_ != nullptr, state_);
  // Receives first: a call's Send promises that its reply finds a Receive (V1-CREDIT-15).
  bool all = engine_->post_receives(*queue_pair_);
  hold_back();
  if (state_ == LinkState::kConnecting)
    return true;  // on_event() marks the link again
  const bool sent_now = engine_->take_sent_now();
  if (engine_->sends().empty() && !sent_now)
    return all;
  active_ns_.store(core_.now(), std::memory_order_relaxed);
  engine_->before_posting();
  if (sent_now)
    port_->post_send({});
  all = engine_->post_sends(*port_) && all;
  engine_->on_posted();  // may list work that waited for these calls to end
  while (engine_->take_sent_now()) [[unlikely]] {  // or it has sent or posted something at once
    port_->post_send({});
    engine_->on_posted();
  }
  return all && engine_->sends().empty() && engine_->receives().empty();
}

// Posts for each link to which something happened: one doorbell per connection and pass. Returns
// false if a queue, or the worker ring, was full, or if the budget was spent; the next pass tries
// again. The link that has spent the budget comes after those that it keeps waiting.
bool PollCore::post_dirty() {
  bool all = !for_workers_ || push_workers();
  for (auto links = dirty_.take(); !links.empty();) {
    Link& link = links.pop();
    link.dirty_ = false;
    const bool was_spent = budget_.known_spent();
    if (!link.post()) {
      if (budget_.known_spent() && !was_spent && !link.dirty_) [[unlikely]] {
        link.dirty_ = true;
        links.push(link);
        continue;
      }
      mark_dirty(link);
      all = false;
    }
    if (link.wants_close() || link.fabric_is_down()) [[unlikely]]
      begin_ending(link);
    if (!link.ticking_ && link.needs_tick()) {
      link.ticking_ = true;
      // datapath-allow: grows only with the number of connections
      ticking_.push_back(&link);
    }
    // A link with waiting calls is always in the tick list.
    if (link.ticking_ && link.backlogged()) [[unlikely]]
      turns_.join(link);
  }
  return all;
}

// Closes it at once if the budget permits. The rest is a control task.
void PollCore::begin_ending(Link& link) {
  if (link.wants_close() && link.may_close() && !budget_.known_spent()) {
    budget_.begin();
    link.give_up();
    (void)budget_.spent();
  }
  if ((link.wants_close() || link.fabric_is_down()) && !std::exchange(link.ending_posted_, true))
    // datapath-allow: once per connection
    control_.post_here([this, &link] { go_on_ending(link); });
}

void PollCore::run() {
  uint64_t last_work = base::Tsc::now_ns();
  while (!stop_.load(std::memory_order_relaxed)) {
    if (poll() != 0)
      last_work = now_;
    else
      idle(last_work);
  }
}

void PollCore::idle(uint64_t last_work) {
  // No pause when busy: it takes longer than a pass, and the pass touches little.
  if (idle_ == IdlePolicy::kBusy)
    return;
  bool slept = idle_ == IdlePolicy::kAdaptive && now_ - last_work > adaptive_ns_ && sleep();
  if (!slept)
    // datapath-allow: the core is idle
    sched_yield();
}

void Turns::allow(Link& link, Exclusive exclusive, uint64_t pass) noexcept {
  CoreClient& client = link.client_;
  if (others_wait(client)) [[unlikely]]
    client.catch_up(rounds_.number);
  else if (exclusive != Exclusive::kNone)
    client.allowance.lift();
  else
    client.fill(pass);
  if (client.links.empty()) [[likely]]
    link.engine_->responder().turn.allowance.fill(
        exclusive == Exclusive::kConnection ? engine::kExclusiveQuantum : engine::kQuantum);
  else
    link.catch_up();
}

void Turns::push(CoreClient& client) noexcept {
  clients_.push(client);
  rounds_.join();
}

void Turns::join(Link& link) noexcept {
  if (link.waits_turn_)
    return;
  if (link.client_.links.empty())
    push(link.client_);
  link.client_.push(link);
}

// At least one, while data that is copied for their calls does not use up the budget.
uint32_t Turns::serve(const base::Budget& budget) noexcept {
  uint32_t turns = 0;
  while (!clients_.empty() && turns < kTurnsPerPass && !(turns != 0 && budget.known_spent())) {
    rounds_.turn();
    CoreClient& client = clients_.pop();
    client.catch_up(rounds_.number);
    if (clients_.empty())
      client.allowance.fill();
    turns += client.serve();
    if (!client.links.empty())
      push(client);
  }
  return turns;
}

void CoreClient::push(Link& link) noexcept {
  RRDK_ASSERT(!link.waits_turn_ && &link.client_ == this);
  link.waits_turn_ = true;
  links.push(link);
  rounds.join();
}

// A connection without a backlog leaves the queue even if the client's allowance is used up.
uint32_t CoreClient::serve() noexcept {
  RRDK_ASSERT(!links.empty());
  const int64_t before = allowance.left();
  uint32_t served = 0;
  for (; served < kMostLinks && !links.empty(); ++served) {
    if (!allowance.open() && links.front()->backlogged())
      break;
    rounds.turn();
    Link& link = links.pop();
    link.waits_turn_ = false;
    link.start_waiting_calls();
    if (link.backlogged())
      push(link);
  }
  const int64_t worth = (before - allowance.left()) / engine::kQuantum;
  return static_cast<uint32_t>(std::clamp<int64_t>(worth, 1, std::max(served, 1u)));
}

}  // namespace rrdk::runtime

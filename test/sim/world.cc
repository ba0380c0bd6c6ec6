#include "world.h"

#include <algorithm>

namespace rrdk::sim {

namespace {

constexpr uint32_t kProofs = 3;
// Calls that do not end leave no space for others: then it gets quiet before all calls were made.
constexpr uint64_t kMostBusySteps = 100'000;
// Bounds of the quiet time: far above what any seed takes, in events and in simulated time. Calls
// on a connection for which there are no buffers are refused one after the other, each after two
// seconds: in one of a million seeds there are ten of these.
constexpr uint64_t kMostQuietSteps = 400'000;
constexpr uint64_t kMostQuietTime = 60'000'000'000;
// More for each connection of a crowd.
constexpr uint64_t kBusyStepsEach = 400;
constexpr uint64_t kQuietStepsEach = 2'000;
// How often the phase of a crowd is checked.
constexpr uint64_t kStepsOfCrowd = 256;

}  // namespace

World::World(Rig& rig, uint64_t seed, bool traced)
    : context_(seed, traced),
      weather_(context_.random),
      rig_(rig),
      traffic_(context_, rig.traffic(), weather_.largest_item),
      requester_calls_(std::make_unique<engine::CallPool>(rig.requester(weather_.requester_memory),
                                                          weather_.incoming_calls)),
      responder_calls_(std::make_unique<engine::CallPool>(rig.responder(weather_.responder_memory),
                                                          weather_.incoming_calls)),
      room_(weather_.most_lanes * server::bytes_of_lane(kMostCredits, 1), nullptr),
      replays_(weather_.replay_options(), 0, room_, counters_),
      shared_receives_(weather_.shared_receives
                           ? std::make_unique<SharedReceives>(
                                 rig.responder(weather_.responder_memory), weather_.most_receives)
                           : nullptr),
      around_{context_,
              weather_,
              traffic_,
              *this,
              rig.requester(weather_.requester_memory),
              rig.responder(weather_.responder_memory),
              *requester_calls_,
              *responder_calls_,
              weather_.once ? &replays_ : nullptr,
              shared_receives_.get()},
      lines_(weather_.lines) {
  context_.longest_delay = weather_.longest_delay;
  for (uint32_t i = 0; i < weather_.lines; ++i) {
    for (uint32_t k = 0; k < weather_.calls_at_once; ++k) {
      lines_[i].calls.push_back(std::make_unique<Call>());
      lines_[i].calls.back()->line = i;
    }
    for (uint32_t k = 0; weather_.both_ways && k < weather_.calls_at_once; ++k) {
      lines_[i].calls.push_back(std::make_unique<Call>());
      lines_[i].calls.back()->line = i;
      lines_[i].calls.back()->caller = engine::Role::kResponder;
    }
    context_.schedule.after(context_.delay(), *this, kConnect, i);
    context_.schedule.after(context_.delay(), *this, kSubmit, i);
  }
  if (weather_.longest_peace != 0)
    context_.schedule.after(weather_.longest_peace / 2, *this, kFault);
}

std::string World::run() {
  while (!context_.failed() && !done()) {
    const bool moved = context_.schedule.step();
    // This looks at each connection.
    if (!moved || !weather_.crowd || context_.schedule.steps() % kStepsOfCrowd == 0)
      next_phase();
    if (!moved && context_.schedule.empty() && !done())
      context_.fail("world", "nothing moves any more: %s", describe_waiting().c_str());
  }
  if (!context_.failed())
    check_leftovers();
  if (context_.failed())  // the engines cannot be destroyed in this state
    return context_.failure;
  return {};
}

void World::on_event(uint32_t what, uint64_t argument) {
  auto line = static_cast<uint32_t>(argument);
  switch (what) {
    case kConnect:
      connect(line);
      return;
    case kSubmit:
      submit_next(line);
      return;
    case kFault:
      fault();
      return;
  }
}

void World::connect(uint32_t number) {
  Line& line = lines_[number];
  if (phase_ == Phase::kEnding || line.session != nullptr)
    return;
  sessions_.push_back(std::make_unique<Session>(around_, number, line.lives++));
  line.session = sessions_.back().get();
  ++live_sessions_;
  line.session->requester().continue_xids(line.xids);
  if (line.session->start())
    submit_again(line);
}

// A client that repeats its calls does not wait for the responder to notice.
void World::on_buried(Session& session) {
  live_sessions_ -= session.over();
  Line& line = lines_[session.line()];
  bool gone = weather_.once ? !session.requester().alive() : session.over();
  if (!gone || line.session != &session)
    return;
  line.session = nullptr;
  if (weather_.once)
    line.xids = session.requester().last_xids();
  if (phase_ != Phase::kEnding)
    context_.schedule.after(1'000 + context_.delay(), *this, kConnect, session.line());
}

void World::submit_next(uint32_t number) {
  Line& line = lines_[number];
  if (phase_ != Phase::kBusy)
    return;
  const uint64_t most_steps =
      kMostBusySteps + (weather_.crowd ? weather_.lines * kBusyStepsEach : 0);
  if (submitted_ >= weather_.calls || context_.schedule.steps() > most_steps) {
    be_quiet();
    return;
  }
  uint64_t pause = context_.random.below(static_cast<uint32_t>(weather_.longest_pause));
  context_.schedule.after(pause, *this, kSubmit, number);
  size_t first = context_.random.below(static_cast<uint32_t>(line.calls.size()));
  for (size_t i = 0; i < line.calls.size(); ++i) {
    Call& call = *line.calls[(first + i) % line.calls.size()];
    if (!call.active && !call.again && can_submit(call)) {
      submit(call, traffic_.draw(call.caller));
      return;
    }
  }
}

// A server makes calls after it was called.
bool World::can_submit(const Call& call) const {
  Session* session = lines_[call.line].session;
  if (session == nullptr || !session->end(call.caller).alive())
    return false;
  return call.caller == engine::Role::kRequester || session->responder().engine()->may_call_back();
}

void World::submit(Call& call, Shape& shape) {
  ++submitted_;
  ++begun_;
  if (!traffic_.prepare(call, shape)) {
    context_.fail("world", "the simulation has too little memory for a call");
    return;
  }
  if (phase_ == Phase::kBusy && weather_.deadlines && weather_.tick_ns != 0 &&
      context_.random.one_in(6))
    call.out.deadline_ns = context_.schedule.now() + 5'000 + context_.random.below(5'000'000);
  lines_[call.line].session->end(call.caller).submit(call);
}

// Calls that were lost with a connection are made again on the next.
void World::submit_again(Line& line) {
  for (bool sent : {true, false}) {
    for (const std::unique_ptr<Call>& call : line.calls) {
      bool was_sent = call->out.sent || call->out.resend;
      if (!call->again || was_sent != sent || line.session == nullptr ||
          !line.session->requester().alive())
        continue;
      if (weather_.once)
        repeat(*call);
      else
        submit(*call, traffic_.repeat(*traffic_.find(call->serial)));
    }
  }
}

// Under its XID, if the responder may know that.
void World::repeat(Call& call) {
  ++begun_;
  call.again = false;
  call.out.resend |= call.out.sent;
  call.out.sent = false;
  traffic_.find(call.serial)->dropped = false;
  lines_[call.line].session->requester().submit(call);
}

void World::on_ended(Call& call) {
  ++ended_;
  Line& line = lines_[call.line];
  const Shape& shape = *traffic_.find(call.serial);
  CallStatus status = call.out.status;
  // A server cannot reconnect: its calls are lost with the connection (BIDIR-17).
  call.again = status == CallStatus::kConnectionLost && phase_ != Phase::kEnding && !shape.backward;
  if (shape.plain_end && status == CallStatus::kOk)
    ++line.proofs;
  if (weather_.once && status == CallStatus::kOk && shape.runs != 1 && !shape.idempotent)
    context_.fail("world", "call %u has a reply, and ran %u times", call.serial, shape.runs);
  bool kept = weather_.once && call.again;
  if (!kept && context_.random.one_in(2)) {
    call.out.release();
    call.room.clear();
  }
  // An upcall may submit and cancel.
  if (phase_ == Phase::kBusy && weather_.cancels && context_.random.one_in(10))
    cancel_one();
  bool more = phase_ == Phase::kBusy && submitted_ < weather_.calls && context_.random.one_in(3);
  if (more && !call.again && !call.active && can_submit(call) && !context_.failed())
    submit(call, traffic_.draw(call.caller));
}

bool World::ticks() const {
  if (weather_.tick_ns == 0 || phase_ == Phase::kEnding)
    return false;
  // If no end waits for buffers of others, nothing may depend on ticks.
  return phase_ == Phase::kBusy || weather_.scarce();
}

Call* World::call_of(const Session& session, engine::Role caller, uint32_t xid) {
  for (const std::unique_ptr<Call>& call : lines_[session.line()].calls) {
    if (call->active && call->caller == caller && call->xid() == xid)
      return call.get();
  }
  return nullptr;
}

Session* World::some_session() {
  return lines_[context_.random.below(weather_.lines)].session;
}

void World::fault() {
  if (phase_ != Phase::kBusy)
    return;
  Random& random = context_.random;
  context_.schedule.after(1 + random.below(static_cast<uint32_t>(weather_.longest_peace)), *this,
                          kFault);
  Session* session = some_session();
  if (session == nullptr)
    return;
  End& end = random.one_in(2) ? session->requester() : session->responder();
  switch (random.below(11)) {
    case 0:
      if (weather_.storms() && random.one_in(2))
        return break_all();
      if (weather_.breaks && end.alive())
        end.hang_up("closed from above");
      return;
    case 1:
      if (weather_.errors && end.alive())
        end.queue_pair().arm_error();
      return;
    case 2:
    case 3:
      if (weather_.strays)
        session->stray();
      return;
    case 4:
    case 5:
      if (weather_.cancels)
        cancel_one();
      return;
    case 6:
    case 7:
      if (weather_.size_changes && end.alive())
        end.change_receives(random.one_in(8) ? 1000 + random.below(100'000)
                                             : 4096u << random.below(3));
      return;
    case 8:
      if (weather_.drains && session->responder().alive())
        session->responder().drain();
      return;
    default:
      if (weather_.credit_changes)
        change_credits(*session);
  }
}

// Like a switch that fails: at either end of each connection, or both.
void World::break_all() {
  if (context_.traced)
    context_.trace("world", "all connections break");
  for (Line& line : lines_) {
    if (line.session == nullptr)
      continue;
    End& end = context_.random.one_in(2) ? line.session->requester() : line.session->responder();
    if (end.alive())
      end.hang_up("all break");
  }
}

void World::cancel_one() {
  Session* session = some_session();
  if (session == nullptr)
    return;
  auto& calls = lines_[session->line()].calls;
  Call& call = *calls[context_.random.below(static_cast<uint32_t>(calls.size()))];
  if (call.active && session->end(call.caller).alive())
    session->end(call.caller).cancel(call);
}

void World::change_credits(Session& session) {
  End& end = session.responder();
  if (end.alive())
    end.grant(context_.random.one_in(2) ? 1 : context_.random.between(1, 8));
}

void World::next_phase() {
  switch (phase_) {
    case Phase::kBusy:
      return;
    case Phase::kSettling:
      check_progress();
      if (!settled())
        return;
      if (context_.traced)
        context_.trace("world", "settled");
      phase_ = Phase::kProving;
      for (Line& line : lines_)
        prove(line);
      return;
    case Phase::kProving:
      check_progress();
      for (Line& line : lines_)
        prove(line);
      if (std::all_of(lines_.begin(), lines_.end(),
                      [](const Line& line) { return line.proofs >= kProofs; }))
        end_all();
      return;
    case Phase::kEnding:
      check_progress();
      return;
  }
}

void World::be_quiet() {
  if (context_.traced)
    context_.trace("world", "quiet");
  quiet_since_ = context_.schedule.steps();
  quiet_since_ns_ = context_.schedule.now();
  for (Line& line : lines_) {
    if (line.session == nullptr)
      continue;
    line.session->requester().queue_pair().disarm();
    line.session->responder().queue_pair().disarm();
  }
  phase_ = Phase::kSettling;
  if (weather_.abrupt)
    end_all();
}

bool World::settled() const {
  return std::all_of(lines_.begin(), lines_.end(), [](const Line& line) {
    return line.session != nullptr && line.session->healthy() && !line.session->lost() &&
           std::none_of(
               line.calls.begin(), line.calls.end(),
               [](const std::unique_ptr<Call>& call) { return call->active || call->again; });
  });
}

// A small call on a connection that has nothing else to do.
void World::prove(Line& line) {
  if (line.proofs >= kProofs || line.session == nullptr || !line.session->healthy())
    return;
  // A connection that was just made again was not called yet.
  bool back = line.proofs == kProofs - 1 && can_submit(*line.calls.back());
  Call& call = back ? *line.calls.back() : *line.calls.front();
  if (call.active || call.again)
    return;
  Shape& shape = traffic_.draw(call.caller);
  shape.refused = shape.dropped = shape.small_room = shape.small_reply = shape.force_long = false;
  shape.plain_end = shape.idempotent = true;
  if (weather_.scarce() || back) {
    shape.arguments.clear();
    shape.results.clear();
  }
  submit(call, shape);
}

void World::end_all() {
  if (context_.traced)
    context_.trace("world", "the end");
  phase_ = Phase::kEnding;
  for (Line& line : lines_) {
    for (const std::unique_ptr<Call>& call : line.calls)
      call->again = false;
    if (line.session == nullptr)
      continue;
    End& end = context_.random.one_in(2) ? line.session->requester() : line.session->responder();
    (end.alive() ? end : line.session->requester()).hang_up("closed from above");
  }
}

bool World::done() const {
  return phase_ == Phase::kEnding && live_sessions_ == 0;
}

void World::check_progress() {
  const uint64_t most_steps =
      kMostQuietSteps + (weather_.crowd ? weather_.lines * kQuietStepsEach : 0);
  if (context_.schedule.steps() - quiet_since_ > most_steps ||
      context_.schedule.now() - quiet_since_ns_ > kMostQuietTime)
    context_.fail("world", "no progress: %s", describe_waiting().c_str());
}

// The first thing that has not come to its end.
std::string World::describe_waiting() const {
  for (const Line& line : lines_) {
    if (line.session == nullptr)
      continue;
    const std::string& name = line.session->name();
    for (const std::unique_ptr<Call>& call : line.calls) {
      if (!call->active)
        continue;
      char xid[16];
      std::snprintf(xid, sizeof xid, "%08x", call->xid());
      return name + " waits for call " + std::to_string(call->serial) + ", xid " + xid;
    }
    if (!line.session->healthy())
      return name + " is neither working nor over";
  }
  return "the simulation itself";
}

void World::check_leftovers() {
  if (ended_ != begun_)
    context_.fail("world", "%llu calls were made, %llu ended",
                  static_cast<unsigned long long>(begun_), static_cast<unsigned long long>(ended_));
  for (engine::CallPool* pool : {requester_calls_.get(), responder_calls_.get()}) {
    if (pool->available() != pool->capacity())
      context_.fail("world", "%u of %u calls are back in their pool", pool->available(),
                    pool->capacity());
  }
  lines_.clear();
  if (context_.failed())
    return;
  requester_calls_.reset();
  responder_calls_.reset();
  if (shared_receives_ != nullptr && shared_receives_->queue.promised() != 0)
    context_.fail("world", "%u Receives are promised to no connection",
                  shared_receives_->queue.promised());
  if (shared_receives_ != nullptr && shared_receives_->queue.parked() != 0)
    context_.fail("world", "%u messages count as waiting, and no connection has them",
                  shared_receives_->queue.parked());
  shared_receives_.reset();
  if (!rig_.whole())
    context_.fail("world", "buffers are missing from their pools");
}

}  // namespace rrdk::sim

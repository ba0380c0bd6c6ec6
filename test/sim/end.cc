// One end of a simulated connection: what drives its engine, and what the end may do.
#include <algorithm>

#include "session.h"

namespace rrdk::sim {

using engine::Role;
using fabric::WcStatus;

End::End(Session& session, Role role, const engine::ConnectionOptions& options, uint32_t reads)
    : session_(session),
      context_(session.around().context),
      role_(role),
      name_(session.name() + (role == Role::kRequester ? " cli" : " srv")),
      reads_(reads),
      options_(options),
      draft_(options.limits.versions.two),
      queue_pair_(context_, name_, *this,
                  {options.send_wrs, reads, session.around().weather.keys, options.max_copied}) {
  Surroundings& around = session.around();
  engine::PerConnection its = {.client_share = &share_};
  if (!is_requester() && around.receives != nullptr) {
    its.shared_receives = &around.receives->queue;
    queue_pair_.share(around.receives->posted);
  }
  engine_ = std::make_unique<engine::Connection>(
      options_, its, is_requester() ? around.requester_memory : around.responder_memory,
      is_requester() ? around.requester_calls : around.responder_calls, queue_pair_, *this);
  if (!is_requester() && around.weather.takes_turns)
    refill(1);
}

template <typename Use>
void End::use_engine(Use&& use) {
  if (depth_++ == 0) {
    most_zombies_ = own().zombies();
    least_window_ = own().window();
  }
  use(*engine_);
  if (--depth_ == 0)
    settle();
}

// This many turns of the connection, and one of its client.
void End::refill(uint64_t turns) {
  engine_->responder().turn.allowance.refill(turns);
  share_.allowance.refill(1);
}

bool End::prepare() {
  return engine_->prepare_receives();
}

Wire& End::own() {
  return session_.wire(role_);
}

Wire& End::theirs() {
  return session_.wire(is_requester() ? Role::kResponder : Role::kRequester);
}

void End::give_up() {
  queue_pair_.fail("no buffers");
  use_engine([](engine::Connection& engine) { engine.on_disconnected(); });
}

void End::connect(End& peer) {
  peer_ = &peer;
  queue_pair_.connect_to(peer.queue_pair_);
  post();
  bool fails = session_.around().weather.failed_connects && context_.random.one_in(6);
  context_.schedule.after(context_.delay(), *this, fails ? kBreak : kEstablish);
  if (session_.around().owner.ticks())
    context_.schedule.after(session_.around().weather.tick_ns, *this, kTick);
}

void End::hang_up(const char* why) {
  queue_pair_.fail(why);
}

void End::submit(Call& call) {
  if (context_.traced)
    context_.trace(name_, "submit call %u", call.serial);
  call.active = true;
  call.first_word = call.out.message.pieces()[0].bytes.data;
  call.out.released = nullptr;
  if (call.lends) {
    call.out.released_argument = &lent_.emplace_back(this);
    call.out.released = [](void* argument) {
      auto& lent = *static_cast<Lent*>(argument);
      lent.end->on_released(lent);
    };
  }
  use_engine([&](engine::Connection& engine) { engine.submit(call.out); });
}

void End::cancel(Call& call) {
  if (context_.traced)
    context_.trace(name_, "cancel call %u, xid %08x", call.serial, call.xid());
  call.cancelled = true;
  if (Wire::Record* record = own().find(call.xid()))
    record->given_up = true;
  use_engine([&](engine::Connection& engine) { engine.cancel(call.out); });
}

void End::grant(uint32_t credits) {
  if (context_.traced)
    context_.trace(name_, "credits %u", credits);
  engine_->responder().set_granted_credits(credits);
  theirs().configure(credits);
}

void End::drain() {
  if (context_.traced)
    context_.trace(name_, "takes no more calls");
  drained_ = true;
  use_engine([](engine::Connection& engine) { engine.drain(); });
}

void End::change_receives(uint32_t bytes) {
  bool raises = context_.random.one_in(3);
  bool done = false;
  use_engine([&](engine::Connection& engine) {
    done = raises ? engine.properties().raise(bytes) : engine.request_receive_size(bytes);
  });
  if (context_.traced)
    context_.trace(name_, "%s Receives of %u bytes: %s", raises ? "post" : "ask for", bytes,
                   done ? "yes" : "no");
}

void End::on_event(uint32_t what, uint64_t argument) {
  if (engine_ == nullptr)
    return;
  switch (what) {
    case kEstablish:
      if (queue_pair_.in_error() || peer_->engine_ == nullptr)
        return;
      if (context_.traced)
        context_.trace(name_, "established");
      queue_pair_.establish();
      use_engine([&](engine::Connection& engine) {
        engine.on_established(peer_->engine_->private_data(), reads_);
      });
      return;
    case kBreak:
      queue_pair_.fail("the link broke");
      return;
    case kDisconnected:
      if (context_.traced)
        context_.trace(name_, "disconnected");
      use_engine([this](engine::Connection& engine) {
        engine.on_disconnected();
        release_waiting();
      });
      return;
    case kPost:
      post_pending_ = false;
      if (depth_ == 0)
        post();
      return;
    case kAnswer: {
      auto found = std::find_if(held_.begin(), held_.end(),
                                [&](const Held& held) { return held.number == argument; });
      Held held = *found;
      held_.erase(found);
      use_engine([&](engine::Connection&) { answer(*held.call, *held.shape); });
      return;
    }
    case kWake:
      use_engine([&](engine::Connection&) { wake(argument); });
      return;
    case kHangUp:
      queue_pair_.fail("the engine wants it");
      return;
    case kTurn:
      turn_pending_ = false;
      if (context_.traced)
        context_.trace(name_, "turn");
      use_engine([&](engine::Connection& engine) {
        refill(context_.random.between(1, 3));
        engine.start_waiting();
      });
      return;
    case kTick:
      if (context_.traced)
        context_.trace(name_, "tick");
      use_engine([&](engine::Connection& engine) { engine.on_tick(context_.schedule.now()); });
      if (engine_ != nullptr && session_.around().owner.ticks())
        context_.schedule.after(session_.around().weather.tick_ns, *this, kTick);
      return;
  }
}

// After each use of the engine: its new requests are posted, and its statistics are checked.
void End::settle() {
  bool later = session_.around().weather.lazy_posting && context_.random.one_in(3);
  if (!later)
    return post();
  if (!post_pending_) {
    post_pending_ = true;
    context_.schedule.after(context_.delay(), *this, kPost);
  }
  look();
}

void End::look() {
  if (engine_->wants_disconnect() && !hanging_up_ && !queue_pair_.in_error()) {
    hanging_up_ = true;
    check_reason();
    context_.schedule.after(context_.delay(), *this, kHangUp);
  }
  if (engine_->responder().backlogged() && !turn_pending_) {
    turn_pending_ = true;
    context_.schedule.after(context_.delay(), *this, kTurn);
  }
  check_promises();
  if (engine_->idle() && !queue_pair_.holds_receive())
    destroy();
}

// The Receives promised by connections that share Receives exist, whatever each connection does.
void End::check_promises() {
  const SharedReceives* shared = session_.around().receives;
  if (shared != nullptr && !shared->queue.keeps_promises())
    context_.fail(name_, "%u shared Receives are promised, and %u are posted",
                  shared->queue.promised(), shared->queue.posted());
}

// Calls that end when they are posted come back from here, as from any function of the engine.
void End::post() {
  ++depth_;
  queue_pair_.post(*engine_);
  --depth_;
  check_receives();
  own().on_requester_posted();
  look();
}

// Each Receive has the size that was announced to the peer (V2D4-PROP-19).
void End::check_receives() {
  bool tells = draft_ == proto::Wire::kDraft04;
  uint32_t told = engine_->properties().receive_size();
  if (tells && queue_pair_.smallest_receive() < told)
    context_.fail(name_, "a Receive of %u bytes is posted, and %u are announced",
                  queue_pair_.smallest_receive(), told);
}

// A connection is given up for a reason that the simulation knows.
void End::check_reason() {
  size_t given_up = most_zombies_ + unsent_.size();
  bool stuck = is_requester() && given_up != 0 && given_up >= least_window_;
  if (!saw_failure_ && !dropped_ && !drained_ && !stuck)
    context_.fail(name_, "the engine wants to disconnect, for no reason");
}

void End::destroy() {
  if (queue_pair_.shares())  // what waited there may be used by others
    queue_pair_.post_receives(*engine_);
  if (!engine_->sends().empty() || !engine_->receives().empty() || !queue_pair_.drained())
    context_.fail(name_, "the engine is idle, with work requests that were not reported");
  if (!held_.empty())
    context_.fail(name_, "the engine is idle, with %zu calls above", held_.size());
  if (queue_pair_.keys().held() != 0)
    context_.fail(name_, "the engine is idle, and %u keys were not released",
                  queue_pair_.keys().held());
  if (std::ranges::any_of(lent_, &Lent::out))
    context_.fail(name_, "the engine is idle, and memory is still lent");
  if (context_.traced)
    context_.trace(name_, "idle");
  if (engine_->counters().refusals[Refusal::kCreditOverrun] != 0)
    context_.fail(name_, "calls are taken for more than was granted");
  leave_cache();
  if (is_requester())
    last_xids_ = engine_->requester().last_xids();
  engine_.reset();
  session_.around().owner.on_buried(session_);
}

void End::on_reports(std::span<const Report> reports) {
  if (engine_ == nullptr) {
    context_.fail(name_, "a completion comes after the engine was idle");
    return;
  }
  most_zombies_ = own().zombies();
  least_window_ = own().window();
  ++depth_;  // this is what use_engine() does; the reports are recorded first
  note(reports);
  engine_->on_completions(completions_);
  --depth_;
  settle();
}

void End::note(std::span<const Report> reports) {
  completions_.clear();
  for (const Report& report : reports) {
    completions_.push_back(report.completion);
    if (report.completion.status != WcStatus::kSuccess)
      saw_failure_ = true;
    else if (report.completion.op != fabric::Op::kReceive || report.stray)
      continue;
    else if (report.about == About::kProperties || report.about == About::kRefusedProperties)
      note_properties(report);
    else if (report.about == About::kCall)
      theirs().on_call_delivered(report.xid, draft_ == proto::Wire::kDraft04);
    else if (!saw_failure_ && engine_->established())
      own().on_reply_delivered(report.xid, report.credits);
    least_window_ = std::min(least_window_, own().window());
  }
}

void End::note_properties(const Report& report) {
  bool grants = report.about == About::kProperties;
  session_.wire(Role::kRequester).on_properties_delivered(is_requester(), grants, report.credits);
}

void End::on_queue_pair_error() {
  context_.schedule.after(context_.delay(), *this, kDisconnected);
  // The other end may notice it when the requester has come back.
  uint64_t late = session_.around().replays != nullptr ? context_.random.below(60) : 1;
  if (peer_ != nullptr)
    context_.schedule.after(late * context_.delay(), *peer_, kBreak);
}

About End::on_send(std::span<const std::byte> message) {
  if (queue_pair_.in_error())
    return About::kCall;  // no one will see it
  About about = About::kAnswer;
  if (!theirs().awaits(message))
    about = session_.wire(Role::kRequester).about(message, is_requester());
  if (about == About::kCall) {
    note_call(message);
  } else if (about == About::kAnswer) {
    // Receives that our own calls will need are not available for the peer's (BIDIR-07).
    uint32_t posted = queue_pair_.receives_posted();
    if (queue_pair_.shares())  // check_promises() covers all of these
      posted = UINT32_MAX / 2;
    theirs().on_reply_posted(message, posted - std::min(posted, own().unanswered()));
  }
  return about;
}

void End::note_call(std::span<const std::byte> message) {
  bool waited = engine_->counters().waits_send_queue != 0;
  Wire::Record* record = own().on_call_posted(message, waited, queue_pair_.keys());
  if (record == nullptr)
    return;
  Call* call = session_.around().owner.call_of(session_, role_, record->xid);
  if (call == nullptr) {
    note_late_call(*record);
    return;
  }
  record->serial = call->serial;
  record->deadline_ns = call->out.deadline_ns;
  record->given_up |= call->cancelled;
  if (context_.traced)
    context_.trace(name_, "call %u is sent as xid %08x", call->serial, record->xid);
}

// The engine gave it to us to send, and gave it up before we posted it.
void End::note_late_call(Wire::Record& record) {
  auto found = std::ranges::find(unsent_, record.xid, &Unsent::xid);
  if (found == unsent_.end()) {
    context_.fail(name_, "xid %08x: a call is sent that no one made", record.xid);
    return;
  }
  record.serial = found->serial;
  lend(record, found->lent_until_ns);
  unsent_.erase(found);
}

// The engine's time counts from the end, whether or not the call was posted by then.
uint64_t End::lent_until_ns() const {
  return context_.schedule.now() + session_.around().weather.lend_ns;
}

void End::lend(Wire::Record& record, uint64_t until_ns) {
  record.lent = true;
  record.lent_until_ns = until_ns;
  note_end(record, true);
}

// A lent key is valid for as long as was promised.
bool End::given_up(const Key& key) {
  const Wire::Record* record = key.called ? own().find(key.xid) : nullptr;
  if (record != nullptr && record->lent)
    return record->lent_until_ns <= context_.schedule.now();
  return record != nullptr &&
         (record->given_up ||
          (record->deadline_ns != 0 && record->deadline_ns <= context_.schedule.now()));
}

void End::on_call(engine::ServedCall& call) {
  Wire::Record* record = theirs().find(call.xid);
  if (record == nullptr || !record->delivered || record->above)
    context_.fail(name_, "xid %08x: no such call, or for the second time", call.xid);
  Shape* shape = session_.around().traffic.check_arguments(call, name_);
  if (context_.failed())
    return;
  record->above = true;
  if (record->serial != shape->serial)
    context_.fail(name_, "xid %08x: is call %u and arrives as call %u", call.xid, record->serial,
                  shape->serial);
  if (context_.traced)
    context_.trace(name_, "call %u arrives, xid %08x", shape->serial, call.xid);
  const Weather& weather = session_.around().weather;
  bool once = session_.around().replays != nullptr && !shape->idempotent && !shape->refused;
  if (once && !begin_once(call, *shape))
    return;
  if (weather.answers_at_once && context_.random.one_in(2)) {
    answer(call, *shape);
    return;
  }
  held_.push_back({numbers_, &call, shape});
  uint64_t delay = context_.random.below(static_cast<uint32_t>(weather.longest_answer));
  context_.schedule.after(delay, *this, kAnswer, numbers_++);
}

void End::answer(engine::ServedCall& call, Shape& shape) {
  if (context_.traced)
    context_.trace(name_, "%s call %u, xid %08x",
                   shape.refused   ? "refuse"
                   : shape.dropped ? "drop"
                                   : "answer",
                   shape.serial, call.xid);
  if (shape.refused) {
    engine_->refuse(call, 0, 0);
  } else if (shape.dropped) {
    dropped_ = true;
    end_once(call, true);
    engine_->drop(call);
  } else if (session_.around().traffic.write_reply(call, shape)) {
    end_once(call, false);
    engine_->reply(call);
  } else {
    context_.fail(name_, "the simulation has too little memory for a reply");
  }
}

void End::on_call_ended(engine::OutgoingCall& out) {
  Call& call = static_cast<Call::Out&>(out).call;
  if (context_.traced)
    context_.trace(name_, "call %u ends, xid %08x: %s", call.serial, call.xid(),
                   to_string(out.status));
  if (!call.active) {
    context_.fail(name_, "xid %08x: call %u ends twice", call.xid(), call.serial);
    return;
  }
  call.active = false;
  Surroundings& around = session_.around();
  bool given_up = out.status != CallStatus::kOk && out.status != CallStatus::kChunkError &&
                  out.status != CallStatus::kRemoteError;
  bool lent = out.message.pieces().empty();
  if (!lent)
    check_keys(call.xid(), call.serial, call.room);
  else if (given_up && !call.room.empty() && !call.lends)
    context_.fail(name_, "xid %08x: memory of call %u is lent, which it does not want", call.xid(),
                  call.serial);
  Wire::Record* record = own().find(call.xid());
  bool sent_again = record != nullptr && record->again && record->replied;
  if (record != nullptr && !(lent && sent_again))
    lent ? lend(*record, lent_until_ns()) : note_end(*record, given_up);
  else if (lent)
    unsent_.push_back({call.xid(), call.serial, lent_until_ns()});
  const Weather& weather = around.weather;
  int own_memory = is_requester() ? weather.requester_memory : weather.responder_memory;
  int peers_memory = is_requester() ? weather.responder_memory : weather.requester_memory;
  around.traffic.check_outcome(
      call, name_,
      {queue_pair_.in_error(), peers_memory != 0, own_memory != 0 || weather.few_keys()});
  if (lent && call.lends)
    keep_lent(call);
  call.first_word = nullptr;
  around.owner.on_ended(call);
}

void End::keep_lent(Call& call) {
  auto& lent = *static_cast<Lent*>(call.out.released_argument);
  if (call.out.released != nullptr)
    context_.fail(name_, "xid %08x: call %u is lent, and will not be told of the end of that",
                  call.xid(), call.serial);
  lent.out = true;
  lent.xid = call.xid();
  lent.serial = call.serial;
  lent.room = std::move(call.room);
  call.room.clear();
}

void End::on_released(Lent& lent) {
  if (context_.traced)
    context_.trace(name_, "call %u is released, xid %08x", lent.serial, lent.xid);
  if (!std::exchange(lent.out, false))
    context_.fail(name_, "xid %08x: call %u was not lent and is released", lent.xid, lent.serial);
  check_keys(lent.xid, lent.serial, lent.room);
  session_.around().traffic.check_guards(lent.room, lent.xid, lent.serial, name_);
  lent.room.clear();
}

void End::note_end(Wire::Record& record, bool given_up) {
  own().on_ended(record, given_up);
  most_zombies_ += given_up;
}

// No remote key outlives its call, and none reaches into memory that was offered with the call.
void End::check_keys(uint32_t xid, uint32_t serial, std::span<const Guarded> rooms) {
  for (const Key& key : queue_pair_.keys().all()) {
    if (key.state == Key::State::kReleased)
      continue;
    if (key.called && key.xid == xid)
      context_.fail(name_, "xid %08x: key %08x outlives call %u", key.xid, key.value, serial);
    if (key.state != Key::State::kBound || queue_pair_.in_error())
      continue;
    for (const Guarded& room : rooms) {
      if (key.span.data < room.span.data + room.span.length &&
          room.span.data < key.span.data + key.span.length)
        context_.fail(name_, "xid %08x: key %08x reaches into call %u, which has ended", xid,
                      key.value, serial);
    }
  }
}

}  // namespace rrdk::sim

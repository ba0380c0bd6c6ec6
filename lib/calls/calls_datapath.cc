// A call's path from begin() to its callback.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/lifetime.h"
#include "calls/calls.h"
#include "calls/plain_calls.h"
#include "engine/outgoing_call.h"
#include "rpc/headers_datapath.h"

namespace rrdk {

using runtime::WorkItem;

// From begin() to the core, in the caller's thread.

Encoder& Call::begin(const Binding& binding, uint32_t procedure) noexcept {
  Impl& c = *impl_;
  Caller::Impl& caller = c.caller;
  if (c.in_flight.load(std::memory_order_acquire) || caller.retired() || base::forked) [[unlikely]]
    return c.refuse_begin();
  if (c.has_extras) [[unlikely]]
    c.drop_extras();
  c.begun = true;
  c.given_up.store(false, std::memory_order_relaxed);  // another thread may be at ~Call()
  c.decoder = {};  // the last reply's buffers go back when this call is submitted
  if (!c.is_for(binding, procedure) || !c.args->keep_first(c.head)) [[unlikely]]
    c.begin_anew(binding, procedure);
  return *c.args;
}

// Whether its last call had the same header.
bool Call::Impl::is_for(const Binding& its, uint32_t its_procedure) const noexcept {
  return head != 0 && binding.load(std::memory_order_relaxed) == &its &&
         checked_procedures == its.procedures.data() && program == its.program &&
         version == its.version && procedure.load(std::memory_order_relaxed) == its_procedure &&
         (has_own_credential || credential_version == caller.credential_version());
}

void Call::Impl::begin_anew(const Binding& its, uint32_t its_procedure) noexcept {
  // Another binding may have its address by now.
  if (binding.load(std::memory_order_relaxed) != &its ||
      checked_procedures != its.procedures.data() || program != its.program ||
      version != its.version) {
    binding_ok = caller.accepts(its, called);
    checked_procedures = its.procedures.data();
  }
  if (!has_own_credential && credential_version != caller.credential_version())
    caller.take_credential(*this);
  binding.store(&its, std::memory_order_relaxed);
  procedure.store(its_procedure, std::memory_order_relaxed);
  program = its.program;
  version = its.version;
  entry = its.find(its_procedure);
  reply_planned = false;
  if (message.buffers().empty())  // a Receive may have taken it: Requester::give_arguments()
    receive.reset();
  args.emplace(message, caller.memory, caller.defaults.inline_size, caller.defaults.max_call);
  secured = credential != nullptr && credential->initiator() != nullptr;
  if (secured) [[unlikely]]
    return begin_secured();
  // The engine fills in the XID when it sends.
  rpc::encode_call(*args, 0, {program, version, its_procedure},
                   credential ? credential->bytes() : std::span<const std::byte>());
  const size_t written = args->run().size();  // 0 if it did not fit into one buffer
  head = static_cast<uint32_t>(written);
}

// Undoes what was set for the last call only.
void Call::Impl::drop_extras() noexcept {
  has_extras = false;
  timeout_ms = caller.defaults.timeout_ms;
  retransmit = caller.defaults.retransmit;
  variable_reply = 0;
  transformed = false;
  if (chunks != nullptr) {
    for (Buffer& room : std::span(chunks->rooms).first(num_rooms))
      room.reset();
  }
  released = nullptr;
  num_rooms = 0;
  num_spans = 0;
  bad_room = CallStatus::kOk;
}

// For one more offer.
bool Call::Impl::has_space(size_t segments) noexcept {
  const bool fits = num_rooms != kMaxOffers && segments <= kMaxOfferSegments - num_spans;
  if (fits && take_chunks()) [[likely]]
    return true;
  if (bad_room == CallStatus::kOk)
    bad_room = fits ? CallStatus::kNoMemory : CallStatus::kTooLarge;
  return false;
}

void Call::Impl::add_room(std::span<const MemorySpan> segments) noexcept {
  if (add_to_reply() == nullptr) [[unlikely]]
    return;
  for (const MemorySpan& span : segments) {
    if (!caller.memory.contains(span)) [[unlikely]]
      bad_room = CallStatus::kInvalidMemory;
  }
  if (!has_space(segments.size()))
    return;
  MemorySpan* first = chunks->spans.data() + num_spans;
  std::ranges::copy(segments, first);
  num_spans += static_cast<uint32_t>(segments.size());
  chunks->results[num_rooms++] = {{first, segments.size()}};
}

void Call::Impl::add_room(Buffer room, uint32_t length) noexcept {
  if (add_to_reply() == nullptr) [[unlikely]]
    return;
  if (!has_space(1)) [[unlikely]]
    return;
  if (!room || room.capacity() < length || !caller.memory.contains(room.first(length)))
      [[unlikely]] {
    bad_room = !room ? CallStatus::kNoMemory : CallStatus::kInvalidMemory;
    return;
  }
  MemorySpan& span = chunks->spans[num_spans++];
  span = room.first(length);
  chunks->rooms[num_rooms] = std::move(room);
  chunks->results[num_rooms++] = {{&span, 1}};
}

void Call::offer(MemorySpan room) noexcept {
  impl_->add_room({&room, 1});
}

void Call::offer(Buffer room, uint32_t length) noexcept {
  impl_->add_room(std::move(room), length);
}

void Call::offer(std::span<const MemorySpan> segments) noexcept {
  impl_->add_room(segments);
}

// Something is set for the call that was begun, and for no other.
Call::Impl* Call::Impl::add_extra() noexcept {
  if (!begun) [[unlikely]]
    return nullptr;
  has_extras = true;
  return this;
}

// The same, and it changes the reply that may come.
Call::Impl* Call::Impl::add_to_reply() noexcept {
  Impl* const its = add_extra();
  if (its != nullptr)
    reply_planned = false;
  return its;
}

void Call::expect_reply(uint64_t bytes) noexcept {
  if (Impl* const c = impl_->add_to_reply())
    c->variable_reply = bytes;
}

void Call::forbid_ddp(uint32_t growth) noexcept {
  if (Impl* const c = impl_->add_to_reply()) {
    c->transformed = true;
    c->growth = growth;
  }
}

void Call::set_timeout_ms(uint32_t timeout) noexcept {
  if (Impl* const c = impl_->add_extra())
    c->timeout_ms = timeout;
}

void Call::set_retransmit(bool retransmit) noexcept {
  if (Impl* const c = impl_->add_extra())
    c->retransmit = retransmit;
}

void Call::on_released(Released released, void* argument) noexcept {
  if (Impl* const c = impl_->add_extra()) {
    c->released = released;
    c->released_argument = argument;
  }
}

CallStatus Call::Impl::check() noexcept {
  if (!binding_ok) [[unlikely]]
    return CallStatus::kInvalidCall;
  if (bad_room != CallStatus::kOk) [[unlikely]]
    return bad_room;
  uint32_t eligible = entry != nullptr ? entry->eligible_results : 0;
  if (num_rooms > eligible)
    return CallStatus::kTooLarge;
  switch (args->fault()) {
    case EncoderFault::kNone:
      if (num_spans != 0 || message.borrows()) [[unlikely]]
        return caller.reaches(*this) ? CallStatus::kOk : CallStatus::kInvalidMemory;
      return CallStatus::kOk;
    case EncoderFault::kLimit:
    case EncoderFault::kTooManySegments:
      return CallStatus::kTooLarge;
    case EncoderFault::kNoMemory:
      return CallStatus::kNoMemory;
    case EncoderFault::kInvalidMemory:
      return CallStatus::kInvalidMemory;
    case EncoderFault::kByCaller:
      break;
  }
  return CallStatus::kInvalidCall;
}

// Computes how large the reply can be, and how much may be placed.
void Call::Impl::plan_reply() noexcept {
  uint64_t variable = variable_reply + (secured ? gss::Session::kGrowth : 0);
  results = {};
  const bool as_whole = transformed || protects_body();
  if (as_whole) [[unlikely]] {
    for (const MemorySpan& span : offered())
      variable += span.length;
    variable += uint64_t{transformed ? growth : 0} + 3u * num_rooms;  // including pads
  } else if (num_rooms != 0) {
    results = {chunks->results.data(), num_rooms};
  }
  max_reply = Binding::max_reply_of(entry, variable);
  no_ddp = as_whole;
  only_short = !Binding::allows_long_of(entry);
  reply_planned = binding_ok && !as_whole && num_rooms == 0 && variable_reply == 0;
}

// For a call that submit() does not simply take. Returns false if it is not taken.
bool Call::Impl::pass_gate() noexcept {
  if (!begun || caller.retired() || base::forked)
    return false;
  if (by_renewal)
    return true;
  if (!caller.take_place(*this))
    return false;
  const bool lacks_memory =
      args->fault() == EncoderFault::kNoMemory || bad_room == CallStatus::kNoMemory;
  if (lacks_memory && caller.may_wait_for_memory(*this)) {
    status = CallStatus::kNoMemory;
    return false;
  }
  caller.ask_interceptor(*this);
  return true;
}

// For the others. Returns true if the call ends with kInvalidCall.
bool Call::Impl::submit_unfinished() noexcept {
  if (begun && !caller.retired() && !base::forked)
    return false;  // there is no room
  if (!in_flight.load(std::memory_order_acquire))
    status = CallStatus::kInvalidCall;
  return refuse_submit();
}

bool Call::submit(Completion completion, void* argument) noexcept {
  Impl& c = *impl_;
  if ((c.begun && c.caller.open() && !base::forked) || c.pass_gate()) [[likely]] {
    c.begun = false;
    c.args->finish_here();
    const bool is_fine = c.reply_planned && c.args->ok() && !c.message.borrows();
    c.status = is_fine ? CallStatus::kOk : c.check();
    if (!c.reply_planned) [[unlikely]]
      c.plan_reply();
    c.args->fail();  // discards what may be written after this
  } else if (!c.submit_unfinished()) {
    return false;
  }
  bool wanted = completion != nullptr && !c.abandoned.load(std::memory_order_relaxed);
  c.completion.store(wanted ? completion : no_callback, std::memory_order_relaxed);
  c.argument = argument;
  c.resend = c.sent = false;
  c.unmend();
  c.serial.store(c.serial.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  c.cancel_wanted.store(false, std::memory_order_relaxed);
  c.in_flight.store(true, std::memory_order_release);
  c.caller.submit(c);
  return true;
}

// The status of a call that is in flight is its core's.
CallStatus Call::why_refused() const noexcept {
  if (impl_->in_flight.load(std::memory_order_acquire))
    return CallStatus::kInvalidCall;
  const CallStatus status = impl_->status;
  const bool is_why = status == CallStatus::kFull || status == CallStatus::kNoMemory;
  return is_why ? status : CallStatus::kInvalidCall;
}

void Call::cancel() noexcept {
  if (impl_->in_flight.load(std::memory_order_acquire) && !base::forked)
    impl_->caller.cancel(*impl_);
}

bool Call::in_flight() const noexcept {
  return impl_->is_in_flight();
}

CallStatus Call::status() const noexcept {
  return impl_->status;
}

bool Call::sent() const noexcept {
  const engine::OutgoingCall& outgoing = *impl_;
  return outgoing.sent || outgoing.resend || outgoing.mended;
}

Decoder& Call::results() noexcept {
  return impl_->decoder;
}

Buffer Call::take_offered(uint32_t k) noexcept {
  if (k >= impl_->num_rooms || impl_->in_flight.load(std::memory_order_acquire) ||
      impl_->chunks == nullptr)  // the peer has them
    return {};
  return std::move(impl_->chunks->rooms[k]);
}

uint32_t Call::mismatch_low() const noexcept {
  return impl_->reply_header.mismatch_low;
}

uint32_t Call::mismatch_high() const noexcept {
  return impl_->reply_header.mismatch_high;
}

AuthStat Call::auth_stat() const noexcept {
  return impl_->reply_header.auth_stat;
}

std::optional<StampedCall> Call::stamps() const noexcept {
  if (impl_->stamped == nullptr)
    return std::nullopt;
  return impl_->stamped->copy();
}

TransportError Call::transport_error() const noexcept {
  switch (impl_->status) {
    case CallStatus::kChunkError:
    case CallStatus::kVersionError:
    case CallStatus::kRemoteError:
      break;
    default:
      return {};
  }
  const proto::ErrorBody& said = impl_->error;
  return {.version = impl_->error_version,
          .code = said.raw,
          .low = said.low,
          .high = said.high,
          .maximum = said.maximum,
          .write_chunk = said.index,
          .length = said.length};
}

// From the core's side of submit() to the callback.

void Caller::Impl::submit(Call::Impl& call) noexcept {
  call.submitted_ticks = 0;
  if (core().here()) {
    start(call);
    return;
  }
  if (core().call_pool().stages().on()) [[unlikely]]
    call.submitted_ticks = base::Tsc::ticks();
  call.run = [](WorkItem& item) {
    auto& queued = static_cast<Call::Impl&>(item);
    queued.caller.start(queued);
    queued.caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().submit(call);
}

void Caller::Impl::start(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(call.phase == Call::Impl::Phase::kIdle, call.phase);
  ++counters_.calls_made;
  if (call.status != CallStatus::kOk) [[unlikely]]
    return end_later(call, call.status);
  if (call.cancel_wanted.load(std::memory_order_relaxed) ||
      call.abandoned.load(std::memory_order_relaxed)) [[unlikely]]
    return end_later(call, CallStatus::kCancelled);

  call.deadline_ns = 0;
  call.repeatable = call.retransmit || call.procedure.load(std::memory_order_relaxed) == 0;
  call.timed = false;
  if (up_ == nullptr) [[unlikely]]
    return start_without_link(call);
  to_engine(call);
}

void Caller::Impl::start_without_link(Call::Impl& call) noexcept {
  end_unconnected(call);
}

void Caller::Impl::to_engine(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(up_ != nullptr && carrier_ == up_);
  RRDK_ASSERT(call.phase <= Call::Impl::Phase::kWaiting, call.phase);
  if (plain_ != nullptr && plain_->submit(call)) [[likely]]
    return;
  call.phase = Call::Impl::Phase::kEngine;
  in_engine_.push_front(call);
  bool outer = std::exchange(deferring_, true);
  carrier_->engine().submit(call);
  deferring_ = outer;
  core_.mark_dirty(*carrier_);
}

// A timeout counts from the tick that first sees the call, so that a call does not have to read the
// clock. It may last up to a millisecond too long, and longer if more connections have calls in
// flight than one tick looks at (PollCore::tick()), but it is never too short. New calls are at the
// front of the list.
void Caller::Impl::set_deadlines(uint64_t now_ns) noexcept {
  RRDK_ON_CORE(core_);
  uint64_t earliest = UINT64_MAX;
  for (Call::Impl& call : in_engine_) {
    if (call.timed)
      break;
    call.timed = true;
    if (call.timeout_ms == 0)
      continue;
    call.deadline_ns = now_ns + uint64_t{call.timeout_ms} * 1'000'000;
    earliest = std::min(earliest, call.deadline_ns);
  }
  if (earliest != UINT64_MAX)
    carrier_->engine().requester().note_deadline(earliest);
}

void Caller::Impl::cancel(Call::Impl& call) noexcept {
  call.cancel_wanted.store(true, std::memory_order_relaxed);
  if (core().here()) {
    stop(call);
    return;
  }
  if (!call.cancelling.ask(call.serial.load(std::memory_order_relaxed)))
    return;
  call.cancelling.run = [](WorkItem& item) {
    auto& cancelling = static_cast<Call::Impl::Cancel&>(item);
    Call::Impl& its = *cancelling.call;
    Impl& caller = its.caller;
    uint64_t meant = cancelling.meant.load(std::memory_order_acquire);
    do {
      if (its.serial.load(std::memory_order_relaxed) == meant)
        caller.stop(its);
    } while (!cancelling.end(meant));
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().submit(call.cancelling);
}

void Caller::Impl::stop(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  if (call.phase == Call::Impl::Phase::kWaiting) {
    stop_keeping(call);
    return end_later(call, CallStatus::kCancelled);
  }
  if (call.phase != Call::Impl::Phase::kEngine)
    return;  // it has ended, or start() will see what is wanted
  bool outer = std::exchange(deferring_, true);
  carrier_->engine().cancel(call);
  deferring_ = outer;
  core_.mark_dirty(*carrier_);
}

void Caller::Impl::stop_all() noexcept {
  for (Call::Impl& call : in_engine_)
    stop(call);
}

// Whether the engine has refused to send the call, at least this time. kAuthError is seal()'s.
static bool is_unsent(CallStatus status) noexcept {
  return status == CallStatus::kNoMemory || status == CallStatus::kTooLarge ||
         status == CallStatus::kAuthError;
}

CallStatus Caller::Impl::ended_status(Call::Impl& call) noexcept {
  CallStatus status = call.status;
  if (status == CallStatus::kOk) [[likely]] {
    call.decoder = Decoder(call.reply, call.placed);
    if (!rpc::decode_reply(call.decoder, call.reply_header)) {
      carrier_->engine().count_refusal(Refusal::kBadReplyHeader);
      return CallStatus::kMalformedReply;
    }
    return call.secured ? open_reply(call) : rpc::call_status(call.reply_header);
  }
  if (is_unsent(status) && call.resend)
    return CallStatus::kConnectionLost;  // an earlier connection has carried it
  bool by_us = status == CallStatus::kCancelled || status == CallStatus::kConnectionLost;
  return by_us && shutting_down ? CallStatus::kShutdown : status;
}

void Caller::Impl::ended(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(call.phase == Call::Impl::Phase::kEngine && carrier_ != nullptr, call.phase);
  in_engine_.remove(call);
  if (call.secured) [[unlikely]]
    give_back_number(call);
  if (call.status == CallStatus::kConnectionLost && take_back(call)) [[unlikely]]
    return;
  CallStatus status = ended_status(call);
  if (call.secured) [[unlikely]] {
    if (take_denied(call, status))
      return;
    call.protection->session.reset();  // the call may be idle for long
  }
  if (call.status == CallStatus::kOk) [[likely]] {
    engine::Requester& requester = carrier_->engine().requester();
    requester.give_arguments(call.message);
    if (call.secured) [[unlikely]]
      requester.give_arguments(call.protection->clear);
  }
  // A callback may submit the call again at once. While the engine starts those that wait, it would
  // never come to an end with calls that it refuses.
  if (deferring_ || is_unsent(call.status)) [[unlikely]]
    return end_later(call, status);
  call.status = status;
  deliver(call);
}

void Caller::Impl::end_later(Call::Impl& call, CallStatus status) noexcept {
  RRDK_ASSERT(call.phase != Call::Impl::Phase::kEnded && call.in_flight.load());
  bool closing = shutting_down && status == CallStatus::kConnectionLost;
  call.status = closing ? CallStatus::kShutdown : status;
  call.phase = Call::Impl::Phase::kEnded;
  call.run = [](WorkItem& item) {
    auto& ended = static_cast<Call::Impl&>(item);
    Impl& caller = ended.caller;
    caller.deliver(ended);
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().defer(call);
}

// What few calls have.
void Caller::Impl::end_extras(Call::Impl& call) noexcept {
  if (auto* const released = std::exchange(call.released, nullptr))
    released(call.released_argument);
  if (std::exchange(call.has_place, false)) {
    outstanding_.fetch_sub(1, std::memory_order_seq_cst);
    note_room();
  }
  if (std::exchange(call.intercepted, false))
    tell_interceptor(call);
}

namespace {

CallIdentity identity_of(const Call::Impl& call) noexcept {
  const Caller::Impl& caller = call.caller;
  CallIdentity identity = {.address = caller.address().c_str(),
                           .core = caller.core().index(),
                           .program = call.program,
                           .version = call.version,
                           .procedure = call.procedure.load(std::memory_order_relaxed)};
  if (call.credential == nullptr)
    return identity;
  if (call.credential->initiator() != nullptr) {  // each call of a context has another body
    identity.flavor = AuthFlavor::kRpcsecGss;
    return identity;
  }
  // The flavour and the length, then the body (RFC 5531 section 8.2).
  const std::span<const std::byte> bytes = call.credential->bytes();
  identity.flavor = static_cast<AuthFlavor>(xdr::load_u32(bytes.data()));
  identity.credential = bytes.subspan(8, xdr::load_u32(bytes.data() + 4));
  return identity;
}

}  // namespace

void Caller::Impl::ask_interceptor(Call::Impl& call) noexcept {
  if ((gate_.load(std::memory_order_relaxed) & kIntercepted) == 0)
    return;
  const CallInterceptor& its = defaults.interceptor;
  call.note = 0;
  call.has_extras = call.intercepted = true;
  if (its.before == nullptr)
    return;
  const CallStatus said = its.before(identity_of(call), call.note, its.context);
  if (said == CallStatus::kOk)
    return;
  call.bad_room = said == CallStatus::kFull ? CallStatus::kCancelled : said;
  call.reply_planned = false;  // so that submit() looks
}

void Caller::Impl::tell_interceptor(Call::Impl& call) noexcept {
  const CallInterceptor& its = defaults.interceptor;
  if (its.after == nullptr)
    return;
  CallIdentity identity = identity_of(call);
  if (call.sent || call.resend || call.mended)
    identity.xid = call.xid;
  CallOutcome outcome = {.status = call.status};
  if (call.status == CallStatus::kAuthError)
    outcome.auth_stat = call.reply_header.auth_stat;
  its.after(identity, outcome, call.note, its.context);
}

// The only place where a call ends. The callback may begin the call again or destroy its Call; the
// Impl remains until we have returned. Other threads may use it as soon as `delivering` is false.
// Memory that is no longer lent to the peer (engine/requester.cc) is released first.
void Caller::Impl::deliver(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(call.phase >= Call::Impl::Phase::kEngine && call.in_flight.load(), call.phase);
  if (call.has_extras) [[unlikely]]
    end_extras(call);
  ++(call.status == CallStatus::kOk ? counters_.calls_ok : counters_.calls_failed);
  counters_.calls_timed_out += call.status == CallStatus::kTimeout;
  call.phase = Call::Impl::Phase::kIdle;
  Completion completion = call.completion.load(std::memory_order_relaxed);
  void* argument = call.argument;
  engine::StageRecord* const stages = std::exchange(call.stages, nullptr);
  runtime::CalledProgram* called = nullptr;
  if (stages != nullptr) [[unlikely]] {
    stages->stamp(Stage::kCalled);
    stages->name(carrier_ != nullptr ? carrier_->id() : 0, call.program, call.version,
                 call.procedure.load(std::memory_order_relaxed));
    called = call.called;
    call.stamped = stages;
  }
  call.delivering.store(true, std::memory_order_relaxed);
  call.in_flight.store(false, std::memory_order_release);
  completion(call.owner, argument);
  if (stages != nullptr) [[unlikely]] {
    call.stamped = nullptr;
    stages->stamp(Stage::kEnded);
    if (called != nullptr)
      called->note(*stages);
    stages->complete();
  }
  call.delivering.store(false, std::memory_order_release);
}

}  // namespace rrdk

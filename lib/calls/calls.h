// The implementation of rrdk::Call and rrdk::Caller.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/list.h"
#include "base/rcu.h"
#include "engine/connection.h"
#include "gss/initiator.h"
#include "gss/session.h"
#include "rpc/headers_datapath.h"
#include "rrdk/call.h"
#include "rrdk/interceptor.h"
#include "runtime/link.h"
#include "runtime/open_device.h"
#include "runtime/poll_core.h"
#include "runtime/runtime_impl.h"
#include "runtime/timers.h"
#include "runtime/work.h"

namespace rrdk {

// The completion of a call whose end is not reported.
inline void no_callback(Call&, void*) {}

// What submit_and_wait() sleeps on, a second at a time, since std::atomic::wait() has no time
// limit. The kernel is entered only for a waiter that sleeps.
class CallEnd {
 public:
  void expect() noexcept { state_.store(kAwake, std::memory_order_relaxed); }
  bool is_here() const noexcept { return state_.load(std::memory_order_acquire) == kEnded; }
  void tell() noexcept;
  // Returns false if the call has not ended within a second.
  bool wait() noexcept;

 private:
  static constexpr uint32_t kAwake = 0;
  static constexpr uint32_t kAsleep = 1;
  static constexpr uint32_t kEnded = 2;
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> state_ = kAwake;
};

// The implementation of a Call.
//
//   phase      who has the call                  waits for
//   kIdle      its caller, or the core's inbox   submit(), then the core's next pass
//   kWaiting   the Caller::Impl                  a connection, deadline, cancel or its giving up
//   kEngine    the engine                        reply, deadline, cancel or the connection's end
//   kEnded     the core's deferred ends          the core's next pass, then the callback
//
// A call whose connection is lost returns from kEngine to kWaiting if the policy says so.
//
// The object can outlive its Call: if that is destroyed in a pass of its core, the object is
// destroyed when it is no longer busy().
//
// It is one object with the engine's record of the call, which comes first. A plain call touches
// the members of that before `chunks`, and of this those between `owner` and `caller_held`: nine
// cache lines, and one more if the call comes from another thread.
struct Call::Impl : engine::OutgoingCall, runtime::WorkItem {
  enum class Phase : uint8_t { kIdle, kWaiting, kEngine, kEnded };
  // What begin() returns if it refuses.
  struct Refused {
    explicit Refused(Memory& memory) : encoder(message, memory, 0, 0) { encoder.fail(); }
    Message message;
    Encoder encoder;
  };
  struct DestroyRequest : runtime::WorkItem {
    Impl* call = nullptr;
  };
  // A cancellation passes through the inbox as an item of its own, since the call's item may be
  // there. While the core handles it, the callback may have made the next call, and that call may
  // be cancelled, too. So the call that is meant, and whether the item is queued, are one word.
  struct Cancel : runtime::WorkItem {
    // Any thread. Returns true if the item must be put into the inbox. Returns false if it is
    // already there, is being handled, or if a later call is meant: a late request must not take
    // that one's place. The word is written even if it stays the same, so that the core sees
    // `cancel_wanted`.
    bool ask(uint64_t submitted) noexcept {
      uint64_t before = meant.load(std::memory_order_relaxed);
      while (before <= submitted &&
             !meant.compare_exchange_weak(before, submitted, std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
      }
      return before == 0;
    }
    // Called by the core when it has handled `looked_at`. Returns false if another call is meant by
    // now.
    bool end(uint64_t& looked_at) noexcept {
      return meant.compare_exchange_strong(looked_at, 0, std::memory_order_acq_rel);
    }

    Impl* call = nullptr;
    std::atomic<uint64_t> meant = 0;  // serial of the call; 0: the item is not queued
  };

  Impl(Call& owner_in, std::shared_ptr<Caller::Impl> caller_in)
      : owner(owner_in), caller(*caller_in), caller_held(std::move(caller_in)) {
    cancelling.call = this;
    destroy_request.call = this;
  }

  // Whether a thread may still access the object: from submit() until the callback has returned,
  // and while a cancel() is queued.
  bool busy() const noexcept {
    return is_in_flight() || cancelling.meant.load(std::memory_order_acquire) != 0;
  }
  bool is_in_flight() const noexcept {
    // In this order, since deliver() sets the second before it clears the first.
    return in_flight.load(std::memory_order_acquire) || delivering.load(std::memory_order_acquire);
  }

  bool is_for(const Binding& its, uint32_t its_procedure) const noexcept;
  [[gnu::noinline]] void begin_anew(const Binding& its, uint32_t its_procedure) noexcept;
  void begin_secured() noexcept;  // secured.cc
  // Whether a security context protects arguments and results as a whole.
  bool protects_body() const noexcept {
    return secured && credential->initiator()->protection != gss::Protection::kNone;
  }
  // The length of the header that begin() has written.
  uint32_t header_bytes() const noexcept {
    return secured ? rpc::kCallTargetBytes + protection->blank_bytes : head;
  }
  void drop_extras() noexcept;
  // `own`: its own credential, null for AUTH_NONE; else the caller's.
  bool use_credential(std::shared_ptr<const rpc::PreparedAuth> wanted, bool own) noexcept;
  Impl* add_extra() noexcept;
  Impl* add_to_reply() noexcept;
  bool has_space(size_t segments) noexcept;
  void add_room(std::span<const MemorySpan> segments) noexcept;
  void add_room(Buffer room, uint32_t length) noexcept;
  // Whether the call may be sent; otherwise why not.
  CallStatus check() noexcept;
  void plan_reply() noexcept;
  // The memory that is offered for results.
  std::span<const MemorySpan> offered() const noexcept {
    return num_spans != 0 ? std::span(chunks->spans).first(num_spans)
                          : std::span<const MemorySpan>();
  }
  void cancel_quietly() noexcept;
  void abandon() noexcept;
  CallStatus wait_for_end();
  // Refuses a misuse.
  Encoder& refuse_begin() noexcept;
  bool refuse_credential() noexcept;
  bool refuse_submit() noexcept;
  bool pass_gate() noexcept;
  bool submit_unfinished() noexcept;
  void refuse_retired() noexcept;
  void refuse_in_child() noexcept;

  alignas(64) Call& owner;
  Caller::Impl& caller;
  std::optional<Encoder> args;
  Decoder decoder;          // of the results
  base::Links<Impl> links;  // in the caller's list that has the call
  std::atomic<Completion> completion = nullptr;
  void* argument = nullptr;
  std::atomic<uint64_t> serial = 0;  // of submissions, from 1 on

  // The call that is being made. Its first `head` bytes are also those of the last call, if that
  // was made with the same binding, procedure and credential.
  uint32_t head = 0;     // 0: no such bytes
  uint32_t program = 0;  // and version, of the header
  uint32_t version = 0;
  std::atomic<uint32_t> procedure = 0;
  std::atomic<const Binding*> binding = nullptr;
  const ProcedureBinding* checked_procedures = nullptr;  // of that binding, as it was checked
  uint64_t credential_version = 0;                       // the caller's, as of the last begin()
  uint32_t timeout_ms = 0;
  Phase phase = Phase::kIdle;
  bool begun = false;      // and not submitted since
  bool has_extras = true;  // begin() must undo something: offers, or the effect of a set_...()
  // As it is for calls that offer no memory and carry no bytes of their own.
  bool reply_planned = false;
  bool retransmit = false;
  bool timed = false;  // seen since submit(): its deadline is set, if it has one
  // Callers see whether it is in flight; only the core uses the phase.
  std::atomic<bool> in_flight = false;   // until the callback begins
  std::atomic<bool> delivering = false;  // until it has returned
  std::atomic<bool> abandoned = false;   // its Call is being destroyed: no callback any more
  std::atomic<bool> given_up = false;    // by Call::abandon(): destroying it is no mistake
  std::atomic<bool> cancel_wanted = false;

  // Few calls need the members below.
  const std::shared_ptr<Caller::Impl> caller_held;  // it may be retired()
  const engine::StageRecord* stamped = nullptr;     // in the callback of a sampled call
  rpc::ReplyHeader reply_header;
  const ProcedureBinding* entry = nullptr;  // of the procedure; null: it has none
  // The counters of its sampled calls, as of the last check of the binding; null: not counted.
  runtime::CalledProgram* called = nullptr;
  std::shared_ptr<const rpc::PreparedAuth> credential;
  uint64_t variable_reply = 0;
  uint32_t growth = 0;              // of the transformed reply
  uint32_t num_spans = 0;           // of the memory that is offered, in chunks->spans
  uint8_t num_rooms = 0;            // offered, in chunks->results
  uint8_t waits_given_up = 0;       // see `ends`
  bool has_own_credential = false;  // else the caller's
  bool binding_ok = false;
  bool transformed = false;  // forbid_ddp()
  bool has_place = false;    // in its caller's bound; deliver() gives it back
  bool intercepted = false;  // deliver() tells its caller's interceptor
  bool by_renewal = false;   // the library's: it needs no place, and no interceptor sees it
  // Why it is not sent: the memory that was offered, or the interceptor.
  CallStatus bad_room = CallStatus::kOk;
  Cancel cancelling;
  DestroyRequest destroy_request;
  // For submit_and_wait(), alternately: a wait that gives up leaves its CallEnd to the callback,
  // which the core may be about to run, and the next wait uses the other one. A call cannot be
  // submitted before the callback of its last submission but one has returned.
  std::array<CallEnd, 2> ends;
  uint64_t note = 0;                               // of the interceptor
  std::unique_ptr<gss::ProtectedCall> protection;  // null: it was never needed
  CallEnd& end() noexcept { return ends[waits_given_up % ends.size()]; }
  std::unique_ptr<Refused> refused;
};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(Call::Impl, caller_held) - offsetof(Call::Impl, owner) <= 288 &&
              offsetof(Call::Impl, owner) <= 320 && sizeof(Call::Impl) <= 896);
#pragma GCC diagnostic pop

// Calls of one Caller; only on its core's thread. A call is in one list at a time.
using CallList = base::List<Call::Impl, &Call::Impl::links>;

namespace calls {

// Used for each call that does not set its own.
struct Defaults {
  uint32_t timeout_ms;
  bool retransmit;
  uint32_t inline_size;
  uint64_t max_call;
  uint32_t credits = 0;
  uint32_t max_queued = UINT32_MAX;  // no bound
  CallInterceptor interceptor = {};
};

// A call of procedure 0.
struct NullCall {
  uint32_t program = 0;
  uint32_t version = 0;
  uint64_t max_reply = 0;
};
NullCall null_call_of(const Binding& binding) noexcept;

class PlainCalls;  // plain_calls.h

// What the core counts for a caller's calls.
struct Counters {
#define RRDK_CALLER_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
  base::SharedCount calls_full;  // by the threads that submit

  void add_to(Stats& sum) const noexcept {
    sum.add(Counter::kCallsFull, calls_full);
#define RRDK_CALLER_COUNTER(id, enumerator, name, text) sum.add(Counter::k##enumerator, name);
#include "rrdk/counter_table.h"
  }
};

}  // namespace calls

// The calls of one end of a connection, from their submit() to their callbacks, and what they have
// in common.
//
//   up_       carrier_   what becomes of a call
//   a link    the same   submit() gives it to that link's engine
//   null      a link     that engine gives back the calls that it has; new ones do without
//   null      null       they do without: the derived class decides whether they may wait
struct Caller::Impl {
  // `device` may be set later.
  Impl(Runtime::Impl& runtime_in, runtime::PollCore& core, const runtime::OpenDevice* device,
       std::string address, const calls::Defaults& defaults_in)
      : runtime(runtime_in),
        memory(runtime_in.memory),
        defaults(defaults_in),
        gate_(gate_for(defaults_in)),
        runtime_use_(std::in_place, runtime_in),
        core_(core),
        device_(device),
        address_(std::move(address)) {
    failing_timer_.caller = this;
    room_item_.caller = this;
  }
  virtual ~Impl() = default;

  // Whether calls pass without further ado. Any thread.
  bool open() const noexcept { return gate_.load(std::memory_order_relaxed) == 0; }
  // Its connection has been destroyed: nothing of the runtime may be touched. Calls hold this
  // object, so that late calls find this out. Any thread.
  bool retired() const noexcept { return (gate_.load(std::memory_order_relaxed) & kRetired) != 0; }

  // Whether calls can be made. Any thread.
  virtual bool alive() const noexcept = 0;
  runtime::PollCore& core() const noexcept { return core_; }
  const std::string& address() const noexcept { return address_; }

  void set_credential(std::shared_ptr<const rpc::PreparedAuth> credential);
  uint64_t credential_version() const noexcept {
    return credential_version_.load(std::memory_order_acquire);
  }
  void take_credential(Call::Impl& call);  // the present one
  std::shared_ptr<const rpc::PreparedAuth> credential();
  // Returns what check() says about the binding, determined at its first use.
  // Sets `called` to the counters of its sampled calls, or to null.
  bool accepts(const Binding& binding, runtime::CalledProgram*& called);
  // The program's mistakes; each is logged once per connection.
  enum Mistake : uint32_t {
    kBeginInFlight = 1,
    kSubmitInFlight = 2,
    kNotBegun = 4,
    kWaitInPass = 8,
    kNoConnection = 16,
    kOutOfReach = 32,
    kOfParent = 64,
    kDestroyedInFlight = 128,
    kCredentialInFlight = 256,
  };
  bool is_first(Mistake mistake) noexcept;
  void complain(Mistake mistake, const char* what);
  // Whether the device can use the memory of items and offers; true while the device is not known.
  bool reaches(const Call::Impl& call);
  // Owns a call whose Call is gone until nothing refers to it any more.
  void keep_until_ended(std::unique_ptr<Call::Impl> call) noexcept;

  // Any thread.
  void submit(Call::Impl& call) noexcept;
  void cancel(Call::Impl& call) noexcept;
  const calls::Counters& counters() const noexcept { return counters_; }

  // Any thread: the bound on waiting calls (room_datapath.cc).
  uint32_t room() noexcept;
  void on_room(uint32_t mark, RoomCallback callback, void* argument) noexcept;
  // Returns false, and the call has kFull, if the bound is reached.
  bool take_place(Call::Impl& call) noexcept;
  // The call cannot be made for want of memory. Returns true if others may give some back.
  bool may_wait_for_memory(Call::Impl& call) noexcept;
  // Asks the interceptor, if there is one, about a call that submit() takes.
  void ask_interceptor(Call::Impl& call) noexcept;

  // Whether a submitted call has no deadline yet. The core's thread.
  bool has_untimed() const noexcept {
    return in_engine_.front() != nullptr && !in_engine_.front()->timed;
  }

  // The core's thread: the events that its Link reports.
  void ended(Call::Impl& call) noexcept;
  // secured.cc
  CallStatus seal(Call::Impl& call) noexcept;
  // Also when the credits or the connection have changed, or a call has ended.
  void note_room() noexcept {
    if (is_bounded()) [[unlikely]]
      look_at_room();
  }
  // Sets the deadlines of calls that have none yet; they count from here on.
  void set_deadlines(uint64_t now_ns) noexcept;

  Runtime::Impl& runtime;
  Memory& memory;
  const calls::Defaults defaults;

 protected:
  // The last thing that its owner does with it, once it has left its core.
  void retire() noexcept {
    RRDK_ASSERT(unused());
    gate_.fetch_or(kRetired, std::memory_order_relaxed);
    runtime_use_.reset();
  }
  // The core's thread.
  void set_device(const runtime::OpenDevice& device) noexcept {
    device_.store(&device, std::memory_order_release);
  }
  // `plain`: of its lane; null: it has none.
  void use(runtime::Link& link, calls::PlainCalls* plain = nullptr) noexcept {
    RRDK_ON_CORE(core_);
    RRDK_ASSERT(up_ == nullptr && (carrier_ == nullptr || carrier_ == &link));
    up_ = carrier_ = &link;
    plain_ = plain;
    note_room();
  }
  // No further calls go to the link, and its calls end. Returns false if there was no link.
  bool lose() noexcept {
    plain_ = nullptr;
    const bool was_up = std::exchange(up_, nullptr) != nullptr;
    note_room();
    return was_up;
  }
  void forget() noexcept {  // its engine has given back all calls
    RRDK_ON_CORE(core_);
    RRDK_ASSERT(up_ == nullptr && in_engine_.empty());
    carrier_ = nullptr;
    if (auto path = std::exchange(path_, nullptr))
      path->end();
  }
  bool is_up() const noexcept { return up_ != nullptr; }
  runtime::Link* up() const noexcept { return up_; }  // the link that carries new calls; null: none
  void to_engine(Call::Impl& call) noexcept;
  void end_later(Call::Impl& call, CallStatus status) noexcept;
  // There is no connection and will be none: ends the call in a millisecond, so that a program that
  // submits again from its callbacks does not keep the core busy with that.
  void end_unconnected(Call::Impl& call) noexcept;
  void stop_all() noexcept;  // cancels what the engine has
  // Whether no items of ours are in the core's inbox or among its deferred ones. Any thread.
  bool unused() const noexcept { return queued_.load(std::memory_order_acquire) == 0; }
  // The NULL call of the last binding that check() accepted. The binding itself may be gone.
  std::optional<calls::NullCall> last_null_call() const noexcept;

  // Calls that end because of us, or for lack of a connection, get kShutdown.
  bool shutting_down = false;
  std::shared_ptr<gss::Path> path_;  // the carrier's; null: no context has used it

 private:
  friend class calls::PlainCalls;
  // The destination of the calls, as metrics name it: one of a small number.
  virtual std::string target() const { return address_.substr(0, address_.find('?')); }
  // Whether a new call would wait for a connection.
  virtual bool waits_unconnected() const noexcept { return false; }
  // Called for a new call when there is no link.
  virtual void start_without_link(Call::Impl& call) noexcept;
  // Returns true if it keeps a call that has lost its connection, for the next connection.
  virtual bool take_back(Call::Impl&) noexcept { return false; }
  // The same for a call whose security context the server has forgotten: for another context.
  virtual bool wait_for_context(Call::Impl&) noexcept { return false; }
  // Ends contexts that its calls have used; null: it does not.
  virtual gss::Path::Owner* context_owner() noexcept { return nullptr; }
  // Called when such calls must not be kept any longer.
  virtual void stop_keeping(Call::Impl&) noexcept {}

  void start(Call::Impl& call) noexcept;
  void stop(Call::Impl& call) noexcept;
  void deliver(Call::Impl& call) noexcept;
  void end_failing() noexcept;
  CallStatus ended_status(Call::Impl& call) noexcept;
  // secured.cc: of a call that the server has answered.
  CallStatus number(Call::Impl& call) noexcept;
  void give_back_number(Call::Impl& call) noexcept;
  CallStatus open_reply(Call::Impl& call) noexcept;
  // secured.cc: returns true if the call could not use its context, and waits for another one.
  bool take_denied(Call::Impl& call, CallStatus status) noexcept;
  void end_extras(Call::Impl& call) noexcept;
  void tell_interceptor(Call::Impl& call) noexcept;
  bool is_bounded() const noexcept {
    return (gate_.load(std::memory_order_relaxed) & kBounded) != 0;
  }
  // room_datapath.cc
  void look_at_room() noexcept;
  void note_credits() noexcept;
  uint64_t places() const noexcept;
  uint32_t free_places() const noexcept;
  bool is_roomy() const noexcept;
  void want_room(bool after_an_end) noexcept;
  void tell_room_later() noexcept;
  void tell_room() noexcept;

  struct RoomItem : runtime::WorkItem {
    Impl* caller = nullptr;
  };
  struct FailingTimer : runtime::Timer {
    Impl* caller = nullptr;
  };

  // Why submit() has more to do than to submit: bits.
  static constexpr uint8_t kRetired = 1;
  static constexpr uint8_t kBounded = 2;
  static constexpr uint8_t kIntercepted = 4;
  static uint8_t gate_for(const calls::Defaults& defaults) noexcept {
    const bool is_intercepted =
        defaults.interceptor.before != nullptr || defaults.interceptor.after != nullptr;
    return static_cast<uint8_t>((defaults.max_queued != UINT32_MAX ? kBounded : 0) |
                                (is_intercepted ? kIntercepted : 0));
  }
  std::atomic<uint8_t> gate_;
  std::optional<runtime::RuntimeUse> runtime_use_;
  runtime::PollCore& core_;
  std::atomic<const runtime::OpenDevice*> device_;
  const std::string address_;
  // A call takes its share of the credential only if the version has changed, so that old ones are
  // freed.
  std::atomic<uint64_t> credential_version_ = 0;
  std::mutex credential_mutex_;
  std::shared_ptr<const rpc::PreparedAuth> credential_;
  // A binding as it was when it was checked: another binding may have its address by now.
  struct Checked {
    const Binding* binding;
    std::span<const ProcedureBinding> procedures;
    calls::NullCall null_call;
    runtime::CalledProgram* called;  // of the calls that are sampled; null: they are not counted
    bool ok;

    bool is(const Binding& other) const noexcept;
  };
  // Newest first, and at most kMostChecked, since a program may make any number of bindings.
  // Readers need no lock.
  struct CheckedOnes : base::Retired {
    std::vector<Checked> all;
  };
  static constexpr size_t kMostChecked = 256;
  // Within a read section.
  const Checked* find(const Binding& binding) const noexcept;
  std::atomic<const CheckedOnes*> checked_ = nullptr;
  std::mutex checked_mutex_;
  std::unique_ptr<CheckedOnes> checked_ones_;
  std::atomic<uint32_t> complained_ = 0;

  // For the core's thread only.
  runtime::Link* up_ = nullptr;
  runtime::Link* carrier_ = nullptr;  // the link whose engine has the calls in in_engine_
  calls::PlainCalls* plain_ = nullptr;
  CallList in_engine_;
  CallList failing_;  // have ended for lack of a connection; their callbacks come with the timer
  FailingTimer failing_timer_;
  // An end that is reported now comes from within submit() or cancel(). It is deferred to the next
  // pass, so that callbacks do not nest.
  bool deferring_ = false;

  // Items of ours in the core's inbox or among its deferred ones.
  std::atomic<uint32_t> queued_ = 0;
  calls::Counters counters_;

  // Of a caller with a bound; any thread.
  std::atomic<uint32_t> outstanding_ = 0;     // calls with a place
  std::atomic<uint32_t> credits_ = 0;         // for them, as the core saw it last
  std::atomic<bool> room_wanted_ = false;     // on_room() is to be called
  std::atomic<bool> room_item_used_ = false;  // it is on its way
  std::atomic<uint32_t> room_mark_ = 1;
  std::mutex room_mutex_;  // for the next two
  RoomCallback room_callback_ = nullptr;
  void* room_argument_ = nullptr;
  RoomItem room_item_;
};

}  // namespace rrdk

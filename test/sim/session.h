// One connection from its set-up until nothing is left: the engines of requester and responder,
// their queue pairs, and the state of the calls between them.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "engine/connection.h"
#include "engine/receive_queue.h"
#include "engine/served_call.h"
#include "queue_pair.h"
#include "server/replay_cache.h"
#include "service/dispatcher.h"
#include "traffic.h"
#include "weather.h"
#include "wire.h"

namespace rrdk::sim {

class Session;
class End;

// What a world is told about its sessions.
class SessionOwner {
 public:
  virtual void on_ended(Call& call) = 0;
  // One of its ends is idle, and destroyed.
  virtual void on_buried(Session& session) = 0;
  virtual bool ticks() const = 0;
  // The active call of that end with this XID on this connection, or null.
  virtual Call* call_of(const Session& session, engine::Role caller, uint32_t xid) = 0;

 protected:
  ~SessionOwner() = default;
};

// Receives that all responders take.
struct SharedReceives {
  SharedReceives(Memory& memory, uint32_t most)
      : queue(memory, most, 4096, engine::ReceiveQueue::Users::kMany) {}

  engine::ReceiveQueue queue;
  std::deque<fabric::ReceiveWr> posted;
};

// Shared by the sessions of one world.
struct Surroundings {
  Context& context;
  const Weather& weather;
  Traffic& traffic;
  SessionOwner& owner;
  Memory& requester_memory;
  Memory& responder_memory;
  engine::CallPool& requester_calls;
  engine::CallPool& responder_calls;
  server::ReplayCache* replays;  // null: calls may run twice
  SharedReceives* receives;      // null: each responder has its own
};

// A call at the responder that is to run once.
struct OnceCall : engine::ServedCall {
  engine::ServedCall* served;  // the engine's
  End* end;
  Shape* shape;
  uint64_t number;
};

class End final : public engine::Upcalls, public QueuePairOwner, public Actor {
 public:
  End(Session& session, engine::Role role, const engine::ConnectionOptions& options,
      uint32_t reads);

  bool prepare();
  void connect(End& peer);
  void hang_up(const char* why);
  void give_up();  // before it was connected
  // The XIDs of an earlier connection.
  void continue_xids(std::span<const uint32_t> last) { engine_->requester().continue_xids(last); }
  const std::vector<uint32_t>& last_xids() const { return last_xids_; }  // if it is not alive

  // The upper layer's requests.
  void submit(Call& call);
  void cancel(Call& call);
  void grant(uint32_t credits);
  void drain();
  // For either end: asks the peer for other receive sizes, or makes its own larger.
  void change_receives(uint32_t bytes);

  bool alive() const { return engine_ != nullptr; }
  bool healthy() const { return alive() && engine_->established() && !hanging_up_; }
  bool lost() const { return queue_pair_.in_error(); }
  QueuePair& queue_pair() { return queue_pair_; }
  const engine::Connection* engine() const { return engine_.get(); }
  const std::string& name() const { return name_; }
  size_t held() const { return held_.size(); }

  // Upcalls
  void on_call(engine::ServedCall& call) override;
  void on_call_ended(engine::OutgoingCall& call) override;
  // QueuePairOwner
  About on_send(std::span<const std::byte> message) override;
  bool given_up(const Key& key) override;
  void on_reports(std::span<const Report> reports) override;
  void on_queue_pair_error() override;

  void on_event(uint32_t what, uint64_t argument) override;

 private:
  enum Event : uint32_t {
    kEstablish,
    kBreak,
    kDisconnected,
    kPost,
    kAnswer,
    kHangUp,
    kTick,
    kTurn,
    kWake
  };
  struct Held {
    uint64_t number;
    engine::ServedCall* call;
    Shape* shape;
  };
  // A call to be told when the peer no longer uses its memory.
  struct Lent {
    End* end;
    bool out = false;  // it has ended, and was not told yet
    uint32_t xid = 0;
    uint32_t serial = 0;
    std::vector<Guarded> room = {};
  };

  // A lent call that has ended, and was not posted yet.
  struct Unsent {
    uint32_t xid;
    uint32_t serial;
    uint64_t lent_until_ns;
  };

  template <typename Use>
  void use_engine(Use&& use);
  void settle();
  void look();
  void post();
  void refill(uint64_t turns);
  void note(std::span<const Report> reports);
  void note_properties(const Report& report);
  void check_reason();
  void check_receives();
  void check_promises();
  void check_keys(uint32_t xid, uint32_t serial, std::span<const Guarded> rooms);
  void on_released(Lent& lent);
  void note_call(std::span<const std::byte> message);
  void note_late_call(Wire::Record& record);
  void lend(Wire::Record& record, uint64_t until_ns);
  uint64_t lent_until_ns() const;
  void keep_lent(Call& call);
  void note_end(Wire::Record& record, bool given_up);
  void destroy();
  void answer(engine::ServedCall& call, Shape& shape);
  // once.cc: as ServerLink does it
  bool begin_once(engine::ServedCall& call, Shape& shape);
  void end_once(engine::ServedCall& call, bool dropped);
  void answer_again(OnceCall& call);
  void refuse_unprotected(engine::ServedCall& call, Shape& shape);
  void wake(uint64_t number);
  void release_waiting();
  void leave_cache();
  bool is_requester() const { return role_ == engine::Role::kRequester; }
  // The state of the calls that this end makes, and of those that it takes.
  Wire& own();
  Wire& theirs();

  Session& session_;
  Context& context_;
  engine::Role role_;
  std::string name_;
  uint32_t reads_;
  const engine::SharedOptions options_;
  std::optional<proto::Wire> draft_;  // of version 2 that it supports
  QueuePair queue_pair_;
  engine::ClientShare share_;
  std::unique_ptr<engine::Connection> engine_;
  End* peer_ = nullptr;
  uint32_t depth_ = 0;  // of calls into the engine
  bool post_pending_ = false;
  bool hanging_up_ = false;
  bool turn_pending_ = false;
  bool saw_failure_ = false;  // a work request of ours failed
  bool dropped_ = false;      // the handler ended the connection
  bool drained_ = false;      // it takes no more calls
  // During the last use of the engine, at most and at least, whatever the order of its events.
  uint32_t most_zombies_ = 0;
  uint32_t least_window_ = 1;
  uint64_t numbers_ = 0;
  std::vector<Held> held_;
  server::ReplayLane* lane_ = nullptr;
  std::list<OnceCall> once_;
  std::vector<uint32_t> last_xids_;
  std::deque<Lent> lent_;
  std::vector<Unsent> unsent_;
  std::vector<fabric::Completion> completions_;
};

class Session {
 public:
  Session(Surroundings& around, uint32_t line, uint32_t life);

  // Returns false if there are not enough buffers; the session is then over.
  bool start();
  bool healthy() const { return requester_.healthy() && responder_.healthy(); }
  bool over() const { return !requester_.alive() && !responder_.alive(); }
  bool lost() const { return requester_.lost() || responder_.lost(); }
  End& requester() { return requester_; }
  End& responder() { return responder_; }
  Wire& wire(engine::Role caller) {
    return caller == engine::Role::kRequester ? forward_ : backward_;
  }
  End& end(engine::Role role) { return role == engine::Role::kRequester ? requester_ : responder_; }
  Surroundings& around() { return around_; }
  uint32_t line() const { return line_; }
  const std::string& name() const { return name_; }
  void stray();

 private:
  Surroundings& around_;
  uint32_t line_;
  std::string name_;
  engine::ConnectionOptions requester_options_;
  engine::ConnectionOptions responder_options_;
  Wire forward_;
  Wire backward_;
  End requester_;
  End responder_;
};

}  // namespace rrdk::sim

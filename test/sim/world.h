// One simulation: connections, the calls on them, faults; then a quiet time, in which everything
// must end and every connection must still work; then the end, after which nothing may be left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "context.h"
#include "rig.h"
#include "session.h"
#include "traffic.h"
#include "weather.h"

namespace rrdk::sim {

class World final : public SessionOwner, public Actor {
 public:
  World(Rig& rig, uint64_t seed, bool traced);
  ~World() = default;

  // Runs to the end. Returns an empty text if all was well, otherwise what was not.
  std::string run();
  uint64_t steps() const { return context_.schedule.steps(); }
  uint64_t calls() const { return ended_; }

  void on_ended(Call& call) override;
  void on_buried(Session& session) override;
  bool ticks() const override;
  Call* call_of(const Session& session, engine::Role caller, uint32_t xid) override;
  void on_event(uint32_t what, uint64_t argument) override;

 private:
  enum Event : uint32_t { kConnect, kSubmit, kFault };
  enum class Phase : uint8_t {
    kBusy,      // calls and faults
    kSettling,  // neither: calls in progress end, lost ones are made again
    kProving,   // a few calls on each connection, which must succeed
    kEnding,    // connections are closed
  };
  struct Line {
    Session* session = nullptr;  // null: between two
    uint32_t lives = 0;
    uint32_t proofs = 0;  // calls of kProving that succeeded
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<uint32_t> xids;  // where the last connection's ended
  };

  void connect(uint32_t line);
  void submit_next(uint32_t line);
  bool can_submit(const Call& call) const;
  void submit(Call& call, Shape& shape);
  void submit_again(Line& line);
  void repeat(Call& call);
  void fault();
  void cancel_one();
  void break_all();
  void change_credits(Session& session);
  void next_phase();
  void be_quiet();
  bool settled() const;
  void prove(Line& line);
  void end_all();
  bool done() const;
  void check_progress();
  void check_leftovers();
  std::string describe_waiting() const;
  Session* some_session();

  Context context_;
  Weather weather_;
  Rig& rig_;
  Traffic traffic_;
  std::unique_ptr<engine::CallPool> requester_calls_;
  std::unique_ptr<engine::CallPool> responder_calls_;
  server::ReplayCounters counters_;
  server::ReplayRoom room_;
  server::ReplayCache replays_;
  std::unique_ptr<SharedReceives> shared_receives_;  // null: not shared
  Surroundings around_;
  Phase phase_ = Phase::kBusy;
  uint32_t submitted_ = 0;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  uint32_t live_sessions_ = 0;
  uint64_t quiet_since_ = 0;  // steps
  uint64_t quiet_since_ns_ = 0;
  std::vector<Line> lines_;
  std::vector<std::unique_ptr<Session>> sessions_;  // all, since events may still refer to them
};

}  // namespace rrdk::sim

// The simulated fabric: one end of a reliable connection. Work requests are executed in order, each
// after a while; a Read's data arrives later; requests complete in posting order, some time after
// they were executed; completions are handed over in batches. A peer's accesses to memory are
// checked by key, bounds and right, and an action that no correct engine takes is a failure of the
// simulation.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "context.h"
#include "engine/connection.h"
#include "fabric/device.h"
#include "fabric/work.h"
#include "keys.h"

namespace rrdk::sim {

// The kind of a message between the engines: a call from its sender, an answer to one from the
// other end, or a message about the transport properties of draft-04.
enum class About : uint8_t { kCall, kAnswer, kProperties, kRefusedProperties };

// A completion, and the kind of the message with which it came.
struct Report {
  fabric::Completion completion;
  bool stray;  // a message that the fabric made up
  About about;
  uint32_t xid;
  uint32_t credits;
  uint64_t order;
};

class QueuePairOwner {
 public:
  // A Send is being posted; `message` is the gathered message.
  virtual About on_send(std::span<const std::byte> message) = 0;
  // Whether the call that showed this key to the peer was given up, so that its memory may be
  // fenced while the peer still uses it.
  virtual bool given_up(const Key& key) = 0;
  virtual void on_reports(std::span<const Report> reports) = 0;
  virtual void on_queue_pair_error() = 0;

 protected:
  ~QueuePairOwner() = default;
};

class QueuePair final : public fabric::RemoteKeys, public Actor {
 public:
  struct Limits {
    uint32_t send_wrs;
    uint32_t reads;
    uint32_t keys;
    uint32_t copied;  // bytes
  };
  QueuePair(Context& context, std::string name, QueuePairOwner& owner, const Limits& limits)
      : context_(context),
        name_(std::move(name)),
        owner_(owner),
        limits_(limits),
        keys_(limits.keys) {}

  // Messages take Receives that other queue pairs take, too.
  void share(std::deque<fabric::ReceiveWr>& receives) { shared_ = &receives; }
  void connect_to(QueuePair& peer) { peer_ = &peer; }
  void establish() { established_ = true; }
  // Takes the engine's requests, Receives first.
  void post(engine::Connection& engine);
  void post_receives(engine::Connection& engine);
  // Moves to the error state, and flushes everything. Idempotent.
  void fail(const char* why);
  // The next request that is executed fails.
  void arm_error() { armed_ = true; }
  void disarm() { armed_ = false; }
  // A message out of nowhere. Returns false if no Receive is posted.
  bool stray(std::span<const std::byte> message);

  bool in_error() const { return in_error_; }
  // Everything posted was reported.
  bool drained() const { return queue_.empty() && receives_.empty() && !has_reports(); }
  bool shares() const { return shared_ != nullptr; }
  // Shared Receives were taken and not reported yet.
  bool holds_receive() const { return shared_ != nullptr && has_reports(); }
  // The number of Receives that the engine believes to be posted.
  uint32_t receives_posted() const { return receives_given_ - receives_reported_; }
  // The smallest Receive that can still take a message; the largest number if there is no Receive.
  uint32_t smallest_receive() const;
  KeyTable& keys() { return keys_; }

  // RemoteKeys
  bool reserve_keys(std::span<uint32_t> keys) override;
  void release_key(uint32_t key) override;

  void on_event(uint32_t what, uint64_t argument) override;

 private:
  enum Event : uint32_t { kExecute, kDone, kPoll };
  enum class Outcome : uint8_t { kDone, kRetry, kFailed };
  struct Request {
    fabric::SendWr wr;
    uint64_t number = 0;  // in the order of posting
    About about = About::kCall;
    bool done = false;
    fabric::WcStatus status = fabric::WcStatus::kSuccess;
    std::vector<std::byte> data;  // of a Read that was executed and whose data has not arrived
  };

  void post_one(const fabric::SendWr& wr);
  void schedule_execution();
  void execute_next();
  fabric::WcStatus execute(Request& request, bool& retry);
  fabric::WcStatus send(const Request& request, bool& retry);
  fabric::WcStatus move(Request& request);
  fabric::WcStatus bind(const fabric::SendWr& wr);
  fabric::WcStatus invalidate(const fabric::SendWr& wr);
  fabric::WcStatus random_error(fabric::Op op);
  void land(Request& request, size_t bytes);
  void on_done(uint64_t number);
  void report_done();
  void report(const Report& report);
  void take_report();
  std::deque<fabric::ReceiveWr>& receives() { return shared_ != nullptr ? *shared_ : receives_; }
  bool has_reports() const { return !send_reports_.empty() || !receive_reports_.empty(); }
  void report_send(const fabric::SendWr& wr, fabric::WcStatus status);
  void report_receive(const fabric::ReceiveWr& wr, fabric::WcStatus status);
  void poll();
  void retire(const fabric::Completion& done);

  // For the peer.
  std::byte* access(uint32_t key, uint64_t address, uint32_t length, fabric::Rights rights);
  bool kill_key(uint32_t key);

  Context& context_;
  std::string name_;
  QueuePairOwner& owner_;
  Limits limits_;
  KeyTable keys_;
  QueuePair* peer_ = nullptr;
  bool established_ = false;
  bool in_error_ = false;
  bool armed_ = false;
  bool executing_ = false;
  bool polling_ = false;
  uint32_t strays_ = 0;
  uint32_t retries_ = 0;
  uint32_t reads_ = 0;
  uint32_t receives_given_ = 0;
  uint32_t receives_reported_ = 0;
  uint64_t first_ = 0;  // number of queue_.front()
  uint64_t next_ = 0;   // number of the next request to execute
  uint64_t posted_ = 0;
  uint64_t taken_effect_ = 0;
  std::deque<Request> queue_;               // posted, not yet reported
  std::deque<bool> slots_;                  // slots of the send queue in use: signaled?
  std::deque<fabric::ReceiveWr> receives_;  // its own
  std::deque<fabric::ReceiveWr>* shared_ = nullptr;
  // Each in order; RC promises nothing about the order between the two.
  std::deque<Report> send_reports_;
  std::deque<Report> receive_reports_;
  uint64_t reported_ = 0;
  std::vector<std::byte> message_;
  std::vector<Report> batch_;
};

}  // namespace rrdk::sim

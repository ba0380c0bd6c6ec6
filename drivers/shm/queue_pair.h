// One end of a connection.
//
// Threads: the data path belongs to the completion queue's thread. The control thread (the
// device's) reads the socket, and hands over through `control_mutex_`, `dead_` and the doorbell of
// our own completion queue; it never touches what the data path owns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "drivers/common/receive_queue.h"
#include "drivers/shm/completion_queue.h"
#include "drivers/shm/copy_ring.h"
#include "drivers/shm/device.h"
#include "drivers/shm/handshake.h"
#include "drivers/shm/local_keys.h"
#include "drivers/shm/regions.h"
#include "drivers/shm/segment.h"
#include "fabric/device.h"
#include "fabric/lane.h"

namespace rrdk::shm {

// A copy of this size counts against the budget of a pass.
constexpr uint64_t kLargeCopy = 16 << 10;

class QueuePair final : public fabric::QueuePair,
                        public Endpoint,
                        private drivers::ReceiveWaiter,
                        private fabric::Lane {
 public:
  static Result<std::unique_ptr<QueuePair>> create(Device& device,
                                                   const fabric::QueuePairOptions& options);
  ~QueuePair() override;

  // --- fabric::QueuePair ---
  uint32_t post_send(std::span<const fabric::SendWr> wrs) override;
  uint32_t post_receive(std::span<const fabric::ReceiveWr> wrs) override;
  bool send_now(std::span<const MemorySpan> spans, uint32_t invalidate_key) override;
  bool bind_now(uint32_t key, const MemorySpan& span, fabric::Rights rights) override;
  bool read_now(const MemorySpan& to, uint32_t key, uint64_t remote_address) override;
  bool puts_reads_off() const override { return read_put_off_; }
  bool reserve_keys(std::span<uint32_t> keys) override;
  void release_key(uint32_t key) override;
  void expect_read(uint32_t key) override;
  void disconnect() override;
  void hold_receives(bool hold) override;
  fabric::Lane* lane() override;
  void set_lane_user(fabric::LaneUser* user) override;
  uint32_t reads_allowed() const override { return reads_allowed_; }
  rrdk::Peer peer() const override { return who_; }

  // `burst`: messages that the user of its lane may take.
  uint32_t poll(std::span<fabric::Completion> out, uint32_t burst) noexcept;
  // Called when there is nothing to do: asks for the doorbell. Returns false if there is something.
  bool rest() noexcept;
  // Undoes rest().
  void awake() noexcept;
  // Whether poll() would find something.
  bool look() noexcept;
  bool active = false;
  uint32_t idle_polls = 0;

  // The connecting end: sends our half of the handshake.
  Result<void> start_connect(PeerSocket socket, uint64_t peer_memory,
                             std::chrono::milliseconds timeout,
                             std::span<const std::byte> private_data);
  // The listening end: takes the peer and answers it.
  Result<void> accept(PeerSocket socket, Offer offer, uint64_t peer_memory,
                      std::span<const std::byte> private_data);
  void on_ready() override;
  void on_tick(Clock::time_point now) override;

 private:
  enum class Status : uint8_t {
    kIdle,
    kConnecting,  // waits for the peer's Accept
    kEstablished,
    kError,  // flushing, or flushed
  };
  // Why the data path ended, or must end.
  enum class End : uint8_t {
    kNotYet,
    kDisconnected,
    kNeverConnected,
    kPeerClosed,
    kPeerGone,        // the socket ended, and the peer had not closed
    kMessageTooLong,  // these as CloseReason
    kAccessRefused,
    kProtocol,
    kLocalError,
    kTooMuchMemory,
    kNoDescriptors,
    kNotMapped,
  };

  // What a posted send waits for before it completes.
  enum class Wait : uint8_t { kNothing, kConsumed, kReader };
  struct SendRecord {
    uint64_t wr_id;
    uint64_t number;  // kConsumed: complete when this many of our messages were consumed. kReader:
                      // time limit, once it is known
    uint32_t length;  // kRead
    uint32_t key;     // kReader
    fabric::Op op;
    fabric::WcStatus status;
    Wait wait;
    bool signaled;
    bool quiet;

    // Whether its completion is not reported.
    bool silent() const noexcept {
      return (!signaled && status == fabric::WcStatus::kSuccess) ||
             (quiet && status == fabric::WcStatus::kFlushed);
    }
  };
  static_assert(sizeof(SendRecord) == 32);          // two in a cache line
  enum class Naming : uint8_t { kMessage, kRead };  // what names a region
  // How reading the socket ended; kSome: there may be more.
  enum class Drained : uint8_t { kAll, kSome, kEnd, kNoPlace, kBroken, kTooMuchMemory, kNotMapped };
  // A pair of sockets, not an eventfd: the peer holds one end, and only sockets have calls that
  // another holder of the descriptor cannot make block. (A timerfd has such calls, too, but wakes
  // up several times as late.) Each connection has its own pair, since a peer can shut it down. The
  // janitor closes both ends: the peer can put descriptors into one, and have the other in epoll
  // sets.
  struct WakeUp {
    PeerSocket receiver;
    PeerFd sender;
  };
  // The next slot in the peer's ring.
  struct SlotHeader;

  QueuePair(Device& device, const fabric::QueuePairOptions& options, Geometry geometry,
            SharedMemory segment, WakeUp wake_up);
  static Result<WakeUp> create_wake_up();

  void receive_posted() noexcept override { cq_.activate(*this); }

  // send_datapath.cc
  fabric::WcStatus execute(const fabric::SendWr& wr, SendRecord& record) noexcept;
  fabric::WcStatus send(const fabric::SendWr& wr, SendRecord& record) noexcept;
  fabric::WcStatus write(const fabric::SendWr& wr, SendRecord& record) noexcept;
  fabric::WcStatus read(const fabric::SendWr& wr, SendRecord& record) noexcept;
  Counters::Count* copy_remote(uint32_t key, uint64_t address,
                               std::span<const MemorySpan> spans) noexcept;
  // What a key of the peer's names: bytes, or a list of several runs, whose first bytes are
  // to be skipped.
  struct Remote {
    const std::byte* bytes = nullptr;
    uint32_t runs = 0;
    uint64_t skip = 0;
  };
  Counters::Count* find_remote(uint32_t key, uint64_t address, uint64_t length,
                               Remote& remote) noexcept;
  static void copy_run(const std::byte* from, std::span<const MemorySpan> spans) noexcept;
  Counters::Count* copy_runs(const Remote& remote, uint64_t length,
                             std::span<const MemorySpan> spans) noexcept;
  bool bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept;
  bool bind_list(const fabric::SendWr& wr) noexcept;
  bool check_local(std::span<const MemorySpan> spans, uint64_t length) noexcept;
  bool may_read_into(std::span<const MemorySpan> spans, uint64_t length) noexcept;
  void publish(SlotWord word) noexcept;
  void name_copy(uint32_t at, uint32_t length, uint32_t invalidate_key, uint8_t flags) noexcept;
  RegionTable::Place local_place(const MemorySpan& span) noexcept;
  static void copy_spans(std::byte* to, std::span<const MemorySpan> spans) noexcept;
  bool write_sges(Slot& slot, std::span<const MemorySpan> spans, uint64_t length,
                  SlotWord& word) noexcept;
  // Whether Sends must wait their turn because the peer has many messages to consume.
  bool half_full() const noexcept { return sent_ - consumed_by_peer_ > mine_.slot_mask / 2; }
  bool send_copy(std::span<const MemorySpan> spans, uint32_t invalidate_key) noexcept;
  bool send_long_copy(std::span<const MemorySpan> spans, uint32_t invalidate_key) noexcept;
  bool waits_for_copies(const fabric::SendWr& wr) noexcept;
  bool lacks_copies() noexcept;
  bool put_copy(std::span<const MemorySpan> spans, uint32_t length, uint32_t invalidate_key,
                uint8_t flags) noexcept;
  void record_send(const SendRecord& record) noexcept;
  bool sends_full() noexcept;
  bool read_consumed() noexcept;
  bool overdue(SendRecord& record) noexcept;
  bool done(SendRecord& record) noexcept;
  uint32_t reap_sends(std::span<fabric::Completion> out) noexcept;
  void tell_messages() noexcept;
  void make_sure_told() noexcept;
  bool peer_wants_messages() const noexcept {
    return (theirs_.state->wants.load(std::memory_order_relaxed) & kWantsMessages) != 0;
  }

  // lane_datapath.cc
  fabric::LaneMessage slow_peek(uint64_t word) noexcept override;
  fabric::LaneMessage peek_copied(uint32_t flags) noexcept;
  fabric::LaneMessage found_with(const std::byte* bytes, uint32_t length, uint32_t flags,
                                 uint32_t key) noexcept;
  void slow_take(const fabric::LaneMessage& message) noexcept override;
  std::byte* slow_begin(uint32_t most) noexcept override;
  bool write(std::span<const MemorySpan> spans, uint32_t key, uint64_t address) noexcept override;
  bool can_write() const noexcept override { return true; }
  Untaken untaken() noexcept override;
  const std::byte* behind_refused_write() const noexcept override;
  void slow_send(uint32_t length, uint32_t invalidate) noexcept override;
  void slow_flush() noexcept override;
  uint32_t receive(std::span<fabric::Completion> out, uint32_t burst) noexcept;
  bool lane_runs() const noexcept {
    return lane_user_ != nullptr && (shared_receives_ == nullptr || receives_ == shared_receives_);
  }
  void open_lane() noexcept;
  void open_sends() noexcept;

  // receive_datapath.cc
  uint32_t pull(std::span<fabric::Completion> out) noexcept;
  bool message_ready() noexcept;
  bool is_next(SlotWord word) const noexcept {
    return word.sequence == static_cast<uint32_t>(taken_ + 1);
  }
  // The word of the next slot as long as no message has been put there.
  uint32_t previous_sequence() const noexcept {
    const uint64_t slots = uint64_t{theirs_.slot_mask} + 1;
    return taken_ < slots ? 0 : static_cast<uint32_t>(taken_ + 1 - slots);
  }
  bool goes_on_writing() const noexcept;
  bool take_next_write() noexcept;
  bool take_message(const Slot& slot, const SlotHeader& header, fabric::Completion& out) noexcept;
  bool take_write(const Slot& slot, const SlotHeader& header) noexcept;
  // `length` bytes of a message, from byte `skip` on.
  struct Part {
    uint32_t skip;
    uint32_t length;
  };
  fabric::WcStatus place_parts(const Slot& slot, const SlotHeader& header) noexcept;
  fabric::WcStatus place(const Slot& slot, const SlotHeader& header, Part part) noexcept;
  bool next_needs_receive() noexcept;
  void refuse_message(fabric::WcStatus status) noexcept;
  End its_fault_or(End otherwise) const noexcept;
  fabric::WcStatus gather_remote(const Slot& slot, uint32_t count, uint32_t length, std::byte* to,
                                 Part part) noexcept;
  const std::byte* peer_bytes(WireId region, uint64_t offset, uint64_t length, Naming by) noexcept;
  // For a run that is copied next. What is known of the peer's regions does not change: the run
  // that is copied now may be in one that the peer takes back.
  void expect_run(const RemoteSge& run) noexcept {
    constexpr uint32_t kMost = 4 * kCacheLine;
    const uint32_t length = std::min(run.length, kMost);
    if (const std::byte* bytes = peer_regions_.at(run.region, run.offset, length)) [[likely]]
      base::prefetch_lines(bytes, bytes + length);
  }
  // Whether the peer is reading by this key of ours; for 0, whether it is reading by no key.
  bool peer_reads(uint32_t key) const noexcept {
    return theirs_.state->reading.load(std::memory_order_seq_cst) == key;
  }
  void tell_consumed() noexcept;
  bool peer_closed() noexcept;
  uint32_t flush(std::span<fabric::Completion> out) noexcept;

  // queue_pair.cc
  void fail_with(End end, uint64_t number = 0) noexcept;
  static CloseReason close_reason(End end) noexcept;
  End end_of_peer() const noexcept;
  static End end_of(fabric::WcStatus status) noexcept;
  void settle_sends() noexcept;
  void close_socket_half() noexcept;

  // connect.cc
  fabric::Event new_event(fabric::EventType type) const;
  void attach(Peer peer);
  void announce_all();
  Result<void> drop_socket(Result<void> failure);
  Result<void> send_handshake(MessageType type, std::span<const std::byte> private_data);
  void read_answers();
  void other_version_answers(const Message& message);
  void take_answer(Received& received);
  void connect_failed(fabric::EventType type, Errc code, std::string reason,
                      const Message* message = nullptr);
  void end_data_path(End why);
  void read_regions();
  void hold_socket(bool on);
  void socket_broken(End how);
  void peer_gone();
  void report_disconnect();
  Ending ending() const;

  void note_regions() noexcept;  // send_datapath.cc: forgets regions that are gone

  // regions.cc: slow paths of the data path
  void sync_regions();
  SendResult announce(const OwnRegion& own);
  bool learn_local_region(const MemorySpan& span);
  bool learn_peer_region(WireId id, uint64_t end, Naming by);
  static End end_of(Drained how) noexcept;
  void end_by_socket(Drained how);
  void count_end(End by_socket);
  // Requires `control_mutex_`. Reads up to `most` packets with what the peer says about its
  // regions, and subtracts them.
  Drained drain_socket(uint32_t& most);
  Drained take_region_change(Received& received);
  static Drained why_not_taken(Errc code) noexcept;
  void apply_region_changes();

  Device& device_;
  CompletionQueue& cq_;
  void* const owner_;
  const uint32_t reads_;
  uint32_t bit_ = 0;

  // --- the data path's own ---
  std::atomic<Status> status_{Status::kIdle};
  // Why it must end: set by the control thread, or by the data path when it reads the socket.
  std::atomic<End> dead_{End::kNotYet};
  std::atomic<End> end_{End::kNotYet};  // why it ended
  SegmentView mine_;
  SegmentView theirs_;
  Doorbell bell_;  // the peer's
  fabric::LaneUser* lane_user_ = nullptr;
  uint64_t consumed_by_peer_ = 0;   // as last read
  uint64_t turn_began_ = 0;         // taken_ when this turn of receiving began
  uint64_t written_ = 0;            // bytes of the peer's Writes that were copied in this turn
  bool acknowledge_ = false;        // the peer waits for some of what was taken since
  bool acks_ = false;               // or it will, for the message that the lane has found
  bool stalled_ = false;            // counted: the next message has no Receive
  bool unsure_ = false;             // the peer may have begun to rest unnoticed when it was told
  uint64_t written_until_ = 0;      // the number of the last message that Lane::write() sent
  uint64_t claimed_at_ = 0;         // of what Lane::begin() claimed in the copies
  uint64_t behind_write_ = 0;       // taken_ after the peer's last Write
  uint32_t placed_ = 0;             // bytes of the next message, a long Write, that were copied
  bool read_put_off_ = false;       // a Read was left to a later pass
  uint64_t over_budget_bytes_ = 0;  // read at once although the budget of the pass was spent
  drivers::ReceiveQueue own_receives_;
  drivers::ReceiveQueue* const shared_receives_;  // null: own_receives_ are all
  drivers::ReceiveQueue* receives_;
  LocalKeys keys_;
  uint32_t send_limit_;
  uint32_t send_mask_;
  uint64_t send_head_ = 0;
  uint64_t send_tail_ = 0;
  std::vector<SendRecord> sends_;
  CopyRing copies_;
  uint32_t refused_copy_ = 0;  // length of the Send that did not fit into the copies; 0: none
  RegionTable local_regions_;  // those that the peer was told about
  RegionTable peer_regions_;
  // In the data path's turns, for peer_regions_; each turn subtracts some.
  uint32_t packets_read_ = 0;
  // That of the current message: there is more to read in the next turn.
  bool region_is_late_ = false;
  uint64_t regions_seen_ = 0;  // Device::region_generation()

  // --- the control path's ---
  Geometry geometry_;
  SharedMemory segment_;
  CompletionQueue::UsersPage* own_bells_ = nullptr;  // the peer's doorbell page for us
  WakeUp wake_up_;
  rrdk::Peer who_;  // the peer; once there is a connection
  Peer peer_;
  uint32_t reads_allowed_ = 0;
  std::mutex control_mutex_;  // protects socket_ and what was read from it for the data path
  PeerSocket socket_;
  std::vector<RegionEntry> region_changes_;  // for peer_regions_; no base: gone
  PeerRegions known_regions_;                // of the peer
  std::vector<WireId> untold_gone_;          // regions of ours that the peer must forget
  std::atomic<bool> regions_changed_{false};
  std::atomic<bool> no_place_{false};  // drain_socket() lacked a descriptor; on_tick() tries again
  bool hello_ = false;                 // the peer speaks our protocol
  bool closing_ = false;               // on_tick() waits for accesses in progress
  bool established_once_ = false;
  bool end_seen_ = false;                // the socket ended: the peer does nothing any more
  bool broken_ = false;                  // the socket sent nonsense: only its end matters
  bool held_ = false;                    // the same, except for on_tick(): no_place_
  bool reported_ = false;                // the final event
  std::chrono::milliseconds timeout_{};  // of the handshake
  // For the handshake; then for a lack of descriptors; then for the peer's accesses in progress.
  Clock::time_point deadline_{};
};

}  // namespace rrdk::shm

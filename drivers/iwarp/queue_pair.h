// One end of a connection.
//
// Threads: the data path belongs to the completion queue's thread. The control thread (the
// device's) makes the connection, hands it over with `status_`, and takes the socket back when the
// data path has ended it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/system.h"
#include "drivers/common/control_loop.h"
#include "drivers/common/receive_queue.h"
#include "drivers/iwarp/address.h"
#include "drivers/iwarp/attempt.h"
#include "drivers/iwarp/completion_queue.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/lane.h"
#include "drivers/iwarp/mpa.h"
#include "drivers/iwarp/outbox.h"
#include "drivers/iwarp/segment.h"
#include "drivers/iwarp/silence.h"
#include "drivers/iwarp/stags.h"
#include "drivers/iwarp/terminate.h"
#include "fabric/device.h"

namespace rrdk::iwarp {

class Device;

// Sends up to this length can be copied when they are posted.
constexpr uint32_t kMaxCopied = 256;

// What the two ends agreed on.
struct Agreement {
  bool crc = false;
  bool initiator = false;
  bool rtr_send = false;  // the initiator's first FPDU only says that it is ready
  bool rtr_write = false;
  bool rtr_read = false;
  uint32_t ord = 0;  // RDMA Reads that we may have in flight
  uint32_t ird = 0;  // RDMA Reads of the peer that we serve
};

class QueuePair final : public fabric::QueuePair,
                        public drivers::Endpoint,
                        public Dialler,
                        private drivers::ReceiveWaiter {
 public:
  static Result<std::unique_ptr<QueuePair>> create(Device& device,
                                                   const fabric::QueuePairOptions& options);
  ~QueuePair() override;

  // --- fabric::QueuePair ---
  uint32_t post_send(std::span<const fabric::SendWr> wrs) override;
  bool bind_now(uint32_t key, const MemorySpan& span, fabric::Rights rights) override;
  uint32_t post_receive(std::span<const fabric::ReceiveWr> wrs) override;
  bool reserve_keys(std::span<uint32_t> keys) override { return stags_.reserve(keys); }
  void release_key(uint32_t key) override;
  void disconnect() override { fail_with(End::kDisconnected); }
  bool holds_receive() const override { return receiving_; }
  void hold_receives(bool hold) override;
  uint32_t reads_allowed() const override { return agreed_.ord; }
  uint64_t read_bytes() const override { return read_bytes_; }
  Peer peer() const override;
  fabric::Lane* lane() override;
  void set_lane_user(fabric::LaneUser* user) override;

  // --- for its lane, and those of others ---
  // A complete Send of one segment in the staging buffer.
  struct StagedSend {
    const std::byte* payload = nullptr;
    uint32_t length = 0;
    uint32_t key = 0;  // the key that it invalidates
    bool kills = false;
  };
  bool lane_message(StagedSend& next, uint32_t most) noexcept;
  void take_lane_message(const fabric::LaneMessage& message) noexcept;
  bool begin_lane_message(uint32_t most) noexcept;
  void add_lane_message(uint32_t length, uint32_t invalidate) noexcept;
  void send_lane() noexcept;
  fabric::Lane::Untaken untaken() const noexcept;
  bool begun_in_lane() const noexcept { return lane_.begun(); }
  bool has_sent_in_lane() noexcept {
    return lane_outbox().owner == this && !lane_outbox().pending().empty();
  }
  LaneOutbox& lane_outbox() noexcept { return cq_.lane_outbox(); }

  // `alone`: checks the socket although epoll has reported nothing.
  uint32_t poll(std::span<fabric::Completion> out, bool alone) noexcept;
  // Brings what poll() will touch into the caches.
  void prefetch() const noexcept;
  // Whether poll() has something to do that epoll will not report.
  bool has_work() noexcept;
  // Called before has_work() decides about sleeping: finds out what epoll has reported.
  void look() noexcept;
  void on_epoll(uint32_t events) noexcept;
  // Whether polling finds everything that epoll would report.
  bool needs_no_epoll() const noexcept;
  int socket() const noexcept { return socket_fd_; }
  bool active = false;
  uint32_t idle_polls = 0;

  // --- control path ---
  Result<void> start_connect(const Place& to, std::span<const std::byte> private_data);
  Result<void> accept(base::Fd socket, std::chrono::seconds silence, const MpaFrame& request,
                      std::span<const std::byte> private_data);
  void look_for_silence(drivers::Clock::time_point now);
  void on_ready() override {}
  void on_tick(drivers::Clock::time_point now) override;

 private:
  enum class Status : uint8_t {
    kIdle,
    kConnecting,  // waits for TCP, then for the peer's reply
    kEstablished,
    kError,  // flushing, or flushed
  };
  // Why the data path ended.
  enum class End : uint8_t {
    kNotYet,
    kDisconnected,
    kNeverConnected,
    kPeerClosed,
    kPeerLost,
    kRefused,     // by us: `cause_`
    kTerminated,  // by the peer: `cause_`
    kLocalError,
    kReadsDenied,  // by the peer, when the connection was made
  };

  // A posted send-queue request, until it is reported.
  struct Record {
    uint64_t wr_id;
    uint64_t remote_address;
    uint64_t first_span;  // in spans_
    uint32_t key;
    uint32_t invalidate_key;
    uint32_t length;
    uint32_t read_number;  // kRead: of its Read Request
    uint16_t num_spans;
    fabric::Op op;
    fabric::WcStatus status;
    bool signaled;
    bool quiet;
    bool copied;  // into copies_
    bool done;
  };
  static_assert(sizeof(Record) <= 48);
  static bool is_large_read(const Record& r) noexcept {
    return r.op == fabric::Op::kRead && r.length > kMostStagedWhole;
  }
  // What the peer has asked to read, in order.
  struct Response {
    uint32_t sink_stag;
    uint32_t source_stag;
    uint64_t sink_offset;
    uint64_t source_offset;
    uint32_t length;
    uint32_t number;  // of the request
  };
  // The position of sending.
  struct Cursor {
    uint64_t record = 0;    // next to be sent
    uint64_t response = 0;  // next to be sent
    uint32_t offset = 0;    // in the current message
    uint32_t send_number = 1;
    uint32_t read_number = 1;
    bool in_record = false;    // a message of a record has begun
    bool in_response = false;  // a Read Response has begun
    bool turn = false;         // the last message was a response's: a record is next
    // In a response out of a list of runs: the run where it goes on, and how many bytes of the
    // memory that the list names are before that run.
    uint32_t run = 0;
    uint32_t before_run = 0;
  };
  // One FPDU that is to be sent: its contents and their location.
  struct Fpdu {
    SegmentHeader header;
    uint32_t payload;  // bytes
    uint32_t num_bodies;
    std::array<iovec, fabric::kMaxSges> body;
    std::array<std::byte, kReadRequestBody> request;  // the payload of a Read Request
    uint64_t record;   // the record to which it belongs, unless `answers`
    bool ends_record;  // the record is done when TCP has this
    bool answers;      // a Read of the peer's

    uint32_t ulpdu() const noexcept {
      return payload + (header.tagged ? kTaggedHeader : kUntaggedHeader);
    }
    uint32_t length() const noexcept {
      return kLengthField + ulpdu() + pad_of(ulpdu()) + kCrcField;
    }
  };

  QueuePair(Device& device, const fabric::QueuePairOptions& options);
  void receive_posted() noexcept override { cq_.activate(*this); }

  // poll_datapath.cc
  void poke() noexcept;
  void give_staging() noexcept;
  bool stage_rest() noexcept;

  // lane_datapath.cc
  bool lane_runs() const noexcept;
  bool lane_goes_on() const noexcept { return lane_runs() && left_to_receive_ != next_send_; }
  void offer_burst() noexcept;
  size_t lend_lane(Outbox& out) noexcept;
  ssize_t took_lane(ssize_t taken, size_t lent) noexcept;

  // send_datapath.cc: requests in, completions out
  uint32_t send_straight(std::span<const fabric::SendWr> wrs) noexcept;
  bool append_straight(const fabric::SendWr& wr, uint32_t& number, Outbox& out) noexcept;
  bool nothing_waits() noexcept;
  bool has_room(const fabric::SendWr& wr, uint32_t ahead = 0, uint32_t spans_ahead = 0) noexcept;
  // queue_pair.cc
  bool grow() noexcept;
  bool grow_responses() noexcept;

  // send_datapath.cc
  Record& add_record(const fabric::SendWr& wr, fabric::WcStatus status) noexcept;
  void record_send(const fabric::SendWr& wr) noexcept;
  void add_spans(Record& record, const fabric::SendWr& wr) noexcept;
  fabric::WcStatus check(const fabric::SendWr& wr, uint64_t& length) noexcept;
  fabric::WcStatus act(const fabric::SendWr& wr) noexcept;
  bool bind_list(const fabric::SendWr& wr) noexcept;
  bool kill(uint32_t key) noexcept;
  void drop_reported() noexcept;
  uint32_t reap_sends(std::span<fabric::Completion> out) noexcept;
  void pop_record() noexcept;
  Record& record(uint64_t number) noexcept {
    RRDK_ASSERT(tail_ - head_ <= record_mask_ + 1, head_, tail_);
    return records_[number & record_mask_];
  }

  // transmit_datapath.cc: bytes out
  enum class Asked : uint8_t { kByPoll, kByPost };
  void transmit(Asked asked) noexcept;
  bool may_transmit() const noexcept;
  bool push(Outbox& out, size_t lent, const Cursor& after) noexcept;
  bool pushed(ssize_t taken) noexcept;
  void pin(const Fpdu& fpdu) noexcept;
  bool tcp_is_full() noexcept;
  bool sending_ended(int error) noexcept;
  bool next_fpdu(Cursor& at, Fpdu& fpdu) noexcept;
  bool ready_record(Cursor& at) noexcept;
  void next_of_record(Cursor& at, Fpdu& fpdu) noexcept;
  bool next_of_response(Cursor& at, Fpdu& fpdu) noexcept;
  uint32_t room_in_fpdu(bool tagged) const noexcept;
  static void add_runs(Fpdu& fpdu, const Stags::Window& source, uint32_t from, Cursor& at) noexcept;
  void add_bodies(Fpdu& fpdu, const Record& record, uint32_t skip, uint32_t length) noexcept;
  void append(const Fpdu& fpdu, Outbox& out) const noexcept;

  // receive_datapath.cc: bytes in
  void pull(std::span<fabric::Completion> out, uint32_t& count) noexcept;
  bool step(std::span<fabric::Completion> out, uint32_t& count) noexcept;
  bool fill() noexcept;
  bool mid_message() const noexcept;
  uint32_t room() const noexcept;
  bool send_begins(StagedSend& found) const noexcept;
  bool staged_send(StagedSend& found) const noexcept;
  bool send_is_cut() const noexcept;
  // The number of bytes of the FPDU around it.
  static uint32_t frame_of(const StagedSend& send) noexcept {
    const uint32_t ulpdu = kUntaggedHeader + send.length;
    return kLengthField + ulpdu + pad_of(ulpdu) + kCrcField;
  }
  bool is_intact(const StagedSend& send) const noexcept;
  bool take_send(const StagedSend& send, std::span<fabric::Completion> out,
                 uint32_t& count) noexcept;
  bool parse(std::span<fabric::Completion> out, uint32_t& count) noexcept;
  bool parse_header() noexcept;
  bool parse_payload() noexcept;
  bool parse_trailer(std::span<fabric::Completion> out, uint32_t& count) noexcept;
  void took(uint32_t length) noexcept;
  size_t sink_pieces(uint32_t length, iovec* to) noexcept;
  bool sink_alive() noexcept;

  // segments_datapath.cc: what a segment may do
  struct AccessCauses {
    Cause stag;
    Cause rights;
    Cause bounds;
  };
  static constexpr AccessCauses kReadCauses = {Cause::kInvalidStag, Cause::kAccessRights,
                                               Cause::kOutOfBounds};
  static constexpr AccessCauses kWriteCauses = {Cause::kTaggedInvalidStag, Cause::kAccessRights,
                                                Cause::kTaggedOutOfBounds};
  void hear() noexcept;
  bool begin_segment() noexcept;
  bool begin_send() noexcept;
  bool begin_write() noexcept;
  bool begin_response() noexcept;
  bool begin_small(uint32_t queue, uint32_t number, uint32_t least, uint32_t most) noexcept;
  bool end_segment(std::span<fabric::Completion> out, uint32_t& count) noexcept;
  bool end_send(fabric::Completion& out) noexcept;
  bool end_response() noexcept;
  bool end_read_request() noexcept;
  void end_terminate() noexcept;
  const Stags::Window* window(uint32_t key, uint64_t offset, uint64_t length, fabric::Rights rights,
                              const AccessCauses& causes) noexcept;
  bool refuse_header(SegmentFault fault) noexcept;
  bool refuse(Cause cause, Counters::Count& count) noexcept;

  // queue_pair.cc
  void fail_with(End end) noexcept;
  void settle(End end) noexcept;
  uint32_t flush(std::span<fabric::Completion> out) noexcept;
  std::vector<std::byte> framed(const SegmentHeader& header, std::span<const iovec> payload) const;
  void keep_rest();
  void keep_empty_write();
  void keep_empty_read();
  void keep(std::span<const std::byte> bytes) noexcept;
  void drop_kept() noexcept;
  void pack_parting(End end);
  void close_half() noexcept;

  // connect.cc
  fabric::Event new_event(fabric::EventType type) const;
  Result<void> dial();
  MpaFrame request() const;
  bool connecting() const { return status_.load(std::memory_order_acquire) == Status::kConnecting; }
  void on_tcp_up(Attempt& attempt) override;
  void on_failed(Attempt& attempt, const Error& why) override;
  void on_reply(Attempt& attempt, const MpaFrame& reply) override;
  void drop(Attempt& attempt, const Error& why);
  void time_out();
  void take_reply(const MpaFrame& reply);
  std::string place(const Endpoint4Or6& far) const;
  void connect_failed(fabric::EventType type, const Error& why,
                      std::span<const std::byte> private_data = {});
  Result<void> establish(const Agreement& agreed);
  void send_first();
  void part();
  void report_end();
  Ending ending() const;

  Device& device_;
  CompletionQueue& cq_;
  void* const owner_;
  const uint32_t reads_;

  // --- the data path's ---
  std::atomic<Status> status_{Status::kIdle};
  int socket_fd_ = -1;
  Agreement agreed_;
  uint32_t max_ulpdu_ = 0;
  End end_ = End::kNotYet;
  Cause cause_ = Cause::kCatastrophic;
  bool access_refused_ = false;  // by the peer: a Write, which was reported
  bool readable_ = false;
  bool writable_ = true;
  bool unsent_ = false;     // TCP would take more, but it was another's turn
  bool hung_up_ = false;    // epoll says that the peer sends no more
  bool broken_ = false;     // TCP takes no more
  bool stalled_ = false;    // the next message has no Receive
  bool may_speak_ = false;  // a responder only when it has received something from the initiator
                            // (RFC 5044 section 7)
  std::atomic<bool> ended_{false};      // the end is fully reported: the control thread takes over
  std::atomic<bool> host_gone_{false};  // as detected by silence_ or TCP's keepalive
  std::atomic<bool> heard_{false};
  std::atomic<bool> poke_wanted_{false};

  // Sending.
  uint32_t send_limit_;
  uint64_t record_mask_;
  uint64_t span_mask_;
  uint64_t head_ = 0;  // oldest record that is not reported
  uint64_t tail_ = 0;
  uint64_t span_head_ = 0;
  uint64_t span_tail_ = 0;
  std::vector<Record> records_;
  std::vector<MemorySpan> spans_;
  Cursor cursor_;
  uint32_t cut_ = 0;             // bytes of the FPDU at the cursor that TCP has
  std::vector<std::byte> kept_;  // precedes that: whole FPDUs, or the rest of one whose memory must
                                 // not be read any more
  size_t kept_sent_ = 0;         // bytes of kept_ that TCP has
  uint32_t kept_rounds_ = 0;     // how often TCP has taken all of kept_
  std::unique_ptr<std::byte[]> copies_;  // of Sends that are copied and wait for TCP, by record
  bool rtr_read_pending_ = false;        // an empty Read, which said that we are ready
  uint32_t reads_answered_ = 0;
  uint32_t large_reads_ = 0;    // of more than kMostStagedWhole bytes, without their data
  uint32_t refused_read_ = 0;   // by the peer
  uint32_t fault_read_ = 0;     // a Read of the peer's, whose key became invalid during it
  uint64_t read_head_ = 0;      // oldest record that may be a Read without its data
  uint32_t read_received_ = 0;  // bytes of its data
  uint64_t read_bytes_ = 0;     // of all Reads
  std::vector<Response> responses_;
  uint64_t response_mask_;
  uint64_t response_tail_ = 0;
  Stags stags_;

  // Receiving.
  enum class Stage : uint8_t { kHeader, kPayload, kTrailer };
  enum class Sink : uint8_t { kNowhere, kReceive, kWindow, kRead, kSmall };
  struct Incoming {
    Stage stage = Stage::kHeader;
    Sink sink = Sink::kNowhere;
    SegmentHeader header;
    uint32_t ulpdu = 0;
    uint32_t payload = 0;  // of the segment
    uint32_t left = 0;     // of the payload, not yet received
    uint32_t crc = 0;
    std::byte* to = nullptr;  // kReceive, kWindow, kSmall: where the payload begins
  } in_;
  std::unique_ptr<std::byte[]> staging_;  // while something is staged: of the completion queue
  // A small rest that is staged between polls, so that a peer that sends a part of a header uses no
  // more of our memory.
  std::array<std::byte, 64> rest_;
  uint32_t rest_length_ = 0;
  uint32_t staged_begin_ = 0;
  uint32_t staged_end_ = 0;
  bool held_back_ = false;  // what is staged has more to report than there was space for
  bool receiving_ = false;  // a message in its Receive
  fabric::ReceiveWr receive_;
  fabric::WcStatus receive_status_ = fabric::WcStatus::kFlushed;  // if it ends in a flush
  uint32_t received_ = 0;
  uint32_t next_send_ = 1;
  uint32_t next_read_ = 1;
  std::array<std::byte, kMaxTerminate> small_;
  // Whether the lane's user may still have its turn in this poll. It is over after a message that
  // goes to a Receive, and for everything that had arrived when the user has had its part.
  enum class LaneTurn : uint8_t { kUsers, kNone, kOver };
  Lane lane_{*this};
  fabric::LaneUser* lane_user_ = nullptr;
  LaneTurn lane_turn_ = LaneTurn::kNone;
  bool in_burst_ = false;
  bool lane_held_ = false;        // what waits in the lane may leave with what is posted next
  bool posted_ = false;           // something was posted since the last poll
  uint32_t lane_left_ = 0;        // messages that the user may still take in this poll
  uint32_t left_to_receive_ = 0;  // number of the message that it has left
  drivers::ReceiveQueue own_receives_;
  drivers::ReceiveQueue* const shared_receives_;  // null: own_receives_ are all
  drivers::ReceiveQueue* receives_;

  // --- the control path's ---
  base::Fd socket_;
  Endpoint4Or6 near_;  // once there is a connection
  Endpoint4Or6 far_;
  Address asked_;
  bool by_name_ = false;  // the address that was given does not show the peer's
  std::chrono::milliseconds timeout_{};
  drivers::Turns turns_;                            // of the peer's addresses
  std::vector<std::unique_ptr<Attempt>> attempts_;  // those in progress
  Error failure_;                                   // of those that have failed
  std::vector<std::byte> private_data_;             // ours
  std::vector<std::byte> parting_;  // what TCP had not yet taken when the data path ended
  Silence silence_;
  bool reported_ = false;
  uint32_t ticks_ = 0;
};

}  // namespace rrdk::iwarp

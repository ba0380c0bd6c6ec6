// One end of a connection.
//
// Threads: the data path belongs to the completion queue's thread. The control thread (the
// device's) makes the connection and reports its end; `status_` hands over between them. The
// device's queue pair is made by the control thread and destroyed by the data path's.
//
// Devices report and flush what was posted to them. They do not report what they cannot know about:
// requests before there is a queue pair, requests after its error, and key operations that need no
// device (keys.h). Those complete here, in their turn, as "soft" ones.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/assert.h"
#include "drivers/common/control_loop.h"
#include "drivers/verbs/address.h"
#include "drivers/verbs/cm.h"
#include "drivers/verbs/completion_queue.h"
#include "drivers/verbs/keys.h"
#include "drivers/verbs/shared_receive_queue.h"
#include "fabric/device.h"

namespace rrdk::verbs {

class Device;

constexpr uint32_t kMostPokes = 8;             // of one connection
constexpr uint64_t kPoke = uint64_t{1} << 62;  // its wr_id, which is no request's number

class QueuePair final : public fabric::QueuePair, public drivers::Endpoint, public CmHandler {
 public:
  // Why a connection ended.
  enum class End : uint8_t {
    kNotYet,
    kDisconnected,
    kNeverConnected,
    kPeerClosed,
    kBroken,         // the device flushed it before the reason was known
    kRequestFailed,  // one of ours: its completion says how
    kPeerRefused,    // the device refused what the peer asked for
    kDeviceLost,
    kAddressChanged,
    kNoKeys,  // a call needs memory windows, and the device has no more
  };

  static Result<std::unique_ptr<QueuePair>> create(Device& device,
                                                   const fabric::QueuePairOptions& options);
  ~QueuePair() override;

  // --- fabric::QueuePair ---
  uint32_t post_send(std::span<const fabric::SendWr> wrs) override;
  uint32_t post_receive(std::span<const fabric::ReceiveWr> wrs) override;
  bool reserve_keys(std::span<uint32_t> keys) override;
  uint32_t name_key(uint32_t key, const MemorySpan& span, fabric::Rights rights) override {
    return keys_->name(key, span, rights);
  }
  void release_key(uint32_t key) override { keys_->release(key); }
  void disconnect() override { end_with(End::kDisconnected); }
  uint32_t reads_allowed() const override { return reads_allowed_; }
  Peer peer() const override;

  // --- for the completion queue, its thread ---
  uint32_t number() const noexcept { return number_; }
  uint32_t complete(const ibv_wc& wc, std::span<fabric::Completion> out) noexcept;
  // Reports soft completions. `empty`: the device has no more completions now.
  uint32_t report(std::span<fabric::Completion> out, bool empty) noexcept;
  bool has_reports() const noexcept;
  // For a completion that comes too late.
  void drop(const ibv_wc& wc) noexcept;
  bool active = false;

  // --- control path ---
  Result<void> start_connect(const Address& address, std::span<const std::byte> private_data);
  // `asked`: the request that brought the id.
  Result<void> accept(Id id, const CmEvent& asked, std::span<const std::byte> private_data);
  void on_cm_event(const CmEvent& event) override;
  void on_async_event(ibv_event_type type);
  // The control thread, or the data path's.
  void end_with(End end) noexcept;
  void on_ready() override {}
  void on_tick(drivers::Clock::time_point now) override;

 private:
  enum class Status : uint8_t {
    kIdle,
    kConnecting,
    kEstablished,
    kError,  // flushing, or flushed
  };

  // A posted send-queue request, until it is reported.
  struct Record {
    uint64_t wr_id;
    ibv_mr* sink;  // kRead: registered only for it (Device::registers_sinks)
    uint32_t length;
    fabric::Op op;
    fabric::WcStatus status;
    bool signaled;         // we report it even if it succeeds
    bool device_signaled;  // the device reports it even if it succeeds
    bool soft;             // the device does not know about it
    bool refused;          // posted in a form that the device refuses
    bool done;
  };
  static_assert(sizeof(Record) == 32);  // two in a cache line

  QueuePair(Device& device, const fabric::QueuePairOptions& options, uint32_t completions);

  // send_datapath.cc
  bool has_room() const noexcept { return tail_ - head_ < send_limit_; }
  Record& record(uint64_t number) noexcept {
    RRDK_ASSERT(tail_ - head_ <= send_limit_ && number - head_ <= send_limit_, head_, number);
    return records_[number & record_mask_];
  }
  const Record& record(uint64_t number) const noexcept { return records_[number & record_mask_]; }
  void add(const fabric::SendWr& wr, SendChain& chain) noexcept;
  void make_read(const fabric::SendWr& wr, Record& r, SendChain& chain, ibv_send_wr& to) noexcept;
  static void make_empty_write(ibv_send_wr& to) noexcept;
  void fill_sges(const fabric::SendWr& wr, SendChain& chain, ibv_send_wr& to) noexcept;
  bool fits_inline(const fabric::SendWr& wr) const noexcept;
  bool open_sink(const fabric::SendWr& wr, Record& r, ibv_send_wr& to) noexcept;
  static void close_sink(Record& r) noexcept;
  void make_refused(Record& r, SendChain& chain, ibv_send_wr& to) noexcept;
  bool launch(SendChain& chain) noexcept;
  void poke() noexcept;
  uint32_t add_flushed(std::span<const fabric::SendWr> wrs) noexcept;
  uint32_t complete_send(const ibv_wc& wc, std::span<fabric::Completion> out) noexcept;
  uint32_t reap(std::span<fabric::Completion> out) noexcept;

  // receive_datapath.cc
  uint32_t complete_receive(const ibv_wc& wc, std::span<fabric::Completion> out) noexcept;
  uint32_t flush_receives(std::span<fabric::Completion> out) noexcept;
  bool receives_soft() const noexcept;

  // queue_pair.cc
  uint32_t post_early(std::span<const fabric::ReceiveWr> wrs);
  bool close_early();
  void check_settled() noexcept;
  bool device_is_done() const noexcept;
  void force_flush() noexcept;
  void part() noexcept;

  // connect.cc, the control thread
  Result<void> next_address();
  void note_failure(Errc code, const std::string& reason);
  void address_failed(Errc code, const std::string& reason);
  Result<void> attach();
  Result<void> post_kept();
  Result<void> move_to(ibv_qp_state state);
  Result<void> make_ready();
  void agree_on_depths(const CmEvent& event);
  rdma_conn_param conn_param(std::span<const std::byte> private_data) const;
  void give_up_id() noexcept;
  void addr_resolved();
  void route_resolved();
  void peer_answered(const CmEvent& event);
  void established(const CmEvent& event);
  void connect_failed(fabric::EventType type, Errc code, const std::string& reason,
                      std::span<const std::byte> private_data = {});
  void rejected(const CmEvent& event);
  void consider_poke();
  void report_end();
  void watch_flush();
  Ending ending() const;
  std::string error_text(const char* what, int error) const;
  fabric::Event new_event(fabric::EventType type) const;

  Device& device_;
  CompletionQueue& cq_;
  SharedReceiveQueue* const srq_;
  void* const owner_;
  const fabric::QueuePairOptions options_;
  const uint32_t completions_;  // the most that it can leave in the completion queue
  const uint32_t reads_;
  std::atomic<Status> status_{Status::kIdle};
  std::atomic<bool> ended_{false};  // the members that follow are set
  End end_ = End::kNotYet;
  bool was_up_ = false;

  // The device's part. Set by the control thread before kEstablished.
  ibv_qp* qp_ = nullptr;
  uint32_t number_ = 0;
  Id id_;
  std::unique_ptr<Keys> keys_;
  const bool soft_keys_;
  uint32_t reads_allowed_ = 0;

  // Sends, in order: reported ones are before head_.
  const uint32_t send_limit_;
  const uint64_t record_mask_;
  std::vector<Record> records_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  uint64_t swept_ = 0;       // the device has reported everything before this
  uint64_t device_end_ = 0;  // after the last one that the device knows about
  uint32_t silent_run_ = 0;  // since the last one that the device reports
  const uint32_t silent_limit_;
  const uint32_t inline_limit_;

  // Receives of our own queue.
  const uint32_t receive_limit_;
  const uint64_t receive_mask_;
  std::vector<uint64_t> receive_ids_;
  uint64_t receive_head_ = 0;
  uint64_t receive_tail_ = 0;
  uint64_t receive_device_end_ = 0;
  std::atomic<bool> open_{false};  // Receives go to the device
  std::mutex early_mutex_;         // protects the members below, and Receives before `open_`
  std::vector<fabric::ReceiveWr> early_;
  bool early_closed_ = false;  // there will be no device queue pair

  // The first message (Device::pokes).
  std::atomic<bool> heard_{false};        // the peer has sent one
  std::atomic<bool> poke_wanted_{false};  // the data path must send the peer something

  // The flush.
  bool flushed_by_force_ = false;
  std::atomic<bool> settled_{false};   // the device has reported everything
  std::atomic<bool> force_{false};     // there is no progress: the data path must force the flush
  std::atomic<uint64_t> progress_{0};  // completions since the error

  // The control thread's.
  std::vector<std::byte> private_data_;
  drivers::Endpoint4Or6 near_;  // once there is a connection
  drivers::Endpoint4Or6 far_;
  std::string place_;  // which of a name's addresses it is, and ": "; for messages
  bool by_name_ = false;
  std::chrono::milliseconds timeout_{};  // of the handshake
  drivers::Turns turns_;                 // of the peer's addresses
  Error failure_;                        // of those that were tried
  bool answered_ = false;                // the peer has answered: the queue pair is tied to it
  bool accepting_ = false;
  bool reported_ = false;
  uint8_t ord_ = 0;  // RDMA Reads in flight: ours
  uint8_t ird_ = 0;  // and the peer's
  uint64_t progress_seen_ = 0;
  uint64_t empty_seen_ = 0;
  uint32_t quiet_ticks_ = 0;
  uint32_t ticks_ = 0;  // since it was established
};

}  // namespace rrdk::verbs

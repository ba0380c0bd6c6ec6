// A client that sends what a test wants, byte by byte: its own XIDs, connections that it cuts,
// chunks with invalid keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/device.h"
#include "proto/negotiation.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::loopback {

using Words = std::vector<uint32_t>;

inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// A received message, as words.
struct Received {
  Words words;

  uint32_t at(size_t i) const { return i < words.size() ? words[i] : 0xdeadbeef; }
  uint32_t xid() const { return at(0); }
  uint32_t type() const { return at(3); }  // RDMA_MSG 0, RDMA_NOMSG 1, RDMA_ERROR 4
  bool chunk_error() const { return type() == 4 && at(4) == 2; }
  bool operator==(const Received&) const = default;
};

inline Words segment(uint32_t key, uint32_t length, const std::byte* memory) {
  auto address = reinterpret_cast<uint64_t>(memory);
  return {key, length, static_cast<uint32_t>(address >> 32), static_cast<uint32_t>(address)};
}

struct RawCall {
  uint32_t xid = 0;
  uint32_t procedure = 0;
  Words arguments = {};
  Words credential = {0, 0};  // flavour, length, body
  Words lists = {0, 0, 0};    // Read list, Write list, Reply chunk
  uint32_t rdma_version = 1;  // 2: of draft-04

  Words message(uint32_t program, uint32_t version) const {
    Words start = {xid, rdma_version, 32, 0};
    if (rdma_version == 2)
      start = start + Words{0, 0};  // rdma_direction: CALL; rdma_inv_handle
    return start + lists + Words{xid, 0, 2, program, version, procedure} + credential +
           Words{0, 0} + arguments;
  }
};

class RawClient {
 public:
  RawClient(Memory& memory, const std::string& uri, uint32_t receives = 32,
            const proto::PrivateData& ours = {.send_size = 4096, .receive_size = 4096})
      : memory_(memory),
        device_(fabric::find_driver(uri)
                    .value()
                    ->open(memory, uri, fabric::Purpose::kConnecting)
                    .value()) {
    cq_ = device_->create_completion_queue(256).value();
    qp_ = device_->create_queue_pair({.cq = cq_.get(), .owner = this}).value();
    for (uint32_t i = 0; i < receives; ++i) {
      receives_.push_back(memory_.get(4096));
      post_receive(i);
    }
    EXPECT_TRUE(device_->connect(*qp_, uri, proto::encode(ours)));
  }
  ~RawClient() {
    qp_.reset();
    cq_.reset();
  }

  void pump() {
    std::array<fabric::Completion, 32> done;
    uint32_t n = cq_->poll(done);
    for (uint32_t i = 0; i < n; ++i) {
      if (done[i].op == fabric::Op::kReceive && done[i].status == fabric::WcStatus::kSuccess)
        take(done[i]);
      if (done[i].op == fabric::Op::kSend)
        sent_.pop_front();
    }
    for (const fabric::Event& event : device_->poll_events(16)) {
      up_ |= event.type == fabric::EventType::kEstablished;
      if (event.type == fabric::EventType::kRejected) {
        refused_ = true;
        rejection_ =
            proto::decode_rejection(std::span(event.private_data).first(event.private_data_length));
      }
      down_ |= event.type != fabric::EventType::kEstablished;
    }
  }
  bool up() const { return up_; }
  bool down() const { return down_; }
  bool refused() const { return refused_; }
  // Why the connection was refused, if the server said so.
  const std::optional<proto::Rejected>& rejection() const { return rejection_; }
  void disconnect() { qp_->disconnect(); }

  void send(const Words& words) {
    Buffer buffer = memory_.get(static_cast<uint32_t>(std::max<size_t>(4096, 4 * words.size())));
    for (size_t i = 0; i < words.size(); ++i)
      xdr::store_u32(buffer.data() + 4 * i, words[i]);
    fabric::SendWr wr;
    wr.num_sges = 1;
    wr.sges[0] = buffer.first(static_cast<uint32_t>(4 * words.size()));
    sent_.push_back(std::move(buffer));
    EXPECT_EQ(qp_->post_send({&wr, 1}), 1u);
  }
  // A key for the memory, valid until the connection ends.
  uint32_t expose(MemorySpan span, fabric::Rights rights = fabric::Rights::kRemoteWrite) {
    uint32_t key = 0;
    EXPECT_TRUE(qp_->reserve_keys({&key, 1}));
    fabric::SendWr wr;
    wr.op = fabric::Op::kBindKey;
    wr.rights = rights;
    wr.key = key;
    wr.num_sges = 1;
    wr.sges[0] = span;
    EXPECT_EQ(qp_->post_send({&wr, 1}), 1u);
    return key;
  }

  std::vector<Received> received;

 private:
  void post_receive(uint64_t index) {
    fabric::ReceiveWr wr = {index, receives_[index].first(4096)};
    EXPECT_EQ(qp_->post_receive({&wr, 1}), 1u);
  }
  void take(const fabric::Completion& done) {
    Received message;
    const std::byte* bytes = receives_[done.wr_id].data();
    for (uint32_t at = 0; at < done.byte_length; at += 4)
      message.words.push_back(xdr::load_u32(bytes + at));
    received.push_back(std::move(message));
    post_receive(done.wr_id);
  }

  Memory& memory_;
  std::unique_ptr<fabric::Device> device_;
  std::vector<Buffer> receives_;
  std::deque<Buffer> sent_;
  std::unique_ptr<fabric::CompletionQueue> cq_;
  std::unique_ptr<fabric::QueuePair> qp_;
  bool up_ = false;
  bool down_ = false;
  bool refused_ = false;
  std::optional<proto::Rejected> rejection_;
};

}  // namespace rrdk::loopback

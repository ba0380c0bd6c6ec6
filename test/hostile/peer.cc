#include "peer.h"

#include <algorithm>

#include "proto/negotiation.h"
#include "test/server/loopback.h"

namespace rrdk::hostile {

using fabric::EventType;
using fabric::Op;
using fabric::Rights;
using fabric::SendWr;
using fabric::test::test_memory;

namespace {

constexpr uint64_t kWorkId = 1u << 20;  // binds and invalidations; Receives are below, Sends above

}  // namespace

Bytes usual_private_data() {
  auto data = proto::encode({.remote_invalidation = true, .send_size = 4096, .receive_size = 4096});
  return {data.begin(), data.end()};
}

Bytes without_remote_invalidation() {
  Bytes data = usual_private_data();
  data[5] = std::byte{0};
  return data;
}

Peer::Peer(const std::string& uri, const PeerOptions& options)
    : uri_(uri), options_(options), end_(uri) {
  for (Memory which : {kReadable, kWritable, kRequest, kRevoked, kForeign}) {
    exposed_[which].buffer = test_memory().get(kBytes);
    for (uint32_t i = 0; i < kBytes; ++i)
      bytes(which)[i] = which == kReadable ? loopback::pattern(i) : std::byte{0x5a};
  }
}

Peer::~Peer() {
  qp_.reset();
  ally_.reset();
  kept_request_.reset();
  listener_.reset();
}

fabric::QueuePairOptions Peer::queue_pair_options() {
  return {.cq = end_.cq.get(), .send_wrs = 512, .receive_wrs = 512, .owner = this};
}

void Peer::connect() {
  qp_ = end_.queue_pair(queue_pair_options());
  post_receives(options_.receives);
  auto started = end_.device->connect(*qp_, uri_, options_.private_data);
  ASSERT_TRUE(started) << started.error().message;
}

void Peer::connect_ally() {
  auto options = queue_pair_options();
  options.owner = &ally_;
  ally_ = end_.queue_pair(options);
  auto started = end_.device->connect(*ally_, uri_, usual_private_data());
  ASSERT_TRUE(started) << started.error().message;
}

void Peer::listen() {
  listener_ = end_.device->listen(uri_).value();
  uri_ = listener_->uri();
}

void Peer::accept(fabric::ConnectRequest& request) {
  auto data = request.private_data();
  victims_private_data.assign(data.begin(), data.end());
  qp_ = request.create_queue_pair(queue_pair_options()).value();
  post_receives(options_.receives);
  if (auto accepted = request.accept(*qp_, options_.private_data); !accepted) {
    // A client whose patience has ended is gone, which on a slow machine can be before this.
    EXPECT_EQ(accepted.error().code, Errc::kConnectionLost) << accepted.error().message;
    closed_ = true;
  }
}

void Peer::answer(std::unique_ptr<fabric::ConnectRequest> request) {
  using Answer = PeerOptions::Answer;
  if (options_.answer == Answer::kAccept && !qp_)
    accept(*request);
  else if (options_.answer == Answer::kReject)
    request->reject(options_.rejection);
  else if (options_.answer == Answer::kNone)
    kept_request_ = std::move(request);
}

void Peer::pump() {
  flush();
  end_.pump();
  for (const fabric::Completion& completion : end_.take_completions())
    on_completion(completion);
  for (fabric::Event& event : std::exchange(end_.events, {}))
    on_event(event);
}

void Peer::on_event(fabric::Event& event) {
  if (event.owner == &ally_) {
    if (event.type == EventType::kEstablished) {
      bind(*ally_, exposed_[kForeign], kBytes, Rights::kRemoteWrite);
      ally_ready_ = true;
    }
    return;
  }
  switch (event.type) {
    case EventType::kConnectRequest:
      answer(std::move(event.request));
      return;
    case EventType::kShortage:
      return;
    case EventType::kEstablished:
      if (listener_ == nullptr)
        victims_private_data.assign(event.private_data.begin(),
                                    event.private_data.begin() + event.private_data_length);
      on_established();
      return;
    case EventType::kRejected:
    case EventType::kConnectFailed:
    case EventType::kDisconnected:
      closed_ = true;
      return;
  }
}

void Peer::on_established() {
  established_ = true;
  bind(*qp_, exposed_[kReadable], kBytes, Rights::kRemoteRead);
  bind(*qp_, exposed_[kWritable], kBytes, Rights::kRemoteWrite);
  bind(*qp_, exposed_[kRevoked], kBytes, Rights::kRemoteWrite);
  revoke(kRevoked);
}

void Peer::bind(fabric::QueuePair& qp, Exposed& exposed, uint32_t length, Rights rights) {
  ASSERT_TRUE(qp.reserve_keys({&exposed.key, 1}));
  SendWr wr = fabric::test::bind_wr(kWorkId, exposed.key, exposed.buffer.first(length), rights);
  ASSERT_EQ(qp.post_send({&wr, 1}), 1u);
}

void Peer::expose_request(const Bytes& request) {
  std::ranges::copy(request, bytes(kRequest));
  bind(*qp_, exposed_[kRequest], kBytes, Rights::kRemoteRead);
}

void Peer::revoke(Memory which) {
  post(fabric::test::invalidate_wr(kWorkId, exposed_[which].key));
}

void Peer::post_receives(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    receiving_.push_back(test_memory().get(options_.receive_size));
    const fabric::ReceiveWr wr{receiving_.size() - 1,
                               receiving_.back().first(options_.receive_size)};
    ASSERT_EQ(qp_->post_receive({&wr, 1}), 1u);
  }
}

void Peer::on_completion(const fabric::Completion& c) {
  if (c.owner != this)
    return;
  if (c.op == Op::kReceive) {
    if (c.status != fabric::WcStatus::kSuccess)
      return;
    const std::byte* data = receiving_[c.wr_id].data();
    heard.push_back({Bytes(data, data + c.byte_length), {}});
    if (c.has_invalidated)
      heard.back().invalidated = c.invalidated_key;
    const fabric::ReceiveWr wr{c.wr_id, receiving_[c.wr_id].first(options_.receive_size)};
    qp_->post_receive({&wr, 1});
    return;
  }
  if (c.op == Op::kRead || c.op == Op::kWrite)
    last_access_ = c.status;
  sending_.erase(c.wr_id);
}

void Peer::post(const SendWr& wr) {
  unposted_.push_back(wr);
  flush();
}

void Peer::flush() {
  while (!unposted_.empty() && qp_->post_send({&unposted_.front(), 1}) == 1)
    unposted_.pop_front();
}

void Peer::say(const Bytes& message, std::optional<uint32_t> invalidate) {
  Buffer buffer = test_memory().get(static_cast<uint32_t>(std::max<size_t>(message.size(), 1)));
  ASSERT_TRUE(buffer);
  std::ranges::copy(message, buffer.data());
  SendWr wr =
      fabric::test::send_wr(++next_id_, {buffer.first(static_cast<uint32_t>(message.size()))});
  if (invalidate) {
    wr.op = Op::kSendInvalidate;
    wr.invalidate_key = *invalidate;
  }
  sending_[next_id_] = std::move(buffer);
  post(wr);
}

void Peer::access(Op op, uint32_t key, uint64_t address, const Bytes& data) {
  Buffer buffer = test_memory().get(static_cast<uint32_t>(data.size()));
  ASSERT_TRUE(buffer);
  std::ranges::copy(data, buffer.data());
  last_access_.reset();
  SendWr wr = fabric::test::access_wr(
      ++next_id_, op, buffer.first(static_cast<uint32_t>(data.size())), key, address);
  sending_[next_id_] = std::move(buffer);
  post(wr);
}

void Peer::hang_up() {
  if (qp_)
    qp_->disconnect();
  if (ally_)
    ally_->disconnect();
}

const Bytes& Peer::heard_message(size_t n) const {
  static const Bytes kNothing;
  EXPECT_LT(n, heard.size()) << "the script looks at a message that has not come";
  return n < heard.size() ? heard[n].bytes : kNothing;
}

}  // namespace rrdk::hostile

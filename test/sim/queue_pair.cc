#include "queue_pair.h"

#include <algorithm>
#include <cstring>

#include "rrdk/xdr.h"

namespace rrdk::sim {

using fabric::Op;
using fabric::Rights;
using fabric::SendWr;
using fabric::WcStatus;

namespace {

const char* name_of(Op op) {
  switch (op) {
    case Op::kSend:
      return "Send";
    case Op::kSendInvalidate:
      return "Send with Invalidate";
    case Op::kRead:
      return "Read";
    case Op::kWrite:
      return "Write";
    case Op::kBindKey:
      return "Bind";
    case Op::kInvalidateKey:
      return "Invalidate";
    case Op::kReceive:
      return "Receive";
  }
  return "?";
}

uint32_t bytes_of(const SendWr& wr) {
  uint32_t length = 0;
  for (const MemorySpan& sge : wr.spans())
    length += sge.length;
  return length;
}

bool is_send(Op op) {
  return op == Op::kSend || op == Op::kSendInvalidate;
}

}  // namespace

bool QueuePair::reserve_keys(std::span<uint32_t> keys) {
  return keys_.reserve(context_.random, keys);
}

void QueuePair::release_key(uint32_t value) {
  Key* key = keys_.find(value);
  if (key == nullptr || key->state == Key::State::kReleased)
    context_.fail(name_, "key %08x is released twice, or was never reserved", value);
  else if (key->state == Key::State::kBound && !in_error_)
    context_.fail(name_, "xid %08x: key %08x is released while the peer can use it", key->xid,
                  value);
  else
    keys_.release(*key);
}

void QueuePair::post_receives(engine::Connection& engine) {
  for (const fabric::ReceiveWr& wr : engine.receives()) {
    ++receives_given_;
    if (in_error_ && shared_ == nullptr)
      report_receive(wr, WcStatus::kFlushed);
    else
      receives().push_back(wr);
  }
  engine.receives().clear();
}

void QueuePair::post(engine::Connection& engine) {
  post_receives(engine);
  for (const SendWr& wr : engine.sends())
    post_one(wr);
  engine.sends().clear();
  engine.on_posted();
  if (!engine.sends().empty() || !engine.receives().empty())
    return post(engine);
  schedule_execution();
}

void QueuePair::post_one(const SendWr& wr) {
  if (!established_ && !in_error_)
    context_.fail(name_, "a %s is posted before the connection is established", name_of(wr.op));
  if (context_.traced)
    context_.trace(name_, "post %s%s, %u bytes%s%s", name_of(wr.op), wr.signaled ? "*" : "",
                   bytes_of(wr), wr.key != 0 && !is_send(wr.op) ? ", key " : "",
                   wr.key != 0 && !is_send(wr.op) ? std::to_string(wr.key).c_str() : "");
  for (const MemorySpan& sge : wr.spans()) {
    if (sge.region == kNoRegion)
      context_.fail(name_, "a %s names memory that is not registered", name_of(wr.op));
  }
  About about = About::kCall;
  if (is_send(wr.op)) {
    message_.clear();
    for (const MemorySpan& sge : wr.spans())
      message_.insert(message_.end(), sge.data, sge.data + sge.length);
    about = owner_.on_send(message_);
  }
  slots_.push_back(wr.signaled);
  if (slots_.size() > limits_.send_wrs)
    context_.fail(name_, "%zu requests on a send queue of %u", slots_.size(), limits_.send_wrs);
  if (wr.op == Op::kRead && ++reads_ > limits_.reads)
    context_.fail(name_, "%u Reads at once, %u are allowed", reads_, limits_.reads);
  if ((wr.quiet && wr.signaled) ||
      (wr.copied && (!wr.quiet || !is_send(wr.op) || bytes_of(wr) > limits_.copied)))
    context_.fail(name_, "a %s of %u bytes is to be copied", name_of(wr.op), bytes_of(wr));
  if (in_error_) {
    report_send(wr, WcStatus::kFlushed);
    return;
  }
  queue_.emplace_back();
  queue_.back().wr = wr;
  if (wr.copied) {
    queue_.back().data = message_;
    queue_.back().wr.num_sges = 1;
    queue_.back().wr.sges[0].data = queue_.back().data.data();
    queue_.back().wr.sges[0].length = bytes_of(wr);
  }
  queue_.back().number = posted_++;
  queue_.back().about = about;
}

void QueuePair::schedule_execution() {
  if (executing_ || in_error_ || next_ == first_ + queue_.size())
    return;
  executing_ = true;
  context_.schedule.after(context_.delay(), *this, kExecute);
}

void QueuePair::on_event(uint32_t what, uint64_t argument) {
  switch (what) {
    case kExecute:
      executing_ = false;
      if (!in_error_)
        execute_next();
      return;
    case kDone:
      on_done(argument);
      return;
    case kPoll:
      poll();
      return;
  }
}

void QueuePair::execute_next() {
  Request& request = queue_[next_ - first_];
  bool retry = false;
  request.status = execute(request, retry);
  if (retry) {
    executing_ = true;
    context_.schedule.after(10'000, *this, kExecute);
    return;
  }
  retries_ = 0;
  // lib/fabric/work.h: in the order of posting, whichever requests report their completion.
  if (request.number != taken_effect_++)
    context_.fail(name_, "a %s takes effect out of order", name_of(request.wr.op));
  if (context_.traced)
    context_.trace(name_, "execute %s: %s", name_of(request.wr.op), to_string(request.status));
  uint64_t number = next_++;
  if (request.status == WcStatus::kSuccess) {
    context_.schedule.after(context_.delay(), *this, kDone, number);
    schedule_execution();
    return;
  }
  // Earlier requests have been acknowledged; a Read may have its data or not.
  for (Request& earlier : queue_) {
    if (&earlier == &request)
      break;
    if (!earlier.done && earlier.wr.op == Op::kRead && context_.random.one_in(2)) {
      earlier.status = WcStatus::kFlushed;
    } else if (!earlier.done) {
      land(earlier, earlier.data.size());
    }
    earlier.done = true;
  }
  request.done = true;
  report_done();
  fail("a request failed");
}

WcStatus QueuePair::execute(Request& request, bool& retry) {
  const SendWr& wr = request.wr;
  if (armed_) {
    armed_ = false;
    return random_error(wr.op);
  }
  switch (wr.op) {
    case Op::kSend:
    case Op::kSendInvalidate:
      return send(request, retry);
    case Op::kRead:
    case Op::kWrite:
      return move(request);
    case Op::kBindKey:
      return bind(wr);
    case Op::kInvalidateKey:
      return invalidate(wr);
    case Op::kReceive:
      break;
  }
  context_.fail(name_, "a request that is not in the send queue");
  return WcStatus::kLocalProtection;
}

WcStatus QueuePair::random_error(Op op) {
  constexpr WcStatus kLocal[] = {WcStatus::kLocalProtection};
  constexpr WcStatus kRemote[] = {WcStatus::kRemoteInvalid, WcStatus::kRemoteAccess,
                                  WcStatus::kRemoteOperation, WcStatus::kRnrExceeded,
                                  WcStatus::kPeerLost};
  bool local = op == Op::kBindKey || op == Op::kInvalidateKey;
  return local ? kLocal[0] : kRemote[context_.random.below(5)];
}

WcStatus QueuePair::send(const Request& request, bool& retry) {
  const SendWr& wr = request.wr;
  QueuePair& to = *peer_;
  if (to.in_error_)
    return WcStatus::kPeerLost;
  if (to.receives().empty()) {
    if (to.strays_ == 0)
      context_.fail(name_, "a Send meets no Receive");
    if (++retries_ > 50)
      return WcStatus::kRnrExceeded;
    retry = true;
    return WcStatus::kSuccess;
  }
  fabric::ReceiveWr receive = to.receives().front();
  uint32_t length = bytes_of(wr);
  if (length > receive.buffer.length) {
    context_.fail(name_, "a Send of %u bytes meets a Receive of %u", length, receive.buffer.length);
    return WcStatus::kRemoteInvalid;
  }
  to.receives().pop_front();
  Report report{};
  report.completion = {receive.wr_id, nullptr, Op::kReceive, WcStatus::kSuccess, false, length, 0};
  if (wr.op == Op::kSendInvalidate && !to.kill_key(wr.invalidate_key)) {
    report.completion.status = WcStatus::kRemoteAccess;
    to.report(report);
    to.fail("the peer's Send invalidates a dead key");
    return WcStatus::kRemoteAccess;
  }
  std::byte* out = receive.buffer.data;
  for (const MemorySpan& sge : wr.spans()) {
    std::memcpy(out, sge.data, sge.length);
    out += sge.length;
  }
  if (wr.op == Op::kSendInvalidate) {
    report.completion.has_invalidated = true;
    report.completion.invalidated_key = wr.invalidate_key;
  }
  if (length >= 16) {
    report.xid = xdr::load_u32(receive.buffer.data);
    report.about = request.about;
    report.credits = xdr::load_u32(receive.buffer.data + 8);
  }
  to.report(report);
  return WcStatus::kSuccess;
}

uint32_t QueuePair::smallest_receive() const {
  uint32_t smallest = UINT32_MAX;
  for (const fabric::ReceiveWr& wr : receives_)
    smallest = std::min(smallest, wr.buffer.length);
  return smallest;
}

bool QueuePair::stray(std::span<const std::byte> message) {
  if (in_error_ || receives_.empty() || receives_.front().buffer.length < message.size())
    return false;
  fabric::ReceiveWr receive = receives_.front();
  receives_.pop_front();
  std::copy(message.begin(), message.end(), receive.buffer.data);
  ++strays_;
  Report made_up{};
  made_up.completion = {receive.wr_id,
                        nullptr,
                        Op::kReceive,
                        WcStatus::kSuccess,
                        false,
                        static_cast<uint32_t>(message.size()),
                        0};
  made_up.stray = true;
  report(made_up);
  return true;
}

WcStatus QueuePair::move(Request& request) {
  const SendWr& wr = request.wr;
  bool write = wr.op == Op::kWrite;
  uint32_t length = bytes_of(wr);
  std::byte* far = peer_->access(wr.key, wr.remote_address, length,
                                 write ? Rights::kRemoteWrite : Rights::kRemoteRead);
  if (far == nullptr)
    return peer_->in_error_ ? WcStatus::kPeerLost : WcStatus::kRemoteAccess;
  if (!write) {
    request.data.assign(far, far + length);
    return WcStatus::kSuccess;
  }
  for (const MemorySpan& sge : wr.spans()) {
    std::memcpy(far, sge.data, sge.length);
    far += sge.length;
  }
  return WcStatus::kSuccess;
}

void QueuePair::land(Request& request, size_t bytes) {
  if (request.wr.op != Op::kRead)
    return;
  const std::byte* from = request.data.data();
  for (const MemorySpan& sge : request.wr.spans()) {
    size_t n = std::min<size_t>(bytes, sge.length);
    std::memcpy(sge.data, from, n);
    from += n;
    bytes -= n;
  }
}

std::byte* QueuePair::access(uint32_t value, uint64_t address, uint32_t length, Rights rights) {
  if (in_error_)
    return nullptr;
  Key* key = keys_.find(value);
  if (key == nullptr || key->state == Key::State::kReserved || key->span.data == nullptr) {
    context_.fail(name_, "the peer uses key %08x, which was never bound", value);
    return nullptr;
  }
  auto base = reinterpret_cast<uint64_t>(key->span.data);
  if (address < base || length > key->span.length || address - base > key->span.length - length) {
    context_.fail(name_, "xid %08x: the peer leaves key %08x's %u bytes: %u bytes at offset %lld",
                  key->xid, value, key->span.length, length,
                  static_cast<long long>(address - base));
    return nullptr;
  }
  if (key->rights != rights) {
    context_.fail(name_, "xid %08x: the peer uses key %08x without the right", key->xid, value);
    return nullptr;
  }
  if (key->state != Key::State::kBound) {
    if (!owner_.given_up(*key))
      context_.fail(name_, "xid %08x: the peer uses key %08x after its call", key->xid, value);
    return nullptr;
  }
  return key->span.data + (address - base);
}

bool QueuePair::kill_key(uint32_t value) {
  Key* key = keys_.find(value);
  if (key != nullptr && key->state == Key::State::kBound) {
    key->state = Key::State::kDead;
    return true;
  }
  if (key == nullptr || !owner_.given_up(*key))
    context_.fail(name_, "the peer invalidates key %08x, which is not alive", value);
  return false;
}

WcStatus QueuePair::bind(const SendWr& wr) {
  Key* key = keys_.find(wr.key);
  if (key == nullptr || key->state != Key::State::kReserved) {
    context_.fail(name_, "key %08x is bound twice, or was never reserved", wr.key);
    return WcStatus::kLocalProtection;
  }
  for (const Key& other : keys_.all()) {
    bool overlaps = other.span.data < wr.sges[0].data + wr.sges[0].length &&
                    wr.sges[0].data < other.span.data + other.span.length;
    bool written = other.rights == Rights::kRemoteWrite || wr.rights == Rights::kRemoteWrite;
    if (other.state == Key::State::kBound && overlaps && written)
      context_.fail(name_, "xid %08x: memory of key %08x is offered again while the peer has it",
                    other.xid, other.value);
  }
  key->state = Key::State::kBound;
  key->rights = wr.rights;
  key->span = wr.sges[0];
  return WcStatus::kSuccess;
}

WcStatus QueuePair::invalidate(const SendWr& wr) {
  Key* key = keys_.find(wr.key);
  if (key == nullptr || key->state == Key::State::kReserved ||
      key->state == Key::State::kReleased) {
    context_.fail(name_, "key %08x is invalidated and was not bound", wr.key);
    return WcStatus::kLocalProtection;
  }
  key->state = Key::State::kDead;
  return WcStatus::kSuccess;
}

void QueuePair::on_done(uint64_t number) {
  if (in_error_ || number < first_)
    return;
  Request& request = queue_[number - first_];
  if (request.done)
    return;
  request.done = true;
  land(request, request.data.size());
  report_done();
}

void QueuePair::report_done() {
  while (!queue_.empty() && queue_.front().done) {
    const Request& request = queue_.front();
    if (request.wr.signaled || request.status != WcStatus::kSuccess)
      report_send(request.wr, request.status);
    queue_.pop_front();
    ++first_;
  }
}

void QueuePair::fail(const char* why) {
  if (in_error_)
    return;
  in_error_ = true;
  if (context_.traced)
    context_.trace(name_, "in error: %s", why);
  for (Request& request : queue_) {
    if (!request.data.empty() && !request.done)
      land(request, context_.random.below(static_cast<uint32_t>(request.data.size())));
    report_send(request.wr, WcStatus::kFlushed);
  }
  queue_.clear();
  for (const fabric::ReceiveWr& wr : receives_)
    report_receive(wr, WcStatus::kFlushed);
  receives_.clear();
  owner_.on_queue_pair_error();
}

void QueuePair::report_send(const SendWr& wr, WcStatus status) {
  if (wr.quiet)
    return;
  Report made{};
  made.completion = {wr.wr_id, nullptr, wr.op, status, false, 0, 0};
  report(made);
}

void QueuePair::report_receive(const fabric::ReceiveWr& wr, WcStatus status) {
  Report made{};
  made.completion = {wr.wr_id, nullptr, Op::kReceive, status, false, 0, 0};
  report(made);
}

void QueuePair::report(const Report& made) {
  std::deque<Report>& reports =
      made.completion.op == Op::kReceive ? receive_reports_ : send_reports_;
  reports.push_back(made);
  reports.back().order = reported_++;
  if (polling_)
    return;
  polling_ = true;
  context_.schedule.after(context_.delay(), *this, kPoll);
}

void QueuePair::poll() {
  polling_ = false;
  constexpr uint32_t kSizes[] = {1, 1, 2, 4, 32};
  batch_.clear();
  for (uint32_t n = kSizes[context_.random.below(5)]; n != 0 && has_reports(); --n)
    take_report();
  for (const Report& one : batch_) {
    if (context_.traced)
      context_.trace(name_, "complete %s: %s, %u bytes, xid %08x%s", name_of(one.completion.op),
                     to_string(one.completion.status), one.completion.byte_length, one.xid,
                     one.stray ? ", stray" : "");
    if (one.completion.op == Op::kReceive)
      ++receives_reported_;
    else
      retire(one.completion);
  }
  if (has_reports()) {
    polling_ = true;
    context_.schedule.after(context_.delay(), *this, kPoll);
  }
  owner_.on_reports(batch_);
}

void QueuePair::take_report() {
  bool send = receive_reports_.empty();
  if (!send && !send_reports_.empty()) {
    send = send_reports_.front().order < receive_reports_.front().order;
    if (context_.random.one_in(4))
      send = !send;
  }
  std::deque<Report>& from = send ? send_reports_ : receive_reports_;
  batch_.push_back(from.front());
  from.pop_front();
}

// Slots of the send queue come back with the signaled request behind them.
void QueuePair::retire(const fabric::Completion& done) {
  reads_ -= done.op == Op::kRead;
  if (done.status != WcStatus::kSuccess) {
    slots_.clear();
    return;
  }
  while (!slots_.empty()) {
    bool signaled = slots_.front();
    slots_.pop_front();
    if (signaled)
      return;
  }
}

}  // namespace rrdk::sim

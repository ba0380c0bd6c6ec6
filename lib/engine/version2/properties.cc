#include "engine/version2/properties.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "engine/requester.h"
#include "engine/responder.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

using proto::ErrorCode;
using proto::MessageType;
using proto::Property;
using proto::PropertyBody;

namespace {

constexpr uint32_t kRoom = 256;  // for each message other than CONNPROP
// For CONNPROP, with values of the largest size: smaller than any Receive.
constexpr uint32_t kAnnouncementRoom =
    64 + static_cast<uint32_t>(kMostProperties * (8 + kMostPropertyValue));
static_assert(kAnnouncementRoom <= proto::kInlineThreshold);
constexpr uint32_t kMostWanted = 512;             // entries of a request, each of which is answered
constexpr uint64_t kRequestWait = 5'000'000'000;  // V2D4-POP-25

using Word = std::array<std::byte, 4>;

Word word(uint32_t value) {
  Word bytes;
  xdr::store_u32(bytes.data(), value);
  return bytes;
}

// A subset being built: element N is bit N mod 32 of word N div 32.
class Subset {
 public:
  void add(uint32_t index) {
    words_[index / 32] |= 1u << index % 32;
    count_ = std::max(count_, index / 32 + 1);
  }
  std::span<const uint32_t> words() const { return {words_.data(), count_}; }

 private:
  std::array<uint32_t, kMostWanted / 32> words_ = {};
  uint32_t count_ = 0;
};

// Both known properties are one word. An empty one means the default (V2D4-PROP-07).
bool read_word(const proto::Property& property, uint32_t otherwise, uint32_t& value) {
  value = property.data.empty() ? otherwise : 0;
  if (property.data.size() == sizeof(uint32_t))
    value = xdr::load_u32(property.data.data());
  return property.data.empty() || property.data.size() == sizeof(uint32_t);
}

}  // namespace

bool read_change(const proto::PropertySet& set, PropertyChange& change) noexcept {
  constexpr PropertyValues kDefaults;
  bool right = true;
  set.for_each([&](uint32_t index, const proto::Property& property) {
    uint32_t value = 0;
    if (property.id == proto::kReceiveBufferSize) {
      // No version has a threshold below 1024 (V2D4-PROP-25).
      right &=
          read_word(property, kDefaults.receive_size, value) && value >= proto::kInlineThreshold;
      change.receive_size = value;
      change.size_index = index;
    } else if (property.id == proto::kBackwardSupport) {
      right &= read_word(property, static_cast<uint32_t>(kDefaults.backward), value) && value <= 2;
      change.backward = static_cast<proto::BackwardSupport>(value);
      change.backward_index = index;
    }
  });
  return right;
}

Properties::Properties(Common& common, Requester& requester, Responder& responder) noexcept
    : common_(common),
      announced_(!common.options.properties),
      requester_(requester),
      responder_(responder),
      announcement_{.job = {.tag = {WorkKind::kProperties, &announcement_}}, .room = {}} {
  for (std::span<Outgoing> kind : {std::span<Outgoing>(requests_), std::span<Outgoing>(answers_)}) {
    for (Outgoing& message : kind)
      message.job.tag = {WorkKind::kProperties, &message};
  }
}

bool Properties::take_room() noexcept {
  if (room_)
    return true;
  room_ = common_.memory.get(kAnnouncementRoom + 2 * kOfAKind * kRoom);
  if (!room_)
    return false;
  std::byte* at = room_.data();
  announcement_.room = {at, kAnnouncementRoom, room_.region()};
  at += kAnnouncementRoom;
  auto give = [&](Outgoing& message) {
    message.room = {at, kRoom, room_.region()};
    at += kRoom;
  };
  std::ranges::for_each(requests_, give);
  std::ranges::for_each(answers_, give);
  return true;
}

Properties::Outgoing* Properties::idle(std::span<Outgoing> kind) noexcept {
  auto found = std::ranges::find(kind, false, &Outgoing::busy);
  return found != kind.end() && take_room() ? &*found : nullptr;
}

// Returns an XID that no call of ours has, so that an error about it can be told apart
// (V2D4-POP-15).
uint32_t Properties::next_xid() noexcept {
  return requester_.other_xid(++counter_);
}

void Properties::post(Outgoing& message, uint32_t length) noexcept {
  RRDK_ASSERT(length <= message.room.length, length, message.room.length);
  message.length = length;
  message.busy = true;
  if (!common_.up() || !common_.sends.idle() || !emit(message))
    common_.sends.push(message.job);
}

bool Properties::emit(Outgoing& message) noexcept {
  RRDK_ASSERT(message.busy);
  if (common_.sends.free_slots() == 0)
    return false;
  fabric::SendWr& wr = common_.sends.append(message.job, fabric::Op::kSend, true);
  wr.num_sges = 1;
  wr.sges[0] = {message.room.data, message.length, message.room.region};
  return true;
}

// In all of these messages a client asks for credits and a server grants them (V2D4-POP-30).
void Properties::send(Outgoing& message, proto::PropertyMessage content) noexcept {
  bool is_client = common_.options.role == Role::kRequester;
  content.credits = is_client ? requester_.asked : responder_.grant.last();
  post(message, proto::encode(content, {message.room.data, message.room.length}));
}

// Which backward messages we support: a client states it for the calls, a server for the replies to
// its own calls (section 5.2.2).
proto::BackwardSupport Properties::own_backward_support() const noexcept {
  if (!common_.both_ways())
    return proto::BackwardSupport::kNone;
  return common_.options.backward_chunks ? proto::BackwardSupport::kGeneral
                                         : proto::BackwardSupport::kInline;
}

// Only our Receive Buffer Size may change later. Backward support and registered properties are
// fixed (V2D4-POP-10).
void Properties::announce_all(uint32_t xid) noexcept {
  delayed_ = !take_room();
  if (delayed_)
    return;
  announced_ = true;
  size_ = common_.receives.kept_size();
  Word size = word(size_), backward = word(static_cast<uint32_t>(own_backward_support()));
  std::array<Property, 2 + kMostProperties> all = {Property{proto::kReceiveBufferSize, size},
                                                   Property{proto::kBackwardSupport, backward}};
  uint32_t count = add_registered(all, 2);
  std::span<const Property> set(all.data(), count);
  const std::array<uint32_t, 1> stays = {((1u << count) - 1) & ~1u};
  announcement_xid_ = xid != 0 ? xid : next_xid();
  send(announcement_, {.type = MessageType::kConnProp,
                       .xid = announcement_xid_,
                       .set = set,
                       .first = stays,
                       .second = {}});
  apply();
}

void Properties::announce_size() noexcept {
  common_.receives.keep_size();
  ++common_.counters.receive_size_changes;
  size_ = common_.receives.size();
  Word size = word(size_);
  const std::array<Property, 1> set = {Property{proto::kReceiveBufferSize, size}};
  announcement_xid_ = next_xid();
  send(announcement_, {.type = MessageType::kUpdProp,
                       .xid = announcement_xid_,
                       .set = set,
                       .first = {},
                       .second = {}});
  apply();
}

void Properties::refuse(const proto::Header& header, ErrorCode code) noexcept {
  common_.refused(code == ErrorCode::kBadOption ? Refusal::kProperties : Refusal::kBadProperties);
  Outgoing* answer = idle(answers_);
  if (answer == nullptr)
    return;
  proto::Header error;
  error.xid = header.xid;
  error.version = header.version;
  error.credits = common_.options.role == Role::kRequester ? 1 : responder_.grant.last();
  error.wire = proto::Wire::kDraft04;
  error.type = MessageType::kError;
  error.error = {.code = code};
  ++common_.counters.transport_errors_sent;
  post(*answer, proto::encode(error, {answer->room.data, kRoom}));
}

void Properties::on_message(const proto::Header& header,
                            std::span<const std::byte> message) noexcept {
  bool is_answer = header.type == MessageType::kRespProp;
  PropertyBody body;
  PropertyChange change;
  bool right = proto::decode_properties(message, header.type, body) == proto::Verdict::kOk &&
               read_change(body.set, change) && are_values(body.set);
  if (!common_.options.properties) {
    if (is_answer)
      common_.refused(Refusal::kProperties);
    else
      refuse(header, ErrorCode::kBadOption);
    return;
  }
  if (right && body.length != message.size())
    common_.refused(Refusal::kTrailingBytes);
  bool is_ours = (request_waits_ || request_late_) && header.xid == request_xid_;
  if (is_answer && !is_ours) {
    common_.refused(Refusal::kUnknownXid);
  } else if (!right && is_answer) {
    common_.refused(Refusal::kBadProperties);
    end_request(true);
  } else if (!right) {
    refuse(header, ErrorCode::kBadHeader);
  } else if (is_answer) {
    on_resprop(header, change, body);
  } else if (header.type == MessageType::kConnProp) {
    const proto::PropertySubset* stays = peer_said_ ? nullptr : &body.first;
    on_connprop(header, change, body);
    hear_registered(body.set, stays);
  } else if (header.type == MessageType::kUpdProp) {
    on_updprop(change);
    hear_registered(body.set, nullptr);
  } else {
    on_reqprop(header, body);
  }
}

// A server that receives CONNPROP before any call answers at once, so that the client may continue
// (V2D4-NEG-09).
void Properties::on_connprop(const proto::Header& header, const PropertyChange& change,
                             const PropertyBody& body) noexcept {
  if (peer_said_) {  // V2D4-POP-13
    on_updprop(change);
    return;
  }
  peer_said_ = true;
  peer_size_moves_ = change.receive_size && !body.first.has(change.size_index);
  peer_.backward = change.backward.value_or(PropertyValues().backward);
  common_.backward = peer_.backward;
  if (common_.refuses_calls())
    requester_.end_queued(CallStatus::kRemoteError);
  else if (common_.options.backward_chunks && common_.backward == proto::BackwardSupport::kGeneral)
    common_.upcalls.on_chunks_taken();
  set_peer_size(change.receive_size.value_or(PropertyValues().receive_size));
  if (!announced_)
    announce_all(common_.options.role == Role::kResponder ? header.xid : 0);
}

// The peer declared some values constant. Only a smaller size is accepted for these, because
// ignoring that could cost the connection (V2D4-POP-28).
void Properties::on_updprop(const PropertyChange& change) noexcept {
  bool smaller = change.receive_size && *change.receive_size < peer_.receive_size;
  if (change.backward || (change.receive_size && !peer_size_moves_))
    common_.refused(Refusal::kFixedProperty);
  if (change.receive_size && (peer_size_moves_ || smaller))
    set_peer_size(*change.receive_size);
}

// Each entry is done, refused or answered with another value (V2D4-POP-23).
void Properties::on_reqprop(const proto::Header& header, const PropertyBody& body) noexcept {
  if (body.set.count() > kMostWanted) {
    refuse(header, ErrorCode::kSystem);
    return;
  }
  Outgoing* answer = idle(answers_);
  if (answer == nullptr) {  // the peer will take that for a refusal
    common_.refused(Refusal::kManyRequests);
    return;
  }
  Subset done, rejected;
  bool answered = false;
  bool other = false;
  body.set.for_each([&](uint32_t index, const Property& property) {
    bool is_size = property.id == proto::kReceiveBufferSize && !std::exchange(answered, true);
    uint32_t wanted = 0;
    if (is_size)
      wanted = property.data.empty() ? PropertyValues().receive_size
                                     : xdr::load_u32(property.data.data());
    bool too_small = wanted < proto::kInlineThreshold2 ||  // V2D4-PROP-25
                     (wanted < size_ && requester_.awaits_more_than(wanted));
    if (!is_size || too_small)
      rejected.add(index);
    else if (grant(wanted))
      done.add(index);
    else
      other = true;
  });
  Word size = word(size_);
  const std::array<Property, 1> now = {Property{proto::kReceiveBufferSize, size}};
  send(*answer, {.type = MessageType::kRespProp,
                 .xid = header.xid,
                 .set = other ? std::span<const Property>(now) : std::span<const Property>(),
                 .first = done.words(),
                 .second = rejected.words()});
  apply();
}

// Returns true if our Receives have the wanted size. A smaller size takes effect at once, a larger
// one when the smaller Receives are used up; an UPDPROP then reports it.
bool Properties::grant(uint32_t wanted) noexcept {
  const bool at_hand = common_.receives.shared() && wanted <= common_.receives.size();
  if (wanted > size_ && !at_hand) {
    raise(std::min(wanted, common_.options.max_receive_size));
    return false;
  }
  common_.receives.resize(wanted);  // no longer any larger
  common_.counters.receive_size_changes += wanted != size_;
  size_ = wanted;
  return true;
}

bool Properties::raise(uint32_t receive_size) noexcept {
  RRDK_ON_CORE(common_.pool);
  bool told = announced_ && common_.options.properties && !peer_refuses_;
  if (!told || receive_size <= common_.receives.size() ||
      receive_size > common_.options.max_receive_size)
    return false;
  if (!common_.upcalls.may_grow(receive_size, common_.receives.slots())) {
    ++common_.counters.growth_refused;
    return false;
  }
  common_.receives.resize(receive_size);
  return true;
}

bool Properties::request(uint32_t receive_size) noexcept {
  bool may_ask = peer_size_moves_ && !peer_refuses_ && !request_waits_;
  Outgoing* request = idle(requests_);
  if (!may_ask || receive_size < proto::kInlineThreshold2 || request == nullptr)
    return false;
  Word size = word(receive_size);
  const std::array<Property, 1> set = {Property{proto::kReceiveBufferSize, size}};
  request_waits_ = true;
  request_late_ = false;
  request_xid_ = next_xid();
  wanted_ = receive_size;
  largest_ = std::max(largest_, receive_size);  // we intend to use it
  waits_since_ns_ = 0;
  apply();  // if it is smaller, what we ask for applies at once (V2D4-PROP-24)
  send(*request,
       {.type = MessageType::kReqProp, .xid = request_xid_, .set = set, .first = {}, .second = {}});
  return true;
}

// An entry in none of the three sets, or in more than one, counts as refused (V2D4-POP-24).
// Properties that were not asked for are ignored (V2D4-POP-22). A late answer counts only if it
// makes our Sends smaller (V2D4-POP-25).
void Properties::on_resprop(const proto::Header&, const PropertyChange& change,
                            const PropertyBody& body) noexcept {
  bool done = body.first.has(0);
  bool rejected = body.second.has(0);
  bool other = change.receive_size.has_value();
  uint32_t now = peer_.receive_size;
  bool refused = done + rejected + other != 1 || rejected;
  if (!refused)
    now = other ? *change.receive_size : wanted_;
  if (request_late_)
    common_.refused(Refusal::kLateReply);
  if (now < peer_.receive_size || (now > peer_.receive_size && !request_late_))
    set_peer_size(now);
  end_request(refused);
}

void Properties::end_request(bool refused) noexcept {
  if (request_waits_) {
    ++common_.counters.size_requests_ended;
    common_.counters.size_requests_refused += refused;
  }
  request_waits_ = request_late_ = false;
  apply();
}

// The peer does not know property messages: what we announced does not count, and no more are sent
// (V2D4-POP-05, V2D4-POP-32).
void Properties::give_up_on_peer() noexcept {
  peer_refuses_ = true;
  size_ = std::min(size_, proto::kInlineThreshold2);
}

bool Properties::on_error(const proto::Header& header) noexcept {
  if (request_late_ && header.xid == request_xid_) {
    common_.refused(Refusal::kLateReply);
    request_late_ = false;
    return true;
  }
  bool to_request = request_waits_ && header.xid == request_xid_;
  bool to_announcement = announcement_xid_ != 0 && header.xid == announcement_xid_;
  if (!to_request && !to_announcement)
    return false;
  ErrorCode code = header.error.code;
  if (code == ErrorCode::kBadOption || code == ErrorCode::kBadProc || code == ErrorCode::kBadHeader)
    give_up_on_peer();
  if (to_request)
    end_request(true);
  else
    apply();
  return true;
}

void Properties::set_peer_size(uint32_t size) noexcept {
  if (size < proto::kInlineThreshold2)
    common_.refused(Refusal::kSmallReceives);
  common_.counters.peer_receive_size_changes += peer_.receive_size != size;
  peer_.receive_size = size;
  apply();
}

// A Send is at most as large as the peer's Receives, and as our own largest Send. The smaller of
// both ends' Receives decides whether a reply needs a Reply chunk (V2D4-PROP-21, V2D4-PROP-26). So
// our Sends may be as large as any Receive size that we ever announced: calls in flight rely on it.
void Properties::apply() noexcept {
  Thresholds& thresholds = common_.thresholds(proto::Wire::kDraft04);
  largest_ = std::max({largest_, common_.options.send_size, size_});
  uint32_t send = std::min(peer_.receive_size, largest_);
  if (request_waits_)
    send = std::min(send, wanted_);
  thresholds = {send, std::min(size_, peer_.receive_size)};
  if (common_.wire == proto::Wire::kDraft04 && common_.settled)
    common_.settle();
}

bool Properties::waiting() const noexcept {
  bool grown = announced_ && !common_.receives.shared() && size_ != common_.receives.size() &&
               common_.options.properties && !peer_refuses_ && common_.receives.grown() &&
               !announcement_.busy;
  return grown || delayed_;
}

void Properties::pump() noexcept {
  if (delayed_)
    announce_all(0);
  else
    announce_size();
}

void Properties::on_tick(uint64_t now_ns) noexcept {
  if (!request_waits_)
    return;
  if (waits_since_ns_ == 0)
    waits_since_ns_ = now_ns;
  if (now_ns - waits_since_ns_ < kRequestWait)
    return;
  end_request(true);
  request_late_ = true;
}

}  // namespace rrdk::engine

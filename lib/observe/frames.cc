#include "observe/frames.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace rrdk::observe {

namespace {

using What = CaptureEvent::What;

constexpr uint32_t kMtu = 4096;
constexpr uint16_t kRoceV2Port = 4791;
constexpr uint16_t kFirstSourcePort = 0xC000;
constexpr uint32_t kQueuePairMask = 0xFFFFFF;
constexpr uint32_t kPsnMask = 0xFFFFFF;
constexpr uint32_t kIcrcBytes = 4;
constexpr size_t kEthernetBytes = 14, kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8;
constexpr size_t kBaseHeaderBytes = 12;
constexpr size_t kManagementBytes = 256;  // of a management datagram
constexpr size_t kAlternatePath = 44;     // in a request for a connection
constexpr uint16_t kNfsOverRdmaPort = 20049;
constexpr uint8_t kMtuCode = 5;  // 4096 bytes

// pcapng: blocks, and options within them.
constexpr uint32_t kInterfaceBlock = 1, kStatisticsBlock = 5, kPacketBlock = 6;
constexpr uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr uint16_t kEndOfOptions = 0, kComment = 1, kPacketFlags = 2, kInterfaceName = 2,
                   kUserApplication = 4, kReceived = 4, kDropped = 5, kTimeResolution = 9;
constexpr uint32_t kInbound = 1, kOutbound = 2;
constexpr uint16_t kLinkTypeEthernet = 1;

// Opcodes of the base transport header, reliable connected (InfiniBand specification, table 38).
enum Opcode : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendOnly = 0x04,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteOnly = 0x0A,
  kReadRequest = 0x0C,
  kReadResponseFirst = 0x0D,
  kReadResponseMiddle = 0x0E,
  kReadResponseLast = 0x0F,
  kReadResponseOnly = 0x10,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kDatagramSendOnly = 0x64,  // unreliable datagram
};

// AETH: no error.
constexpr std::array<std::byte, 4> kAcknowledged = {};

// Bytes of a header, in network byte order.
class Header {
 public:
  Header& u8(uint64_t value) { return add(value, 1); }
  Header& u16(uint64_t value) { return add(value, 2); }
  Header& u24(uint64_t value) { return add(value, 3); }
  Header& u32(uint64_t value) { return add(value, 4); }
  Header& u64(uint64_t value) { return add(value, 8); }
  Header& zeros(size_t count) {
    std::memset(&store_[size_], 0, count);
    size_ += count;
    return *this;
  }
  Header& bytes(const void* from, size_t count) {
    if (count != 0)
      std::memcpy(&store_[size_], from, count);
    size_ += count;
    return *this;
  }
  void set_u16(size_t at, uint32_t value) {
    store_[at] = static_cast<std::byte>(value >> 8);
    store_[at + 1] = static_cast<std::byte>(value);
  }
  size_t size() const { return size_; }
  std::span<const std::byte> span() const { return {store_.data(), size_}; }

 private:
  Header& add(uint64_t value, size_t count) {
    for (size_t i = count; i-- != 0;)
      store_[size_++] = static_cast<std::byte>(value >> (8 * i));
    return *this;
  }
  std::array<std::byte, 256> store_;
  size_t size_ = 0;
};

// The checksum of IPv4's header, whose own field counts as zero (RFC 791 section 3.1).
uint16_t checksum(std::span<const std::byte> header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2)
    sum += std::to_integer<uint32_t>(header[i]) << 8 | std::to_integer<uint32_t>(header[i + 1]);
  while (sum > 0xFFFF)
    sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

uint32_t packets_of(uint32_t length) {
  return length == 0 ? 1 : length / kMtu + (length % kMtu != 0);
}

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// Returns false if it is not an address of that kind. A zone is ignored.
bool parse(int family, std::string_view host, std::array<uint8_t, 16>& address) {
  return inet_pton(family, std::string(host.substr(0, host.find('%'))).c_str(), address.data()) ==
         1;
}

Header link_and_network(bool is_v6, const std::array<uint8_t, 16>& from,
                        const std::array<uint8_t, 16>& to, bool inbound, size_t udp_length,
                        uint16_t id) {
  Header h;
  h.u24(0x020000).u24(inbound ? 1 : 2).u24(0x020000).u24(inbound ? 2 : 1);  // locally administered
  if (is_v6) {
    h.u16(0x86DD).u32(0x60000000).u16(udp_length).u8(17).u8(64);
    h.bytes(from.data(), 16).bytes(to.data(), 16);
    return h;
  }
  h.u16(0x0800).u16(0x4500).u16(kIpv4Bytes + udp_length).u16(id).u16(0x4000).u8(64).u8(17).u16(0);
  h.bytes(from.data(), 4).bytes(to.data(), 4);
  h.set_u16(kEthernetBytes + 10, checksum(h.span().subspan(kEthernetBytes)));
  return h;
}

}  // namespace

std::string describe(const Peer& peer) {
  return std::string(peer.driver) + "\n" + peer.local.host + "\n" + peer.remote.host + "\n" +
         peer.to_string();
}

Frames::Frames(int64_t real_minus_monotonic_ns)
    : real_minus_monotonic_ns_(real_minus_monotonic_ns) {
  const size_t begin = begin_block(kSectionBlock);
  put(kByteOrderMagic);
  put(uint16_t{1});  // version 1.0
  put(uint16_t{0});
  put(UINT64_MAX);  // the section's length is not known
  put_option(kUserApplication, "RRDK");
  put_option(kEndOfOptions, {});
  end_block(begin);
}

size_t Frames::begin_block(uint32_t type) {
  const size_t begin = out_.size();
  put(type);
  put(uint32_t{0});
  return begin;
}

void Frames::end_block(size_t begin) {
  const auto length = static_cast<uint32_t>(out_.size() - begin + sizeof(uint32_t));
  std::memcpy(&out_[begin + sizeof(uint32_t)], &length, sizeof length);
  put(length);
}

void Frames::put_option(uint16_t code, std::string_view value) {
  put(code);
  put(static_cast<uint16_t>(value.size()));
  put(std::as_bytes(std::span(value)));
  out_.resize((out_.size() + 3) & ~size_t{3});
}

uint32_t Frames::interface_of(std::string_view driver) {
  const auto found = std::ranges::find(interfaces_, driver);
  if (found != interfaces_.end())
    return static_cast<uint32_t>(found - interfaces_.begin());
  interfaces_.emplace_back(driver);
  const size_t begin = begin_block(kInterfaceBlock);
  put(kLinkTypeEthernet);
  put(uint16_t{0});
  put(uint32_t{0});  // no limit to a packet's length
  put_option(kInterfaceName, driver);
  put_option(kTimeResolution, "\x09");  // nanoseconds
  put_option(kEndOfOptions, {});
  end_block(begin);
  return static_cast<uint32_t>(interfaces_.size() - 1);
}

void Frames::meet(const CaptureEvent& event) {
  std::string_view text(reinterpret_cast<const char*>(event.bytes().data()), event.captured);
  const std::string_view driver = take_line(text);
  const std::string_view local = take_line(text);
  const std::string_view remote = take_line(text);
  Connection& c = connections_[event.connection];
  c = {};
  c.interface = interface_of(driver);
  c.name = "connection " + std::to_string(event.connection) + ", " + std::string(text);
  const auto id = static_cast<uint32_t>(event.connection);
  c.ours.queue_pair = (2 * id) & kQueuePairMask;
  c.theirs.queue_pair = (2 * id + 1) & kQueuePairMask;
  c.is_v6 = parse(AF_INET6, remote, c.theirs.address) && parse(AF_INET6, local, c.ours.address);
  if (!c.is_v6 && !parse(AF_INET, local, c.ours.address))
    c.ours.address = {127, 0, 0, 1};
  if (!c.is_v6 && !parse(AF_INET, remote, c.theirs.address))
    c.theirs.address = {127, static_cast<uint8_t>(0x80 | id >> 16), static_cast<uint8_t>(id >> 8),
                        static_cast<uint8_t>(id)};
  add_handshake(c, event);
}

// As InfiniBand's connection manager would do it (InfiniBand specification, section 12): tshark
// matches calls and replies of queue pairs whose connection it has seen. Without private data,
// which is internal to the driver.
void Frames::add_handshake(Connection& connection, const CaptureEvent& event) {
  const bool is_v6 = connection.is_v6;
  const End& client = event.outbound ? connection.ours : connection.theirs;
  const End& server = event.outbound ? connection.theirs : connection.ours;
  const auto add_address = [is_v6](Header& h, const End& end, uint32_t prefix_of_v4) {
    if (!is_v6)
      h.u64(0).u32(prefix_of_v4);
    h.bytes(end.address.data(), is_v6 ? 16 : 4);
  };
  const uint32_t client_id = 2 * server.queue_pair, server_id = client_id + 1;  // communication IDs
  const auto management = [&](uint16_t attribute) {
    return Header().u8(1).u8(7).u8(2).u8(3).u32(0).u64(client_id).u16(attribute).u16(0).u32(0);
  };
  Header request = management(0x0010);
  request.u32(client_id).u32(0).u64(0x0000000001060000 | kNfsOverRdmaPort).u64(0).u32(0).u32(0);
  request.u24(client.queue_pair).u8(0).u24(0).u8(0).u24(0).u8(0).u24(0).u8(0);
  request.u16(0xFFFF).u8(kMtuCode << 4).u8(0).u16(0xFFFF).u16(0xFFFF);
  add_address(request, client, 0xFFFF);
  add_address(request, server, 0xFFFF);
  request.u32(0).u32(0).zeros(kAlternatePath);
  request.u8(0).u8(is_v6 ? 0x60 : 0x40).u16(kFirstSourcePort | (client.queue_pair & 0x3FFF));
  add_address(request, client, 0);
  add_address(request, server, 0);
  Header reply = management(0x0013);
  reply.u32(server_id).u32(client_id).u32(0).u24(server.queue_pair).u8(0);
  Header ready = management(0x0014);
  ready.u32(client_id).u32(server_id);
  for (Header* const message : {&request, &reply, &ready}) {
    message->zeros(kManagementBytes - message->size());
    const Header datagram = Header().u32(0x80010000).u8(0).u24(1);  // DETH
    const Train train = {.inbound = (message == &reply) == event.outbound,
                         .comment = connection.name};
    add_packet(connection, event, train, kDatagramSendOnly, 0, datagram.span(), kManagementBytes,
               message->span(), true);
  }
}

void Frames::add(const CaptureEvent& event) {
  if (event.what == What::kConnection) {
    meet(event);
    return;
  }
  if (event.what == What::kGone)
    connections_.erase(event.connection);
  const auto found = connections_.find(event.connection);
  if (found == connections_.end())
    return;  // its description was lost
  Connection& c = found->second;
  const Header remote = Header().u64(event.address).u32(event.key).u32(event.length);  // RETH
  const Header invalidated = Header().u32(event.key);                                  // IETH
  Train train = {.comment = c.name};
  switch (event.what) {
    case What::kSent:
    case What::kReceived:
      train.opcodes = {kSendFirst, kSendMiddle, kSendLast, kSendOnly};
      if (event.invalidates) {
        train.opcodes.last = kSendLastInvalidate;
        train.opcodes.only = kSendOnlyInvalidate;
        train.in_last = train.in_only = invalidated.span();
      }
      train.inbound = event.what == What::kReceived;
      add_request(c, event, train);
      return;
    case What::kWritten:
      train.opcodes = {kWriteFirst, kWriteMiddle, kWriteLast, kWriteOnly};
      train.in_first = train.in_only = remote.span();
      add_request(c, event, train);
      return;
    case What::kReadRequested:
    case What::kOffered:
      train.inbound = event.what == What::kOffered;
      add_read_request(c, event, train, remote.span());
      if (event.what == What::kReadRequested)
        return;
      [[fallthrough]];
    case What::kReadResponded:
      train.opcodes = {kReadResponseFirst, kReadResponseMiddle, kReadResponseLast,
                       kReadResponseOnly};
      train.in_first = train.in_last = train.in_only = kAcknowledged;
      train.inbound = event.what == What::kReadResponded;
      add_read_response(c, event, train);
      return;
    case What::kConnection:
    case What::kGone:
    case What::kSkip:
      return;
  }
}

void Frames::add_request(Connection& connection, const CaptureEvent& event, Train& train) {
  End& to = train.inbound ? connection.ours : connection.theirs;
  train.psn = to.psn;
  to.psn = (to.psn + packets_of(event.length)) & kPsnMask;
  add_message(connection, event, train);
}

// It takes the numbers of its response (InfiniBand specification, section 9.7).
void Frames::add_read_request(Connection& connection, const CaptureEvent& event, const Train& train,
                              std::span<const std::byte> remote) {
  End& to = train.inbound ? connection.ours : connection.theirs;
  add_packet(connection, event, train, kReadRequest, to.psn, remote, 0, {}, true);
  to.reads[event.read] = to.psn;
  to.psn = (to.psn + packets_of(event.length)) & kPsnMask;
}

void Frames::add_read_response(Connection& connection, const CaptureEvent& event, Train& train) {
  auto& reads = (train.inbound ? connection.theirs : connection.ours).reads;
  const auto request = reads.find(event.read);
  if (request == reads.end())
    return;
  train.psn = request->second;
  // Data comes in the order of the requests: that of earlier ones was lost.
  std::erase_if(reads, [&](const auto& earlier) { return earlier.first <= event.read; });
  add_message(connection, event, train);
}

void Frames::add_message(Connection& connection, const CaptureEvent& event, const Train& train) {
  const uint32_t packets = packets_of(event.length);
  for (uint32_t i = 0; i < packets; ++i) {
    const bool is_first = i == 0, is_last = i + 1 == packets;
    const uint8_t opcode = packets == 1 ? train.opcodes.only
                           : is_first   ? train.opcodes.first
                           : is_last    ? train.opcodes.last
                                        : train.opcodes.middle;
    const std::span<const std::byte> extended = packets == 1 ? train.in_only
                                                : is_first   ? train.in_first
                                                : is_last    ? train.in_last
                                                             : std::span<const std::byte>();
    const uint32_t begin = i * kMtu;
    const uint32_t length = std::min(kMtu, event.length - begin);
    std::span<const std::byte> captured = event.bytes();
    captured = captured.subspan(std::min<size_t>(begin, captured.size()));
    add_packet(connection, event, train, opcode, (train.psn + i) & kPsnMask, extended, length,
               captured.first(std::min<size_t>(length, captured.size())), is_first);
  }
}

void Frames::add_packet(Connection& connection, const CaptureEvent& event, const Train& train,
                        uint8_t opcode, uint32_t psn, std::span<const std::byte> extended,
                        uint32_t length, std::span<const std::byte> captured, bool first) {
  const End& from = train.inbound ? connection.theirs : connection.ours;
  const End& to = train.inbound ? connection.ours : connection.theirs;
  const bool is_datagram = opcode == kDatagramSendOnly;  // between the two connection managers
  const uint32_t pad = (4 - length % 4) % 4;
  const size_t udp_length =
      kUdpBytes + kBaseHeaderBytes + extended.size() + length + pad + kIcrcBytes;
  Header h = link_and_network(connection.is_v6, from.address, to.address, train.inbound, udp_length,
                              ++ip_id_);
  h.u16(kFirstSourcePort | (from.queue_pair & 0x3FFF)).u16(kRoceV2Port).u16(udp_length).u16(0);
  h.u8(opcode).u8(pad << 4).u16(0xFFFF).u8(0).u24(is_datagram ? 1 : to.queue_pair).u8(0).u24(psn);
  h.bytes(extended.data(), extended.size());
  const bool whole = captured.size() == length;
  const auto kept =
      static_cast<uint32_t>(h.size() + captured.size() + (whole ? pad + kIcrcBytes : 0));
  const auto wire = static_cast<uint32_t>(h.size() + length + pad + kIcrcBytes);

  const size_t begin = begin_block(kPacketBlock);
  const uint64_t time = event.time_ns + static_cast<uint64_t>(real_minus_monotonic_ns_);
  put(connection.interface);
  put(static_cast<uint32_t>(time >> 32));
  put(static_cast<uint32_t>(time));
  put(kept);
  put(wire);
  const size_t data = out_.size();
  put(h.span());
  put(captured);
  out_.resize(data + ((kept + 3) & ~size_t{3}));
  if (first)
    put_option(kComment, train.comment);
  const uint32_t direction = train.inbound ? kInbound : kOutbound;
  put_option(kPacketFlags, {reinterpret_cast<const char*>(&direction), sizeof direction});
  put_option(kEndOfOptions, {});
  end_block(begin);
}

void Frames::add_statistics(uint64_t captured, uint64_t lost) {
  if (interfaces_.empty())
    return;
  const size_t begin = begin_block(kStatisticsBlock);
  put(uint32_t{0});  // the first interface's, for all
  put(uint64_t{0});  // without a time
  put_option(kReceived, {reinterpret_cast<const char*>(&captured), sizeof captured});
  put_option(kDropped, {reinterpret_cast<const char*>(&lost), sizeof lost});
  put_option(kEndOfOptions, {});
  end_block(begin);
}

}  // namespace rrdk::observe

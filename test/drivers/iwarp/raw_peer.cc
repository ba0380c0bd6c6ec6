#include "test/drivers/iwarp/raw_peer.h"

#include <linux/filter.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "drivers/iwarp/address.h"
#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp::test {

Bytes fpdu(const SegmentHeader& header, const Bytes& payload, bool crc) {
  Bytes bytes(kLengthField + kUntaggedHeader);
  const uint32_t length = encode(header, bytes.data() + kLengthField);
  bytes.resize(kLengthField + length);
  const auto ulpdu = static_cast<uint32_t>(length + payload.size());
  store_u16(bytes.data(), static_cast<uint16_t>(ulpdu));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + pad_of(ulpdu));
  const uint32_t sum = add_crc(kCrcStart, bytes.data(), bytes.size());
  bytes.resize(bytes.size() + kCrcField);
  if (crc)
    store_crc(bytes.data() + bytes.size() - kCrcField, sum);
  return bytes;
}

Bytes read_request(uint32_t number, const ReadRequest& request) {
  Bytes body(kReadRequestBody);
  encode(request, body.data());
  return fpdu({.last = true, .opcode = Opcode::kReadRequest, .queue = kReadQueue, .number = number},
              body);
}

Endpoint4Or6 endpoint_at(const std::string& uri) {
  const Address address = parse_address(uri).value();
  return drivers::look_up(address.host, address.port, fabric::Names::kRefused)
      .value()
      .endpoints.front();
}

RawPeer::RawPeer(const std::string& uri, const std::string& from) {
  const Endpoint4Or6 at = endpoint_at(uri);
  socket_ = base::Fd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!from.empty()) {
    const Endpoint4Or6 ours = endpoint_at("iwarp://" + from + ":0");
    EXPECT_EQ(::bind(socket_.get(), ours.get(), ours.length), 0);
  }
  EXPECT_EQ(::connect(socket_.get(), at.get(), at.length), 0);
  tune(socket_.get());
}

void RawPeer::say(const Bytes& bytes) {
  // The other end may have disconnected.
  (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool RawPeer::has_arrived() const {
  int unacknowledged = 0;
  EXPECT_EQ(::ioctl(socket_.get(), SIOCOUTQ, &unacknowledged), 0);
  return unacknowledged == 0;
}

void RawPeer::take_little() {
  const int bytes = 16384;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

void RawPeer::go_dark() {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  EXPECT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
            0);
}

void RawPeer::finish() {
  ::shutdown(socket_.get(), SHUT_WR);
}

void RawPeer::reset() {
  const linger now{1, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  socket_.reset();
  closed_ = true;
}

bool RawPeer::pull() {
  std::array<std::byte, 65536> more;
  while (!closed_) {
    const ssize_t n = ::recv(socket_.get(), more.data(), more.size(), MSG_DONTWAIT);
    if (n > 0)
      got_.insert(got_.end(), more.begin(), more.begin() + n);
    else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return true;
    else
      closed_ = true;
  }
  return false;
}

size_t RawPeer::discard() {
  const ssize_t n = ::recv(socket_.get(), nullptr, 1 << 20, MSG_DONTWAIT | MSG_TRUNC);
  closed_ = closed_ || n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

std::optional<MpaFrame> RawPeer::take_frame(MpaKind kind) {
  uint32_t rest = 0;
  if (got_.size() < kMpaHeader)
    return std::nullopt;
  EXPECT_EQ(check_header(std::span(got_).first<kMpaHeader>(), kind, rest), MpaVerdict::kOk);
  if (got_.size() < kMpaHeader + rest)
    return std::nullopt;
  MpaFrame frame;
  EXPECT_EQ(decode(got_, kind, frame), MpaVerdict::kOk);
  got_.erase(got_.begin(), got_.begin() + kMpaHeader + rest);
  return frame;
}

std::optional<RawPeer::Segment> RawPeer::take_segment() {
  if (got_.size() < kLengthField + 2)
    return std::nullopt;
  const uint32_t ulpdu = load_u16(got_.data());
  const size_t whole = kLengthField + ulpdu + pad_of(ulpdu) + kCrcField;
  if (got_.size() < whole)
    return std::nullopt;
  Segment segment;
  EXPECT_EQ(decode(got_.data() + kLengthField, segment.header), SegmentFault::kNone);
  const uint32_t header = header_length(got_[kLengthField]);
  segment.payload.assign(got_.begin() + kLengthField + header, got_.begin() + kLengthField + ulpdu);
  got_.erase(got_.begin(), got_.begin() + static_cast<long>(whole));
  return segment;
}

}  // namespace rrdk::iwarp::test

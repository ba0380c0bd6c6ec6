#include "drivers/shm/handshake.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace rrdk::shm {

namespace {

constexpr size_t kMaxDescriptors = 4;
template <size_t kCount>
union ControlBuffer {
  cmsghdr align;
  std::array<char, CMSG_SPACE(kCount * sizeof(int))> bytes;
};

// How many descriptors an honest peer sends with it.
size_t descriptors_of(MessageType type) {
  switch (type) {
    case MessageType::kConnect:
    case MessageType::kAccept:
      return kConnectDescriptors;
    case MessageType::kRegion:
      return kRegionDescriptors;
    default:
      return 0;
  }
}

Received::Kind kind_of(const Received& r, size_t bytes, int flags) {
  constexpr size_t kBeginning = offsetof(Message, version) + sizeof(Message::version);
  if (bytes == 0)
    return Received::Kind::kEnd;
  if (bytes >= kBeginning && r.message.magic == kMagic && r.message.version != kVersion)
    return Received::Kind::kOtherVersion;
  const bool good = bytes == sizeof(Message) && (flags & MSG_TRUNC) == 0 &&
                    r.message.magic == kMagic &&
                    r.message.private_length <= fabric::kMaxPrivateData;
  if (!good)
    return Received::Kind::kGarbage;
  if ((flags & MSG_CTRUNC) == 0)
    return Received::Kind::kMessage;
  // Some did not fit. If as many did as an honest peer sends, it has sent too many.
  const bool lacking = r.descriptors.size() < descriptors_of(r.message.type);
  return lacking ? Received::Kind::kNoPlace : Received::Kind::kGarbage;
}

// Its send() never waits, whatever its owner does, and closes nothing (doorbell.h, wake()).
bool is_packet_socket(int fd) {
  int domain = 0, type = 0;
  socklen_t size = sizeof(int);
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

// Removes the packet that was just peeked at from the queue. Returns true at the end of the socket,
// too, where there is no packet.
bool take_packet(int socket) {
  char byte;
  // A reset by the peer is reported once, before its packets.
  while (::recv(socket, &byte, sizeof(byte), MSG_DONTWAIT) < 0)
    if (errno != ECONNRESET && errno != EINTR)
      return false;
  return true;
}

}  // namespace

// The kernel closes the descriptors for which the process has no space. If the packet held the last
// reference to one, its owner decides how long that close takes. So the packet is read while it
// stays in the queue. It is taken out once all its descriptors have a place. Otherwise it is left
// there: for later if it may be an honest one, or else for the janitor.
Received receive_message(const PeerSocket& socket) {
  Received r;
  ControlBuffer<kMostDescriptors> control;
  iovec piece{&r.message, sizeof(r.message)};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t bytes =
      ::recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_PEEK | MSG_CMSG_CLOEXEC);
  if (bytes < 0) {
    const bool later = errno == EAGAIN || errno == EINTR;
    r.kind = later ? Received::Kind::kNothing : Received::Kind::kEnd;
    return r;
  }
  for_each_descriptor(header,
                      [&](Fd fd) { r.descriptors.emplace_back(std::move(fd), socket.user()); });
  const bool all_there = (header.msg_flags & MSG_CTRUNC) == 0;
  const bool taken = all_there && take_packet(socket.get());
  r.kind = taken || !all_there ? kind_of(r, static_cast<size_t>(bytes), header.msg_flags)
                               : Received::Kind::kEnd;
  return r;
}

SendResult send_message(int socket, const Message& message, std::span<const int> descriptors) {
  ControlBuffer<kMaxDescriptors> control{};
  iovec piece{const_cast<Message*>(&message), sizeof(message)};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  }
  if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
    return SendResult::kSent;
  // ETOOMANYREFS: descriptors in flight that the peer has not taken, equivalent to a full socket.
  const bool full = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS;
  return full ? SendResult::kFull : SendResult::kBroken;
}

Result<Offer> take_offer(Received& received) {
  const Message& m = received.message;
  if (received.descriptors.size() != kConnectDescriptors)
    return fail(Errc::kNotAPeer, "the peer did not send its memory");
  if (m.copies > kMaxCopies)
    return fail(Errc::kNotAPeer, "the peer's sizes are out of range");
  Offer offer{.geometry = {m.slots, m.keys, static_cast<uint32_t>(m.copies)},
              .segment = std::move(received.descriptors[0]),
              .doorbells = std::move(received.descriptors[1]),
              .wake_socket = std::move(received.descriptors[2]),
              .doorbell_bit = m.doorbell_bit,
              .reads = m.reads};
  if (!offer.geometry.valid() || offer.doorbell_bit >= kMaxQueuePairs)
    return fail(Errc::kNotAPeer, "the peer's sizes are out of range");
  if (!is_packet_socket(offer.wake_socket.get()))
    return fail(Errc::kNotAPeer, "the peer's wake-up socket cannot wake it");
  const Result<PeerFile> segment = check_peer_file(offer.segment.get(), Writers::kOwner);
  if (!segment)
    return tl::unexpected(segment.error());
  const Result<PeerFile> doorbells = check_peer_file(offer.doorbells.get(), Writers::kBoth);
  if (!doorbells)
    return tl::unexpected(doorbells.error());
  if (segment->hugepages || doorbells->hugepages)
    return fail(Errc::kNotAPeer, "the peer's rings or doorbells are in hugepages");
  if (segment->bytes < offer.geometry.bytes() || doorbells->bytes < kDoorbellBytes)
    return fail(Errc::kNotAPeer, "the peer's memory is smaller than it says");
  return offer;
}

Result<Peer> map_offer(Offer offer) {
  Result<Mapping> segment = map_peer(offer.segment.get(), offer.geometry.bytes(), Writers::kOwner);
  if (!segment)
    return tl::unexpected(segment.error());
  Result<Mapping> page = map_peer(offer.doorbells.get(), kDoorbellBytes, Writers::kBoth);
  if (!page)
    return tl::unexpected(page.error());
  return Peer{.geometry = offer.geometry,
              .segment = std::move(*segment),
              .doorbell_page = std::move(*page),
              .wake_socket = std::move(offer.wake_socket),
              .doorbell_bit = offer.doorbell_bit,
              .reads = offer.reads};
}

Result<RegionEntry> take_region(Received& received, MappingCache& cache, PeerRegions& known) {
  const Message& m = received.message;
  if (received.descriptors.size() != kRegionDescriptors || m.region == kNoWireId)
    return fail(Errc::kNotAPeer, "the peer did not send its region");
  uint64_t end = 0;
  if (m.region_length == 0 || __builtin_add_overflow(m.region_offset, m.region_length, &end))
    return fail(Errc::kNotAPeer, "the peer's memory is smaller than it says");
  const PeerFd& fd = received.descriptors[0];
  const Result<PeerFile> file = check_peer_file(fd.get(), Writers::kOwner, end);
  if (!file)
    return tl::unexpected(file.error());
  if (Result<void> added = known.add(m.region, *file); !added)
    return tl::unexpected(added.error());
  Result<std::shared_ptr<Mapping>> mapping = cache.map(fd.get(), *file, fd.sender());
  if (!mapping)
    return tl::unexpected(mapping.error());
  return RegionEntry{m.region, m.region, (*mapping)->base() + m.region_offset, m.region_length,
                     *mapping};
}

std::string other_version(const Message& message) {
  return "the other end speaks version " + std::to_string(message.version) +
         " of the shm protocol, this one version " + std::to_string(kVersion) +
         ": both must be built from the same release";
}

void put_private_data(Message& message, std::span<const std::byte> data) {
  message.private_length = static_cast<uint32_t>(data.size());
  if (!data.empty())
    std::memcpy(message.private_data.data(), data.data(), data.size());
}

rrdk::Peer peer_of(int socket) {
  rrdk::Peer peer{.driver = kScheme, .local = {}, .remote = {}, .process = {}};
  ucred who{};
  socklen_t length = sizeof(who);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
    peer.process = {.pid = who.pid, .uid = who.uid, .gid = who.gid};
  return peer;
}

namespace {

// In ticks since boot: field 22 of proc_pid_stat(5). 0: the process is gone, or hidden from us.
uint64_t start_time(pid_t pid) {
  constexpr int kFieldsBetween = 19;  // after the name, which may contain spaces and parentheses
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos)
    return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i)
    fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

}  // namespace

// A process of a PID namespace that we cannot see has no pid here: several would seem to be one.
fabric::Identity peer_identity(int socket) {
  ucred who{};
  socklen_t length = sizeof(who);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0 || who.pid <= 0)
    return {};
  return {{static_cast<uint64_t>(who.pid), who.uid, start_time(who.pid)}};
}

fabric::Identity user_identity(int socket) {
  const rrdk::Peer peer = peer_of(socket);
  return peer.process ? fabric::Identity{{AF_UNIX, peer.process->uid, 0}} : fabric::Identity{};
}

// A zombie has ended, but has a pid that signals can be sent to. Nothing is read from /proc, which
// may be that of another PID namespace, or hidden. Without pidfd_open(), as before Linux 5.3 and in
// sandboxes, and if no descriptor is left, zombies count as running.
bool process_has_ended(const fabric::Identity& process) {
  const auto pid = static_cast<pid_t>(process.words[0]);
  const base::Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (fd.get() < 0)
    return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd ended = {fd.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 1 && (ended.revents & POLLIN) != 0;
}

}  // namespace rrdk::shm

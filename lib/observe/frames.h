// Frames as Wireshark expects them: a pcapng file whose packets are those of RoCEv2 (InfiniBand's
// transport over UDP), which it dissects down to the RPC. These packets were never on a wire, so
// lengths and numbers are correct, and checksums that no tool checks are zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rrdk/connection.h"

namespace rrdk::observe {

constexpr uint32_t kSectionBlock = 0x0A0D0D0A;  // begins every file of pcapng

// One event that a core saw. Bytes follow: those of the message, or a connection's description.
struct CaptureEvent {
  enum class What : uint8_t {
    kSkip,           // nothing; the ring continues at its beginning
    kConnection,     // first of its connection
    kGone,           // last of its connection
    kSent,           // a Send of ours
    kReceived,       // a Send of the peer's
    kWritten,        // an RDMA Write of ours
    kReadRequested,  // an RDMA Read of ours
    kReadResponded,  // the data of an RDMA Read
    kOffered,        // memory that the peer will read, after the Send that offers it
  };
  uint64_t connection = 0;
  uint64_t time_ns = 0;   // of CLOCK_MONOTONIC
  uint64_t address = 0;   // Writes and Reads: in the peer's memory; kOffered: in ours
  uint64_t read = 0;      // Reads and their data: the number of the Read on the connection
  uint32_t key = 0;       // Writes and Reads; a Send: the key that it invalidates
  uint32_t length = 0;    // of the message
  uint32_t captured = 0;  // how many of its bytes follow
  What what = What::kSkip;
  bool invalidates = false;
  bool outbound = false;  // of a connection: this end asked for it

  std::span<const std::byte> bytes() const noexcept {
    return {reinterpret_cast<const std::byte*>(this + 1), captured};
  }
};
static_assert(sizeof(CaptureEvent) % alignof(CaptureEvent) == 0);

// The bytes after a kConnection event: text, since events outlive what a Peer refers to.
std::string describe(const Peer& peer);

class Frames {
 public:
  // out() has the file's first block. `real_minus_monotonic_ns`, added to an event's time, gives
  // the time of day.
  explicit Frames(int64_t real_minus_monotonic_ns);

  void add(const CaptureEvent& event);
  // At the end: how many events are missing.
  void add_statistics(uint64_t captured, uint64_t lost);

  // What was added, to be written and then cleared.
  std::string& out() noexcept { return out_; }

 private:
  struct End {
    std::array<uint8_t, 16> address = {};  // IPv4: the first four
    uint32_t queue_pair = 0;
    uint32_t psn = 0;  // of the next request to it
    // Its Reads whose data is still to come, by CaptureEvent::read: where their numbers begin.
    std::unordered_map<uint64_t, uint32_t> reads;
  };
  struct Connection {
    uint32_t interface = 0;
    bool is_v6 = false;
    std::string name;  // for comments
    End ours, theirs;
  };
  // The packets of one message.
  struct Train {
    struct Opcodes {
      uint8_t first = 0, middle = 0, last = 0, only = 0;
    };
    Opcodes opcodes = {};
    std::span<const std::byte> in_first = {}, in_last = {}, in_only = {};  // further headers
    bool inbound = false;
    uint32_t psn = 0;
    std::string_view comment = {};  // of the first packet
  };

  void meet(const CaptureEvent& event);
  void add_handshake(Connection& connection, const CaptureEvent& event);
  uint32_t interface_of(std::string_view driver);
  void add_request(Connection& connection, const CaptureEvent& event, Train& train);
  void add_read_request(Connection& connection, const CaptureEvent& event, const Train& train,
                        std::span<const std::byte> remote);
  void add_read_response(Connection& connection, const CaptureEvent& event, Train& train);
  void add_message(Connection& connection, const CaptureEvent& event, const Train& train);
  void add_packet(Connection& connection, const CaptureEvent& event, const Train& train,
                  uint8_t opcode, uint32_t psn, std::span<const std::byte> extended,
                  uint32_t length, std::span<const std::byte> captured, bool first);

  // Building blocks, appended to out_.
  template <typename T>
  void put(const T& value) {  // in this machine's byte order, as pcapng allows
    put(std::as_bytes(std::span(&value, 1)));
  }
  void put(std::span<const std::byte> bytes) {
    out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void put_option(uint16_t code, std::string_view value);
  size_t begin_block(uint32_t type);
  void end_block(size_t begin);

  const int64_t real_minus_monotonic_ns_;
  std::string out_;
  std::vector<std::string> interfaces_;
  std::unordered_map<uint64_t, Connection> connections_;
  uint16_t ip_id_ = 0;
};

}  // namespace rrdk::observe

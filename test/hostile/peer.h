// A peer on the bare fabric interface that sends and does whatever a test wants: a requester
// against a server, or a responder against a client. It works with any driver
// (test/fabric/fabrics.h).
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "message.h"
#include "test/fabric/end.h"

namespace rrdk::hostile {

struct PeerOptions {
  Bytes private_data;  // with connect or accept
  // Posted before the connection is established, and again after each message.
  uint32_t receives = 64;
  uint32_t receive_size = 4096;
  enum class Answer : uint8_t { kAccept, kReject, kDrop, kNone };
  Answer answer = Answer::kAccept;               // a responder's, to a client that wants to connect
  Bytes rejection = Bytes(56, std::byte{0xf6});  // its private data
};

// R bit, 4096 bytes each way (RFC 8797 section 4).
Bytes usual_private_data();
Bytes without_remote_invalidation();

class Peer {
 public:
  enum Memory : uint8_t { kReadable, kWritable, kRequest, kRevoked, kForeign };
  static constexpr uint32_t kBytes = 65536;  // of each

  struct Heard {
    Bytes bytes;
    std::optional<uint32_t> invalidated;
  };

  explicit Peer(const std::string& uri, const PeerOptions& options = {});
  ~Peer();

  // For a requester. pump() brings the outcome.
  void connect();
  // For a responder.
  void listen();
  std::string uri() const { return uri_; }
  // One batch of completions and events.
  void pump();

  bool established() const { return established_; }
  bool closed() const { return closed_; }
  // Taken by the fabric at once, or after some pumping.
  void say(const Bytes& message, std::optional<uint32_t> invalidate = {});
  // Whether a request can be posted at all.
  bool can_send() const { return established_ && !closed_; }
  // An RDMA access to the victim's memory; its outcome is in last_access().
  void access(fabric::Op op, uint32_t key, uint64_t address, const Bytes& bytes);
  std::optional<fabric::WcStatus> last_access() const { return last_access_; }
  void hang_up();
  // Invalidates the key of one kind of memory; for the requester of a server.
  void revoke(Memory which);
  // The content of kRequest: the bytes of a long call.
  void expose_request(const Bytes& bytes);
  // A second connection to `uri`, with memory that can be written only over that connection.
  void connect_ally();
  bool ally_ready() const { return ally_ready_; }
  void post_receives(uint32_t count);

  uint32_t key(Memory which) const { return exposed_[which].key; }
  uint64_t address(Memory which) const { return fabric::test::address_of(bytes(which)); }
  std::byte* bytes(Memory which) const { return exposed_[which].buffer.data(); }
  const Bytes& heard_message(size_t n) const;
  const fabric::Capabilities& can() const { return end_.device->capabilities(); }
  const fabric::Device& device() const { return *end_.device; }

  std::vector<Heard> heard;
  Bytes victims_private_data;

 private:
  struct Exposed {
    Buffer buffer;
    uint32_t key = 0;
  };
  struct Connection {
    std::unique_ptr<fabric::QueuePair> qp;
  };

  void expose(Memory which, fabric::Rights rights);
  void bind(fabric::QueuePair& qp, Exposed& exposed, uint32_t length, fabric::Rights rights);
  void on_event(fabric::Event& event);
  void on_completion(const fabric::Completion& completion);
  void on_established();
  void answer(std::unique_ptr<fabric::ConnectRequest> request);
  void accept(fabric::ConnectRequest& request);
  void post(const fabric::SendWr& wr);
  void flush();
  fabric::QueuePairOptions queue_pair_options();

  std::string uri_;
  PeerOptions options_;
  fabric::test::End end_;
  std::unique_ptr<fabric::Listener> listener_;
  std::unique_ptr<fabric::ConnectRequest> kept_request_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::unique_ptr<fabric::QueuePair> ally_;
  std::array<Exposed, 5> exposed_;
  std::deque<fabric::SendWr> unposted_;
  std::map<uint64_t, Buffer> sending_;
  std::vector<Buffer> receiving_;
  uint64_t next_id_ = 1u << 20;
  bool established_ = false;
  bool closed_ = false;
  bool ally_ready_ = false;
  std::optional<fabric::WcStatus> last_access_;
};

}  // namespace rrdk::hostile

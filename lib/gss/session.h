// A security context at the end that initiated it (rrdk/gss.h), and what its calls take from it:
// their credential, a sequence number each, and protection.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gss/kerberos.h"
#include "gss/wire.h"
#include "rpc/headers_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::gss {

class Session;

// A connection, as those contexts see it whose calls it carries: from its first such call until its
// end.
class Path {
 public:
  class Owner {
   public:
    // The context has no user any more. Any thread, with a lock held: it must not call back.
    virtual void end_context(std::unique_ptr<Session> session) noexcept = 0;
    // The same: a context must know which of its calls have arrived (Path::note_arrival()).
    // Returns false if it cannot find out.
    virtual bool ask_arrival() noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // Null: contexts are not ended there, and it cannot be asked.
  explicit Path(Owner* owner) : owner_(owner) {}

  // Any thread. Returns false, and leaves the context, if nothing can be sent there any more.
  bool take(std::unique_ptr<Session>& session) noexcept;
  bool is_over() const noexcept { return over_.load(std::memory_order_relaxed); }
  void ask() noexcept;

  // The core's thread. Messages arrive in the order in which they are sent: once one is answered,
  // those before it have arrived, too.
  uint64_t send() noexcept { return ++sent_; }  // returns the message's position, from 1 on
  uint64_t sent() const noexcept { return sent_; }
  void note_arrival(uint64_t position) noexcept {
    if (position > arrived())
      arrived_.store(position, std::memory_order_relaxed);
  }
  uint64_t arrived() const noexcept { return arrived_.load(std::memory_order_relaxed); }  // any
  // Nothing that was sent can arrive any more.
  void end() noexcept;
  void note_asked() noexcept { asked_.store(false, std::memory_order_relaxed); }

 private:
  uint64_t sent_ = 0;
  std::atomic<uint64_t> arrived_ = 0;  // up to this position
  std::atomic<bool> asked_ = false;
  std::mutex mutex_;
  Owner* owner_;
  std::atomic<bool> over_ = false;
};

// How a call that asks for a number goes on.
enum class Numbering : uint8_t {
  kTaken,
  kLater,  // the server's window has no place now
  kOver    // the numbers are used up
};

// What one call keeps of its protection until it has ended.
struct ProtectedCall {
  // The context of its number; null: it has none now.
  std::shared_ptr<Session> session;
  uint32_t blank_bytes = 0;  // of the context for which its header was written
  Message clear;             // the call as it was written, if its message is another one
  uint32_t sequence = 0;
  bool numbered = false;  // it has that number, and a place in the window for it
  bool complete = false;  // its message has it
  uint64_t position = 0;  // of that message on its Path
  // Perhaps the server reads the message, or an item, by RDMA, and looks at the number only then.
  bool may_be_fetched = false;
  // The results in clear, if they came protected as a whole.
  Fragment results = {};
  Token unwrapped;
  std::vector<std::byte> joined;
  // How often the server did not know its context, since that submit().
  uint64_t serial = 0;
  uint32_t times_forgotten = 0;
  bool waits = false;  // for another context
};

class Session {
 public:
  // Bytes by which protection makes a reply longer, at most: verifier, number, checksum or wrapping
  // (RFC 4121 section 4.2).
  static constexpr uint32_t kGrowth = 512;

  // `null_call` is what ends the context.
  Session(std::shared_ptr<const Identity> identity, std::string target, Protection protection,
          const rpc::CallTarget& null_call = {})
      : identity_(std::move(identity)),
        target_(std::move(target)),
        protection_(protection),
        null_call_(null_call) {}
  // When its last user is gone, the server is told, on one of the connections that it was used on.
  static std::shared_ptr<Session> make(std::shared_ptr<const Identity> identity, std::string target,
                                       Protection protection, const rpc::CallTarget& null_call) {
    auto made =
        std::make_unique<Session>(std::move(identity), std::move(target), protection, null_call);
    return {made.release(), let_go};
  }

  // Establishment: not on a poll core. `token` is what the acceptor has answered; empty at first.
  Step begin(std::span<const std::byte> token, Token& next) {
    return context_.initiate(*identity_, target_, token, next);
  }
  // The context is complete at both ends: `checksum` is the verifier that came with it. Returns
  // false if it is wrong.
  bool open(std::span<const std::byte> handle, uint32_t window,
            std::span<const std::byte> checksum);
  // The body of the credential of calls that establish it.
  static std::vector<std::byte> credential(Control control, Protection protection,
                                           std::span<const std::byte> handle);

  Protection protection() const noexcept { return protection_; }
  // The principal that makes the calls.
  const std::string& own_name() const noexcept { return context_.own_name(); }
  bool transforms_body() const noexcept { return protection_ != Protection::kNone; }
  // Credential and verifier of a call, without number and checksum.
  std::span<const std::byte> blank() const noexcept { return blank_; }

  // Any thread, from here on.
  // The server does not know it, and need not be told of its end.
  void note_unknown() noexcept { unknown_.store(true, std::memory_order_relaxed); }
  // It has no user any more: the credential is that of the call that ends it (RFC 2203 section
  // 5.4). Returns what that calls.
  const rpc::CallTarget& begin_end() noexcept;
  // Gives a call, which is about to be sent on that path, the next sequence number, and a place in
  // the server's window (RFC 2203 section 5.2.3.1) until give_back().
  Numbering take_number(const std::shared_ptr<Path>& path, uint64_t now_ns, ProtectedCall& call);
  // The same for one that has a number, but was not sent. Returns false if others have overtaken
  // it: it needs another number.
  bool keep_number(const std::shared_ptr<Path>& path, uint64_t now_ns, ProtectedCall& call);
  // The call has been answered or has ended, or it needs another number.
  void give_back(ProtectedCall& call) noexcept;
  // The same for the call that ends it, for which one is left.
  uint32_t take_last_number() noexcept;
  // Writes number and checksum into the header of a call. Returns false if the context has ended.
  bool sign_header(std::byte* header, uint32_t sequence) noexcept;
  // Writes the protected form of what begins with the sequence number. Returns false if it fails.
  bool protect(std::span<const std::byte> clear, Encoder& out) noexcept;
  bool verify_reply(uint32_t sequence, const ItemView& checksum) noexcept;
  // Reads protected results: call.results then names them in clear. Returns false if they are not
  // what the other end has protected for this call, whose reply had that verifier.
  bool open_results(ProtectedCall& call, Decoder& in, const ItemView& verifier);

 private:
  // The numbers that one connection has sent, of which some may still be on their way.
  struct Lane {
    std::shared_ptr<Path> path;
    uint64_t first = 0;     // all that are on their way are this or higher; 0: none is
    uint64_t mark = 0;      // once this position has arrived, `first` becomes `second`
    uint64_t second = 0;    // the first number behind the mark; 0: none was sent
    uint64_t latest = 0;    // position
    uint64_t since_ns = 0;  // of the mark

    void add(uint64_t number, uint64_t now_ns) noexcept;
    void look(uint64_t now_ns) noexcept;
  };
  struct Fetched {
    uint64_t number;
    uint64_t since_ns;
  };
  // Longer than that a message is not on its way.
  static constexpr uint64_t kPatienceNs = 1'000'000'000;
  static constexpr uint64_t kTurnNs = 5'000'000;

  static void let_go(Session* session) noexcept;
  uint64_t next_number() const noexcept { return next_ != told_ ? next_ : next_ + 1; }
  Lane& lane_of(const std::shared_ptr<Path>& path);
  bool is_open(uint64_t number, const Path& path, uint64_t now_ns) noexcept;

  const std::shared_ptr<const Identity> identity_;
  const std::string target_;
  const Protection protection_;
  const rpc::CallTarget null_call_;
  Context context_;
  std::vector<std::byte> blank_;
  uint32_t signed_bytes_ = 0;    // of the header, from the XID to the end of the credential
  uint32_t checksum_bytes_ = 0;  // of its verifier
  std::atomic<bool> unknown_ = false;
  uint32_t told_ = 0;    // the server's window
  uint32_t window_ = 0;  // the same, but at least 1

  std::mutex mutex_;  // for what follows
  uint64_t next_ = 1;
  uint32_t outstanding_ = 0;  // calls with a place in the window
  // Numbers below this need no look at the lanes.
  uint64_t open_until_ = 0;
  std::vector<Lane> lanes_;
  // Those of calls that may be fetched, and are not answered, in order.
  std::vector<Fetched> fetched_;
  // Who was first to find no place takes the next one, unless it does not come for it.
  const Path* turn_ = nullptr;
  uint64_t turn_until_ns_ = 0;
};

}  // namespace rrdk::gss

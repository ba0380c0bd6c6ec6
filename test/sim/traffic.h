// Calls and replies of random shape, with data that identifies its call. A message is XID, msg_type
// and the call's serial number, then its items, each an opaque<>.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "context.h"
#include "engine/connection.h"
#include "rrdk/call_status.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::sim {

struct Item {
  uint32_t length;
  bool eligible;   // by reference, and it may move in its own chunk
  bool reference;  // by reference at least
};

// The content of a call and its expected outcome. Kept until the simulation ends.
struct Shape {
  uint32_t serial = 0;
  std::vector<Item> arguments;
  std::vector<Item> results;
  bool force_long = false;
  bool refused = false;      // the handler does not allow the chunks
  bool dropped = false;      // the handler ends the connection
  bool small_room = false;   // a result has too little space
  bool small_reply = false;  // the rest of the reply may have too little
  bool plain_end = false;    // made when all is quiet: it must succeed
  bool backward = false;     // from the server to its client: inline or not at all
  bool idempotent = false;   // it may run twice
  uint32_t runs = 0;         // of its handler, apart from those that ended its connection
  bool not_run = false;      // there was no space to remember it
  bool not_kept = false;     // it was repeated, and its reply was not kept
};

// Memory for one segment of a result, with guard bytes around it.
struct Guarded {
  Buffer buffer;
  MemorySpan span;
};

// A call that the simulated client makes, reused from call to call.
struct Call {
  struct Out : engine::OutgoingCall {
    explicit Out(Call& its) : call(its) {}
    Call& call;
  };
  Out out{*this};
  uint32_t line = 0;                               // the connection's number
  engine::Role caller = engine::Role::kRequester;  // the end that makes it
  uint32_t serial = 0;                             // of its Shape
  bool active = false;                             // between submit() and on_call_ended
  bool cancelled = false;
  bool again = false;                     // it was lost and is to be made again
  bool lends = false;                     // is to be told when the peer no longer uses `room`
  const std::byte* first_word = nullptr;  // of the message, where the XID is
  std::vector<Guarded> room;
  std::vector<std::vector<MemorySpan>> spans;
  std::vector<engine::ResultRoom> results;

  // The XID, once the engine has given it one.
  uint32_t xid() const;
};

// Outcomes that the surroundings allow, besides those of the shape.
struct Allowance {
  bool lost;        // the connection was
  bool refused;     // the responder may be short of memory
  bool unsendable;  // the requester may be short of memory or keys
};

class Traffic {
 public:
  Traffic(Context& context, Memory& memory, uint32_t largest)
      : context_(context), memory_(memory), largest_(largest) {}

  Shape& draw(engine::Role caller = engine::Role::kRequester);
  Shape& repeat(const Shape& shape);
  // Returns null if no call has this number.
  Shape* find(uint32_t serial);

  // The requester's side. Returns false when the simulation's own memory is exhausted.
  bool prepare(Call& call, const Shape& shape);
  // Fails the simulation if the outcome is not what the shape allows.
  void check_outcome(const Call& call, const std::string& who, const Allowance& allowed);
  void check_guards(std::span<const Guarded> rooms, uint32_t xid, uint32_t serial,
                    const std::string& who);

  // The responder's side.
  Memory& memory() { return memory_; }
  Shape* check_arguments(const engine::ServedCall& call, const std::string& who);
  bool write_reply(engine::ServedCall& call, const Shape& shape);

 private:
  uint32_t length();
  void make_small(Shape& shape);
  std::vector<Item> items();
  bool offer(Call& call, const Shape& shape, uint64_t& reply);
  bool add_room(std::vector<MemorySpan>& spans, Call& call, uint32_t bytes, uint32_t segments);
  bool write(Message& message, uint32_t type, const Shape& shape, const std::vector<Item>& items,
             uint32_t first_size);
  bool read(Decoder& from, const Shape& shape, const std::vector<Item>& items, uint32_t type);
  void check_data(const Call& call, const Shape& shape, const std::string& who);

  Context& context_;
  Memory& memory_;
  uint32_t largest_;
  std::deque<Shape> shapes_;  // references to its elements stay valid
};

}  // namespace rrdk::sim

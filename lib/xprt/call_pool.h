// The IncomingCall objects of one poll core, shared by all of its connections: an idle connection
// holds none. Grows on demand, in slabs, up to a limit; in the steady state it allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/list.h"
#include "proto/header.h"
#include "rrdk/memory.h"
#include "xprt/incoming_call.h"

namespace rrdk::xprt {

class CallPool {
 public:
  // One thread's, like the connections. About 14 KB a call, and for each 16 a 4096-byte buffer of
  // `memory`, kept until destruction.
  explicit CallPool(Memory& memory, uint32_t max_calls = 8192);
  // All calls are back.
  ~CallPool();
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  // Null: the limit is reached, or memory is exhausted.
  Incoming* get() noexcept {
    if (free_.empty() && !grow()) [[unlikely]]
      return nullptr;
    return take();
  }
  void put(Incoming& call) noexcept;
  // Gives back what calls that are not in use keep for their next reply.
  void release_idle() noexcept;

  uint32_t capacity() const noexcept { return capacity_; }    // calls that exist
  uint32_t available() const noexcept { return available_; }  // of these, not in use
  // For a header that is read or written and then forgotten.
  proto::Header& scratch() noexcept { return scratch_; }

 private:
  struct Slab;
  bool grow() noexcept;
  Incoming* take() noexcept;

  Memory& memory_;
  uint32_t max_calls_;
  uint32_t capacity_ = 0;
  uint32_t available_ = 0;
  uint32_t kept_ = 0;  // of these, those with a buffer for a reply
  base::Stack<Incoming, &Incoming::next> free_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  proto::Header scratch_;
};

}  // namespace rrdk::xprt

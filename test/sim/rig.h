// Memories for simulations, made once per process: some with plenty and some with too little.
#pragma once

#include <array>
#include <memory>

#include "rrdk/memory.h"

namespace rrdk::sim {

// A responder's memory that is enough for one connection only.
constexpr int kTightestResponder = 3;
// For thousands of connections.
constexpr int kCrowdMemory = 4;

class Rig {
 public:
  // Returns false if EAL or memory is not available; a line on standard error says why.
  bool create();
  Memory& requester(int which) { return *requester_[static_cast<size_t>(which)]; }
  Memory& responder(int which) { return *responder_[static_cast<size_t>(which)]; }
  Memory& traffic() { return *traffic_; }  // for calls and handlers: always enough
  // Whether every buffer is back.
  bool whole() const;

 private:
  static constexpr size_t kMemories = 5;
  std::array<std::unique_ptr<Memory>, kMemories> requester_;
  std::array<std::unique_ptr<Memory>, kMemories> responder_;
  std::unique_ptr<Memory> traffic_;
};

}  // namespace rrdk::sim

// Changes the Receive Buffer Sizes of connections while calls run (draft-04 of version 2): asks the
// server for larger and smaller Receives in turn, and makes our own larger.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rrdk/client.h"

namespace rrdk::testrpc {

// The results over all connections.
struct SizeChanges {
  uint64_t peer = 0;     // how many times a server's size changed
  uint64_t own = 0;      // how many times ours changed
  uint64_t refused = 0;  // requests
};

class SizeChanger {
 public:
  // Makes `changes` changes on each connection, between 4096 and `largest` bytes.
  void begin(std::span<const std::unique_ptr<ClientConnection>> connections, uint32_t changes,
             uint32_t largest);
  // Returns whether changes are still to be made. A connection that is lost or refuses has none.
  bool busy() const { return left_ != 0; }
  // Must be called about as often as messages arrive.
  void step();
  SizeChanges end();

 private:
  struct One {
    ClientConnection* connection;
    ReceiveSizes before;
    uint32_t wanted = 0;  // 0: no request in progress
    uint64_t changes = 0;
    uint64_t since_ns = 0;  // of the last change
    bool done = false;
  };
  void step(One& one);

  std::vector<One> all_;
  uint32_t changes_ = 0;
  uint32_t largest_ = 0;
  size_t left_ = 0;  // connections that are not done
};

}  // namespace rrdk::testrpc

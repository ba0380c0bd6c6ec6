// A well-behaved connection beside the hostile one. It makes calls all the time, inline ones and
// ones with chunks in both directions, checks the answers, and counts.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "test/server/loopback.h"

namespace rrdk::hostile {

class Bystander {
 public:
  Bystander(std::unique_ptr<ClientConnection> connection, Memory& memory);

  // Checks the calls that have ended, and makes new ones in their places.
  void pump();
  // Makes no more calls. Returns true if all have ended.
  bool finish();

  uint64_t verified() const { return verified_; }
  ClientConnection& connection() { return *connection_; }

 private:
  static constexpr uint32_t kCalls = 6;
  static constexpr uint32_t kBulk = 3000;
  struct Slot {
    std::optional<Call> call;
    Buffer room;
    uint64_t offset = 0;
    bool started = false;
  };

  void start(Slot& slot, size_t index);
  void verify(Slot& slot, size_t index);

  Memory& memory_;
  std::unique_ptr<ClientConnection> connection_;
  std::array<Slot, kCalls> slots_;
  uint64_t verified_ = 0;
  uint64_t made_ = 0;
  bool finishing_ = false;
};

}  // namespace rrdk::hostile

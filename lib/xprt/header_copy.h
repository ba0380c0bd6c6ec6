// A private copy of what decode() reads of a message. Where driver and peer share memory (shm), a
// peer can write into our Receives at any time: what was checked must be what is used.
//
// The RPC message behind the header stays where it is; its decoder reads each word once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/wire.h"

namespace rrdk::xprt {

class HeaderCopy {
 public:
  // Control path: messages can have up to so many bytes.
  void reserve(uint32_t largest);

  // As long as `message`; of a plain one only the first kPlainBytes are there. Valid until the next
  // take().
  std::span<const std::byte> take(std::span<const std::byte> message,
                                  const proto::Versions& versions) noexcept;

 private:
  std::vector<std::byte> room_;
};

}  // namespace rrdk::xprt

// A scripted peer: it sends given bytes, and keeps what the engine has sent.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "engine_end.h"

namespace rrdk::engine::test {

// Big-endian words, one after the other.
class Wire {
 public:
  Wire() = default;
  Wire(std::initializer_list<uint32_t> words) {
    for (uint32_t word : words)
      add(word);
  }
  Wire& add(uint32_t word) {
    bytes_.resize(bytes_.size() + 4);
    xdr::store_u32(&bytes_[bytes_.size() - 4], word);
    return *this;
  }
  Wire& add(std::initializer_list<uint32_t> words) {
    for (uint32_t word : words)
      add(word);
    return *this;
  }
  Wire& segment(uint32_t handle, uint32_t length, uint64_t offset) {
    return add(
        {handle, length, static_cast<uint32_t>(offset >> 32), static_cast<uint32_t>(offset)});
  }
  Wire& raw(const Bytes& more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }
  operator const Bytes&() const { return bytes_; }

 private:
  Bytes bytes_;
};

inline uint32_t word(const Bytes& bytes, size_t index) {
  EXPECT_LE(4 * index + 4, bytes.size());
  return 4 * index + 4 <= bytes.size() ? xdr::load_u32(&bytes[4 * index]) : 0xdeadbeef;
}

class Script final : public RemoteSide {
 public:
  struct Exposed {
    Bytes bytes;
    fabric::Rights rights;
    uint64_t address;
  };

  explicit Script(End& end) : end_(end) { end.qp.remote = this; }

  // Memory that the engine may read or write. Its addresses differ from those of this process.
  uint32_t expose(Bytes bytes, fabric::Rights rights) {
    uint32_t key = 1000 + static_cast<uint32_t>(exposed.size());
    exposed.push_back({std::move(bytes), rights, uint64_t{key} << 40 | 0x10});
    return key;
  }
  Exposed& at(uint32_t key) { return exposed[key - 1000]; }
  Wire& segment(Wire& wire, uint32_t key, uint32_t length, uint32_t skip = 0) {
    return wire.segment(key, length, at(key).address + skip);
  }

  void say(const Bytes& message, std::optional<uint32_t> invalidate = {}) {
    EXPECT_TRUE(end_.qp.receive(message, invalidate)) << "no Receive is posted";
    end_.run();
  }
  // The messages that the engine has sent since the last call.
  std::vector<Bytes> take() { return std::exchange(sent, {}); }

  std::byte* access(uint32_t key, uint64_t address, uint32_t length,
                    fabric::Rights rights) override {
    if (key < 1000 || key - 1000 >= exposed.size() || at(key).rights != rights)
      return nullptr;
    Exposed& e = at(key);
    if (address < e.address || address - e.address + length > e.bytes.size())
      return nullptr;
    return e.bytes.data() + (address - e.address);
  }
  bool receive(const Bytes& message, std::optional<uint32_t> invalidate) override {
    sent.push_back(message);
    invalidated = invalidate;
    return true;
  }

  std::vector<Exposed> exposed;
  std::vector<Bytes> sent;
  std::optional<uint32_t> invalidated;  // by the last Send

 private:
  End& end_;
};

}  // namespace rrdk::engine::test

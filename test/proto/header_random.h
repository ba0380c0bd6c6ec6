// Random messages that follow the header's structure: whole ones whose lists mostly fit each other,
// and mutations of any message. The same seed gives the same messages everywhere. Fuzzers can use
// mutate() as their mutator.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/header.h"
#include "rrdk/xdr.h"

namespace rrdk::proto {

class HeaderRandom {
 public:
  using Bytes = std::vector<std::byte>;

  explicit HeaderRandom(uint64_t seed) : state_(seed) {}

  // splitmix64
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint32_t word() { return static_cast<uint32_t>(next() >> 32); }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{word()} * n) >> 32); }
  bool one_in(uint32_t n) { return below(n) == 0; }

  // Replaces `out` by a header of version 1 and the bytes behind it. Most keep every rule.
  void generate(Bytes& out) {
    out.clear();
    out_ = &out;
    put(word());
    put(one_in(64) ? below(4) * 0x5555 : 1);
    put(one_in(4) ? word() : 1 + below(128));
    uint32_t kind = below(32);
    if (kind < 28)
      put_with_lists(kind < 16 ? 0 : kind < 24 ? 1 : 2);
    else if (kind < 30)
      put_error();
    else
      put(kind == 30 ? 3 : below(8));
    if (one_in(16))
      trailer(4 * below(10));
  }

  // The same for version 2.
  void generate2(Bytes& out, Wire draft) {
    out.clear();
    out_ = &out;
    is_04_ = draft == Wire::kDraft04;
    put(word());
    put(one_in(64) ? below(4) * 0x5555 : 2);
    put(one_in(4) ? word() : 1 + below(128));
    uint32_t kind = below(32);
    if (kind < 20 || (kind < 31 && kind >= 27 && !is_04_))  // draft-00 has no properties
      put_lists2(kind < 13 ? 0 : 1);
    else if (kind < 24)
      put_error2();
    else if (kind < 27)
      put_option();
    else if (kind < 31)
      put_properties(6 + kind % 4);
    else
      put(below(12));
    if (one_in(16))
      trailer(4 * below(10));
  }

  // One to three small changes anywhere.
  void mutate(Bytes& message) {
    for (uint32_t changes = 1 + below(3); changes != 0 && !message.empty(); --changes)
      change(message);
  }

 private:
  struct ReadEntry {
    uint32_t position;
    uint32_t length;
  };

  void put(uint32_t value) {
    std::byte bytes[4];
    xdr::store_u32(bytes, value);
    out_->insert(out_->end(), bytes, bytes + 4);
  }
  void put_segment(uint32_t length) {
    put(word());
    put(length);
    put(word());
    put(word());
  }
  void trailer(uint32_t length) { out_->resize(out_->size() + length); }

  // Mostly few, seldom more than any limit.
  uint32_t count(uint32_t usual) {
    uint32_t kind = below(64);
    return kind == 0 ? below(300) : kind < 4 ? below(20) : below(usual + 1);
  }
  uint32_t length() {
    uint32_t kind = below(64);
    if (kind == 0)
      return word();
    return kind < 8 ? below(1 << 20) : kind < 16 ? 0 : below(64);
  }

  void put_error() {
    put(4);
    uint32_t code = one_in(8) ? below(5) : 1 + below(2);
    put(code);
    if (code == 1) {
      put(below(4));
      put(below(4));
    } else if (one_in(2)) {
      trailer(32);
    }
  }

  void put_with_lists(uint32_t proc) {
    put(proc);
    if (proc == 2) {
      put(word());
      put(word());
    }
    uint64_t reduced = plan_reads(proc == 1);
    for (const ReadEntry& entry : reads_) {
      put(1);
      put(entry.position);
      put_segment(entry.length);
    }
    put(0);
    for (uint32_t writes = one_in(2) ? 0 : count(3); writes != 0; --writes)
      put_chunk();
    put(0);
    if (one_in(3))
      put_chunk();
    else
      put(0);
    if (proc != 1)
      trailer(static_cast<uint32_t>(std::min<uint64_t>(reduced, 2048)) + 4 * below(16));
  }

  void put_chunk() {
    put(1);
    uint32_t segments = count(3);
    put(segments);
    for (; segments != 0; --segments)
      put_segment(length());
  }

  // For a reply, mostly what replies have: no Read list, and a Reply chunk if it is long.
  void put_lists2(uint32_t proc) {
    const uint32_t direction = one_in(64) ? below(5) : below(2);
    const bool is_reply = direction == 1 && !one_in(16);
    put(proc);
    if (is_04_) {
      put(direction);
      put(one_in(2) ? word() : 0);
    }
    uint64_t reduced = is_reply ? 4 * below(8) : plan_reads(proc == 1);
    if (is_reply)
      reads_.clear();
    for (const ReadEntry& entry : reads_) {
      put(1);
      put(entry.position);
      put_segment(entry.length);
    }
    put(0);
    for (uint32_t writes = one_in(2) ? 0 : count(3); writes != 0; --writes)
      put_chunk();
    put(0);
    if (one_in(3) || (is_reply && proc == 1))
      put_chunk();
    else
      put(0);
    if (proc == 0)
      put_rpc(static_cast<uint32_t>(std::min<uint64_t>(reduced, 2048)) + 4 * below(16),
              one_in(32) ? below(4) : direction);
  }
  // The bytes behind the header: an XID, msg_type, and zeros.
  void put_rpc(uint32_t length, uint32_t msg_type) {
    const size_t at = out_->size();
    trailer(length);
    if (length >= 8)
      xdr::store_u32(&(*out_)[at + 4], msg_type);
  }

  void put_error2() {
    put(4);
    uint32_t code = one_in(16) ? below(14) : 1 + below(10);
    put(code);
    for (uint32_t arguments = one_in(16) ? below(3) : 2; arguments != 0; --arguments)
      put(one_in(4) ? word() : below(100));
  }

  void put_opaque(uint32_t length) {
    put(one_in(32) ? interesting() : length);
    for (uint32_t i = 0; i < length; i += 4)
      put(word() & (length - i < 4 && !one_in(8) ? ~0u << 8 * (4 - (length - i)) : ~0u));
  }
  void put_option() {
    put(5);
    if (is_04_)
      put(one_in(32) ? below(5) : below(2));
    put(word());
    put_opaque(below(40));
  }
  void put_set() {
    uint32_t properties = below(5);
    put(one_in(32) ? interesting() : properties);
    for (; properties != 0; --properties) {
      put(one_in(4) ? word() : below(4));
      put_opaque(one_in(4) ? below(20) : 4 * below(2));
    }
  }
  void put_subset() {
    uint32_t words = below(4);
    put(one_in(32) ? interesting() : words);
    for (; words != 0; --words)
      put(word());
  }
  void put_properties(uint32_t proc) {
    put(proc);
    if (proc == 8) {
      put_subset();
      put_subset();
    }
    put_set();
    if (proc == 6)
      put_subset();
  }

  // Fills reads_. Returns how many bytes of the stream must be outside the chunks: inline, or in
  // the Position-Zero chunk, which then gets them.
  uint64_t plan_reads(bool is_long) {
    reads_.clear();
    if (is_long && !one_in(16))
      add_read_chunk(0);
    size_t body_segments = reads_.size();
    uint64_t end = 0;
    uint64_t reduced = 0;
    for (uint32_t chunks = one_in(2) ? 0 : count(3); chunks != 0; --chunks) {
      uint32_t gap = 4 * (below(16) + (end == 0));
      uint64_t position = end + gap;
      reduced += gap;
      end = (position + add_read_chunk(static_cast<uint32_t>(position)) + 3) / 4 * 4;
    }
    if (body_segments != 0 && !one_in(16))
      reads_[0].length += static_cast<uint32_t>(reduced);
    disturb_reads();
    return one_in(32) ? reduced / 2 : reduced;
  }

  uint64_t add_read_chunk(uint32_t position) {
    uint64_t total = 0;
    for (uint32_t segments = 1 + count(2); segments != 0; --segments) {
      reads_.push_back({position, length()});
      total += reads_.back().length;
    }
    return total;
  }

  void disturb_reads() {
    if (reads_.empty())
      return;
    if (one_in(4)) {
      for (size_t i = reads_.size() - 1; i != 0; --i)
        std::swap(reads_[i], reads_[below(static_cast<uint32_t>(i + 1))]);
    }
    ReadEntry& victim = reads_[below(static_cast<uint32_t>(reads_.size()))];
    uint32_t kind = below(64);
    if (kind == 0)
      victim.position += 1 + below(3);
    else if (kind == 1)
      victim.position = word() & ~3u;
    else if (kind == 2)
      victim.position -= 4;
    else if (kind == 3)
      victim.position += 4;
    else if (kind == 4)
      victim.position = 0;
  }

  uint32_t interesting() {
    constexpr std::array<uint32_t, 13> kWords = {
        0, 1, 2, 3, 4, 5, 28, 255, 256, 0x10000000, 0x7fffffff, 0x80000000, 0xffffffff};
    return one_in(8) ? word() : kWords[below(kWords.size())];
  }

  void change(Bytes& message) {
    auto size = static_cast<uint32_t>(message.size());
    uint32_t at = below(size);
    auto aligned = message.begin() + at / 4 * 4;
    switch (below(6)) {
      case 0:
        message.resize(at);
        return;
      case 1:
        message[at] ^= std::byte(1u << below(8));
        return;
      case 2:
        message.insert(aligned, 4, std::byte{0});
        return;
      case 3:
        message.erase(aligned, aligned + std::min<ptrdiff_t>(4, message.end() - aligned));
        return;
      case 4:
        message.resize(size + below(40));
        return;
      default:
        // Half of the time among the first words, on which most decisions depend.
        if (one_in(2))
          at = below(std::min(size, 64u));
        if (at / 4 * 4 + 4 <= size)
          xdr::store_u32(&message[at / 4 * 4], interesting());
    }
  }

  uint64_t state_;
  Bytes* out_ = nullptr;
  bool is_04_ = false;
  std::vector<ReadEntry> reads_;
};

}  // namespace rrdk::proto

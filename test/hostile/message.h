// The messages of a hostile peer, written as data: big-endian words, and parts that are known only
// at run time (handles, addresses, XIDs of the victim's calls).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "rrdk/xdr.h"

namespace rrdk::hostile {

class Peer;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kMsg = 0, kNoMsg = 1, kMsgp = 2, kDone = 3, kError = 4;
constexpr uint32_t kErrVers = 1, kErrChunk = 2;
constexpr uint32_t kCredits = 8;  // that either side asks for and grants

void append_word(Bytes& bytes, uint32_t word);
uint32_t word_at(const Bytes& bytes, size_t index);
// As words, for the messages of failures.
std::string hex(const Bytes& bytes);

class Part {
 public:
  using Make = std::function<void(const Peer&, Bytes&)>;
  template <std::integral Word>
  Part(Word word) : make_([word](const Peer&, Bytes& to) { append_word(to, uint32_t(word)); }) {}
  Part(Make make) : make_(std::move(make)) {}
  void append(const Peer& peer, Bytes& to) const { make_(peer, to); }

 private:
  Make make_;
};

class Message {
 public:
  Message(std::initializer_list<Part> parts) : parts_(parts) {}
  // The first `length` bytes.
  Message cut(size_t length) const {
    Message shorter = *this;
    shorter.length_ = length;
    return shorter;
  }
  Bytes bytes(const Peer& peer) const {
    Bytes all;
    for (const Part& part : parts_)
      part.append(peer, all);
    if (length_ < all.size())
      all.resize(length_);
    return all;
  }

 private:
  std::vector<Part> parts_;
  size_t length_ = SIZE_MAX;
};

// Several parts as one, `count` times.
Part times(uint32_t count, std::initializer_list<Part> parts);
// `count` bytes without meaning.
Part filler(size_t bytes);

// Segments: of the peer's memory, valid and invalid.
Part segment(uint32_t handle, uint32_t length, uint64_t offset);
Part readable(uint32_t length, uint32_t skip = 0);  // holds loopback's pattern
Part writable(uint32_t length, uint32_t skip = 0);
Part request(uint32_t length, uint32_t skip = 0);  // readable; holds what expose_request() said
Part revoked(uint32_t length);                     // was writable once
Part foreign(uint32_t length);                     // writable on another connection of the peer's
Part readable_below(uint32_t length);              // begins four bytes before what is readable
// The handle alone, with the given length and offset.
Part readable_at(uint32_t length, uint64_t offset);

// The start of an ONC RPC call of a procedure of the loopback service: 40 bytes.
Part call(uint32_t xid, uint32_t procedure, uint32_t version = 3, uint32_t program = 0x20005600);
// An accepted reply up to its results: 24 bytes.
Part success(Part xid);
Part accepted(Part xid, uint32_t accept_stat);

// From the n-th message received from the victim: a word, changed, and its XID.
Part heard(size_t n, size_t word, uint32_t plus = 0);
inline Part xid(size_t n, uint32_t plus = 0) {
  return heard(n, 0, plus);
}
// The segment at `word` of the n-th message, with another length.
Part returned(size_t n, size_t word, uint32_t length);

// Answers of a server.
Message err_chunk(uint32_t xid, uint32_t grant = kCredits);
Message err_vers(uint32_t xid, uint32_t version, uint32_t grant = kCredits);
Message null_reply(uint32_t xid, uint32_t grant = kCredits);
Message rejection(uint32_t xid, uint32_t accept_stat);
// A call without arguments, and one of the echo procedure with the word 5.
Message null_call(uint32_t xid);
Message echo_call(uint32_t xid);
Message echo_reply(uint32_t xid, uint32_t grant = kCredits);

}  // namespace rrdk::hostile

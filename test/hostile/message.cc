#include "message.h"

#include <cstdio>

#include "peer.h"

namespace rrdk::hostile {

void append_word(Bytes& bytes, uint32_t word) {
  bytes.resize(bytes.size() + 4);
  xdr::store_u32(&bytes[bytes.size() - 4], word);
}

uint32_t word_at(const Bytes& bytes, size_t index) {
  return 4 * index + 4 <= bytes.size() ? xdr::load_u32(&bytes[4 * index]) : 0xdeadbeef;
}

std::string hex(const Bytes& bytes) {
  std::string text = std::to_string(bytes.size()) + " bytes:";
  char digits[3];
  for (size_t i = 0; i < bytes.size() && i < 256; ++i) {
    std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<unsigned>(bytes[i]));
    text += i % 4 == 0 ? " " : "";
    text += digits;
  }
  return text;
}

Part times(uint32_t count, std::initializer_list<Part> parts) {
  return Part([count, all = std::vector<Part>(parts)](const Peer& peer, Bytes& to) {
    for (uint32_t i = 0; i < count; ++i)
      for (const Part& part : all)
        part.append(peer, to);
  });
}

Part filler(size_t bytes) {
  return Part([bytes](const Peer&, Bytes& to) { to.resize(to.size() + bytes, std::byte{0x77}); });
}

Part segment(uint32_t handle, uint32_t length, uint64_t offset) {
  return Part([=](const Peer&, Bytes& to) {
    append_word(to, handle);
    append_word(to, length);
    append_word(to, static_cast<uint32_t>(offset >> 32));
    append_word(to, static_cast<uint32_t>(offset));
  });
}

namespace {

Part segment_of(Peer::Memory which, uint32_t length, uint64_t skip) {
  return Part([=](const Peer& peer, Bytes& to) {
    segment(peer.key(which), length, peer.address(which) + skip).append(peer, to);
  });
}

}  // namespace

Part readable(uint32_t length, uint32_t skip) {
  return segment_of(Peer::kReadable, length, skip);
}
Part writable(uint32_t length, uint32_t skip) {
  return segment_of(Peer::kWritable, length, skip);
}
Part request(uint32_t length, uint32_t skip) {
  return segment_of(Peer::kRequest, length, skip);
}
Part revoked(uint32_t length) {
  return segment_of(Peer::kRevoked, length, 0);
}
Part foreign(uint32_t length) {
  return segment_of(Peer::kForeign, length, 0);
}
Part readable_below(uint32_t length) {
  return segment_of(Peer::kReadable, length, uint64_t{0} - 4);
}
Part readable_at(uint32_t length, uint64_t offset) {
  return Part([=](const Peer& peer, Bytes& to) {
    segment(peer.key(Peer::kReadable), length, offset).append(peer, to);
  });
}

Part call(uint32_t xid, uint32_t procedure, uint32_t version, uint32_t program) {
  return times(1, {xid, 0, 2, program, version, procedure, 0, 0, 0, 0});
}
Part success(Part xid) {
  return accepted(std::move(xid), 0);
}
Part accepted(Part xid, uint32_t accept_stat) {
  return times(1, {std::move(xid), 1, 0, 0, 0, accept_stat});
}

Part heard(size_t n, size_t word, uint32_t plus) {
  return Part([=](const Peer& peer, Bytes& to) {
    append_word(to, word_at(peer.heard_message(n), word) + plus);
  });
}
Part returned(size_t n, size_t word, uint32_t length) {
  return times(1, {heard(n, word), length, heard(n, word + 2), heard(n, word + 3)});
}

Message err_chunk(uint32_t xid, uint32_t grant) {
  return {xid, 1, grant, kError, kErrChunk};
}
Message err_vers(uint32_t xid, uint32_t version, uint32_t grant) {
  return {xid, version, grant, kError, kErrVers, 1, 2};
}
Message null_reply(uint32_t xid, uint32_t grant) {
  return {xid, 1, grant, kMsg, 0, 0, 0, success(xid)};
}
Message rejection(uint32_t xid, uint32_t accept_stat) {
  return {xid, 1, kCredits, kMsg, 0, 0, 0, accepted(xid, accept_stat)};
}
Message null_call(uint32_t xid) {
  return {xid, 1, kCredits, kMsg, 0, 0, 0, call(xid, 0)};
}
Message echo_call(uint32_t xid) {
  return {xid, 1, kCredits, kMsg, 0, 0, 0, call(xid, 1), 4, 5};
}
Message echo_reply(uint32_t xid, uint32_t grant) {
  return {xid, 1, grant, kMsg, 0, 0, 0, success(xid), 4, 5};
}

}  // namespace rrdk::hostile

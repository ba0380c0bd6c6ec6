// A connection by TCP to what GssAcceptorOptions::tcp serves. It sends what a test wants.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/system.h"
#include "gss_caller.h"

namespace rrdk::gss {

class TcpPeer {
 public:
  // It comes from that address of this host.
  explicit TcpPeer(uint16_t port, in_addr_t from = INADDR_LOOPBACK)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  }

  void send(const Bytes& bytes) {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // The connection may have ended.
  void try_to_send(const Bytes& bytes) {
    (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Nothing more is sent.
  void end() { ::shutdown(socket_.get(), SHUT_WR); }
  // As one record of one fragment.
  void call(const Words& message) { send(record(message)); }
  static Bytes record(const Words& message) {
    return bytes_of(Words{0x80000000 | static_cast<uint32_t>(4 * message.size())} + message);
  }
  // The next record; nothing if the connection was closed.
  Words next() {
    const Words mark = receive(1);
    return mark.empty() ? Words() : receive((mark[0] & 0x7fffffff) / 4);
  }
  bool is_closed() {
    std::byte byte;
    return ::recv(socket_.get(), &byte, 1, 0) <= 0;
  }

 private:
  Words receive(size_t count) {
    Bytes bytes(4 * count);
    if (::recv(socket_.get(), bytes.data(), bytes.size(), MSG_WAITALL) !=
        static_cast<ssize_t>(bytes.size()))
      return {};
    Words words;
    for (size_t at = 0; at != bytes.size(); at += 4)
      words.push_back(xdr::load_u32(&bytes[at]));
    return words;
  }

  base::Fd socket_;
};

// A call of NFS version 3.
inline Words tcp_call(uint32_t procedure, const Words& credential, const Words& arguments = {}) {
  return Words{7, 0, 2, 100003, 3, procedure} + credential + Words{0, 0} + arguments;
}

inline Words tcp_init(const Bytes& token) {
  return tcp_call(0, {6, 20, 1, 1, 0, 1, 0}, opaque(token));
}

// Reads the answer to a token, and completes the context of the caller with it.
inline void take_context(TcpPeer& peer, GssCaller& caller) {
  const Words reply = peer.next();
  Reader in(reply);
  EXPECT_EQ(in.word(), 7u);
  caller.take_context(in);
}

}  // namespace rrdk::gss

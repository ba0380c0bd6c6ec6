/**
 * What a program can learn about a connection, at either end: its peer, its numbers, and why it
 * ended. A server gets this from ServerConnection (rrdk/service.h), Server::visit() and
 * ServerOptions::on_close, a client from ClientConnection::info().
 *
 *   rrdk::ConnectionInfo info = call.connection().info();
 *   std::printf("%" PRIu64 " %s: %" PRIu64 " calls\n", info.id, info.peer.to_string().c_str(),
 *               info.calls);
 *
 * Lifetime: all types here are plain values, which stay as they are when the connection goes on or
 * ends.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rrdk/counters.h"
#include "rrdk/error.h"
#include "rrdk/language.h"

namespace rrdk {

/** The numeric address of one end of a network connection. */
struct NetworkAddress {
  std::string host;   ///< "10.0.0.1", "fe80::1%eth0"; empty: not known
  uint16_t port = 0;  ///< of TCP, or of the connection manager

  /** The form "10.0.0.1:20049", "[::1]:20049"; empty if the host is. */
  std::string to_string() const;
  bool operator==(const NetworkAddress&) const = default;
};

/** Another process of this host, as the kernel identified it when it connected. */
struct ProcessIdentity {
  int32_t pid = 0;  ///< as this process sees it; 0: in a PID namespace that this process cannot see
  uint32_t uid = 0, gid = 0;  ///< effective ids

  bool operator==(const ProcessIdentity&) const = default;
};

/**
 * The other end of a connection, as the kernel or the network reports it: nothing here is what the
 * peer says of itself.
 */
struct Peer {
  /** The scheme of its addresses: "shm", "iwarp" or "verbs". Empty if there is no connection. */
  std::string_view driver;
  NetworkAddress local;   ///< our end, if the driver is for networks
  NetworkAddress remote;  ///< the peer's end, likewise
  /** Set if the peer is a process of this host: over `shm:`, not over `iwarp:` and `verbs:`. */
  std::optional<ProcessIdentity> process;

  /**
   * For people: "pid 4711 (uid 1000)", "10.0.0.1:52114", "[::1]:52114"; "not connected" if nothing
   * is known.
   */
  std::string to_string() const;
  bool operator==(const Peer&) const = default;
};

/** What ended a connection. */
enum class EndedBy : uint8_t {
  kNobody,  ///< it has not ended
  kPeer,  ///< the other end closed it, died, refused it, or did what `refusal` says; also where the
          ///< driver cannot tell that from a failure of the network
  kProgram,  ///< this program closed or drained it, dropped a call, or gave an invalid memory
             ///< reference
  kLimit,    ///< a limit of this end: a time-out, a quota, a lack of memory, descriptors or places
  kNetwork,  ///< the network, the device or the operating system failed, or nothing is there
};

/** One word, such as "peer". Never null, even for values outside the enumeration. */
const char* to_string(EndedBy by) noexcept;

/**
 * Why a connection, or an attempt to connect, ended. The same value is in ConnectionInfo, is passed
 * to ServerOptions::on_close, and is logged.
 *
 *   void on_close(rrdk::ServerConnection& connection, const rrdk::Ending& ending, void*) {
 *     std::printf("%s: %s\n", connection.peer().to_string().c_str(), ending.to_string().c_str());
 *   }
 *
 * It is the first cause that counts: consequences, such as a failing queue pair, change nothing.
 * Counter::kEndedByPeer and those beside it count connections that had been established.
 */
struct Ending {
  EndedBy by = EndedBy::kNobody;
  /** For programs. kConnectionLost: it broke, or the peer closed it; `by` says what caused it. */
  Errc code = Errc::kConnectionLost;
  /** With kPeer: what the peer did, if a Refusal names it; Stats count that, too. */
  std::optional<Refusal> refusal = {};
  std::string text = {};  ///< for people; one line, without the peer's name

  bool ended() const noexcept { return by != EndedBy::kNobody; }
  /**
   * As in "the peer closed the connection [peer]" or "it takes no messages [peer: message not
   * received]".
   */
  std::string to_string() const;
  bool operator==(const Ending&) const = default;
};

/**
 * A snapshot of a connection. Its numbers count this connection alone, since it was made. They are
 * about calls from the client to the server, except `calls_rejected`, which counts what this end
 * rejected. There are never more replies than calls.
 */
struct ConnectionInfo {
  uint64_t id = 0;  ///< never reused in this process; also in ExtensionPeer. 0: no connection
  Peer peer;
  uint32_t core = 0;  ///< the poll core that serves it
  /**
   * The version of RPC-over-RDMA. A server answers each call in the call's version, and has that of
   * the last one here. 0: none yet.
   */
  uint32_t version = 0;
  /**
   * Bytes of the largest message that goes inline, to the peer and from it, in that version (RFC
   * 8797; draft-04 of version 2, section 5.2.1); 0: not established yet.
   */
  uint32_t send_size = 0, receive_size = 0;
  uint32_t credits = 0;  ///< the server's last grant, at least 1 (RFC 8166 section 3.3)
  /**
   * Calls that are not answered yet. At a server, calls that its poll core runs at this moment may
   * be missing, since they may have no record of their own.
   */
  uint32_t in_progress = 0;
  uint64_t calls = 0;             ///< received by the server, or sent by the client
  uint64_t replies = 0;           ///< RPC messages in answer, rejections included
  uint64_t calls_rejected = 0;    ///< calls that our handlers, or the library for them, rejected
  uint64_t transport_errors = 0;  ///< RDMA_ERROR answers, sent or received
  uint64_t rdma_read_bytes = 0, rdma_written_bytes = 0;  ///< by RDMA Reads and Writes of this end
  uint64_t protocol_breaches = 0;                        ///< by the peer, of the transport
  uint64_t age_ns = 0;                                   ///< since it was established, or requested
  /**
   * Time without calls, and without anything else sent or received; 0 while in_progress is not 0.
   * By the clock of the core, which it reads every 16 passes, so it may be up to that much too
   * long.
   */
  uint64_t idle_ns = 0;
  /**
   * Why it ended; `ending.by` is kNobody while it is up. For a ClientConnection without a
   * connection: why the last one ended, why the last attempt failed, or that it was closed.
   */
  Ending ending = {};
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

}  // namespace rrdk

/**
 * What a program can know of a connection, at either end: who is at the other end of it, what has
 * become of it, and why it has ended. A server has it from ServerConnection (rrdk/service.h) and
 * Server::visit(), a client from ClientConnection::info().
 *
 *   rrdk::ConnectionInfo info = call.connection().info();
 *   std::printf("%" PRIu64 " %s: %" PRIu64 " calls\n", info.id, info.peer.to_string().c_str(),
 *               info.calls);
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

/** An end of a network connection, in numbers. */
struct NetworkAddress {
  std::string host;   ///< "10.0.0.1", "fe80::1%eth0"; empty: not known
  uint16_t port = 0;  ///< of TCP, or of the connection manager

  /** As in "10.0.0.1:20049", "[::1]:20049"; empty when the host is. */
  std::string to_string() const;
  bool operator==(const NetworkAddress&) const = default;
};

/** Another process of this host, as the kernel has it when it connects. */
struct ProcessIdentity {
  int32_t pid = 0;  ///< as this process sees it; 0: it is in a PID namespace that it cannot see
  uint32_t uid = 0, gid = 0;  ///< effective ones

  bool operator==(const ProcessIdentity&) const = default;
};

/**
 * Who is at the other end of a connection: nothing here is what the peer says of itself, all of it
 * is from the kernel or the network. A plain value.
 */
struct Peer {
  /** The scheme of its addresses: "shm", "iwarp" or "verbs". Empty: there is no connection. */
  std::string_view driver;
  NetworkAddress local;   ///< our end, where the driver is one for networks
  NetworkAddress remote;  ///< and the peer's
  /** Where the peer is one of this host: over `shm:`, not over `iwarp:` and `verbs:`. */
  std::optional<ProcessIdentity> process;

  /**
   * For a person: "pid 4711 (uid 1000)", "10.0.0.1:52114", "[::1]:52114"; "not connected" when
   * nothing is known.
   */
  std::string to_string() const;
  bool operator==(const Peer&) const = default;
};

/** Who ended a connection. */
enum class EndedBy : uint8_t {
  kNobody,   ///< it has not ended
  kPeer,     ///< the other end closed it, died, refused it, or did what `refusal` says; also where
             ///< the driver cannot tell that from a break of the network
  kProgram,  ///< this program closed or drained it, dropped a call, or named memory wrongly
  kLimit,    ///< a limit of this end: a time-out, a quota, a lack of memory, descriptors or places
  kNetwork,  ///< the network, the device or the operating system failed, or nothing is there
};

/** One word, as in "peer". Never null, also for values that are none of the above. */
const char* to_string(EndedBy by) noexcept;

/**
 * Why a connection ended, or an attempt to make one. What ends a connection first is its reason;
 * what follows from that, as a failing queue pair does, changes nothing. The same value is in
 * ConnectionInfo, is given to ServerOptions::on_close, and is what the log says (to_string()).
 * Counter::kEndedByPeer and those beside it count those of connections that had been established.
 *
 *   void on_close(rrdk::ServerConnection& connection, const rrdk::Ending& ending, void*) {
 *     std::printf("%s: %s\n", connection.peer().to_string().c_str(), ending.to_string().c_str());
 *   }
 */
struct Ending {
  EndedBy by = EndedBy::kNobody;
  /** For programs. kConnectionLost: it broke, or the peer closed it; `by` says who is to blame. */
  Errc code = Errc::kConnectionLost;
  /** With kPeer: what the peer did, if a Refusal names it; Stats count that, too. */
  std::optional<Refusal> refusal = {};
  std::string text = {};  ///< for people; one line, without the peer's name

  bool ended() const noexcept { return by != EndedBy::kNobody; }
  /** "the peer closed the connection [peer]", "it takes no messages [peer: message not received]".
   */
  std::string to_string() const;
  bool operator==(const Ending&) const = default;
};

/**
 * A connection at one moment. Numbers are of this connection alone, since it was made, and in the
 * direction from client to server, but for `calls_rejected`; replies are never more than calls.
 */
struct ConnectionInfo {
  uint64_t id = 0;  ///< of this process, never used twice; also ExtensionPeer's. 0: no connection
  Peer peer;
  uint32_t core = 0;  ///< the poll core that it lives on
  /** Of RPC-over-RDMA; a server answers each call in its own, and has that of the last one. 0: none
      yet. */
  uint32_t version = 0;
  /**
   * Bytes of the largest message that goes inline, to the peer and from it, in that version (RFC
   * 8797; draft-04 of version 2, section 5.2.1); 0: not established yet.
   */
  uint32_t send_size = 0, receive_size = 0;
  uint32_t credits = 0;  ///< that the server has granted last, at least 1 (RFC 8166 section 3.3)
  /** Calls that are not answered yet; at a server without those that its poll core runs right now,
      which may have no record of their own. */
  uint32_t in_progress = 0;
  uint64_t calls = 0;             ///< that came to the server, or were sent by the client
  uint64_t replies = 0;           ///< RPC messages to them, rejections included
  uint64_t calls_rejected = 0;    ///< calls that our handlers, or we for them, did not let succeed
  uint64_t transport_errors = 0;  ///< RDMA_ERROR answers, sent or received
  uint64_t rdma_read_bytes = 0, rdma_written_bytes = 0;  ///< by RDMA Reads and Writes of this end's
  uint64_t protocol_breaches = 0;                        ///< by the peer, of the transport
  uint64_t age_ns = 0;                                   ///< since it was established, or asked for
  /**
   * Without calls, and without anything else that was sent or came; 0 while in_progress is not 0.
   * By the clock of the core, which it reads every 16 passes: up to so many passes too long.
   */
  uint64_t idle_ns = 0;
  /**
   * Why it ended; `ending.by` is kNobody while it lives. Of a ClientConnection: why the last one
   * ended, or the last attempt failed, or that it was closed, while there is none.
   */
  Ending ending = {};
  Reserved<8> reserved = {};  ///< for what later releases add
};

}  // namespace rrdk

/**
 * What version 2 of RPC-over-RDMA brings beside calls: its options, and Receives whose size the two
 * ends settle between them. Programs that speak version 1, as Linux and all storage systems do,
 * need nothing of it. Which version is spoken is in rrdk/version.h; messages of new types are in
 * rrdk/extensions.h; doc/version-two.md tells the rest.
 *
 *   auto client = rrdk::must(rrdk::Client::create(
 *       runtime, {.version = rrdk::RpcRdmaVersion::kTwo,
 *                 .version2 = {.max_receive_size = 65536}}));
 *   ...
 *   rrdk::request_receive_size(*connection, 65536);
 *   ...
 *   rrdk::ReceiveSizes sizes = rrdk::receive_sizes(*connection);
 *   bool settled = sizes.ended == sizes.asked;
 *
 * All of it is the same over `shm:`, `iwarp:` and `verbs:`.
 */
#pragma once

#include <cstdint>

#include "rrdk/version.h"

namespace rrdk {

class ClientConnection;
class Extensions;
class ServerCall;

/** ClientOptions::version2: in version 1 none of it matters, but for `version_memory_ms`. */
struct Version2ClientOptions {
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;  ///< the version 2 that is meant
  /**
   * With kAuto: for how long this Client begins connections to a URI with version 1, after a server
   * there did not know version 2, or its connection was lost before the first answer. 0: that is
   * not remembered, and a server that never answers version 2 cannot be reached.
   */
  uint32_t version_memory_ms = 600'000;
  /**
   * Draft-04: whether transport properties are told, heard and changed (its section 5). false: what
   * the server says of them is answered as unknown, and 4096 bytes go inline.
   */
  bool properties = true;
  /**
   * Up to what our Receives may grow, because the server asks for it or by raise_receive_size(): a
   * multiple of 1024 from inline_size to 262144; 0: they stay as they are. Each connection then
   * takes `credits` + 3 buffers of the size class that fits; have them in MemoryOptions::classes,
   * with as many again for the replies of calls that are kept. As long as there are not enough, the
   * Receives that cannot grow stay as they are, and the server is not told. Needs `properties`.
   */
  uint32_t max_receive_size = 0;
  /**
   * Draft-04: whether the server's calls to services of ours (Client::add_service()) may have
   * chunks (RDMA2_BKREQSUP_GENL, its section 5.2.2), so that arguments and results need not fit
   * inline: eligible arguments as the service's binding allows it, long calls and long replies.
   * Needs `properties`. The server is told behind its first reply. false, and in other versions:
   * what comes with chunks is refused (Refusal::kBackwardChunks) and the connection goes on.
   */
  bool backward_chunks = false;
  /**
   * With it: bytes of chunks that the server's calls in progress on one connection may have here,
   * of arguments that we fetch and of room offered for results. Calls beyond wait for earlier ones
   * to end; one call alone may have max_call, and its reply max_reply. At least 1. Besides, they
   * share the pools with all other peers as ServerOptions::max_chunk_bytes says.
   */
  uint64_t max_backward_chunk_bytes = 8u << 20;
  /**
   * Message types and transport properties beside those of the base protocol, see
   * rrdk/extensions.h; null: there are none. It outlives the Client and its connections. Its
   * properties need `properties`. In version 1 send_option() ends with kVersionError.
   */
  const Extensions* extensions = nullptr;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/** ServerOptions::version2. Which draft is answered is in ServerOptions::versions. */
struct Version2ServerOptions {
  /**
   * Draft-04: whether transport properties are told, heard and changed (its section 5). Each
   * connection that speaks it takes three Receives more for their messages. false: they are
   * answered as unknown, and 4096 bytes go inline.
   */
  bool properties = true;
  /**
   * Up to what a connection's Receives grow when its client asks for it, or a handler by
   * raise_receive_size(): a multiple of 1024 from inline_size to 262144, at most largest_buffer();
   * 0: they do not. Each such connection takes `credits` + `backward_credits` + 3 buffers of the
   * size class that fits, if that is another one than that of inline_size; have them in
   * MemoryOptions::classes, beside those for chunks. They are its own until it ends, also if its
   * Receives become smaller, or larger than that class.
   *
   * A quarter of that class is kept for calls. The server is not created if the rest does not hold
   * one connection; and when it holds no further one, further connections' Receives stay as they
   * are, which their clients are told, a log line says and Counter::kGrowthRefused
   * counts. Where others have taken buffers of the class, Receives grow as these come back. Needs
   * `properties`.
   */
  uint32_t max_receive_size = 0;
  /**
   * Whether calls to clients have chunks where the client has said that it takes them
   * (Version2ClientOptions::backward_chunks): its RDMA Reads and Writes then go to memory of this
   * server, that of the one call and until it has ended. See BackwardClient::takes_chunks(). false:
   * they fit inline, or end with kTooLarge.
   */
  bool backward_chunks = true;
  /**
   * Message types and transport properties beside those of the base protocol, see
   * rrdk/extensions.h; null: there are none, and such messages are answered INVAL_OPTION. It
   * outlives the Server. Its properties need `properties`, and each feature a type with `serve`.
   */
  const Extensions* extensions = nullptr;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/**
 * The Receive Buffer Sizes of draft-04 (its section 5.2.1): how large the whole messages are that
 * an end can take. Bytes. On a new connection `own` and `peer` are the default, 4096, until the
 * ends have told theirs, which each does right behind the first call or reply; 0 while there is no
 * connection. Where another version is spoken they mean nothing. A plain value.
 */
struct ReceiveSizes {
  uint32_t own = 0;      ///< of our Receives, as the other end knows it
  uint32_t peer = 0;     ///< of the other end's
  uint64_t asked = 0;    ///< calls of request_receive_size()
  uint64_t ended = 0;    ///< of these: answered, refused or given up on
  uint64_t refused = 0;  ///< of these: not done, not even in part, so far
  /** Times that an end has told another size of its own: we, and the other end. */
  uint64_t own_changes = 0, peer_changes = 0;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/**
 * Asks the server for Receives of `bytes`, at least 4096: more, so that larger calls go inline, or
 * fewer. Any thread; does not wait. receive_sizes() tells of the end, when `ended` is `asked`
 * again, and of the outcome, which is the server's to choose: `peer`. Larger Receives come later
 * than the answer, when the server's smaller ones are used up, by about as many calls as there are
 * credits; smaller ones at once, and from this call on we send nothing larger.
 *
 * One at a time. It is refused at once, without a message, while the last one is not answered, when
 * `bytes` is below 4096, there is no connection, draft-04 is not spoken or properties are off, or
 * when the server has said that its size stays, knows no such requests, or said nothing. Without an
 * answer it ends after five seconds. On the next connection all begins anew.
 */
void request_receive_size(ClientConnection& connection, uint32_t bytes);
/**
 * Makes our own Receives larger, up to Version2ClientOptions::max_receive_size; no smaller, which
 * is only for the server to ask (section 5.2.1). Any thread; does not wait. receive_sizes().own
 * follows, when the smaller ones are used up. Nothing happens where draft-04 is not spoken (yet).
 */
void raise_receive_size(ClientConnection& connection, uint32_t bytes);
/** Any thread. */
ReceiveSizes receive_sizes(const ClientConnection& connection);

/**
 * The same of a server, for the connection on which `call` came: asks the client for larger
 * Receives, so that larger replies go inline; makes our own larger, up to
 * Version2ServerOptions::max_receive_size and as far as there are buffers; says what is known. Any
 * thread, while the call has not ended; they do not wait, and the connection may be gone when they
 * take effect. Smaller ones are refused at once: replies to calls that are on their way could not
 * be sent any more.
 *
 * A client grants what its Version2ClientOptions::max_receive_size allows, and can be asked behind
 * the first reply that it gets: in the handler of its first call that is refused. In the handler of
 * a server's call to its client these do nothing, and all sizes are 0: there the ClientConnection
 * has them.
 */
void request_receive_size(ServerCall& call, uint32_t bytes);
void raise_receive_size(ServerCall& call, uint32_t bytes);
ReceiveSizes receive_sizes(const ServerCall& call);

}  // namespace rrdk

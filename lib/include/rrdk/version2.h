/**
 * Version 2 of RPC-over-RDMA beyond calls: its options, and Receives whose size the two ends agree
 * on. Programs that use version 1, as Linux and all storage systems do, do not need this header.
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
 * It works in the same way over `shm:`, `iwarp:` and `verbs:`. rrdk/version.h chooses the version;
 * rrdk/extensions.h has messages of new types; doc/version-two.md has the details.
 */
#pragma once

#include <cstdint>

#include "rrdk/version.h"

namespace rrdk {

class ClientConnection;
class Extensions;
class ServerCall;

/** ClientOptions::version2. In version 1 only `version_memory_ms` has an effect. */
struct Version2ClientOptions {
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;  ///< the draft that is meant by version 2
  /**
   * With kAuto: how long this Client begins connections to a URI with version 1, after a server
   * there did not know version 2, or its connection was lost before the first answer. 0: this is
   * not remembered, and a server that never answers version 2 cannot be reached.
   */
  uint32_t version_memory_ms = 600'000;
  /**
   * Draft-04: whether transport properties are exchanged and changed (its section 5). If false, the
   * server's properties are answered as unknown, and at most 4096 bytes go inline.
   */
  bool properties = true;
  /**
   * The size to which our Receives may grow, at the server's request or by raise_receive_size(): a
   * multiple of 1024 from inline_size to 262144; 0: they do not grow. Each connection then takes
   * `credits` + 3 buffers of the size class that fits; provide these in MemoryOptions::classes, and
   * as many again for the replies of calls that are kept. While there are too few, the Receives
   * that cannot grow keep their size, and the server is not told of a larger one. Needs
   * `properties`.
   */
  uint32_t max_receive_size = 0;
  /**
   * Draft-04: whether the server's calls to services of this client (Client::add_service()) may
   * have chunks (RDMA2_BKREQSUP_GENL, its section 5.2.2), so that arguments and results need not
   * fit inline: eligible arguments as the service's binding allows, long calls and long replies.
   * Needs `properties`. The server is told after its first reply. If false, and in other versions,
   * calls with chunks are refused (Refusal::kBackwardChunks), and the connection continues.
   */
  bool backward_chunks = false;
  /**
   * With backward_chunks: bytes of chunks that the server's calls in progress on one connection may
   * have here, as arguments that we fetch and as memory offered for results. Further calls wait for
   * earlier ones to end; a call that is alone may have max_call, and its reply max_reply. At least
   * 1. In addition they share the pools with all other peers as described at
   * ServerOptions::max_chunk_bytes.
   */
  uint64_t max_backward_chunk_bytes = 8u << 20;
  /**
   * Message types and transport properties beyond the base protocol, see rrdk/extensions.h; may be
   * null. Must outlive the Client and its connections. Its properties need `properties`. In version
   * 1 send_option() ends with kVersionError.
   */
  const Extensions* extensions = nullptr;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** ServerOptions::version2. ServerOptions::versions says which draft is served. */
struct Version2ServerOptions {
  /**
   * Draft-04: whether transport properties are exchanged and changed (its section 5). Each
   * connection of draft-04 takes three more Receives for these messages. If false, properties are
   * answered as unknown, and at most 4096 bytes go inline.
   */
  bool properties = true;
  /**
   * The size to which a connection's Receives may grow, at its client's request or by a handler's
   * raise_receive_size(): a multiple of 1024 from inline_size to 262144, at most largest_buffer();
   * 0: they do not grow. Each such connection takes `credits` + `backward_credits` + 3 buffers of
   * the size class that fits, if that differs from the class of inline_size; provide these in
   * MemoryOptions::classes, in addition to those for chunks. They are the connection's until it
   * ends, even if its Receives become smaller, or larger than that class.
   *
   * A quarter of that class is kept for calls. The server is not created if the rest does not
   * suffice for one connection. When it does not suffice for a further one, that connection's
   * Receives keep their size; its client is told so, a log line says it, and
   * Counter::kGrowthRefused counts. If other users have taken buffers of the class, Receives grow
   * as these come back. Needs `properties`.
   */
  uint32_t max_receive_size = 0;
  /**
   * Whether calls to clients have chunks, if the client has said that it takes them
   * (Version2ClientOptions::backward_chunks). Its RDMA Reads and Writes then access memory of this
   * server, but only that of the one call and until it has ended. See
   * BackwardClient::takes_chunks(). If false, calls must fit inline, or end with kTooLarge.
   */
  bool backward_chunks = true;
  /**
   * Message types and transport properties beyond the base protocol, see rrdk/extensions.h. May be
   * null; then such messages are answered INVAL_OPTION. Must outlive the Server. Its properties
   * need `properties`, and each feature needs a type with `serve`.
   */
  const Extensions* extensions = nullptr;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/**
 * The Receive Buffer Sizes of draft-04 (its section 5.2.1), in bytes: the largest whole message
 * that an end can receive. On a new connection `own` and `peer` are the default, 4096, until the
 * ends have announced theirs, which each does right after the first call or reply; 0 while there is
 * no connection. Meaningless in other versions. A plain value.
 */
struct ReceiveSizes {
  uint32_t own = 0;      ///< size of our Receives, as the other end knows it
  uint32_t peer = 0;     ///< size of the other end's Receives
  uint64_t asked = 0;    ///< calls of request_receive_size()
  uint64_t ended = 0;    ///< of these: answered, refused or abandoned
  uint64_t refused = 0;  ///< of these: not carried out so far, not even in part
  /** How often an end has announced another size of its own: this end, and the other end. */
  uint64_t own_changes = 0, peer_changes = 0;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/**
 * Asks the server for Receives of `bytes`, at least 4096: larger ones, so that larger calls go
 * inline, or smaller ones. Any thread; does not wait. The request has ended when receive_sizes()
 * has `ended` equal to `asked` again; the result, which the server chooses, is `peer`. Larger
 * Receives come later than the answer, when the server's smaller ones are used up, after about as
 * many calls as there are credits; smaller ones come at once, and from this call on nothing larger
 * is sent.
 *
 * Only one request at a time. It is refused at once, without a message, if the previous one is not
 * answered, `bytes` is below 4096, there is no connection, the connection does not use draft-04 or
 * properties are off, or the server has said that its size is fixed, does not know such requests,
 * or announced nothing. Without an answer it ends after five seconds. The next connection starts
 * anew.
 */
void request_receive_size(ClientConnection& connection, uint32_t bytes);
/**
 * Enlarges our own Receives, up to Version2ClientOptions::max_receive_size. They cannot be made
 * smaller, which only the server may ask for (section 5.2.1). Any thread; does not wait.
 * receive_sizes().own changes when the smaller ones are used up. Does nothing if the connection
 * does not use draft-04 (yet).
 */
void raise_receive_size(ClientConnection& connection, uint32_t bytes);
/** Any thread. */
ReceiveSizes receive_sizes(const ClientConnection& connection);

/**
 * As above for a server, on the connection on which `call` came: request_receive_size() asks the
 * client for larger Receives, so that larger replies go inline; raise_receive_size() enlarges our
 * own, up to Version2ServerOptions::max_receive_size and as far as there are buffers. Any thread,
 * while the call has not ended. They do not wait, and the connection may be gone when they take
 * effect. A request for smaller Receives is refused at once, since replies to calls in progress
 * could then not be sent.
 *
 * A client grants what its Version2ClientOptions::max_receive_size allows, and can be asked only
 * after the first reply that it gets: in the handler of its first call the request is refused. In
 * the handler of a server's call to its client these functions do nothing, and all sizes are 0; use
 * the ClientConnection there.
 */
void request_receive_size(ServerCall& call, uint32_t bytes);
void raise_receive_size(ServerCall& call, uint32_t bytes);
ReceiveSizes receive_sizes(const ServerCall& call);

}  // namespace rrdk

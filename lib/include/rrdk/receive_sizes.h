/**
 * The Receive Buffer Sizes of one connection, as either end's program sees them:
 * ClientConnection::receive_sizes() (rrdk/client.h) and ServerCall::receive_sizes()
 * (rrdk/service.h). Plain numbers: no lifetime, no errors, to be copied as one likes.
 *
 *   rrdk::ReceiveSizes sizes = connection->receive_sizes();
 *   bool settled = sizes.ended == sizes.asked;
 */
#pragma once

#include <cstdint>

#include "rrdk/language.h"

namespace rrdk {

/**
 * The Receive Buffer Sizes of draft-04 (its section 5.2.1): how large the whole messages are that
 * an end can take. Bytes. On a new connection `own` and `peer` are the default, 4096, until the
 * ends have told theirs, which each does right behind the first call or reply; 0 while there is no
 * connection. Where another version is spoken they mean nothing.
 */
struct ReceiveSizes {
  uint32_t own = 0;      ///< of our Receives, as the other end knows it
  uint32_t peer = 0;     ///< of the other end's
  uint64_t asked = 0;    ///< calls of request_receive_size()
  uint64_t ended = 0;    ///< of these: answered, refused or given up on
  uint64_t refused = 0;  ///< of these: not done, not even in part, so far
  /** Times that an end has told another size of its own: we, and the other end. */
  uint64_t own_changes = 0, peer_changes = 0;
};

}  // namespace rrdk

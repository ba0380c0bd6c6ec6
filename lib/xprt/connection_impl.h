// What a Connection is made of.
#pragma once

#include "xprt/link.h"
#include "xprt/requester.h"
#include "xprt/responder.h"

namespace rrdk::xprt {

struct Connection::Impl {
  Impl(Connection& connection, const ConnectionOptions& options, Memory& memory, CallPool& pool,
       fabric::RemoteKeys& keys, Upcalls& upcalls, uint32_t first_xid)
      : link(connection, options, memory, pool, keys, upcalls),
        responder(link),
        requester(link, first_xid) {}

  Link link;
  Responder responder;
  Requester requester;
  bool write_failed = false;  // the reply that it belongs to is reported next

  // connection_datapath.cc
  void dispatch(const fabric::Completion& completion) noexcept;
  void on_receive(ReceiveSlot& slot, const fabric::Completion& completion) noexcept;
  void on_failure(const fabric::Completion& completion) noexcept;
  void note_access(const fabric::Completion& completion) noexcept;
  void pump() noexcept;
  void pump_sends() noexcept;
};

}  // namespace rrdk::xprt

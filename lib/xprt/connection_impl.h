// What a Connection is made of.
#pragma once

#include <memory>

#include "xprt/link.h"
#include "xprt/requester.h"
#include "xprt/responder.h"
#include "xprt/rfc5666/read_read.h"
#include "xprt/version2/properties.h"

namespace rrdk::xprt {

struct Connection::Impl {
  Impl(Connection& connection, const SharedOptions& options, const PerConnection& own,
       Memory& memory, CallPool& pool, fabric::RemoteKeys& keys, Upcalls& upcalls,
       uint32_t first_xid)
      : link(connection, options, own, memory, pool, keys, upcalls),
        responder(link, own),
        requester(link, first_xid),
        properties(link, requester, responder) {
    link.properties = &properties;
    link.grant = &responder.grant;
    if (options->rfc5666.enabled)
      begin_rfc5666();
  }

  Link link;
  Responder responder;
  Requester requester;
  Properties properties;
  std::unique_ptr<ReplyExposer> exposer;  // Link::rfc5666 points to them
  std::unique_ptr<ReplyReader> reader;
  bool write_failed = false;  // the reply that it belongs to is reported next

  void begin_rfc5666();  // rfc5666/config.cc

  // connection_datapath.cc
  void foresee(const fabric::Completion& completion) const noexcept;
  void dispatch(const fabric::Completion& completion) noexcept;
  void on_receive(ReceiveSlot& slot, const fabric::Completion& completion) noexcept;
  bool answers_us(const ReceiveSlot& slot, const fabric::Completion& completion) noexcept;
  void on_failure(const fabric::Completion& completion) noexcept;
  void fail() noexcept;
  void note_access(const fabric::Completion& completion) noexcept;
  void pump() noexcept;
  void pump_sends() noexcept;
};

}  // namespace rrdk::xprt

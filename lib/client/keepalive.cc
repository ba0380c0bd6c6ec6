// Asking a silent peer whether it is still there.
#include <string>

#include "client/client_impl.h"
#include "rpc/call_datapath.h"

namespace rrdk {

using calls::count;

namespace {

constexpr uint32_t kNullProcedure = 0;  // of every program (RFC 5531 section 12.1)
constexpr uint32_t kProbeBytes = 128;

}  // namespace

void ClientConnection::Impl::look_for_silence(uint64_t now_ns) {
  xprt::Connection& engine = link_->engine();
  bool can_ask = probe_unanswered_ || (engine.may_send() && probe_binding() != nullptr);
  switch (silence_.look(now_ns, engine.counters().messages_received, can_ask)) {
    case SilenceWatch::Verdict::kFine:
      return;
    case SilenceWatch::Verdict::kAsk:
      if (!probe_unanswered_ && !send_probe())
        silence_.restart();  // no buffer for it: says nothing about the peer
      return;
    case SilenceWatch::Verdict::kGone:
      break;
  }
  count(keepalive_ends_);
  link_->close(Errc::kTimeout,
               "the peer is silent: it has not answered keepalive for " +
                   std::to_string(uint64_t{options.keepalive_ms} * options.keepalive_patience) +
                   " ms");
}

// The program that calls are made of; of several, the one that was first used last.
const Binding* ClientConnection::Impl::probe_binding() const noexcept {
  if (options.keepalive_binding != nullptr)
    return options.keepalive_binding;
  return last_binding();
}

// Whatever is answered will do, so it goes without a credential, as NULL calls may.
bool ClientConnection::Impl::send_probe() {
  const Binding& binding = *probe_binding();
  if (!probe_)
    probe_ = std::make_unique<xprt::OutgoingCall>();
  {
    Encoder args(probe_->message, runtime.memory, kProbeBytes, kProbeBytes);
    rpc::encode_call(args, 0, {binding.program, binding.version, kNullProcedure}, {});
    if (!args.ok())
      return false;
  }
  probe_->max_reply = binding.max_reply(kNullProcedure, 0);
  probe_unanswered_ = true;
  count(keepalives_);
  link_->engine().submit(*probe_);
  core().mark_dirty(*link_);
  return true;
}

}  // namespace rrdk

// The client's side of the Connection Configuration Protocol (RFC 5666 section 6): on each new
// connection CONF_RDMA is called, and no other call is sent until it has been answered. Until then
// the ClientConnection is not up, so connect_timeout_ms limits the wait.
#include <array>
#include <string>

#include "base/log.h"
#include "client/client_impl.h"
#include "proto/negotiation.h"
#include "rpc/headers_datapath.h"

namespace rrdk {

namespace {

namespace ccp = proto::ccp;

// All that may be sent before the server has said more, without the transport header.
constexpr uint32_t kConfigBytes = proto::kInlineThreshold - proto::kMinHeader;

enum class Answer : uint8_t { kLimits, kDefaults, kMalformed };

Answer read_answer(const engine::OutgoingCall& call, ccp::Reply& limits, CallStatus& refused) {
  Decoder results(call.reply, call.placed);
  rpc::ReplyHeader header;
  if (!rpc::decode_reply(results, header))
    return Answer::kMalformed;
  refused = rpc::call_status(header);
  if (refused != CallStatus::kOk)
    return Answer::kDefaults;
  std::array<std::byte, ccp::kBodyBytes> body;
  results.get_fixed(ccp::kBodyBytes).copy_to(body.data());
  if (!results.at_end())
    return Answer::kMalformed;
  limits = ccp::decode_reply(body);
  return Answer::kLimits;
}

}  // namespace

void ClientConnection::Impl::begin_config() {
  if (!config_) {
    config_ = std::make_unique<engine::OutgoingCall>();
    config_->by_library = true;
  }
  engine::Connection& engine = link_->engine();
  const std::shared_ptr<const rpc::PreparedAuth> present = credential();
  {
    Encoder args(config_->message, runtime.memory, kConfigBytes, kConfigBytes);
    rpc::encode_call(args, 0, {ccp::kProgram, ccp::kVersion, ccp::kConfRdma},
                     present ? present->bytes() : std::span<const std::byte>());
    args.put_fixed(ccp::encode(engine.config_request()));
    if (!args.ok())
      return link_->close(
          {EndedBy::kLimit, Errc::kNoMemory, {}, "no buffer for the call of CONF_RDMA"});
  }
  config_->max_reply = kConfigBytes / 2;  // including a verifier: inline
  engine.submit(*config_);
  core().mark_dirty(*link_);
}

// A server that does not have the program, or does not want to be asked, has said so in a valid
// reply; private data, or the defaults, apply.
void ClientConnection::Impl::on_config_ended() {
  CallStatus status = config_->status;
  if (status == CallStatus::kConnectionLost || status == CallStatus::kCancelled)
    return;
  ccp::Reply limits;
  CallStatus refused = CallStatus::kOk;
  Answer answer =
      status == CallStatus::kOk ? read_answer(*config_, limits, refused) : Answer::kMalformed;
  config_->release();
  if (link_->state() != runtime::LinkState::kUp)
    return;  // already closing, and what came before is reported late
  if (answer == Answer::kMalformed)
    return link_->close(
        {EndedBy::kPeer,
         Errc::kConnectionLost,
         {},
         std::string("the server has not answered CONF_RDMA (RFC 5666 section 6) "
                     "with a valid reply: ") +
             to_string(status == CallStatus::kOk ? CallStatus::kMalformedReply : status)});
  if (answer == Answer::kLimits)
    link_->engine().take_config(limits);
  else
    base::log_info(
        "connection to %s: the server does not take CONF_RDMA (%s): sizes are as without",
        address().c_str(), to_string(refused));
  configured_ = true;
  on_link_up();
}

}  // namespace rrdk

#include "session.h"

namespace rrdk::sim {

namespace {

// Returns the version and draft in which the wire is to be understood.
proto::Versions choose_versions(Surroundings& around, engine::ConnectionOptions& requester,
                                engine::ConnectionOptions& responder) {
  Weather::choose_versions(around.context.random, requester, responder);
  // Kept replies hold large Receives, and without others no call is sent.
  if (around.weather.scarce_at_requester())
    requester.max_receive_size = 4096;
  return requester.limits.versions;
}

}  // namespace

Session::Session(Surroundings& around, uint32_t line, uint32_t life)
    : around_(around),
      line_(line),
      name_("c" + std::to_string(line) + "." + std::to_string(life)),
      requester_options_(around.weather.options(around.context.random, engine::Role::kRequester)),
      responder_options_(around.weather.options(around.context.random, engine::Role::kResponder)),
      forward_(around.context, name_,
               choose_versions(around, requester_options_, responder_options_),
               requester_options_.credits, responder_options_.credits,
               around.weather.scarce_at_responder()),
      backward_(around.context, name_ + " back", requester_options_.limits.versions,
                responder_options_.backward_credits, requester_options_.backward_credits,
                around.weather.scarce_at_requester()),
      requester_(*this, engine::Role::kRequester, requester_options_,
                 around.context.random.between(1, 16)),
      responder_(*this, engine::Role::kResponder, responder_options_,
                 around.context.random.between(1, 16)) {}

bool Session::start() {
  if (!requester_.prepare() || !responder_.prepare()) {
    requester_.give_up();
    responder_.give_up();
    return false;
  }
  requester_.connect(responder_);
  responder_.connect(requester_);
  return true;
}

// An old reply comes again, as it may from a responder with its own retransmission queue.
void Session::stray() {
  const std::vector<Wire::Record>& records = forward_.records();
  if (records.empty() || !requester_.healthy())
    return;
  Context& context = around_.context;
  const Wire::Record& record = records[context.random.below(static_cast<uint32_t>(records.size()))];
  if (!record.replied || record.reply.empty())
    return;
  if (requester_.queue_pair().stray(record.reply) && context.traced)
    context.trace(requester_.name(), "a stray copy of the reply to xid %08x", record.xid);
}

}  // namespace rrdk::sim

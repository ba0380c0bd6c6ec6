// What the upper layer sees of an incoming call.
#include "proto/codec.h"
#include "xprt/incoming_call.h"
#include "xprt/responder.h"

namespace rrdk::xprt {

namespace {
const Incoming& of(const IncomingCall& call) {
  return static_cast<const Incoming&>(call);
}
}  // namespace

std::span<const Fragment> IncomingCall::message() const {
  return of(*this).message;
}
uint32_t IncomingCall::xid() const {
  return of(*this).header.xid;
}
uint32_t IncomingCall::read_chunks() const {
  return of(*this).item_chunks;
}
bool IncomingCall::is_long() const {
  return of(*this).header.type == proto::MessageType::kNoMsg;
}
uint32_t IncomingCall::write_chunks() const {
  return of(*this).header.lists.num_writes;
}
Message& IncomingCall::reply() {
  return static_cast<Incoming*>(this)->reply;
}
uint32_t IncomingCall::inline_size() const {
  return of(*this).responder->send_threshold(of(*this)) - proto::min_header(of(*this).header.wire);
}
uint64_t IncomingCall::max_reply() const {
  return of(*this).responder->max_reply();
}
mem::Borrower& IncomingCall::borrower() const {
  return of(*this).responder->borrower();
}
bool IncomingCall::is_padded() const {
  return of(*this).header.type == proto::MessageType::kMsgp && of(*this).responder->reads_padding();
}
OpaquePadding IncomingCall::padding() const {
  return of(*this).responder->padding(of(*this));
}
Connection& IncomingCall::connection() const {
  return of(*this).responder->connection();
}

}  // namespace rrdk::xprt

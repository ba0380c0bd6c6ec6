#include "xprt/outgoing_call.h"

namespace rrdk::xprt {

OutgoingCall::OutgoingCall() : state(std::make_unique<State>(*this)) {}
OutgoingCall::~OutgoingCall() = default;

void OutgoingCall::release() {
  reply = {};
  placed = {};
  message.clear();
  for (Buffer& room : rooms)
    room.reset();
  state->release_buffers();
}

}  // namespace rrdk::xprt

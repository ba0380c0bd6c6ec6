#include <utility>

#include "runtime/link.h"
#include "runtime/poll_core.h"
#include "xprt/turn.h"

namespace rrdk::runtime {

void Link::on_completions(std::span<const fabric::Completion> completions) {
  // The peer may use the connection before our own event queue says that it is there; Sends then
  // wait in the engine until it does.
  if (state_ == LinkState::kConnecting && accepting_) [[unlikely]]
    establish(accepted_);
  uint64_t round = core_.turns().round();
  if (accepting_ && turn_.round != round)
    engine_->refill(round - std::exchange(turn_.round, round));
  engine_->on_completions(completions);
  if (engine_->backlogged()) [[unlikely]]
    core_.turns().join(*this);
  core_.mark_dirty(*this);
}

void Link::take_turn(uint64_t round, bool alone) {
  uint64_t turns = round - std::exchange(turn_.round, round);
  engine_->on_turn(alone ? xprt::Turn::kPaysAll : turns);
  core_.mark_dirty(*this);
}

template <typename Wr, typename Post>
bool Link::post_front(xprt::WorkList<Wr>& wrs, Post&& post) {
  if (wrs.empty())
    return true;
  wrs.pop_front(post(std::span<const Wr>(wrs)));
  return wrs.empty();
}

bool Link::post() {
  // Receives first: a call's Send promises that its reply finds one (V1-CREDIT-15).
  bool all = post_front(engine_->receives(), [this](std::span<const fabric::ReceiveWr> wrs) {
    return queue_pair_->post_receive(wrs);
  });
  if (state_ == LinkState::kConnecting)
    return true;  // on_event() marks the link again
  return post_front(
             engine_->sends(),
             [this](std::span<const fabric::SendWr> wrs) { return queue_pair_->post_send(wrs); }) &&
         all;
}

}  // namespace rrdk::runtime

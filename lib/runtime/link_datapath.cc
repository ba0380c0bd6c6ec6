#include <utility>

#include "runtime/link.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

void Link::on_completions(std::span<const fabric::Completion> completions, bool alone) {
  // The peer may use the connection before our own event queue says that it is there; Sends then
  // wait in the engine until it does.
  if (state_ == LinkState::kConnecting && accepting_) [[unlikely]]
    establish(accepted_);
  if (core_.turns().empty()) [[likely]]
    engine_->fill_turn(alone);
  else
    catch_up(core_.turns().round());
  engine_->on_completions(completions);
  core_.mark_dirty(*this);
}

void Link::catch_up(uint64_t round) {
  engine_->refill(round - std::exchange(turn_.round, round));
}

void Link::take_turn(uint64_t round, bool alone) {
  catch_up(round);
  if (alone)
    engine_->fill_turn(false);  // nobody is there to be owed anything
  engine_->start_waiting();
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
  if (engine_->sends().empty())
    return all;
  all = post_front(engine_->sends(),
                   [this](std::span<const fabric::SendWr> wrs) {
                     if (core_.faults().engaged()) [[unlikely]]
                       return core_.faults().post(*this, *queue_pair_, wrs);
                     return queue_pair_->post_send(wrs);
                   }) &&
        all;
  engine_->on_posted();  // what waited for these calls to end may be there to be posted now
  return all && engine_->sends().empty() && engine_->receives().empty();
}

}  // namespace rrdk::runtime

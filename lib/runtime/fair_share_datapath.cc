#include "runtime/fair_share.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

void Turns::join(Link& link) noexcept {
  if (link.turn_.waits)
    return;
  link.turn_.waits = true;
  links_.push(link);
  ++waiting_;
}

Link& Turns::pop() noexcept {
  Link& link = links_.pop();
  link.turn_.waits = false;
  --waiting_;
  return link;
}

uint32_t Turns::serve() noexcept {
  uint32_t turns = 0;
  for (; !links_.empty() && turns < kTurnsPerPass; ++turns) {
    if (left_ == 0) {
      ++round_;
      left_ = waiting_;
    }
    --left_;
    Link& link = pop();
    link.take_turn(round_, links_.empty());
    if (link.backlogged())
      join(link);
  }
  return turns;
}

}  // namespace rrdk::runtime

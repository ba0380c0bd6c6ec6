#include "runtime/fair_share.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

void Turns::join(Link& link) noexcept {
  if (link.turn_.waits)
    return;
  link.turn_.waits = true;
  link.turn_.next = nullptr;
  if (first_ == nullptr)
    first_ = &link;
  else
    last_->turn_.next = &link;
  last_ = &link;
  ++waiting_;
}

Link& Turns::pop() noexcept {
  Link& link = *first_;
  first_ = link.turn_.next;
  link.turn_.waits = false;
  --waiting_;
  return link;
}

uint32_t Turns::serve() noexcept {
  uint32_t turns = 0;
  for (; first_ != nullptr && turns < kTurnsPerPass; ++turns) {
    if (left_ == 0) {
      ++round_;
      left_ = waiting_;
    }
    --left_;
    Link& link = pop();
    link.take_turn(round_, first_ == nullptr);
    if (link.backlogged())
      join(link);
  }
  return turns;
}

}  // namespace rrdk::runtime

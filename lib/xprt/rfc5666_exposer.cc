#include "xprt/rfc5666_exposer.h"

namespace rrdk::xprt {

// Never more than there are spare Receives for their RDMA_DONEs.
ReplyExposer::ReplyExposer(Link& link) : link_(link), exposures_(link.done_receives()) {
  for (Exposure& exposure : exposures_) {
    exposure.next = free_;
    free_ = &exposure;
  }
}

}  // namespace rrdk::xprt

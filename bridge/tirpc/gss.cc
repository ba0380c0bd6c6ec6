#include "gss.h"

#include <atomic>
#include <utility>

namespace rrdk::tirpc {

namespace {

std::atomic<uint64_t> contexts_made = 0;

}  // namespace

AUTH::auth_ops GssAuth::ops = {[](AUTH*) {},
                               [](AUTH*, XDR*) { return FALSE; },
                               [](AUTH*, opaque_auth*) { return FALSE; },
                               [](AUTH*, void*) { return FALSE; },
                               [](AUTH* auth) { delete static_cast<GssAuth*>(auth->ah_private); },
                               [](AUTH*, XDR*, xdrproc_t, caddr_t) { return FALSE; },
                               [](AUTH*, XDR*, xdrproc_t, caddr_t) { return FALSE; }};

GssAuth::GssAuth(SharedCredential context)
    : context_(std::move(context)),
      number_(contexts_made.fetch_add(1, std::memory_order_relaxed) + 1) {
  auth_.ah_cred.oa_flavor = RPCSEC_GSS;
  auth_.ah_ops = &ops;
  auth_.ah_private = this;
}

const GssAuth* GssAuth::of(const AUTH* auth) noexcept {
  return auth != nullptr && auth->ah_ops == &ops ? static_cast<GssAuth*>(auth->ah_private)
                                                 : nullptr;
}

bool is_unfinished(const AUTH* auth) noexcept {
  static const auto as_it_is = authnone_create()->ah_ops->ah_wrap;
  return auth != nullptr && auth->ah_cred.oa_flavor == AUTH_NONE && auth->ah_ops != nullptr &&
         auth->ah_ops->ah_wrap != as_it_is;
}

}  // namespace rrdk::tirpc

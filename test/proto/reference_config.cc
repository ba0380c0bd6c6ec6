#include "reference_config.h"

#include "rdmaconfig.h"

namespace rrdk::proto {

namespace {

template <typename Struct>
ConfigBody encode(bool (*code)(XDR*, Struct*), Struct value) {
  ConfigBody body{};
  XDR xdrs;
  xdrmem_create(&xdrs, reinterpret_cast<char*>(body.data()), body.size(), XDR_ENCODE);
  code(&xdrs, &value);
  return body;
}

template <typename Struct>
Struct decode(bool (*code)(XDR*, Struct*), ConfigBody body) {
  Struct value{};
  XDR xdrs;
  xdrmem_create(&xdrs, reinterpret_cast<char*>(body.data()), body.size(), XDR_DECODE);
  code(&xdrs, &value);
  return value;
}

bool code_request(XDR* xdrs, config_rdma_req* value) {
  return xdr_config_rdma_req(xdrs, value) != 0;
}
bool code_reply(XDR* xdrs, config_rdma_reply* value) {
  return xdr_config_rdma_reply(xdrs, value) != 0;
}

}  // namespace

ConfigBody reference_config_request(const ConfigWords& f) {
  return encode<config_rdma_req>(code_request, {f[0], f[1], f[2]});
}
ConfigBody reference_config_reply(const ConfigWords& f) {
  return encode<config_rdma_reply>(code_reply, {f[0], f[1], f[2]});
}
ConfigWords reference_config_request(const ConfigBody& body) {
  auto value = decode<config_rdma_req>(code_request, body);
  return {value.maxcall_sendsize, value.maxreply_sendsize, value.maxrdmaread};
}
ConfigWords reference_config_reply(const ConfigBody& body) {
  auto value = decode<config_rdma_reply>(code_reply, body);
  return {value.maxcall_sendsize, value.align, value.maxrdmaread};
}

ConfigNumbers reference_config_numbers() {
  return {CONFIG_RDMA_PROG, VERS1, CONF_RDMA};
}

}  // namespace rrdk::proto

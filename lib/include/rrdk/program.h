/**
 * A program in one table: the number, handler and name of each procedure, what RDMA may move, how
 * large its results are, and whether it may run twice. It provides a server's Service and a
 * client's Binding.
 *
 *   constexpr rrdk::Procedure kTable[] = {
 *       {.number = kWrite, .handler = write, .idempotent = false, .name = "WRITE",
 *        .eligible_args = 1},
 *       {.number = kRead, .handler = read, .name = "READ", .eligible_results = 1,
 *        .fixed_results = 4},
 *   };
 *   constexpr rrdk::Program kDisk(0x20001000, 1, "disk", kTable);
 *
 *   rrdk::must(server->add_service(kDisk.service(&site)));           // a server
 *   call.begin(kDisk, kRead).put_u64(offset);                        // a client
 *
 * A client without the handlers has a table without them. Programs defined elsewhere come as
 * Bindings, such as rrdk/nfs3.h; their servers make a Service from the Binding themselves.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rrdk/binding.h"
#include "rrdk/service.h"

namespace rrdk {

/**
 * Must be static, or at least outlive the Servers, Clients and connections that it is used with,
 * since these refer to it. It is never copied. Any thread. Mistakes in its table are reported like
 * those of any Binding and Service: by Server::add_service(), and at the first Call::begin().
 */
template <size_t N>
class Program {
 public:
  /**
   * `table` must be in ascending order of numbers, each once; it is copied, but its strings are
   * not.
   */
  constexpr Program(uint32_t number, uint32_t version, const char* name,
                    const Procedure (&table)[N],
                    BreachAnswer on_breach = BreachAnswer::kGarbageArgs) noexcept
      : binding_{.program = number,
                 .version = version,
                 .name = name,
                 .procedures = bindings_,
                 .on_breach = on_breach} {
    for (size_t i = 0; i < N; ++i) {
      bindings_[i] = {.procedure = table[i].number,
                      .name = table[i].name,
                      .eligible_args = table[i].eligible_args,
                      .eligible_results = table[i].eligible_results,
                      .fixed_results = table[i].fixed_results,
                      .no_long_calls = table[i].no_long_calls};
      if (table[i].handler != nullptr)
        served_[num_served_++] = table[i];
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /** For clients: Call::begin() accepts a Program. */
  constexpr const Binding& binding() const noexcept { return binding_; }
  constexpr operator const Binding&() const noexcept { return binding_; }
  /**
   * For Server::add_service() and Client::add_service(). The Service takes callers of any flavour.
   * To demand Kerberos (rrdk/gss.h):
   *
   *   rrdk::Service service = kDisk.service(&site);
   *   service.accepts = rrdk::kAcceptIntegrity | rrdk::kAcceptPrivacy;
   */
  constexpr Service service(void* context = nullptr) const noexcept {
    return {.binding = &binding_, .procedures = {served_.data(), num_served_}, .context = context};
  }

 private:
  std::array<ProcedureBinding, N> bindings_ = {};
  std::array<Procedure, N> served_ = {};
  size_t num_served_ = 0;
  Binding binding_;
};

}  // namespace rrdk

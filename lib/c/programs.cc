// Programs from C: one table, from which the library's binding and its procedures are made.
#include "c/handles.h"

namespace rrdk::c {
namespace {

constexpr rrdk_program_options kNoProgram = {.size = sizeof(rrdk_program_options),
                                             .procedure_size = sizeof(rrdk_procedure),
                                             .program = 0,
                                             .version = 0,
                                             .name = nullptr,
                                             .procedures = nullptr,
                                             .num_procedures = 0,
                                             .chunk_breach_is_transport_error = false};

// Of an array whose entries have as many bytes as the program knows.
rrdk_procedure procedure_at(const rrdk_program_options& options, size_t i) noexcept {
  rrdk_procedure procedure = {};
  std::memcpy(&procedure,
              reinterpret_cast<const std::byte*>(options.procedures) + i * options.procedure_size,
              options.procedure_size);
  return procedure;
}

Result<void> check_options(const rrdk_program_options& o) {
  if (o.name == nullptr || (o.procedures == nullptr && o.num_procedures != 0))
    return fail(Errc::kInvalidArgument, "rrdk_program_options: a program has a name and a table");
  if (o.procedure_size > sizeof(rrdk_procedure))
    return fail(Errc::kUnsupported,
                "rrdk_program_options::procedure_size is more than this release of librrdk knows: "
                "run a later one");
  if (!is_size_of<rrdk_procedure>(o.procedure_size))
    return fail(Errc::kInvalidArgument,
                "rrdk_program_options::procedure_size is not sizeof (rrdk_procedure): use "
                "RRDK_PROGRAM()");
  return {};
}

void add(rrdk_program& program, const rrdk_procedure& p) {
  program.bindings.push_back({.procedure = p.number,
                              .name = program.procedure_names.back().c_str(),
                              .eligible_args = p.eligible_args,
                              .eligible_results = p.eligible_results,
                              .fixed_results = p.fixed_results,
                              .no_long_calls = p.no_long_calls});
  if (p.handler == nullptr)
    return;
  program.served.push_back({.number = p.number,
                            .handler = enter,
                            .dispatch = p.worker ? Dispatch::kWorker : Dispatch::kInline,
                            .idempotent = !p.not_idempotent,
                            .context = p.context});
  program.handlers.push_back(p.handler);
}

Result<std::unique_ptr<rrdk_program>> make(const rrdk_program_options* given) {
  if (given == nullptr)
    return fail(Errc::kInvalidArgument, "rrdk_program_create() needs options");
  rrdk_program_options o = kNoProgram;
  if (auto known = copy_in(given, o, "rrdk_program_options"); !known)
    return tl::unexpected(known.error());
  if (auto right = check_options(o); !right)
    return tl::unexpected(right.error());
  auto program = std::make_unique<rrdk_program>();
  program->name_text = o.name;
  program->procedure_names.reserve(o.num_procedures);  // the bindings point to them
  for (size_t i = 0; i < o.num_procedures; ++i) {
    const rrdk_procedure procedure = procedure_at(o, i);
    if (procedure.name == nullptr)
      return fail(Errc::kInvalidArgument, program->name_text + ": procedure " +
                                              std::to_string(procedure.number) + " has no name");
    program->procedure_names.emplace_back(procedure.name);
    add(*program, procedure);
  }
  static_cast<Binding&>(*program) = {.program = o.program,
                                     .version = o.version,
                                     .name = program->name_text.c_str(),
                                     .procedures = program->bindings,
                                     .on_breach = o.chunk_breach_is_transport_error
                                                      ? BreachAnswer::kTransportError
                                                      : BreachAnswer::kGarbageArgs};
  if (auto right = check(*program); !right)
    return tl::unexpected(right.error());
  return program;
}

}  // namespace

Service service_of(const rrdk_program& program, void* context) noexcept {
  return {.binding = &program, .procedures = program.served, .context = context};
}

}  // namespace rrdk::c

using namespace rrdk;

rrdk_errc rrdk_program_create(const rrdk_program_options* options, rrdk_program** program,
                              rrdk_error* error) {
  return c::give(c::make(options), program, error,
                 [](std::unique_ptr<rrdk_program> made) { return made.release(); });
}

void rrdk_program_destroy(rrdk_program* program) {
  delete program;
}

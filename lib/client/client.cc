#include "rrdk/client.h"

#include <string>
#include <utility>

#include "client/client_impl.h"

namespace rrdk {

namespace {

constexpr uint32_t kMostCredits = 4096;
constexpr uint32_t kLargestInline = 262144;  // what RFC 8797 can say

Result<void> check_survival(const ClientOptions& options) {
  const ReconnectOptions& r = options.reconnect;
  if (r.first_delay_ms == 0 || r.first_delay_ms > r.max_delay_ms)
    return fail(Errc::kInvalidArgument,
                "reconnect.first_delay_ms is at least 1 and at most reconnect.max_delay_ms");
  if (options.retransmit && !r.enabled)
    return fail(Errc::kInvalidArgument,
                "retransmit needs reconnect: calls are sent again on another connection only");
  if (options.keepalive_patience == 0)
    return fail(Errc::kInvalidArgument, "keepalive_patience is at least 1");
  return options.keepalive_binding != nullptr ? check(*options.keepalive_binding) : Result<void>();
}

}  // namespace

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::create(Runtime& runtime, const ClientOptions& options) {
  if (options.credits == 0 || options.credits > kMostCredits)
    return fail(Errc::kInvalidArgument, "a client's credits are 1 to 4096");
  if (options.inline_size % 1024 != 0 || options.inline_size == 0 ||
      options.inline_size > kLargestInline)
    return fail(Errc::kInvalidArgument, "inline_size is a multiple of 1024, at most 262144");
  if (options.pad_write_chunks && options.one_segment)
    return fail(Errc::kInvalidArgument, "pad_write_chunks needs a second segment: not one_segment");
  if (auto checked = check_survival(options); !checked)
    return tl::unexpected(checked.error());
  return std::unique_ptr<Client>(
      new Client(std::unique_ptr<Impl>(new Impl{runtime.impl(), options})));
}

Result<std::unique_ptr<ClientConnection>> Client::connect(const std::string& uri, int core) {
  Runtime::Impl& runtime = impl_->runtime;
  if (runtime.in_pass())
    return fail(Errc::kInvalidArgument,
                "connect() to " + uri +
                    " in a callback or handler on a poll core would wait for itself: call it "
                    "elsewhere");
  if (core >= static_cast<int>(runtime.cores.size()))
    return fail(Errc::kInvalidArgument, "there is no core " + std::to_string(core));
  auto device = runtime.device(uri);
  if (!device)
    return tl::unexpected(device.error());
  runtime::PollCore& at =
      core < 0 ? runtime.pick_core() : *runtime.cores[static_cast<size_t>(core)];
  auto connection = std::make_unique<ClientConnection::Impl>(*impl_, at, **device, uri);
  if (auto opened = connection->open(); !opened)
    return tl::unexpected(opened.error());
  return std::unique_ptr<ClientConnection>(new ClientConnection(std::move(connection)));
}

}  // namespace rrdk

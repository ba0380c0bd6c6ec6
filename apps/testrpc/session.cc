#include "session.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "callback.h"
#include "engines.h"
#include "perf_program.h"
#include "poll_loop.h"
#include "report.h"
#include "rrdk/eal.h"
#include "security.h"
#include "stop.h"

namespace rrdk::testrpc {

namespace {

bool any_starts_with(const std::vector<std::string>& arguments,
                     std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return std::ranges::any_of(
        beginnings, [&](std::string_view beginning) { return argument.starts_with(beginning); });
  });
}

}  // namespace

Result<void> start_eal(const Options& options) {
  if (eal_running())
    return {};
  const EndsAtOnce starting("EAL starts");
  std::vector<std::string> arguments = options.eal;
  // Two processes with the same arguments must not want the same files.
  bool files =
      any_starts_with(arguments, {"--socket-mem", "--huge", "--file-prefix", "--legacy-mem",
                                  "--single-file-segments", "--proc-type"});
  if (options.role == Role::kSelf && files && !any_starts_with(arguments, {"--in-memory"}))
    arguments.emplace_back("--in-memory");
  return ensure_eal(arguments, EalArguments::kOverDefaults);
}

bool names_cores(const Options& options) {
  return any_starts_with(options.eal, {"-l", "-c", "--lcores"});
}

// Interactive mode may select any engine later.
bool wants_callbacks(const Options& options) {
  return options.interactive || std::ranges::any_of(options.engines, [](const std::string& name) {
           return is_callback(*find_engine(name));
         });
}

uint64_t largest_message(uint32_t max_size) {
  return uint64_t{max_size} + 4096;
}

uint32_t backward_credits(const Options& options) {
  constexpr uint32_t kUsual = 16;
  if (options.rfc5666)
    return 0;
  return options.backward_credits != 0 ? options.backward_credits
                                       : std::min(options.credits, kUsual);
}

namespace {

MemoryOptions memory_for(const Options& options, uint32_t max_size) {
  // Headers, Receives and Sends.
  uint32_t small = std::bit_ceil(std::max(options.inline_size, 4096u));
  // Data that is pulled, made, or gathered because no memory was offered for it, and the parts of a
  // long message around its data.
  uint32_t large = std::bit_ceil(max_size);
  // A long message in one buffer is one segment, so it gets one buffer if that is cheap.
  constexpr uint32_t kCheap = 256 << 10;
  if (large <= kCheap)
    large = std::bit_ceil(static_cast<uint32_t>(largest_message(max_size)));
  std::vector<SizeClass> classes = {{small}};
  for (uint32_t size : {std::max(small * 2, 65536u), 256u << 10, 1u << 20, large,
                        std::bit_ceil(options.max_receive_size)}) {
    if (size > small && std::ranges::count(classes, size, &SizeClass::buffer_size) == 0)
      classes.push_back({size});
  }
  return {.bytes = options.memory, .classes = classes};
}

}  // namespace

Result<std::unique_ptr<Memory>> take_memory(const Options& options, uint32_t max_size) {
  const EndsAtOnce taking("memory is taken");
  return Memory::create(memory_for(options, max_size));
}

Result<std::unique_ptr<Session>> Session::open(const Options& options,
                                               std::span<const std::string> targets,
                                               IdlePolicy idle, uint32_t max_size) {
  std::unique_ptr<Session> session(new Session);
  session->idle_ = idle;
  Result<std::unique_ptr<Memory>> memory = take_memory(options, max_size);
  if (!memory)
    return tl::unexpected(memory.error());
  session->memory_ = std::move(*memory);
  RuntimeOptions runtime_options = {.idle = idle};
  runtime_options.stamp_every = options.stages.value_or(runtime_options.stamp_every);
  Result<std::unique_ptr<Runtime>> runtime = Runtime::create(*session->memory_, runtime_options);
  if (!runtime)
    return tl::unexpected(runtime.error());
  session->runtime_ = std::move(*runtime);
  // Before there is a connection, because the first messages are the most interesting.
  if (Result<void> begun = begin_capture(*session->runtime_, options.capture); !begun)
    return tl::unexpected(begun.error());
  ClientOptions client_options = {
      .version = options.version.value_or(RpcRdmaVersion::kOne),
      .credits = options.credits,
      .inline_size = options.inline_size,
      .max_call = largest_message(max_size),
      .max_reply = largest_message(max_size),
      .connect_timeout_ms = options.connect_timeout_ms,
      .call_timeout_ms = options.timeout_ms,
      .chunk_threshold = options.chunk_threshold,
      .reconnect = {.enabled = options.reconnect},
      .retransmit = options.reconnect && options.retransmit,
      .keepalive_ms = options.keepalive_ms,
      .version2 = {.draft = options.draft, .max_receive_size = options.max_receive_size}};
  if (!options.rfc5666)
    client_options.backward_credits = backward_credits(options);
  client_options.rfc5666 = {.enabled = options.rfc5666, .read_replies = true};
  session->call_timeout_ms_ = client_options.call_timeout_ms;
  session->retransmits_ = client_options.retransmit;
  Result<std::unique_ptr<Client>> client = Client::create(*session->runtime_, client_options);
  if (!client)
    return tl::unexpected(client.error());
  session->client_ = std::move(*client);
  if (sec_of(options) == Sec::kSys)
    session->client_->set_auth_sys(own_identity());
  if (wants_callbacks(options)) {
    if (Result<void> added = session->client_->add_service(callback_service()); !added)
      return tl::unexpected(added.error());
  }
  const Binding& program =
      options.engines.empty() ? perf_binding() : find_engine(options.engines.front())->binding();
  if (auto connected = session->connect(targets, options.connections, program); !connected)
    return tl::unexpected(connected.error());
  if (auto secured = secure(options, targets, session->connections_, program); !secured)
    return tl::unexpected(secured.error());
  TelemetrySources sources = {.runtime = session->runtime_.get()};
  for (const std::unique_ptr<ClientConnection>& connection : session->connections_)
    sources.clients.push_back(connection.get());
  Result<Telling> telling = Telling::start(sources, options.metrics);
  if (!telling)
    return tl::unexpected(telling.error());
  session->telling_ = std::move(*telling);
  return session;
}

namespace {

constexpr uint32_t kConnectingAtOnce = 64;

}  // namespace

// The state of all connections that are being made.
struct Opening {
  const Binding& program;
  uint32_t over = 0;  // connections that have had their first call, or were never made
  std::optional<Error> failure = {};
};

// A server closes a connection without a call within ServerOptions::first_call_timeout_ms. The
// run's first call may be late, if many connections are made after this one or a user types at the
// prompt, or may never come, on a connection that --active leaves idle. So each begins with a NULL
// call. If that fails, the run will report it.
struct FirstCall {
  Opening* opening;  // null: the call has ended
  std::unique_ptr<Call> call = nullptr;

  void make(ClientConnection& connection);
  void end();
  static void on_state(ClientConnection& connection, ConnectionState state, const Error* reason,
                       void* argument);
};

void FirstCall::make(ClientConnection& connection) {
  constexpr uint32_t kNull = 0;
  call = std::make_unique<Call>(connection);
  call->begin(opening->program, kNull);
  call->submit([](Call&, void* argument) { static_cast<FirstCall*>(argument)->end(); }, this);
}

void FirstCall::end() {
  ++opening->over;
  opening = nullptr;
  call.reset();
}

void FirstCall::on_state(ClientConnection& connection, ConnectionState state, const Error* reason,
                         void* argument) {
  auto& self = *static_cast<FirstCall*>(argument);
  if (self.opening == nullptr || self.call != nullptr)
    return;
  if (state == ConnectionState::kUp)
    return self.make(connection);
  if (state != ConnectionState::kClosed)
    return;
  if (!self.opening->failure)
    self.opening->failure = *reason;
  self.end();
}

// Makes many connections at a time, since each takes several round trips of the network.
Result<void> Session::connect(std::span<const std::string> targets, uint32_t count,
                              const Binding& program) {
  const EndsAtOnce connecting("connections are made");
  constexpr uint64_t kBetweenWords = 1'000'000'000;
  const uint64_t begin = Runtime::now_ns();
  uint64_t next_word = begin + kBetweenWords;
  Opening opening = {.program = program};
  PollLoop loop(*runtime_, idle_);
  while (opening.over < count) {
    while (connections_.size() < std::min(count, opening.over + kConnectingAtOnce)) {
      first_calls_.push_back(std::make_unique<FirstCall>(&opening));
      Result<std::unique_ptr<ClientConnection>> connection = client_->connect_start(
          targets[connections_.size() % targets.size()],
          {.on_state = FirstCall::on_state, .argument = first_calls_.back().get()});
      if (connection)
        connections_.push_back(std::move(*connection));
      else
        opening.failure = connection.error();
      if (opening.failure)
        break;
    }
    loop.step(next_word);
    if (opening.failure) {
      connections_.clear();  // they report their end to `opening`
      return tl::unexpected(*opening.failure);
    }
    const uint64_t now = Runtime::now_ns();
    if (now >= next_word && opening.over != count) {
      std::printf("%u of %u connections\n", opening.over, count);
      std::fflush(stdout);
      next_word = now + kBetweenWords;
    }
  }
  connect_seconds_ = static_cast<double>(Runtime::now_ns() - begin) / 1e9;
  if (count > 1)
    std::printf("%u connections in %.3f s: %.0f/s\n", count, connect_seconds_,
                count / connect_seconds_);
  return {};
}

Session::~Session() = default;

Survival Session::survival() const {
  Survival sum;
  for (const std::unique_ptr<ClientConnection>& connection : connections_) {
    const Stats stats = connection->stats();
    sum.reconnects += stats[Counter::kReconnections];
    sum.retransmissions += stats[Counter::kCallsResent];
    sum.keepalives += stats[Counter::kKeepalives];
    sum.fallbacks += stats[Counter::kVersionFallbacks];
    sum.version = connection->version();
    sum.rfc5666.configured += stats[Counter::kRfc5666Configured];
    sum.rfc5666.padded_calls += stats[Counter::kRfc5666PaddedCalls];
    sum.rfc5666.read_replies += stats[Counter::kRfc5666ReadReplies];
    sum.rfc5666.dones += stats[Counter::kRfc5666Dones];
  }
  return sum;
}

bool Session::close() {
  telling_.reset();
  connections_.clear();
  client_.reset();
  runtime_.reset();
  return memory_->whole();
}

}  // namespace rrdk::testrpc

#include "callback.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "pattern.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kCallbackEcho = 1;  // PERF_CB_ECHO
// The calls of one PERF_CALLBACK in flight. Each keeps a buffer, and a client may have many.
constexpr uint32_t kInFlight = 4;
constexpr uint32_t kRoundsAtFirst = 32;  // of one connection; more are made as needed

constexpr ProcedureBinding kCallbackProcedures[] = {
    {.procedure = 0, .name = "CB_NULL"},
    {.procedure = kCallbackEcho, .name = "CB_ECHO", .fixed_results = 4},
};
constexpr Binding kCallbackBinding = {.program = 0x20005667,
                                      .version = 1,
                                      .name = "perf callback",
                                      .procedures = kCallbackProcedures};

void callback_echo(ServerCall call, void*) {
  ItemView blob = call.args().get_opaque(UINT32_MAX);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_opaque(blob);
  std::move(call).reply();
}

constexpr Procedure kTable[] = {{kCallbackEcho, callback_echo}};

bool same(const ItemView& item, std::span<const std::byte> data) {
  if (item.size() != data.size())
    return false;
  const std::byte* next = data.data();
  bool equal = true;
  item.for_each([&](const std::byte* bytes, size_t length) {
    equal = equal && std::memcmp(bytes, next, length) == 0;
    next += length;
  });
  return equal;
}

}  // namespace

Service callback_service() {
  return {.binding = &kCallbackBinding, .procedures = kTable};
}

// The path to one client. Used only by its connection's poll core.
struct Callbacks::Way {
  std::shared_ptr<BackwardClient> client;
  std::vector<std::unique_ptr<Round>> rounds;
  std::vector<Round*> free;
};

// One PERF_CALLBACK; reused for the next.
class Callbacks::Round {
 public:
  explicit Round(Way& way) : way_(way) { calls_.push_back(std::make_unique<Call>(*way.client)); }

  void start(ServerCall call, uint32_t count, std::span<const std::byte> data) {
    call_.emplace(std::move(call));
    data_ = data;
    left_ = count;
    right_ = 0;
    in_flight_ = 0;
    while (calls_.size() < std::min(count, kInFlight))
      calls_.push_back(std::make_unique<Call>(*way_.client));
    for (size_t i = 0; i < calls_.size() && left_ != 0; ++i)
      submit(*calls_[i]);
    finish_if_done();
  }

 private:
  void submit(Call& call) {
    --left_;
    ++in_flight_;
    call.begin(kCallbackBinding, kCallbackEcho).put_opaque(data_);
    call.expect_reply(data_.size() + xdr_pad(static_cast<uint32_t>(data_.size())));
    call.submit([](Call& ended, void* self) { static_cast<Round*>(self)->on_ended(ended); }, this);
  }
  void on_ended(Call& call) {
    --in_flight_;
    if (call.status() == CallStatus::kOk &&
        same(call.results().get_opaque(static_cast<uint32_t>(data_.size())), data_) &&
        call.results().at_end())
      ++right_;
    else
      left_ = 0;  // too large, or refused, or lost: the others would fail, too
    if (left_ != 0)
      submit(call);
    finish_if_done();
  }
  void finish_if_done() {
    if (left_ != 0 || in_flight_ != 0)
      return;
    call_->results().put_u32(right_);
    ServerCall answered = std::move(*call_);
    call_.reset();
    way_.free.push_back(this);
    std::move(answered).reply();
  }

  Way& way_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::optional<ServerCall> call_;
  std::span<const std::byte> data_;
  uint32_t left_ = 0;
  uint32_t right_ = 0;
  uint32_t in_flight_ = 0;
};

Callbacks::Callbacks(uint32_t max_size) : data_(max_size) {
  fill_pattern(data_, 0);
}

Callbacks::~Callbacks() = default;

// Also removes the paths of closed connections of this core, whose callbacks are not running now.
Result<Callbacks::Way*> Callbacks::way_of(ServerCall& call) {
  Result<std::shared_ptr<BackwardClient>> client = call.backward_client();
  if (!client)
    return tl::unexpected(client.error());
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Way>& way : ways_) {
    if (way->client == *client)
      return way.get();
  }
  std::erase_if(ways_, [&](const std::unique_ptr<Way>& way) {
    return way->client != nullptr && !way->client->alive() &&
           way->client->core() == (*client)->core() && way->free.size() == way->rounds.size();
  });
  ways_.push_back(std::make_unique<Way>());
  Way& fresh = *ways_.back();
  fresh.client = std::move(*client);
  for (uint32_t i = 0; i < kRoundsAtFirst; ++i)
    add_round(fresh);
  return &fresh;
}

void Callbacks::add_round(Way& way) {
  way.rounds.push_back(std::make_unique<Round>(way));
  way.free.reserve(way.rounds.size());
  way.free.push_back(way.rounds.back().get());
}

void Callbacks::start(ServerCall call, uint32_t count, uint32_t size) {
  if (size > data_.size()) {
    call.results().put_u32(0);
    return std::move(call).reply();
  }
  Result<Way*> found = way_of(call);
  if (!found)
    return std::move(call).reject(AcceptStat::kSystemErr);
  Way& way = **found;
  if (way.free.empty())
    add_round(way);
  Round& round = *way.free.back();
  way.free.pop_back();
  round.start(std::move(call), count, std::span(data_).first(size));
}

void Callbacks::release() {
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Way>& way : ways_)
    way->client.reset();
}

void Callbacks::clear() {
  std::lock_guard lock(mutex_);
  ways_.clear();
}

}  // namespace rrdk::testrpc

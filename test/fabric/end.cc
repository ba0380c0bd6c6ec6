#include "test/fabric/end.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "rrdk/eal.h"

namespace rrdk::fabric::test {

bool emulated() {
  static const bool is = std::getenv("RRDK_VERBS_ADDRESS") != nullptr;
  return is;
}

std::chrono::seconds patience() {
  constexpr std::chrono::seconds kPatience{20};
  constexpr std::chrono::seconds kEmulated{120};
  return emulated() ? kEmulated : kPatience;
}

Memory& test_memory() {
  static std::unique_ptr<Memory> memory = [] {
    if (auto eal = ensure_eal(); !eal)
      ADD_FAILURE() << eal.error().message;
    auto made = Memory::create({.classes = {{4096, 8192}, {1u << 20, 24}},
                                .hugepages = HugepagePolicy::kNever,
                                .prefault = false});
    if (!made)
      ADD_FAILURE() << made.error().message;
    return std::move(*made);
  }();
  return *memory;
}

End::End(const std::string& uri, Memory& memory) {
  const Driver* driver = find_driver(uri).value();
  auto opened = driver->open(memory, uri, Purpose::kConnecting);
  if (!opened)
    throw std::runtime_error(opened.error().message);
  device = std::move(*opened);
  cq = device->create_completion_queue(1024).value();
}

void End::pump() {
  std::array<Completion, 32> out;
  const uint32_t n = cq->poll(out);
  completions.insert(completions.end(), out.begin(), out.begin() + n);
  for (Event& event : device->poll_events(16))
    events.push_back(std::move(event));
  // The device consists of the kernel's threads, which need a processor.
  if (n == 0 && emulated())
    std::this_thread::yield();
}

Error End::connect_error(QueuePair& qp, const std::string& uri) {
  if (const auto result = device->connect(qp, uri, {}); !result)
    return result.error();
  pump_until({this}, [&] { return has_event(EventType::kConnectFailed); });
  const Event failed = take_event(EventType::kConnectFailed);
  return {failed.ending.code, failed.ending.text};
}

bool End::has_event(EventType type) const {
  return std::ranges::find(events, type, &Event::type) != events.end();
}

Event End::take_event(EventType type) {
  auto it = std::ranges::find(events, type, &Event::type);
  if (it == events.end()) {
    ADD_FAILURE() << "no such event";
    return {};
  }
  Event event = std::move(*it);
  events.erase(it);
  return event;
}

std::vector<Completion> End::take_completions() {
  return std::exchange(completions, {});
}

uint64_t End::counter(std::string_view name) const {
  for (const Counter& c : device->counters())
    if (c.name == name)
      return c.value;
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

std::string End::state() const {
  std::string text = " ";
  for (const Event& event : events)
    text += " event " + std::to_string(static_cast<int>(event.type)) +
            (event.ending.text.empty() ? "" : " (" + event.ending.text + ")");
  for (const Completion& c : completions)
    text +=
        " completion of op " + std::to_string(static_cast<int>(c.op)) + ": " + to_string(c.status);
  for (const Counter& c : device->counters())
    if (c.value != 0)
      text += " " + std::string(c.name) + "=" + std::to_string(c.value);
  return text;
}

std::unique_ptr<QueuePair> End::queue_pair(QueuePairOptions options) {
  options.cq = cq.get();
  return device->create_queue_pair(options).value();
}

bool pump_until(std::initializer_list<End*> ends, const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + patience();
  while (!done()) {
    for (End* end : ends)
      end->pump();
    if (std::chrono::steady_clock::now() > limit) {
      std::string states;
      for (const End* end : ends)
        states += "\n" + end->state();
      ADD_FAILURE() << "what was waited for did not happen; the state of each end:" << states;
      return false;
    }
  }
  return true;
}

SendWr send_wr(uint64_t id, std::initializer_list<MemorySpan> spans) {
  SendWr wr;
  wr.wr_id = id;
  wr.num_sges = static_cast<uint8_t>(spans.size());
  std::ranges::copy(spans, wr.sges.begin());
  return wr;
}

SendWr access_wr(uint64_t id, Op op, MemorySpan local, uint32_t key, uint64_t address) {
  SendWr wr = send_wr(id, {local});
  wr.op = op;
  wr.key = key;
  wr.remote_address = address;
  return wr;
}

SendWr bind_wr(uint64_t id, uint32_t key, MemorySpan span, Rights rights) {
  SendWr wr = send_wr(id, {span});
  wr.op = Op::kBindKey;
  wr.key = key;
  wr.rights = rights;
  return wr;
}

SendWr invalidate_wr(uint64_t id, uint32_t key) {
  SendWr wr;
  wr.wr_id = id;
  wr.op = Op::kInvalidateKey;
  wr.key = key;
  return wr;
}

Pair::Pair(const std::string& address, QueuePairOptions client_options,
           QueuePairOptions server_options, bool server_srq)
    : uri(address), client(address), server(address) {
  if (server_srq) {
    server.srq = server.device->create_shared_receive_queue(256).value();
    server_options.srq = server.srq.get();
  }
  listener = server.device->listen(uri).value();
  uri = listener->uri();
  std::tie(client_qp, server_qp) = connect(client_options, server_options);
}

Pair::~Pair() {
  // Buffers of posted requests are taken back only after everything was flushed.
  client_qp.reset();
  server_qp.reset();
}

std::pair<std::unique_ptr<QueuePair>, std::unique_ptr<QueuePair>> Pair::connect(
    QueuePairOptions client_options, QueuePairOptions server_options) {
  std::unique_ptr<QueuePair> c = client.queue_pair(client_options);
  std::unique_ptr<QueuePair> s;
  if (auto connecting = client.device->connect(*c, uri, {}); !connecting) {
    ADD_FAILURE() << connecting.error().message;
    return {};
  }
  pump_until([&] { return server.has_event(EventType::kConnectRequest); });
  Event request = server.take_event(EventType::kConnectRequest);
  server_options.cq = server.cq.get();
  s = request.request->create_queue_pair(server_options).value();
  if (auto accepted = request.request->accept(*s, {}); !accepted)
    ADD_FAILURE() << accepted.error().message;
  pump_until([&] {
    return client.has_event(EventType::kEstablished) && server.has_event(EventType::kEstablished);
  });
  client.take_event(EventType::kEstablished);
  server.take_event(EventType::kEstablished);
  return {std::move(c), std::move(s)};
}

Completion Pair::run(const SendWr& wr) {
  return run(client, *client_qp, wr);
}

Completion Pair::run(End& end, QueuePair& qp, const SendWr& wr) {
  EXPECT_EQ(qp.post_send(std::span(&wr, 1)), 1u);
  Completion found{};
  pump_until([&] {
    auto it = std::ranges::find_if(
        end.completions, [&](const Completion& c) { return c.op == wr.op && c.wr_id == wr.wr_id; });
    if (it == end.completions.end())
      return false;
    found = *it;
    end.completions.erase(it);
    return true;
  });
  return found;
}

void Pair::deliver(std::initializer_list<MemorySpan> spans) {
  post_receives(*server_qp, 1);
  EXPECT_EQ(run(send_wr(901, spans)).status, WcStatus::kSuccess);
  EXPECT_TRUE(pump_until([&] {
    return std::erase_if(server.completions, [&](const Completion& c) {
             return c.op == Op::kReceive && c.wr_id == receive_buffers.size() - 1;
           }) == 1;
  }));
}

void Pair::write(const SendWr& wr) {
  EXPECT_EQ(run(wr).status, WcStatus::kSuccess);
  deliver({wr.sges[0]});
}

void Pair::post_receives(QueuePair& qp, uint32_t count, uint32_t size) {
  for (uint32_t i = 0; i < count; ++i) {
    receive_buffers.push_back(test_memory().get(size));
    const Buffer& buffer = receive_buffers.back();
    ASSERT_TRUE(buffer);
    const ReceiveWr wr{receive_buffers.size() - 1, buffer.first(size)};
    ASSERT_EQ(qp.post_receive(std::span(&wr, 1)), 1u);
  }
}

uint32_t Pair::expose(MemorySpan span, Rights rights) {
  uint32_t key = 0;
  EXPECT_TRUE(server_qp->reserve_keys(std::span(&key, 1)));
  key = server_qp->name_key(key, span, rights);
  EXPECT_EQ(run(server, *server_qp, bind_wr(900, key, span, rights)).status, WcStatus::kSuccess);
  return key;
}

}  // namespace rrdk::fabric::test

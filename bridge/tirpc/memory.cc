#include "memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "failure.h"
#include "rrdk/eal.h"
#include "rrdk/tirpc.h"

namespace rrdk::tirpc {

namespace {

// The object behind a loan: a buffer, or registered memory of its own, or just a length for
// arguments, which belong to their call and are only marked.
struct Loan {
  std::variant<uint32_t, Buffer, RegisteredMemory> what;

  size_t size() const {
    if (const auto* length = std::get_if<uint32_t>(&what))
      return *length;
    if (const auto* buffer = std::get_if<Buffer>(&what))
      return buffer->capacity();
    return std::get<RegisteredMemory>(what).size();
  }
  MemorySpan span(const std::byte* begin, const std::byte* data, uint32_t length,
                  Memory& memory) const {
    const auto* own = std::get_if<RegisteredMemory>(&what);
    return own != nullptr ? own->span(static_cast<size_t>(data - begin), length)
                          : memory.span_of(data, length);
  }
};

// The control path of Memory, and the loans. Neither is destroyed before the process ends: the
// program may give memory back as late as in its last destructor.
struct Site {
  std::mutex making;
  std::atomic<Memory*> memory = nullptr;
  std::mutex mutex;
  std::map<const std::byte*, Loan> loans;
  std::atomic<size_t> count = 0;

  void add(const std::byte* data, Loan loan) {
    std::lock_guard lock(mutex);
    loans.insert_or_assign(data, std::move(loan));
    count.store(loans.size(), std::memory_order_relaxed);
  }
};

Site& site() {
  static Site& instance = *new Site;
  return instance;
}

}  // namespace

Result<Memory*> process_memory() {
  Site& all = site();
  if (Memory* memory = all.memory.load(std::memory_order_acquire))
    return memory;
  std::lock_guard lock(all.making);
  if (Memory* memory = all.memory.load(std::memory_order_relaxed))
    return memory;
  if (auto started = ensure_eal(); !started)
    return tl::unexpected(started.error());
  // The largest are for items and replies that are as large as a message may be.
  auto memory = Memory::create(
      {.classes = {{4096}, {16384}, {65536}, {256u << 10}, {1u << 20}, {4u << 20}, {8u << 20}}});
  if (!memory)
    return tl::unexpected(memory.error());
  all.memory.store(memory->release(), std::memory_order_release);
  return all.memory.load(std::memory_order_relaxed);
}

std::byte* lend(Buffer buffer) {
  std::byte* data = buffer.data();
  site().add(data, {std::move(buffer)});
  return data;
}

void lend_arguments(const std::byte* data, uint32_t length) {
  site().add(data, {length});
}

std::byte* lend_new(size_t bytes) {
  auto memory = process_memory();
  if (!memory) {
    note_failure(memory.error().message);
    return nullptr;
  }
  if (bytes <= (*memory)->largest_buffer()) {
    if (Buffer buffer = (*memory)->get(static_cast<uint32_t>(bytes)))
      return lend(std::move(buffer));
    note_failure("no buffer of " + std::to_string(bytes) + " bytes is left");
    return nullptr;
  }
  std::unique_lock lock(site().making);
  auto own = (*memory)->allocate(bytes);
  lock.unlock();
  if (!own) {
    note_failure(own.error().message);
    return nullptr;
  }
  std::byte* data = own->data();
  site().add(data, {std::move(*own)});
  return data;
}

namespace {

thread_local std::span<const void* const> already_back;

}  // namespace

AlreadyBack::AlreadyBack(std::span<const void* const> back) noexcept {
  already_back = back;
}

AlreadyBack::~AlreadyBack() {
  already_back = {};
}

bool give_back(void* memory) {
  if (std::ranges::find(already_back, memory) != already_back.end())
    return true;
  Site& all = site();
  if (all.count.load(std::memory_order_relaxed) == 0)
    return false;
  const auto* data = static_cast<const std::byte*>(memory);
  std::lock_guard control(all.making);  // destroying a RegisteredMemory is control path
  Loan gone;
  std::lock_guard lock(all.mutex);
  auto found = all.loans.find(data);
  if (found == all.loans.end())
    return false;
  gone = std::move(found->second);
  all.loans.erase(found);
  all.count.store(all.loans.size(), std::memory_order_relaxed);
  return true;
}

std::optional<Registered> registered(const void* memory, uint32_t length) {
  Site& all = site();
  if (all.count.load(std::memory_order_relaxed) == 0)
    return std::nullopt;
  const auto* data = static_cast<const std::byte*>(memory);
  std::lock_guard lock(all.mutex);
  auto after = all.loans.upper_bound(data);
  if (after == all.loans.begin())
    return std::nullopt;
  const auto& [begin, loan] = *std::prev(after);
  const auto offset = static_cast<size_t>(data - begin);
  if (offset > loan.size() || loan.size() - offset < length)
    return std::nullopt;
  MemorySpan span = loan.span(begin, data, length, *all.memory.load(std::memory_order_relaxed));
  if (span.region == kNoRegion)
    return std::nullopt;
  return Registered{span, std::holds_alternative<uint32_t>(loan.what)};
}

size_t lent() {
  return site().count.load(std::memory_order_relaxed);
}

}  // namespace rrdk::tirpc

void* rrdk_tirpc_alloc(size_t bytes) {
  return rrdk::tirpc::lend_new(bytes);
}

void rrdk_tirpc_free(void* memory) {
  if (memory != nullptr && !rrdk::tirpc::give_back(memory))
    std::free(memory);
}

/**
 * Memory that can take part in RDMA: an arena carved into pools of buffers, and memory of the
 * application's own choosing.
 *
 * One Memory object has a budget in bytes. Nothing of it is taken before it is needed: an arena for
 * each NUMA node grows in at most eight extents, of hugepages where the system has them and of
 * ordinary pages otherwise (said once, in a log line). Size classes take slabs of buffers from the
 * arena and give them back; a cache per core stands before each class. A driver registers an extent
 * once, when it appears; no buffer is ever registered by itself. Registration alone gives a peer no
 * access: that takes a remote key, which the transport makes for one buffer and one call.
 *
 * Ownership: a Buffer is a move-only handle; destroying it returns it to its pool. All Buffers
 * and RegisteredMemory must be gone before their Memory is destroyed, which audits the pools and
 * logs an error naming every class that is not whole. A Memory outlives every Runtime on it, and
 * with that their Servers, Clients and calls (rrdk/runtime.h); EAL outlives the Memory. A Memory
 * that is destroyed too early is an error in the log, and lives on: until the last Runtime on it is
 * gone, or for good if buffers or registered memory are not back.
 *
 * Threads: create(), allocate(), adopt(), and the destruction of a Memory or RegisteredMemory: one
 * thread at a time (the control path). get() and Buffer's destructor: any thread. They are fast on
 * threads that EAL knows, which have a cache: the Runtime's are, others by rrdk::register_thread().
 * A get() that finds an elastic class empty lets it grow, under a lock: it fills 2 MiB of pages at
 * most (or the pages of one buffer, if that is larger), and now and then makes an extent.
 *
 *   auto memory = rrdk::must(rrdk::Memory::create({.bytes = 512 << 20}));
 *   rrdk::Buffer b = memory->get(1000);      // 4096 bytes of capacity
 *   if (!b) ...;                             // exhausted: never blocks, never throws
 */
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {

class Memory;

/** Names one registered range (an arena or a RegisteredMemory) within its Memory. */
using RegionId = uint32_t;
constexpr RegionId kNoRegion = UINT32_MAX;

/**
 * A run of bytes that drivers can address: inside region `region`. Does not own. Take it from a
 * Buffer or a RegisteredMemory; a span that Memory::contains() does not know fails the call or
 * reply that it is given to.
 */
struct MemorySpan {
  std::byte* data = nullptr;
  uint32_t length = 0;
  RegionId region = kNoRegion;
};

namespace mem {
class Pool;
class Borrower;
/**
 * What stays fixed about one buffer. Lives in private memory, never where a peer can write. On a
 * cache line of its own, since cores take and give back neighbours at the same time.
 */
struct alignas(64) BufferSlot {
  std::byte* data;
  uint32_t capacity;
  RegionId region;
  Pool* pool;
  bool held;           ///< not in its pool; where assertions are on, giving it back twice is caught
  bool read_by_peer;   ///< Buffer::note_read_by_peer(), since it was taken
  uint32_t index;      ///< its number in its pool
  Borrower* borrower;  ///< the peer for whose call it was taken, until it is back; null: no one's
  std::atomic<uint32_t> next;  ///< the number of the one that lies below it in its pool
};
void put(BufferSlot* slot) noexcept;
}  // namespace mem

/** Sole owner of one pool buffer. Empty when default-constructed, moved from or exhausted. */
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(mem::BufferSlot* slot) noexcept : slot_(slot) {}
  Buffer(Buffer&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      slot_ = std::exchange(other.slot_, nullptr);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  explicit operator bool() const noexcept { return slot_ != nullptr; }
  /** Not of an empty one, all of these. The spans are of the whole buffer, and of its beginning. */
  std::byte* data() const noexcept { return slot_->data; }
  uint32_t capacity() const noexcept { return slot_->capacity; }
  RegionId region() const noexcept { return slot_->region; }
  MemorySpan span() const noexcept { return {slot_->data, slot_->capacity, slot_->region}; }
  MemorySpan first(uint32_t length) const noexcept { return {slot_->data, length, slot_->region}; }

  /** Returns the buffer to its pool now. */
  void reset() noexcept {
    if (slot_ != nullptr)
      mem::put(std::exchange(slot_, nullptr));
  }
  /**
   * Notes that a peer on this host reads what is in the buffer. It is then in the caches of another
   * processor core, and slow to write over, so when it is returned to its pool others are taken
   * before it. The library notes this itself of what it sends. Not of an empty Buffer.
   */
  void note_read_by_peer() noexcept { slot_->read_by_peer = true; }
  /** Gives up ownership; make a Buffer of the slot again, or it leaks. For work request ids. */
  mem::BufferSlot* release() noexcept { return std::exchange(slot_, nullptr); }

 private:
  mem::BufferSlot* slot_ = nullptr;
};

/** Application-sized memory, page-aligned, registered for its whole life. Move-only. */
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory();

  explicit operator bool() const noexcept { return memory_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  RegionId region() const noexcept { return region_; }
  /** The sub-range [offset, offset+length); the caller keeps it inside size(). */
  MemorySpan span(size_t offset, uint32_t length) const noexcept {
    return {data_ + offset, length, region_};
  }

 private:
  friend class Memory;
  Memory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  RegionId region_ = kNoRegion;
};

struct SizeClass {
  uint32_t buffer_size;  ///< bytes of capacity, a power of two of at least 64
  /**
   * 0: the class is elastic. It takes what it needs out of the budget (MemoryOptions::bytes), 2 MiB
   * or one buffer at a time, and what it has home is given to other classes when they need it.
   * Else so many buffers on each NUMA node are set aside for it.
   */
  uint32_t count = 0;
};

enum class HugepagePolicy {
  kPrefer,   ///< hugepages, else ordinary pages with one log line that says so
  kRequire,  ///< an error if there are too few, naming how many are missing and the command to set
  kNever,
};

struct MemoryOptions {
  /**
   * The budget: bytes of buffers, those of classes with a count included, of all NUMA nodes, which
   * have equal parts. Never exceeded. Memory is taken when it is first needed, and kept until the
   * Memory goes; a 16th of the budget is for the smallest elastic class alone, whose buffers are
   * those of headers and connections.
   *
   * 0: a share of what is free, which a log line states: half of the free hugepages, or a quarter
   * of all memory that this process can have, hugepages included, whichever is more; with kNever
   * hugepages do not count. At most a quarter of RLIMIT_AS and of RLIMIT_FSIZE. With kRequire: half
   * of the free hugepages. Without elastic classes: what the counts add up to.
   */
  uint64_t bytes = 0;
  std::vector<SizeClass> classes = {{4096}, {65536}, {256u << 10}, {1u << 20}};
  HugepagePolicy hugepages = HugepagePolicy::kPrefer;
  /** Nodes to make an arena on; empty: the node of the calling thread. */
  std::vector<int> numa_nodes = {};
  /**
   * Touch every page of the classes with a count before create() returns, so that no first call
   * pays for page faults. Elastic classes' pages are touched when they are taken from the budget.
   */
  bool prefault = true;
  Reserved<8> reserved = {};  ///< for what later releases add
};

/** The state of one size class: whole when available == count. */
struct PoolAudit {
  uint32_t buffer_size = 0;
  int numa_node = 0;
  uint32_t count = 0;      ///< that the class has now
  uint32_t available = 0;  ///< of them, not in use
  /**
   * Beyond `count`: what an elastic class could still have of the budget, out of what is free and
   * of what other classes have no use for. They share it: not all of them can have theirs. The
   * 16th that is kept for the smallest class is in that one's number only.
   */
  uint32_t more = 0;
  /** The low-water mark of available + more, but for what lay in cores' caches at that moment. */
  uint32_t least_available = 0;
  /** Times that a buffer of this size was wanted and none was to be had; who waits asks again. */
  uint64_t missing = 0;
  bool elastic = false;       ///< SizeClass::count is 0
  Reserved<8> reserved = {};  ///< for what later releases add
};

class Memory {
 public:
  /**
   * Needs EAL (rrdk/eal.h). Errors: kInvalidArgument (a class that is no power of two, EAL not
   * initialised), kNoMemory (a budget of less than one slab for each elastic class; with kRequire:
   * too few hugepages; else more ordinary pages than the machine, a limit of this process's cgroup,
   * or RLIMIT_FSIZE or RLIMIT_AS leaves; the message has the numbers), kSystem.
   *
   * Ordinary pages are compared with what is available: all of a budget at the start, and again
   * every 256 MiB as it is used, so that a request for too much takes memory from nobody. When
   * others have taken what was there meanwhile, get() finds nothing, and a log line says why.
   * Without `prefault` pages of classes with a count are taken when they are first touched, and the
   * kernel kills a process when there are none.
   */
  [[nodiscard]] static Result<std::unique_ptr<Memory>> create(const MemoryOptions& options = {});
  ~Memory();
  /** Destroys and frees, unless something still uses it. */
  static void operator delete(Memory* memory, std::destroying_delete_t);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /**
   * A buffer of at least `size` bytes from the smallest class that has one, on the caller's NUMA
   * node if it has an arena. Empty if all classes that large are exhausted or none is that large.
   */
  [[nodiscard]] Buffer get(uint32_t size) noexcept;
  /**
   * The same, but of the smallest class that is large enough and of no other: for buffers that are
   * kept for long, which would use up the larger classes. Empty if that class is exhausted.
   */
  [[nodiscard]] Buffer get_fitting(uint32_t size) noexcept;
  /** Fills all of `out` with buffers of one class, or none of it. False when exhausted. */
  [[nodiscard]] bool get_bulk(uint32_t size, std::span<Buffer> out) noexcept;
  /** The largest buffer that get() can return. */
  uint32_t largest_buffer() const noexcept;

  /**
   * Registered memory of a size of the application's own. Errors: kInvalidArgument (no bytes),
   * kNoMemory, kSystem.
   */
  [[nodiscard]] Result<RegisteredMemory> allocate(size_t bytes);
  /**
   * Takes memory that the application mapped from `fd` at `fd_offset`. It stays the application's
   * and must outlive the result; the descriptor is duplicated. To be usable over `shm:` it must be
   * a memfd sealed with F_SEAL_SHRINK, F_SEAL_GROW and, once it is mapped, F_SEAL_FUTURE_WRITE:
   * then peers can read it and no more, and neither side can pull pages from under the other. A
   * peer maps, and can read, the whole file, whose holes are filled when it is first shown to one.
   * `fd` -1: memory without a descriptor; `iwarp:` and `verbs:` need none. Over `shm:` a call that
   * refers to it ends with kInvalidMemory, and a handler whose results do answers SYSTEM_ERR; a log
   * line names the region. Errors: kInvalidArgument (not page-aligned, empty, not sealed so or
   * sealed with F_SEAL_WRITE, beyond the descriptor's end, `fd` not open), kSystem.
   */
  [[nodiscard]] Result<RegisteredMemory> adopt(void* address, size_t bytes, int fd,
                                               uint64_t fd_offset);

  /**
   * Whether the span is empty, or inside the region that it names and this Memory has. Any thread;
   * cheap.
   */
  bool contains(const MemorySpan& span) const noexcept;
  /**
   * These bytes as a span, if they lie in the memory that buffers come from, as what was received
   * does; else a span whose region is kNoRegion. Any thread; cheap.
   */
  MemorySpan span_of(const std::byte* data, uint32_t length) const noexcept;

  /** One entry per class and node. Exact only while no other thread gets or puts. */
  std::vector<PoolAudit> audit() const;
  /**
   * The class that get_fitting(size) takes from, its nodes together (numa_node is -1); all zeros if
   * there is none. Exact only while no other thread gets or puts.
   */
  PoolAudit audit_fitting(uint32_t size) const;
  /**
   * True when every buffer is back in its pool. Not to be expected while a Server, a
   * ClientConnection or the Runtime lives: connections hold Receives, a Call its buffers until it
   * is destroyed, and poll cores keep buffers for headers until ~Runtime(). Test for leaks after
   * that, or let ~Memory() do it, which logs what is missing.
   */
  bool whole() const;
  /** True when the arenas are made of hugepages. */
  bool on_hugepages() const noexcept;
  /**
   * Registrations made since create(): of extents, by allocate() and by adopt(). Calls add none but
   * those of the few extents into which buffers grow. Any thread.
   */
  uint64_t registrations() const noexcept;

  struct Impl;

 private:
  friend class RegisteredMemory;
  friend struct Internals;
  explicit Memory(std::unique_ptr<Impl> impl);
  Impl& impl() noexcept { return *impl_; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk

/**
 * Memory for RDMA: pools of registered buffers, and registered memory of the application's own size
 * or mapping. A program creates one Memory with a budget in bytes and gives it to its Runtime.
 *
 *   auto memory = rrdk::must(rrdk::Memory::create({.bytes = 512 << 20}));
 *   rrdk::Buffer b = memory->get(1000);      // 4096 bytes of capacity
 *   if (!b) ...;                             // exhausted: never blocks, never throws
 *
 * Budget: memory is taken only when it is needed. Buffers come in size classes; a class that runs
 * empty takes more from the budget, and gives it back when others need it. Pages are hugepages if
 * the system has them, otherwise ordinary ones (logged once). doc/guide-cores-and-memory.md says
 * how much a program needs.
 *
 * Registration: memory is registered in a few large extents, when they are added; no buffer is
 * registered by itself. Registration alone gives a peer no access: that takes a remote key, which
 * the transport makes for one buffer and one call.
 *
 * Lifetime: a Buffer is a move-only handle, which returns the buffer to its pool when it is
 * destroyed. Destroy all Buffers and RegisteredMemory, and the Runtime (rrdk/runtime.h), before
 * their Memory; EAL must outlive it.
 *
 * Threads: get() and Buffer's destructor may be called from any thread. They are fast on threads
 * with a cache: those of the Runtime, and those that called rrdk::register_thread(). create(),
 * allocate(), adopt(), and destroying a Memory or RegisteredMemory are for one thread at a time.
 *
 * Errors: a get() that finds nothing returns an empty Buffer. ~Memory() logs an error that names
 * every class with missing buffers. A Memory that is destroyed too early logs an error and lives on
 * until the last Runtime on it is gone, or for good if buffers or registered memory are still held.
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

/** Identifies a registered range (an arena or a RegisteredMemory) within its Memory. */
using RegionId = uint32_t;
constexpr RegionId kNoRegion = UINT32_MAX;

/**
 * A run of bytes inside registered region `region`. Does not own. Take it from a Buffer or a
 * RegisteredMemory; a call or reply that is given a span which Memory::contains() does not know
 * fails.
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
 * What stays fixed about one buffer. Lives in private memory, never where a peer can write. Has a
 * cache line of its own, since cores take and return neighbouring slots at the same time.
 */
struct alignas(64) BufferSlot {
  std::byte* data;
  uint32_t capacity;
  RegionId region;
  Pool* pool;
  bool held;           ///< taken from its pool; with assertions on, a double return is detected
  bool read_by_peer;   ///< set by Buffer::note_read_by_peer(), cleared when taken
  uint32_t index;      ///< its number in its pool
  Borrower* borrower;  ///< the peer for whose call it was taken, until it is returned; null: none
  std::atomic<uint32_t> next;  ///< number of the buffer below it in its pool's free list
};
void put(BufferSlot* slot) noexcept;
}  // namespace mem

/**
 * Sole owner of one pool buffer. Empty if default-constructed or moved from, or if the pool was
 * exhausted.
 */
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
  /**
   * None of these may be called on an empty Buffer. span() is the whole buffer, first() its
   * beginning.
   */
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
   * Notes that a peer on this host reads the buffer's contents. They are then in the caches of
   * another processor core and slow to overwrite, so the pool hands out other buffers first after
   * this one is returned. The library does this itself for what it sends. Must not be called on an
   * empty Buffer.
   */
  void note_read_by_peer() noexcept { slot_->read_by_peer = true; }
  /**
   * Gives up ownership, for work request ids. The slot leaks unless a Buffer is made from it again.
   */
  mem::BufferSlot* release() noexcept { return std::exchange(slot_, nullptr); }

 private:
  mem::BufferSlot* slot_ = nullptr;
};

/**
 * Page-aligned memory of a size that the application chooses, registered for its whole life.
 * Move-only.
 */
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
  /** The sub-range [offset, offset+length), which must lie inside size(). */
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
   * The buffers on each NUMA node that are set aside for the class. 0: the class is elastic. It
   * takes what it needs from the budget (MemoryOptions::bytes), 2 MiB or one buffer at a time, and
   * its free buffers are given to other classes that need them.
   */
  uint32_t count = 0;
};

enum class HugepagePolicy {
  kPrefer,   ///< hugepages, otherwise ordinary pages with one log line
  kRequire,  ///< fail if there are too few; the error has the missing number and the command to set
             ///< it
  kNever,
};

struct MemoryOptions {
  /**
   * The budget: the bytes of all buffers on all NUMA nodes, which have equal parts, including
   * classes with a count. Never exceeded. Memory is taken when it is first needed, and kept until
   * the Memory is destroyed. A 16th of the budget is reserved for the smallest elastic class, whose
   * buffers are used for headers and connections.
   *
   * 0: a share of what is free, which is logged: half of the free hugepages or a quarter of all
   * memory that this process can have, hugepages included, whichever is more; with kNever hugepages
   * do not count. At most a quarter of RLIMIT_AS and of RLIMIT_FSIZE. With kRequire: half of the
   * free hugepages. Without elastic classes: the sum of the counts.
   */
  uint64_t bytes = 0;
  std::vector<SizeClass> classes = {{4096}, {65536}, {256u << 10}, {1u << 20}};
  HugepagePolicy hugepages = HugepagePolicy::kPrefer;
  /** NUMA nodes that get an arena; empty: the node of the calling thread. */
  std::vector<int> numa_nodes = {};
  /**
   * Touches every page of the classes with a count before create() returns, so that no first call
   * pays for page faults. Pages of elastic classes are touched when they are taken from the budget.
   */
  bool prefault = true;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** The state of one size class. No buffer is missing when available == count. */
struct PoolAudit {
  uint32_t buffer_size = 0;
  int numa_node = 0;
  uint32_t count = 0;      ///< buffers that the class has now
  uint32_t available = 0;  ///< how many of these are not in use
  /**
   * Buffers beyond `count` that an elastic class could still get from the budget, out of what is
   * free and what other classes do not use. Classes share this, so not all can have theirs. The
   * 16th reserved for the smallest class is in that class's number only.
   */
  uint32_t more = 0;
  /** The low-water mark of available + more, without what lay in cores' caches at that moment. */
  uint32_t least_available = 0;
  /**
   * How often a buffer of this size was requested and none was available, repeated requests
   * included.
   */
  uint64_t missing = 0;
  bool elastic = false;       ///< SizeClass::count is 0
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** Pools of buffers, and registered memory; see the top of this header. */
class Memory {
 public:
  /**
   * Needs EAL (rrdk/eal.h). Errors: kInvalidArgument (a class whose size is not a power of two, EAL
   * not initialised), kNoMemory (a budget of less than one slab for each elastic class; with
   * kRequire, too few hugepages; otherwise more ordinary pages than the machine, a limit of this
   * process's cgroup, RLIMIT_FSIZE or RLIMIT_AS leaves; the message has the numbers), kSystem.
   *
   * The request for ordinary pages is compared with the memory available: the whole budget at the
   * start, and again for every 256 MiB used, so that a request for too much takes no memory from
   * others. If other processes have taken the memory meanwhile, get() returns empty Buffers, and a
   * log line says why. Without `prefault`, pages of classes with a count are taken when they are
   * first touched, and the kernel kills a process if no page is left.
   */
  [[nodiscard]] static Result<std::unique_ptr<Memory>> create(const MemoryOptions& options = {});
  ~Memory();
  /** Destroys and frees the object, unless something still uses it. */
  static void operator delete(Memory* memory, std::destroying_delete_t);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /**
   * Returns a buffer of at least `size` bytes from the smallest class that has one, on the caller's
   * NUMA node if that has an arena. Returns an empty Buffer if all classes of that size are
   * exhausted, or no class is that large.
   *
   * If it finds an elastic class empty, the class grows, under a lock: it fills at most 2 MiB of
   * pages (or the pages of one buffer, if that is larger), and occasionally makes an extent.
   */
  [[nodiscard]] Buffer get(uint32_t size) noexcept;
  /**
   * As get(), but only from the smallest class that is large enough. For buffers that are kept for
   * long, which would use up the larger classes. Returns an empty Buffer if that class is
   * exhausted.
   */
  [[nodiscard]] Buffer get_fitting(uint32_t size) noexcept;
  /**
   * Fills all of `out` with buffers of one class. Returns false, and fills nothing, if it is
   * exhausted.
   */
  [[nodiscard]] bool get_bulk(uint32_t size, std::span<Buffer> out) noexcept;
  /** The size of the largest buffer that get() can return. */
  uint32_t largest_buffer() const noexcept;

  /**
   * Allocates registered memory of any size, in addition to MemoryOptions::bytes and on the calling
   * thread's NUMA node; MemoryOptions::hugepages and prefault hold for it, too. Errors:
   * kInvalidArgument (0 bytes), kNoMemory, kSystem.
   */
  [[nodiscard]] Result<RegisteredMemory> allocate(size_t bytes);
  /**
   * Registers memory that the application mapped from `fd` at `fd_offset`. The memory stays the
   * application's and must outlive the result; the descriptor is duplicated.
   *
   * For use over `shm:`, `fd` must be a memfd sealed with F_SEAL_SHRINK, F_SEAL_GROW and, once it
   * is mapped, F_SEAL_FUTURE_WRITE: then peers can only read it, and neither side can remove pages
   * that the other uses. A peer maps, and can read, the whole file, whose holes are filled when it
   * is first shown to a peer.
   *
   * `fd` may be -1 for `iwarp:` and `verbs:`, which need no descriptor. Over `shm:` a call that
   * refers to such memory then ends with kInvalidMemory, and a handler whose results do answers
   * SYSTEM_ERR; a log line names the region.
   *
   * Errors: kInvalidArgument (not page-aligned, empty, not sealed so or sealed with F_SEAL_WRITE,
   * beyond the descriptor's end, `fd` not open), kSystem.
   */
  [[nodiscard]] Result<RegisteredMemory> adopt(void* address, size_t bytes, int fd,
                                               uint64_t fd_offset);

  /**
   * Returns true if the span is empty or lies inside the region that it names, and this Memory has
   * that region. Any thread; cheap.
   */
  bool contains(const MemorySpan& span) const noexcept;
  /**
   * Returns these bytes as a span if they lie in pool memory, as received data does; otherwise a
   * span whose region is kNoRegion. Any thread; cheap.
   */
  MemorySpan span_of(const std::byte* data, uint32_t length) const noexcept;

  /** One entry per class and node. Exact only while no other thread gets or returns buffers. */
  std::vector<PoolAudit> audit() const;
  /**
   * The class that get_fitting(size) takes from, its nodes together (numa_node is -1); all zeros if
   * there is no such class. Exact only while no other thread gets or returns buffers.
   */
  PoolAudit audit_fitting(uint32_t size) const;
  /**
   * Returns true if every buffer is back in its pool. That cannot be expected while a Server, a
   * ClientConnection or the Runtime lives: connections hold Receives, a Call holds its buffers
   * until it is destroyed, and poll cores keep buffers for headers until ~Runtime(). Test for leaks
   * after that, or let ~Memory() do it, which logs what is missing.
   */
  bool whole() const;
  /** Returns true if the arenas are made of hugepages. */
  bool on_hugepages() const noexcept;
  /**
   * Registrations made since create(): of extents, by allocate() and by adopt(). Calls add none
   * except for the few extents into which the pools grow. Any thread.
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

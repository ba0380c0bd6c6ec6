#include "ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "repetitions.h"
#include "results_json.h"
#include "rrdk/log.h"

#ifdef RRDK_HAS_MPI
#include <mpi.h>
#endif

namespace rrdk::testrpc {
namespace {

// Checks the variables that Open MPI's mpirun sets for each process that it starts.
bool started_by_mpirun(const Options& options) {
  if (options.role == Role::kHelp || options.role == Role::kVersion)
    return false;
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size != nullptr && std::string_view(size) != "1";
}

}  // namespace

#ifndef RRDK_HAS_MPI

Result<std::unique_ptr<Ranks>> Ranks::join(Options& options) {
  if (started_by_mpirun(options))
    return fail(Errc::kInvalidArgument,
                "this testrpc was built without MPI, and cannot be one load with the others that "
                "mpirun starts: meson setup -Dmpi=enabled");
  return std::unique_ptr<Ranks>(new Ranks);
}

Ranks::~Ranks() = default;
void Ranks::meet() const {}
void Ranks::add_up(RunResult&) const {}

bool Ranks::all(bool yes) const {
  return yes;
}

#else

namespace {

Result<void> check_ranks(const Options& options, int size) {
  if (options.role != Role::kClient)
    return fail(Errc::kInvalidArgument, "the ranks that mpirun starts are clients: --client URI");
  if (options.interactive || !options.capture.empty() || !options.metrics.empty())
    return fail(Errc::kInvalidArgument, "-i, --capture and --metrics are not for ranks of mpirun");
  if (options.count != 0 && options.count < static_cast<uint64_t>(size))
    return fail(Errc::kInvalidArgument, "--count " + std::to_string(options.count) +
                                            " leaves some of " + std::to_string(size) +
                                            " ranks without a call");
  return {};
}

// FNV-1a: ranks only compare it.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool same_everywhere(uint64_t value) {
  uint64_t ends[2] = {value, ~value};
  MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  return ends[0] == value && ends[1] == ~value;
}

std::vector<std::string> gather_hosts(int size) {
  std::vector<char> names(static_cast<size_t>(size) * MPI_MAX_PROCESSOR_NAME);
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  MPI_Allgather(name, sizeof name, MPI_CHAR, names.data(), sizeof name, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> hosts;
  for (size_t at = 0; at < names.size(); at += sizeof name)
    hosts.emplace_back(&names[at]);
  return hosts;
}

// Calls fn() with each member that the ranks exchange: what add() adds up, except noise and
// outliers.
void for_each_part(RunResult& r, auto&& fn) {
  fn(r.warmup_seconds), fn(r.warmup_calls), fn(r.seconds);
  fn(r.calls), fn(r.right), fn(r.due), fn(r.not_made);
  fn(r.bytes), fn(r.wrong_bytes), fn(r.tried_later);
  fn(r.allocations), fn(r.registrations), fn(r.preemptions);
  fn(r.connection_lost), fn(r.stopped);
  fn(r.survival), fn(r.size_changes), fn(r.failures), fn(r.latency);
  fn(r.slowest_connection), fn(r.fastest_connection), fn(r.nfs3_calls);
  for (Share& share : r.by_size)
    fn(share);
  for (Share& share : r.by_target)
    fn(share);
}

// Ranks are the same program with the same options: their objects have the same bytes.
template <typename T>
std::span<std::byte> bytes_of_object(T& object) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_writable_bytes(std::span(&object, 1));
}

std::vector<std::byte> packed(RunResult& result) {
  std::vector<std::byte> all;
  for_each_part(result, [&all](auto& part) {
    std::span<std::byte> bytes = bytes_of_object(part);
    all.insert(all.end(), bytes.begin(), bytes.end());
  });
  return all;
}

void unpack(RunResult& result, std::span<const std::byte> all) {
  for_each_part(result, [&all](auto& part) {
    std::span<std::byte> bytes = bytes_of_object(part);
    std::ranges::copy(all.first(bytes.size()), bytes.begin());
    all = all.subspan(bytes.size());
  });
}

}  // namespace

Result<std::unique_ptr<Ranks>> Ranks::join(Options& options) {
  std::unique_ptr<Ranks> ranks(new Ranks);
  if (!started_by_mpirun(options))
    return ranks;
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS)
    return fail(Errc::kSystem, "MPI_Init fails");
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks->size_);
  if (ranks->size_ == 1)
    return ranks;
  if (ranks->rank_ != 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr)
      return fail(Errc::kSystem, "cannot write into /dev/null");
    set_log_level(LogLevel::kWarning);  // rank 0 logs the same about memory
    options.json.clear();
    options.csv.clear();
  }
  ranks->hosts_ = gather_hosts(ranks->size_);
  std::string identity = version_text();
  for (const std::string& word : options.command)
    identity += "\n" + word;
  if (!same_everywhere(hash_of(identity)))
    return fail(Errc::kInvalidArgument,
                "ranks differ: mpirun must start the same program with the same arguments on all");
  if (Result<void> right = check_ranks(options, ranks->size_); !right)
    return tl::unexpected(right.error());
  return ranks;
}

Ranks::~Ranks() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun != 0 && ended == 0)
    MPI_Finalize();
}

void Ranks::meet() const {
  if (size_ > 1)
    MPI_Barrier(MPI_COMM_WORLD);
}

bool Ranks::all(bool yes) const {
  int agreed = yes ? 1 : 0;
  if (size_ > 1)
    MPI_Allreduce(MPI_IN_PLACE, &agreed, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  return agreed != 0;
}

// Adds up at rank 0, which sends the result to the others.
void Ranks::add_up(RunResult& result) const {
  if (size_ == 1)
    return;
  std::vector<std::byte> mine = packed(result);
  const int length = static_cast<int>(mine.size());
  std::vector<std::byte> all(rank_ == 0 ? mine.size() * static_cast<size_t>(size_) : 0);
  MPI_Gather(mine.data(), length, MPI_BYTE, all.data(), length, MPI_BYTE, 0, MPI_COMM_WORLD);
  for (size_t at = mine.size(); at < all.size(); at += mine.size()) {
    RunResult other = result;  // for the sizes of its lists
    other.series.clear();      // the copied slices are rank 0's
    unpack(other, std::span(all).subspan(at, mine.size()));
    const double seconds = std::max(result.seconds, other.seconds);
    const double warmup_seconds = std::max(result.warmup_seconds, other.warmup_seconds);
    add(result, other);
    result.seconds = seconds;
    result.warmup_seconds = warmup_seconds;
  }
  mine = packed(result);
  MPI_Bcast(mine.data(), length, MPI_BYTE, 0, MPI_COMM_WORLD);
  unpack(result, mine);
  const auto ranks = static_cast<uint32_t>(size_);
  result.spec.active *= ranks;
  result.spec.idle *= ranks;
  for (uint32_t& connections : result.connections_of_target)
    connections *= ranks;
}

#endif

Options Ranks::share_of(const Options& options) const {
  Options share = options;
  const auto ranks = static_cast<uint64_t>(size_);
  const auto rank = static_cast<uint64_t>(rank_);
  share.seed += rank;
  share.rate /= size_;
  share.lead = static_cast<double>(rank) / static_cast<double>(ranks);
  share.count = options.count / ranks + (rank < options.count % ranks ? 1 : 0);
  return share;
}

}  // namespace rrdk::testrpc

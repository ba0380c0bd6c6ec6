// Clients started by mpirun, on one host or many, as one load: they begin each run together, and
// each has the results of all. Needs a build with MPI (meson's option `mpi`). Without MPI or mpirun
// there is one rank, for which these functions do nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "load.h"
#include "options.h"

namespace rrdk::testrpc {

// All functions but rank(), size(), share_of() and hosts() are collective: every rank calls them in
// the same order and equally often, on the main thread.
class Ranks {
 public:
  // Called before anything else is printed: from then on, ranks above 0 print only errors, and
  // leave files to rank 0. Errors: kInvalidArgument (started by mpirun, but built without MPI; a
  // role or an option that is not for ranks; ranks with different command lines or programs),
  // kSystem.
  static Result<std::unique_ptr<Ranks>> join(Options& options);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Returns the options with this rank's share of --rate and --count, which are totals of all
  // ranks, and its own seed. If a schedule is not random, the rank makes every size()-th call or
  // burst.
  Options share_of(const Options& options) const;

  // Returns when all ranks are here.
  void meet() const;
  // Returns whether `yes` is true at all ranks.
  bool all(bool yes) const;
  // Replaces this rank's result by that of all ranks.
  void add_up(RunResult& result) const;
  // The host of each rank.
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  Ranks() = default;

  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> hosts_;
};

}  // namespace rrdk::testrpc

// Clients that mpirun has started, on one host or many, as one load: they begin each run together,
// and each of them has the results of all. Built with MPI (meson's option `mpi`); else, and without
// mpirun, there is one rank, for which nothing here does anything.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "load.h"
#include "options.h"

namespace rrdk::testrpc {

// All functions but rank(), size(), share_of() and hosts() are collective: every rank calls them,
// in the same order and equally often, on the main thread.
class Ranks {
 public:
  // Before anything else is printed: ranks above 0 print nothing from here on but what is wrong,
  // and leave files to rank 0. Errors: kInvalidArgument (started by mpirun, but built without MPI;
  // a role or an option that is not for ranks; ranks with different command lines or programs),
  // kSystem.
  static Result<std::unique_ptr<Ranks>> join(Options& options);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Of --rate and --count, which are of all together, what this one does: of a schedule that is not
  // random every size()-th call or burst. Its own seed.
  Options share_of(const Options& options) const;

  // Returns when all ranks are here.
  void meet() const;
  // Whether all say yes.
  bool all(bool yes) const;
  // Makes this rank's result that of all ranks.
  void add_up(RunResult& result) const;
  // The host of each.
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  Ranks() = default;

  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> hosts_;
};

}  // namespace rrdk::testrpc

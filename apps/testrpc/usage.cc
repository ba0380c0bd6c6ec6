#include <algorithm>
#include <string>

#include "option_table.h"

namespace rrdk::testrpc {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kHelpColumn = 26;

constexpr const char* kHead =
    R"(usage: testrpc [EAL arguments --] ROLE [options]

Measures ONC RPC over RDMA: it calls a small RPC program, in the ways that
RPC-over-RDMA moves data, and prints throughput and latency. It needs no RDMA
hardware. doc/testrpc.md is its manual.

  testrpc --self                         # a benchmark of 20 s, in one command
  testrpc --server shm:/tmp/perf.sock    # or two processes, on one host ...
  testrpc --client shm:/tmp/perf.sock --engine read --size 4K,1M --window 1,16
  testrpc --server iwarp://0.0.0.0       # ... or on two, over TCP
  testrpc --client iwarp://10.0.0.1 --engine all --verify
  testrpc --client shm:/tmp/perf.sock --rate 50000 --json result.json
  testrpc -l 2,3 -- --self               # on these cores, as DPDK names them
)";

constexpr const char* kUris = R"(
URI:
  shm:PATH              shared memory on this host, met at the UNIX socket PATH
  shm:@NAME             the same, at a name without a file
  iwarp://HOST[:PORT]   iWARP over TCP (default port 20049; a server's 0: any)
  verbs://HOST[:PORT]   an RDMA device, or Linux's rxe or siw
  HOST is a name, an IPv4 address, or an IPv6 address in brackets.
  Any client's address may have ?timeout=SECONDS, and a server's of shm and
  iwarp; iwarp also silence=SECONDS and congestion=NAME, and its clients crc=1
  and mpa=1; verbs device=NAME and windows=no; joined by &.
)";

constexpr const char* kTail = R"(
Other:
  -i                      a prompt: start, stop, set, show, quit, help
  -h, --help              this text
  -v, --version           the version
  --completion bash|zsh   a script with which the shell completes options

A value follows its option or an equals sign. Lists that are given again add up
(--engine, --size, --window, --active, --poll-cpus); of other options the last
one counts. Sizes take the suffixes K and M, powers of 1024. RRDK_LOG=debug in
the environment shows what the library does. Exit status: 0 on success, 1 on
failure, 2 if the command line is at fault.
)";

// Wraps `text`, which begins at column `at`, in lines of at most kWidth; later lines are indented
// to `column`.
std::string wrapped(std::string_view text, size_t at, size_t column) {
  std::string result;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    if (at + end > kWidth) {
      result += "\n" + std::string(column, ' ');
      at = column;
    }
    result += text.substr(0, end);
    at += end;
    text.remove_prefix(end);
    if (!text.empty()) {
      text.remove_prefix(1);
      result += at < kWidth ? " " : "";
      ++at;
    }
  }
  while (result.ends_with(' '))
    result.pop_back();
  return result;
}

std::string about(const Option& option) {
  std::string left = std::string("  --") + option.name;
  if (option.argument != nullptr)
    left += (option.argument[0] == '[' ? "" : " ") + std::string(option.argument);
  if (left.size() + 2 > kHelpColumn)
    left += "\n" + std::string(kHelpColumn, ' ');
  else
    left.resize(kHelpColumn, ' ');
  std::string text = option.help;
  if (option.group != Group::kRole && option.roles == kForServer && option.group != Group::kServer)
    text = "server: " + text;
  return left + wrapped(text, kHelpColumn, kHelpColumn) + "\n";
}

}  // namespace

std::string usage() {
  std::string text = kHead;
  for (uint32_t i = 0; i < kGroups; ++i) {
    auto group = static_cast<Group>(i);
    text += std::string("\n") + title_of(group) + ":\n";
    for (const Option& option : option_table()) {
      if (option.group == group)
        text += about(option);
    }
    if (group == Group::kRole)
      text += kUris;
  }
  // Removes the space at the end of wrapped lines.
  for (size_t at = 0; (at = text.find(" \n", at)) != std::string::npos;)
    text.erase(at, 1);
  return text + kTail;
}

}  // namespace rrdk::testrpc

/**
 * The library's log: what happens on the control path (start-up, connections, configuration).
 * Nothing is logged per message; the data path counts instead. Of a server's connections, those
 * refused and those that fail are warnings, of each kind one a second at most, with the number of
 * those left out; that they come and go is for kDebug.
 *
 * Lines go to stderr as "rrdk: warning: ..." unless the application takes them with a sink.
 * Shown are errors, warnings and information; the environment variable RRDK_LOG, one of error,
 * warning, info and debug, or set_log_level() changes that. Any other value of RRDK_LOG is reported
 * once, on stderr, and has no effect.
 *
 * Threads: all functions may be called by any thread; a sink is called by one thread at a time.
 */
#pragma once

namespace rrdk {

enum class LogLevel {
  kError,    ///< something is lost or broken
  kWarning,  ///< it works, but not as asked for
  kInfo,     ///< rare facts a user wants to know
  kDebug,    ///< for finding out what went on; each connection that comes and goes
};

/** "error", "warning", "info" or "debug". Never null. */
const char* to_string(LogLevel level);

/**
 * Takes one line, without a newline. Called with the log locked, on poll cores too: it must not
 * log, set a sink, or block for long.
 */
using LogSink = void (*)(LogLevel level, const char* line, void* user);

/**
 * Sends the lines to `sink` from now on; null: to stderr again. When it returns the previous sink
 * is not running, and its `user` may go.
 */
void set_log_sink(LogSink sink, void* user = nullptr);

/** Drops lines less severe than `most_verbose` from now on. */
void set_log_level(LogLevel most_verbose);
LogLevel log_level();

}  // namespace rrdk

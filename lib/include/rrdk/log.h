/**
 * The library's log: what happens on the control path (start-up, connections, configuration).
 * Nothing is logged per message; the data path counts instead. Of a server's connections, those
 * refused and those that fail are warnings, of each kind one a second at most, with the number of
 * those left out; that they come and go is for kDebug.
 *
 * Lines go to stderr as "2026-01-31T12:00:00.000000Z rrdk: warning: ..." unless the application
 * takes them with a sink. Shown are errors, warnings and information; the environment variable
 * RRDK_LOG, one of error, warning, info and debug, or set_log_level() changes that. RRDK_LOG_STYLE,
 * one of time, plain and json, or set_log_style() changes how they are written. Any other value of
 * the two is reported once, on stderr, and has no effect.
 *
 * Threads: all functions may be called by any thread; a sink is called by one thread at a time.
 */
#pragma once

#include "rrdk/language.h"

namespace rrdk {

enum class LogLevel {
  kError,    ///< something is lost or broken
  kWarning,  ///< it works, but not as asked for
  kInfo,     ///< rare facts a user wants to know
  kDebug,    ///< for finding out what went on; each connection that comes and goes
};

/** "error", "warning", "info" or "debug". Never null. */
const char* to_string(LogLevel level);

/** How lines are written to stderr. Each is written at once, so that those of threads do not mix.
 */
enum class LogStyle {
  kTime,   ///< with the time (UTC) in front
  kPlain,  ///< "rrdk: warning: ...", for where somebody else adds the time, as journald does
  kJson,   ///< {"time": "...", "level": "warning", "process": 1, "thread": 2, "message": "..."}
};

/** "time", "plain" or "json". Never null. */
const char* to_string(LogStyle style);

/**
 * Takes one line, without a newline. Called with the log locked, on poll cores too: it must not
 * block for long. It should not log, nor call what may: lines that come from within a sink are
 * dropped, which is said once on stderr.
 */
using LogSink = void (*)(LogLevel level, const char* line, void* user);

/**
 * Sends the lines to `sink` from now on; null: to stderr again. When it returns the previous sink
 * is not running, and its `user` may go, unless it is called from within that sink.
 */
void set_log_sink(LogSink sink, void* user = nullptr);

/** Drops lines less severe than `most_verbose` from now on. */
void set_log_level(LogLevel most_verbose);
LogLevel log_level();

/** Of the lines from now on; those that a sink takes have no style. */
void set_log_style(LogStyle style);
LogStyle log_style();

}  // namespace rrdk

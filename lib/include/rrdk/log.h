/**
 * The library's log of the control path: start-up, connections, configuration. Nothing is logged
 * per message; the data path counts instead.
 *
 *   rrdk::set_log_level(rrdk::LogLevel::kWarning);
 *   rrdk::set_log_sink([](rrdk::LogLevel, const char* line, void*) { journal.add(line); });
 *
 * Content: for a server's connections, refusals and failures are warnings, at most one per second
 * of each kind, with the number of those left out; connections that come and go are logged at
 * kDebug.
 *
 * Output: lines go to stderr as "2026-01-31T12:00:00.000000Z rrdk: warning: ..." unless the
 * application sets a sink. Errors, warnings and information are shown; the environment variable
 * RRDK_LOG (error, warning, info or debug) or set_log_level() changes that. RRDK_LOG_STYLE (time,
 * plain or json) or set_log_style() changes the format. Any other value of these variables is
 * reported once, on stderr, and has no effect.
 *
 * Threads: all functions may be called by any thread; a sink is called by one thread at a time.
 */
#pragma once

#include "rrdk/language.h"

namespace rrdk {

enum class LogLevel {
  kError,    ///< something is lost or broken
  kWarning,  ///< it works, but not as requested
  kInfo,     ///< rare facts that a user wants to know
  kDebug,    ///< for debugging; each connection that comes and goes
};

/** "error", "warning", "info" or "debug". Never null. */
const char* to_string(LogLevel level);

/**
 * How lines are written to stderr. Each is one write, so that lines of several threads do not mix.
 */
enum class LogStyle {
  kTime,   ///< with the time (UTC) in front
  kPlain,  ///< "rrdk: warning: ...", for use where the time is added, as journald does
  kJson,   ///< {"time": "...", "level": "warning", "process": 1, "thread": 2, "message": "..."}
};

/** "time", "plain" or "json". Never null. */
const char* to_string(LogStyle style);

/**
 * Receives one line, without a newline. Called with the log locked, on poll cores too, so it must
 * not block for long. It should not log, or call what may log: lines from within a sink are
 * dropped, which is reported once on stderr.
 */
using LogSink = void (*)(LogLevel level, const char* line, void* user);

/**
 * Sends the lines to `sink` from now on; null restores stderr. When it returns, the previous sink
 * is not running and its `user` may be destroyed, unless this is called from within that sink.
 */
void set_log_sink(LogSink sink, void* user = nullptr);

/** Drops lines less severe than `most_verbose` from now on. */
void set_log_level(LogLevel most_verbose);
LogLevel log_level();

/** Sets the style of lines from now on; lines that a sink receives have no style. */
void set_log_style(LogStyle style);
LogStyle log_style();

}  // namespace rrdk

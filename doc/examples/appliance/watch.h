/* Measures how long each call of the library keeps the reactor: asleep, and computing. The time in
 * which the thread could run but another one had its CPU does not count; Linux reports it for each
 * thread. For C and C++. */
#pragma once

#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct watch_point {
  int64_t wall_ns, cpu_ns, queued_ns;
  long sleeps;
};

struct watch {
  int64_t longest_sleep_ns, longest_work_ns;
  const char *slept_in, *worked_in;
  uint64_t calls;
};

static inline int64_t watch_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return INT64_C(1000000000) * now.tv_sec + now.tv_nsec;
}

/* How long the thread could have run and did not: the second number of schedstat. */
static inline int64_t watch_queued(void) {
  static __thread int fd = -1;
  char text[100] = "";
  char* second = text;
  if (fd < 0)
    fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0)
    return 0;
  strtoll(text, &second, 10);
  return strtoll(second, NULL, 10);
}

static inline struct watch_point watch_now(void) {
  struct watch_point point;
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  point.sleeps = usage.ru_nvcsw;
  point.queued_ns = watch_queued();
  point.cpu_ns = watch_clock(CLOCK_THREAD_CPUTIME_ID);
  point.wall_ns = watch_clock(CLOCK_MONOTONIC);
  return point;
}

/* The call `name`, which began at `before`, has returned. */
static inline void watch_note(struct watch* watch, const char* name, struct watch_point before) {
  const struct watch_point after = watch_now();
  const int64_t worked = after.cpu_ns - before.cpu_ns;
  const int64_t queued = after.queued_ns - before.queued_ns;
  const int64_t slept = after.wall_ns - before.wall_ns - worked - queued;
  ++watch->calls;
  if (after.sleeps != before.sleeps && slept > watch->longest_sleep_ns) {
    watch->longest_sleep_ns = slept;
    watch->slept_in = name;
  }
  if (worked > watch->longest_work_ns) {
    watch->longest_work_ns = worked;
    watch->worked_in = name;
  }
}

static inline void watch_print(const struct watch* watch) {
  printf("%" PRIu64 " calls of the library; asleep for %" PRId64
         " us at most (%s), at work for %" PRId64 " us at most (%s)\n",
         watch->calls, watch->longest_sleep_ns / 1000,
         watch->slept_in != NULL ? watch->slept_in : "never", watch->longest_work_ns / 1000,
         watch->worked_in != NULL ? watch->worked_in : "never");
}

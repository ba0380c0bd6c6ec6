/* Serves kv.x over RRDK and over TCP from a loop of its own, beside a timer and its standard input.
   Usage: loop_server URI... Lines of input: "ticks" (prints a line when the timer has gone off
   three times more), "hold" (does nothing else until the next line), "end" (by rrdk_svc_exit()). */
#include <arpa/inet.h>
#include <poll.h>
#include <rrdk/tirpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "kv.h"

#define MOST 64

extern void kv_prog_1(struct svc_req*, SVCXPRT*);

static int wanted_ticks;

static void say(const char* line) {
  printf("%s\n", line);
  fflush(stdout);
}

static int serve_tcp(void) {
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  SVCXPRT* transport;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, (struct sockaddr*)&address, sizeof address) != 0 || listen(fd, 8) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &length) != 0)
    return 0;
  transport = svctcp_create(fd, 0, 0);
  if (transport == NULL || !svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, NULL))
    return 0;
  printf("serving at tcp:%d\n", ntohs(address.sin_port));
  return 1;
}

static int serve(const char* uri) {
  SVCXPRT* transport = rrdk_svc_create(uri);
  if (transport == NULL || !rrdk_svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, 0)) {
    fprintf(stderr, "loop_server: %s\n", rrdk_tirpc_error());
    return 0;
  }
  printf("serving at %s\n", rrdk_svc_uri(transport));
  return 1;
}

static void tick(int timer) {
  unsigned long long count = 0;
  if (read(timer, &count, sizeof count) == (ssize_t)sizeof count && wanted_ticks > 0 &&
      --wanted_ticks == 0)
    say("ticked");
}

static int take_line(void) {
  char line[80];
  if (fgets(line, sizeof line, stdin) == NULL)
    return 0;
  if (strcmp(line, "ticks\n") == 0)
    wanted_ticks = 3;
  if (strcmp(line, "end\n") == 0)
    rrdk_svc_exit();
  if (strcmp(line, "hold\n") == 0) {
    say("holding");
    if (fgets(line, sizeof line, stdin) == NULL)
      return 0;
  }
  return 1;
}

/* The first three are the program's; libtirpc's follow. */
static int wait_and_serve(int timer) {
  struct pollfd sources[MOST];
  int theirs = svc_max_pollfd < MOST - 3 ? svc_max_pollfd : MOST - 3;
  memset(sources, 0, sizeof sources);
  sources[0].fd = STDIN_FILENO;
  sources[1].fd = timer;
  sources[2].fd = rrdk_svc_fd();
  memcpy(sources + 3, svc_pollfd, (size_t)theirs * sizeof *sources);
  sources[0].events = sources[1].events = sources[2].events = POLLIN;
  if (poll(sources, (nfds_t)theirs + 3, -1) < 0)
    return 0;
  if (sources[1].revents != 0)
    tick(timer);
  if (sources[0].revents != 0 && !take_line())
    return 0;
  if (sources[2].revents != 0 && rrdk_svc_poll() < 0)
    return 0;
  svc_getreq_poll(sources + 3, theirs);
  return 1;
}

int main(int argc, char** argv) {
  struct itimerspec period = {{0, 1000000}, {0, 1000000}};
  int timer = timerfd_create(CLOCK_MONOTONIC, 0), i;
  setvbuf(stdin, NULL, _IONBF, 0);
  timerfd_settime(timer, 0, &period, NULL);
  if (rrdk_svc_fd() < 0 || !serve_tcp())
    return 1;
  for (i = 1; i < argc; i++)
    if (!serve(argv[i]))
      return 1;
  fflush(stdout);
  while (wait_and_serve(timer))
    continue;
  printf("%s\n", rrdk_tirpc_error());
  return 0;
}

#include "commands.h"

#include <cmdline_parse_string.h>
#include <stddef.h>

struct Words {
  cmdline_fixed_string_t verb;
  cmdline_fixed_string_t second;
  cmdline_fixed_string_t third;
};

static void run_one(void* parsed, struct cmdline* cl, void* data) {
  struct Words* words = parsed;
  (void)cl;
  (void)data;
  testrpc_command(words->verb, "", "");
}

static void run_two(void* parsed, struct cmdline* cl, void* data) {
  struct Words* words = parsed;
  (void)cl;
  (void)data;
  testrpc_command(words->verb, words->second, "");
}

static void run_three(void* parsed, struct cmdline* cl, void* data) {
  struct Words* words = parsed;
  (void)cl;
  (void)data;
  testrpc_command(words->verb, words->second, words->third);
}

#define RRDK_WORD(name, field, choices) \
  static cmdline_parse_token_string_t name = TOKEN_STRING_INITIALIZER(struct Words, field, choices)

// Initialising a flexible array member, which DPDK's struct asks for, is an extension to C.
#pragma GCC diagnostic ignored "-Wpedantic"

RRDK_WORD(simple_verb, verb, "start#stop#quit#help");
RRDK_WORD(show_verb, verb, "show");
RRDK_WORD(show_what, second, "config#stats#faults");
RRDK_WORD(clear_verb, verb, "clear");
RRDK_WORD(clear_what, second, "stats");
RRDK_WORD(set_verb, verb, "set");
RRDK_WORD(set_option, second, NULL);
RRDK_WORD(set_value, third, NULL);

static cmdline_parse_inst_t simple = {
    .f = run_one,
    .help_str = "start | stop | quit | help",
    .tokens = {(void*)&simple_verb, NULL},
};
static cmdline_parse_inst_t show = {
    .f = run_two,
    .help_str = "show config | show stats | show faults",
    .tokens = {(void*)&show_verb, (void*)&show_what, NULL},
};
static cmdline_parse_inst_t clear = {
    .f = run_two,
    .help_str = "clear stats",
    .tokens = {(void*)&clear_verb, (void*)&clear_what, NULL},
};
static cmdline_parse_inst_t set = {
    .f = run_three,
    .help_str = "set OPTION VALUE, as on the command line without its dashes",
    .tokens = {(void*)&set_verb, (void*)&set_option, (void*)&set_value, NULL},
};

cmdline_parse_ctx_t testrpc_commands[] = {&simple, &show, &clear, &set, NULL};

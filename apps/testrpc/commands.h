// The commands of interactive mode, as DPDK's cmdline wants them: tables in C, whose flexible
// array members C++ does not have.
#pragma once

#include <cmdline.h>
#include <cmdline_parse.h>

#ifdef __cplusplus
extern "C" {
#endif

// For cmdline_new().
extern cmdline_parse_ctx_t testrpc_commands[];

// Called for every command that parses: its words, empty where it has fewer.
void testrpc_command(const char* verb, const char* second, const char* third);

#ifdef __cplusplus
}
#endif

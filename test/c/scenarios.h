/* What programs in C do, and the expected results. Each returns NULL, or the check that failed.
 * `uri` is the address to listen at. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

const char* calls_of_all_kinds(const char* uri);
const char* answers_from_another_thread(const char* uri);
const char* calls_beyond_the_bound(const char* uri);
const char* calls_that_are_watched(const char* uri);
const char* calls_in_the_other_direction(const char* uri);
const char* calls_that_do_not_succeed(const char* uri);
const char* a_call_submitted_twice(const char* uri);
const char* a_call_answered_twice(const char* uri);
const char* server_connections_that_have_gone(const char* uri);
const char* connections_that_come_and_go(const char* uri);
const char* a_server_that_is_asked_to_end(const char* uri);
const char* missing_and_gone_objects(const char* uri);
const char* counters_and_stats(const char* uri);
const char* credentials(const char* uri);
const char* captures(const char* uri);
const char* a_server_that_demands_kerberos(const char* uri);
const char* acceptors_that_cannot_be_made(void);
const char* timers_and_tasks(void);
const char* a_pass_has_a_budget(void);
const char* options_of_other_releases(void);
const char* options_that_are_wrong(void);
const char* errors_have_names(void);
const char* memory_of_all_kinds(void);
const char* lines_of_the_log(void);

#ifdef __cplusplus
}
#endif

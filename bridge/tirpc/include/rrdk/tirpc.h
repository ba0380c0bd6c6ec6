/**
 * Programs of rpcgen and libtirpc over RRDK: client stubs call through the CLIENT of
 * rrdk_clnt_create(), server stubs and dispatch routines answer through the SVCXPRT of
 * rrdk_svc_create(). rpcgen's output does not change, and neither does the code around it, except
 * for the lines that make the CLIENT or the SVCXPRT. For C11 and C++. doc/porting-rpcgen.md goes
 * through the steps.
 *
 *   CLIENT *client = rrdk_clnt_create("iwarp://10.0.0.1", KV_PROG, KV_V1);
 *   if (client == NULL) { clnt_pcreateerror("kv"); exit(1); }
 *   kv_get_res *result = kv_get_1(&name, client);         // as before
 *
 *   SVCXPRT *transport = rrdk_svc_create("shm:/run/kv.sock");
 *   if (transport == NULL || !rrdk_svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, 0))
 *     return complain(rrdk_tirpc_error());
 *   rrdk_svc_run();
 *
 * Large opaques that a binding file names are moved by RDMA to their final place, and are not
 * copied from there; see rrdk_tirpc_bind(). All other data travels inline or as a long message.
 *
 * What differs from TCP:
 *
 *   - If a dispatch routine returns without an answer, the client gets RPC_SYSTEMERROR at once,
 *     instead of a timeout. Every call has a reply: even a "batched" call, for which the client
 *     does not wait, is answered, invisibly to the program.
 *   - A call is answered before its dispatch routine returns, or rrdk_svc_defer() is called in it.
 *   - Calls and replies have at most 8 MiB. The client has to know the largest size of a reply:
 *     RRDK_CLSET_MAX_REPLY, or the binding file.
 *   - Authentication: AUTH_NONE and AUTH_SYS as with libtirpc, and Kerberos by
 *     rrdk_authgss_create() and rrdk_svc_create_gss(). Other flavours are refused on both sides.
 *   - The descriptor of a CLIENT or SVCXPRT is -1.
 *
 * Threads: several threads may use one CLIENT, as with libtirpc: their calls are made one after the
 * other. Calls on several CLIENTs run at the same time. clnt_destroy() must be called by the last
 * user. Dispatch routines run in the thread that calls rrdk_svc_run() or rrdk_svc_poll(), and all
 * functions of servers must be called in that thread, except rrdk_svc_exit() and what is called for
 * an SVCXPRT of rrdk_svc_defer(). The other functions may be called in any thread.
 *
 * Waiting: a call polls, for 20 microseconds without giving its CPU away, then yielding it, and
 * sleeps after 50 microseconds. rrdk_svc_run() does the same. So calls need no thread except their
 * own. While a dispatch routine takes longer than a millisecond, while neither rrdk_svc_run() nor
 * rrdk_svc_poll() is running, or while batched calls are on their way, a thread "rrdk-tirpc" polls
 * instead: one for servers, and up to four for clients in a process that makes batched calls.
 * Besides these there are the library's own threads, which doc/guide-cores-and-memory.md lists,
 * whatever the number of CLIENTs. A CLIENT has one descriptor over iwarp, and three over shm.
 *
 * fork() without exec is not allowed once one of these functions was called, see rrdk/eal.h. In a
 * child they all fail, as does clnt_call(), with RPC_CANTSEND; clnt_destroy() and svc_destroy()
 * leave the parent's connections alone. daemon() must be called before any of these functions.
 */
#pragma once

#include <rpc/rpc.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Clients ---- */

/**
 * Connects to a server of RRDK, or any other RPC-over-RDMA server, at `uri`, in the form of
 * Client::connect() in rrdk/client.h: "shm:/run/kv.sock", "iwarp://HOST[:PORT]",
 * "verbs://HOST[:PORT]". With port 0 it connects to the address that HOST's rpcbind lists for this
 * program and version, which may be another address of the host (rpcbind_locate() in
 * rrdk/rpcbind.h). The CLIENT works like one of clnt_create(): clnt_call(), clnt_control(),
 * clnt_geterr(), clnt_perror(), clnt_freeres(), clnt_destroy(). Its timeout is 25 s unless
 * CLSET_TIMEOUT or the stub says otherwise. Timeouts of more than 49 days count as 49 days; an
 * invalid timeout is ignored, and the last valid one holds.
 *
 * Returns NULL on failure: rpc_createerr has the reason for programs, clnt_pcreateerror() prints
 * it, and rrdk_tirpc_error() describes it. RPC_UNKNOWNPROTO: the URI is invalid. RPC_UNKNOWNHOST: a
 * name without an address. RPC_TIMEDOUT: a host that does not answer. Port 0: RPC_PROGNOTREGISTERED
 * if the host's rpcbind does not know the program, RPC_RPCBFAILURE if it cannot be asked. All other
 * errors are RPC_SYSTEMERROR, with re_errno: ECONNREFUSED, ENOENT (shm: no such socket), EMFILE. If
 * a server does not offer the program or version, the first call fails.
 *
 * A lost connection stays lost: calls in progress end with RPC_CANTRECV, later ones with
 * RPC_CANTSEND. Destroy the CLIENT then, and make another one. After RPC_TIMEDOUT it can still be
 * used, with one exception: memory of rrdk_tirpc_alloc() among the arguments is taken back from
 * the server, and if the server had not read it yet, the connection is lost.
 *
 * A timeout of zero without results (xdr_results NULL) makes a batched call: it is sent, its answer
 * is not waited for, and it returns RPC_SUCCESS. Such calls arrive in order, before calls that are
 * made later, and before clnt_destroy() returns, which waits for their answers. A CLIENT has at
 * most 12 unanswered batched calls. A further one, or one for which the server grants no credit,
 * waits for an answer; after the timeout of the last ordinary call (25 s before the first) it fails
 * with RPC_CANTSEND and is not sent. With results, a call with a timeout of zero is sent in the
 * same way and returns RPC_TIMEDOUT.
 *
 * If a call fails with RPC_CANTRECV and re_errno EMSGSIZE, its reply was too large.
 */
CLIENT* rrdk_clnt_create(const char* uri, rpcprog_t program, rpcvers_t version);

/**
 * Makes an AUTH for cl_auth: a security context of RPCSEC_GSS with Kerberos, by calls of the
 * CLIENT's procedure 0. It takes the place of libtirpc's authgss_create() and
 * authgss_create_default(), whose AUTH a CLIENT of rrdk_clnt_create() refuses: calls then end with
 * RPC_AUTHERROR and re_why AUTH_FAILED, and authgss_create() returns NULL.
 *
 *   #include <rpc/auth_gss.h>
 *   AUTH *alice = rrdk_authgss_create(client, "nfs@server.example.org",
 *                                     RPCSEC_GSS_SVC_PRIVACY, NULL);
 *   if (alice == NULL) {
 *     fprintf(stderr, "%s\n", rrdk_tirpc_error());
 *     exit(1);  // with cl_auth NULL, calls would be made with AUTH_NONE
 *   }
 *   client->cl_auth = alice;
 *
 * `target` is the service, and `service` a rpc_gss_svc_t of rpc/auth_gss.h: 1 proves who calls, 2
 * also protects arguments and results from changes, 3 also hides them. `principal` says whose
 * ticket is used, and NULL is the default one. With 2 and 3 the items of the binding file are
 * copied. The AUTH may be used by any number of CLIENTs of rrdk_clnt_create(), but by no other, and
 * by several threads. authgss_service(), authgss_get_private_data() and rpc_gss_set_defaults() must
 * not be called for it.
 *
 * Destroy it by auth_destroy() when no cl_auth refers to it any more. A CLIENT that has used it
 * keeps the context until it makes a call with another cl_auth, or until clnt_destroy(). After the
 * last of these the library tells the server, if the connection is up; otherwise the server forgets
 * the context when its ticket ends, or earlier. If the server forgets it while it is in use, the
 * library establishes another one while a call waits.
 *
 * It asks the KDC and the server, which may take seconds. Calls of other threads may wait
 * meanwhile, also on other CLIENTs. Returns NULL on failure: rrdk_tirpc_error() has the reason, and
 * rpc_createerr RPC_AUTHERROR, RPC_TIMEDOUT or RPC_CANTRECV. doc/security.md tells how to get keys
 * and tickets.
 */
AUTH* rrdk_authgss_create(CLIENT* client, const char* target, unsigned service,
                          const char* principal);

/**
 * For clnt_control(), beside those of libtirpc (CLSET_TIMEOUT, CLGET_TIMEOUT, CLGET_SERVER_ADDR,
 * CLGET_SVC_ADDR, CLGET_VERS, CLSET_VERS, CLGET_PROG, CLSET_PROG; CLSET_FD_CLOSE and
 * CLSET_FD_NCLOSE do nothing; others are refused: CLGET_FD, since a CLIENT has no descriptor that a
 * program could use, CLGET_XID and CLSET_XID, and, as by libtirpc's own over TCP,
 * CLGET_RETRY_TIMEOUT and CLSET_RETRY_TIMEOUT). uint32_t *: the largest size of results of calls
 * from now on, in bytes of XDR, without the items that the binding file names. 1 MiB by default, at
 * most 8 MiB. A call holds a buffer of that size, unless its procedure has no results, or a `reply`
 * line of the binding file applies to it.
 */
#define RRDK_CLSET_MAX_REPLY 0x5244u
#define RRDK_CLGET_MAX_REPLY 0x5245u
/**
 * For clnt_control(), and for SVC_CONTROL() of an SVCXPRT of rrdk_svc_create(). uint32_t *: bytes
 * that decoding one message may allocate in all, 64 MiB by default: an array of unions takes more
 * memory than space in the message. It applies to XDR routines that are compiled with
 * rrdk/tirpc_items.h.
 */
#define RRDK_CLSET_MAX_DECODED 0x5246u
#define RRDK_CLGET_MAX_DECODED 0x5247u

/* ---- Servers ---- */

/**
 * Listens at `uri`, in the form of Server::listen() in rrdk/server.h: "shm:/run/kv.sock",
 * "iwarp://0.0.0.0:7471" (port 0: any free port). Several transports are served together. The
 * SVCXPRT supports svc_getargs(), svc_freeargs(), svc_sendreply() and svcerr_*(), as a dispatch
 * routine expects; svc_getrpccaller() returns the client's address (of family AF_UNIX, without a
 * path, over shm:). svc_destroy() ends it, also in a dispatch routine.
 *
 * Returns NULL on failure; rrdk_tirpc_error() has the reason. It is not among libtirpc's own
 * transports, so svc_run() does not serve it, and svc_reg() does not know it.
 */
SVCXPRT* rrdk_svc_create(const char* uri);

/**
 * As rrdk_svc_create(), and takes RPCSEC_GSS with Kerberos, besides the other flavours. `service`
 * is such as "nfs@server.example.org", and NULL each one in the key table; `key_table` is a path,
 * and NULL what KRB5_KTNAME names, or /etc/krb5.keytab. The library verifies the calls, and
 * rq_clntcred says who called:
 *
 *   const struct rrdk_svc_gss_caller *caller = request->rq_clntcred;
 *   if (request->rq_cred.oa_flavor != RPCSEC_GSS ||
 *       caller->service < RPCSEC_GSS_SVC_INTEGRITY ||
 *       strcmp(caller->principal, "alice@EXAMPLE.ORG") != 0) {
 *     svcerr_weakauth(request->rq_xprt);
 *     return;
 *   }
 *
 * Its limits are the defaults of GssAcceptorOptions (rrdk/gss.h), but bodies of up to 8 MiB are
 * taken. Contexts cannot be made by TCP.
 *
 * What libtirpc itself has for this is not for such an SVCXPRT: svcauth_gss_set_svc_name(),
 * svcauth_gss_get_principal(), rpc_gss_set_svc_name(), rpc_gss_getcred(), rpc_gss_set_callback().
 */
SVCXPRT* rrdk_svc_create_gss(const char* uri, const char* service, const char* key_table);

/**
 * What rq_clntcred refers to if the flavour is RPCSEC_GSS and the transport is one of
 * rrdk_svc_create_gss(), until the dispatch routine returns. A transport of libtirpc, whose xp_fd
 * is not -1, has a struct rpc_gss_cred there. rq_clntname and rq_svcname are NULL.
 */
struct rrdk_svc_gss_caller { /* NOLINT(readability-identifier-naming): a name as in C */
  const char* principal;     /**< proven: "alice@EXAMPLE.ORG" */
  unsigned service;          /**< a rpc_gss_svc_t */
};

/** The address at which it listens: the URI with the port that the system chose. Valid as long as
   the SVCXPRT. */
const char* rrdk_svc_uri(const SVCXPRT* transport);

/** For rrdk_svc_reg(): lists the program with this host's rpcbind until it is unregistered. A
   thread checks from time to time that the entry is still there (RpcbindListing in
   rrdk/rpcbind.h). */
#define RRDK_SVC_RPCBIND 1u
/** For rrdk_svc_reg(): svc_getrpccaller() shows clients over shm: as 127.0.0.1 with port 65535, for
    a program that takes callers of family AF_UNIX for strangers. They are processes of this host,
    whose users the socket's permissions choose; a reserved port is never shown for them. */
#define RRDK_SVC_LOOPBACK 2u

/**
 * Like svc_reg(): calls of the program and version go to `dispatch`, which rpcgen wrote, for all
 * procedures; see rrdk_svc_run() for procedure 0. RRDK answers calls of other programs and versions
 * by itself.
 *
 * In the svc_req, rq_cred is the credential as it came, and rq_clntcred a struct authunix_parms for
 * AUTH_SYS, until the dispatch routine returns; for RPCSEC_GSS see rrdk_svc_create_gss(). Calls
 * with other flavours, or malformed credentials, do not get there.
 *
 * Returns FALSE if nothing was registered; rrdk_tirpc_error() has the reason, such as that the
 * program and version is registered already, or that rpcbind refused it.
 */
bool_t rrdk_svc_reg(SVCXPRT* transport, rpcprog_t program, rpcvers_t version,
                    void (*dispatch)(struct svc_req*, SVCXPRT*), unsigned flags);

/** Like svc_unreg(), for one transport. Must not be called in a dispatch routine. */
void rrdk_svc_unreg(SVCXPRT* transport, rpcprog_t program, rpcvers_t version);

/**
 * Serves until rrdk_svc_exit(): the transports of rrdk_svc_create(), and those of libtirpc itself
 * (svc_tli_create() and so on), so that a program may also be offered over TCP. Dispatch routines
 * run one after the other, in the calling thread, and may make calls themselves as clients. While
 * one runs, clients of rrdk_svc_create()'s transports connect, and their calls wait for their turn.
 * Procedure 0 does not wait then, unless its client has other calls waiting: it is answered without
 * the dispatch routine, so that a client which only pings does not take the server for dead.
 */
void rrdk_svc_run(void);

/**
 * For a dispatch routine that does not answer its call, or a procedure that rpcgen's routine called
 * and that returns NULL (rpcgen -M: FALSE): the call is to be answered later.
 *
 *   result *append_1_svc(append_args *args, struct svc_req *request) {
 *     struct job *job = start_job(args);             // copies what it needs of args
 *     job->transport = rrdk_svc_defer(request->rq_xprt);
 *     return NULL;
 *   }
 *   ... when the job is done, in any thread:
 *   svc_sendreply(job->transport, (xdrproc_t)xdr_result, (char *)&job->result);
 *   rrdk_svc_release(job->transport);
 *
 * Returns an SVCXPRT for this one call, for svc_getargs(), svc_freeargs(), svc_sendreply(),
 * svcerr_*() and svc_getrpccaller(), in one thread at a time, and until rrdk_svc_release(), which
 * must be called in any case. If the call is not answered then, the client gets RPC_SYSTEMERROR.
 * The svc_req and the credentials are valid until the dispatch routine returns, as always, and
 * arguments that it has decoded until the answer, unless it frees them, as rpcgen's routines do.
 * After the answer only svc_freeargs() of this handle may free them: those that were decoded in
 * place are no longer the program's.
 * The answer is sent when the routine has returned: it must not wait for that. An answer to a
 * client that has gone is dropped. When the transport is destroyed, its calls are answered with an
 * error, and then svc_sendreply() returns FALSE.
 *
 * An SVCXPRT of libtirpc is returned as it is, and rrdk_svc_release() does nothing with it. It has
 * no handles for single calls: answer it in the thread that serves it, over a stream only, before
 * its client calls again, and not if that has hung up, since libtirpc then frees it. NULL: there is
 * no call to be answered; rrdk_tirpc_error() says so.
 */
SVCXPRT* rrdk_svc_defer(SVCXPRT* transport);
void rrdk_svc_release(SVCXPRT* deferred);

/**
 * For a program with a loop of its own, beside its timers and sockets; as svc_pollfd and
 * svc_getreq_poll() for libtirpc's transports, which that loop serves by these as before:
 *
 *   struct pollfd sources[] = {{.fd = rrdk_svc_fd(), .events = POLLIN}, ...};
 *   while (poll(sources, count, timeout) >= 0 || errno == EINTR)
 *     if (sources[0].revents != 0 && rrdk_svc_poll() < 0)
 *       break;
 *
 * rrdk_svc_fd() returns a descriptor that is readable when the transports of rrdk_svc_create() have
 * work, those that are made later as well. It belongs to the library and stays the same. Sleep on
 * it with select(), poll() or epoll (level-triggered), and do nothing else with it. Returns -1 on
 * failure; rrdk_tirpc_error() has the reason.
 *
 * rrdk_svc_poll() does what there is to do, without waiting for more, and runs dispatch routines as
 * rrdk_svc_run() does. Returns how many calls were dispatched, often 0: some work is the
 * library's own. Returns -1 if rrdk_svc_exit() was called since, or it was called in a dispatch
 * routine, or on failure; rrdk_tirpc_error() says which. It may leave work for its next call, for
 * which the descriptor then is readable. While the program does other things for more than a
 * millisecond, a thread of the library takes care of connections as while a dispatch routine runs.
 */
int rrdk_svc_fd(void);
int rrdk_svc_poll(void);

/**
 * Makes rrdk_svc_run() return, after the dispatch routine that it is in; with a loop of its own, it
 * makes rrdk_svc_fd() readable and rrdk_svc_poll() return -1. If neither is running, the next one
 * does so at once. Any thread; also in a signal handler.
 */
void rrdk_svc_exit(void);

/* ---- Direct placement ---- */

/**
 * Reads a binding file: the program's upper-layer binding (RFC 8166 section 6), which says which
 * opaque<> items may be moved by RDMA. Both ends read the same file, before they make their CLIENT
 * or SVCXPRT. A file named by the environment variable RRDK_TIRPC_BINDING is read when the first of
 * these is made. Lines of several files add up; the last one counts for a program, version,
 * procedure and item. A line:
 *
 *   PROGRAM VERSION PROCEDURE args    TYPE.FIELD LARGEST [copy]
 *   PROGRAM VERSION PROCEDURE results TYPE.FIELD LARGEST [copy]
 *   PROGRAM VERSION PROCEDURE reply   BYTES
 *
 *   # perf.x
 *   0x20005666 1 2 results perf_read_ok.data 4M
 *   0x20005666 1 2 reply   64
 *   0x20005666 1 3 args    perf_write_args.data 4M
 *
 * PROCEDURE 0xffffffff stands for every procedure but 0 that has no line of its own; one that has a
 * line takes nothing from it. TYPE.FIELD are names in the .x: a field `opaque data<>` of a struct
 * or union, or TYPE alone for `typedef opaque TYPE<>`. Items are in the order in which they come in
 * the stream. LARGEST is the memory that a client offers for it, in bytes or with K or M. `reply`
 * is the largest size of the other results, including length words: it replaces
 * RRDK_CLSET_MAX_REPLY. Comments begin with '#'. rrdk-bind writes such a file from the .x.
 *
 * The file that rpcgen wrote, with the type's XDR routine, must be compiled with
 *
 *   cc -include rrdk/tirpc_items.h -c kv_xdr.c
 *
 * because nothing else distinguishes its opaques. A program that is compiled otherwise works
 * without a binding file; with one, results that were placed do not decode.
 *
 * Memory: if such an item has at least 4096 bytes, and in a client at least an eighth of LARGEST,
 * it is decoded in place: the pointer leads to the memory in which the item arrived, not to a
 * malloc()ed copy. Free that memory with svc_freeargs(), clnt_freeres(), xdr_free() or
 * rrdk_tirpc_free(), never with free(). Arguments in place are invalid after svc_sendreply(). With
 * `copy` in the line the item is malloc()ed, as without RRDK.
 *
 * Returns FALSE on failure: rrdk_tirpc_error() names the file, the line and the fault, and the
 * whole file is ignored.
 */
bool_t rrdk_tirpc_bind(const char* file);

/**
 * Memory from which large opaques that a binding file names are sent without a copy. In a server
 * svc_sendreply() then returns only when the client has the data, or when the client has not taken
 * it for ten seconds and is disconnected. Returns NULL if exhausted. Free it with
 * rrdk_tirpc_free(), or with the XDR routine of the type that contains it (xdr_free()).
 */
void* rrdk_tirpc_alloc(size_t bytes);
/** Frees memory of rrdk_tirpc_alloc(), and decoded memory. Other memory is free()d. */
void rrdk_tirpc_free(void* memory);

/**
 * The last error in the calling thread, of the functions here and of calls: one line that names the
 * thing at fault. Never NULL; valid until the next failure.
 */
const char* rrdk_tirpc_error(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

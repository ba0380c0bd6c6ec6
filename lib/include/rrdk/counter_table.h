/**
 * The table of everything that RRDK counts. rrdk/counters.h and, for C, rrdk/rrdk.h make their
 * enumerations from it; the library makes its counting words and the texts of the metrics from it.
 * It is included repeatedly, each time with other macros; programs have no use for it.
 *
 *   ..._COUNTER(id, Enumerator, name, "What it counts.")     its macro says who counts it
 *   ..._REFUSAL(id, Reason, reason, breach, "title", "...")  the counter is RefusalReason
 *
 * To add a counter, add a line to its section, with the next id of the whole table (a static_assert
 * fails otherwise), and count: ++counters.name. Ids never change, since programs are compiled with
 * them. The order of lines may change, except for RRDK_REFUSAL, where new lines go to the end. A
 * name that ends in _bytes has that unit.
 */

/*
 * Macros that an includer has not defined expand to RRDK_COUNTER and RRDK_GAUGE, and these to
 * nothing: so an includer takes either one section, or all.
 */
#ifndef RRDK_COUNTER
#define RRDK_COUNTER(id, enumerator, name, owners, text)
#endif
#ifndef RRDK_GAUGE
#define RRDK_GAUGE(id, enumerator, name, owners, text)
#endif
#ifndef RRDK_CONNECTION_COUNTER
#define RRDK_CONNECTION_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kServer | kClient, text)
#endif
#ifndef RRDK_DISPATCHER_COUNTER
#define RRDK_DISPATCHER_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kServer | kClient, text)
#endif
#ifndef RRDK_MISTAKE
#define RRDK_MISTAKE(id, enumerator, name, text) \
  RRDK_COUNTER(id, Mistake##enumerator, mistake_##name, kServer | kClient, text)
#endif
#ifndef RRDK_CALLER_COUNTER
#define RRDK_CALLER_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kServer | kClient, text)
#endif
#ifndef RRDK_SERVER_COUNTER
#define RRDK_SERVER_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kServer, text)
#endif
#ifndef RRDK_REPLAY_COUNTER
#define RRDK_REPLAY_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kServer, text)
#endif
#ifndef RRDK_CLIENT_COUNTER
#define RRDK_CLIENT_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kClient, text)
#endif
#ifndef RRDK_CORE_COUNTER
#define RRDK_CORE_COUNTER(id, enumerator, name, text) \
  RRDK_COUNTER(id, enumerator, name, kCore, text)
#endif
#ifndef RRDK_REFUSAL
#define RRDK_REFUSAL(id, enumerator, name, breach, title, text) \
  RRDK_COUNTER(id, Refusal##enumerator, refusal_##name, kServer | kClient, text)
#endif
#ifndef RRDK_HEADER_REFUSAL
#define RRDK_HEADER_REFUSAL(id, enumerator, name, breach, title, text) \
  RRDK_REFUSAL(id, enumerator, name, breach, title, text)
#endif

// Counted by the engine for each connection, in the order of its words: the first ones are written
// for each call. Sums of all connections, past ones included, at a server and at a client alike.
RRDK_CONNECTION_COUNTER(0, CallsReceived, calls_received,
                        "Calls received from the peer and accepted.")
RRDK_CONNECTION_COUNTER(1, RepliesSent, replies_sent, "Replies sent, rejections included.")
RRDK_CONNECTION_COUNTER(2, CallsSent, calls_sent, "Calls sent, those sent again included.")
RRDK_CONNECTION_COUNTER(3, RepliesReceived, replies_received, "Replies received.")
RRDK_CONNECTION_COUNTER(4, CallsResent, calls_resent,
                        "Calls sent again under their XIDs, on any connection.")
RRDK_CONNECTION_COUNTER(5, MessagesReceived, messages_received,
                        "Complete messages received, accepted or not.")
RRDK_CONNECTION_COUNTER(6, RdmaReadBytes, rdma_read_bytes,
                        "Bytes fetched by RDMA Reads of this end.")
RRDK_CONNECTION_COUNTER(7, RdmaWrittenBytes, rdma_written_bytes,
                        "Bytes placed by RDMA Writes of this end.")
RRDK_CONNECTION_COUNTER(8, LongCalls, long_calls,
                        "Calls that were moved in a Position-Zero Read chunk.")
RRDK_CONNECTION_COUNTER(9, LongReplies, long_replies, "Replies that were moved in a Reply chunk.")
RRDK_CONNECTION_COUNTER(10, TransportErrorsSent, transport_errors_sent, "RDMA_ERROR messages sent.")
RRDK_CONNECTION_COUNTER(11, TransportErrorsReceived, transport_errors_received,
                        "RDMA_ERROR messages received in answer to calls.")
RRDK_CONNECTION_COUNTER(12, CallsGivenUp, calls_given_up,
                        "Calls that were cancelled or timed out after they had been sent.")
RRDK_CONNECTION_COUNTER(13, CallsAnsweredLate, calls_answered_late,
                        "Calls that were given up, and answered later.")
RRDK_CONNECTION_COUNTER(14, CallsLent, calls_lent,
                        "Calls that were given up, and left their memory to the peer for a time.")
RRDK_CONNECTION_COUNTER(15, LendsExpired, lends_expired,
                        "Calls whose memory was left to the peer, and not answered in that time.")
RRDK_CONNECTION_COUNTER(
    16, CallsFailedAgain, calls_failed_again,
    "Calls answered ERR_CHUNK because their chunks had cost an earlier connection.")
RRDK_CONNECTION_COUNTER(17, CallsNotRun, calls_not_run,
                        "Messages that came while their connection drained, or was about to end.")
RRDK_CONNECTION_COUNTER(18, WaitsCredit, waits_credit,
                        "Calls that waited for a credit of the peer.")
RRDK_CONNECTION_COUNTER(19, WaitsSendQueue, waits_send_queue,
                        "Times that messages waited for a place in the send queue.")
RRDK_CONNECTION_COUNTER(20, WaitsReadDepth, waits_read_depth,
                        "Times that calls waited for RDMA Reads of others to complete.")
RRDK_CONNECTION_COUNTER(21, WaitsBuffer, waits_buffer,
                        "Times that calls or replies waited for buffers.")
RRDK_CONNECTION_COUNTER(22, WaitsKey, waits_key, "Calls that waited for a memory key.")
RRDK_CONNECTION_COUNTER(23, WaitsTurn, waits_turn,
                        "Calls that waited for other connections' turns.")
RRDK_CONNECTION_COUNTER(24, WaitsChunkBytes, waits_chunk_bytes,
                        "Times that calls waited for max_chunk_bytes.")
RRDK_CONNECTION_COUNTER(25, WaitsShare, waits_share,
                        "Times that calls waited because their client held its share of buffers.")
RRDK_CONNECTION_COUNTER(26, ReceiveSizeChanges, receive_size_changes,
                        "Times that this end announced another size of its Receives.")
RRDK_CONNECTION_COUNTER(27, PeerReceiveSizeChanges, peer_receive_size_changes,
                        "Times that the peer announced another size of its Receives.")
RRDK_CONNECTION_COUNTER(28, SizeRequestsEnded, size_requests_ended,
                        "Requests for larger Receives of the peer that have ended.")
RRDK_CONNECTION_COUNTER(29, SizeRequestsRefused, size_requests_refused,
                        "Requests for larger Receives that the peer refused or did not answer.")
RRDK_CONNECTION_COUNTER(30, GrowthRefused, growth_refused,
                        "Requests of peers for larger Receives refused for lack of buffers.")
RRDK_CONNECTION_COUNTER(31, OptionsSent, options_sent, "Messages of registered types sent.")
RRDK_CONNECTION_COUNTER(32, OptionsServed, options_served, "Messages of registered types answered.")
RRDK_CONNECTION_COUNTER(
    33, Rfc5666Configured, rfc5666_configured,
    "Connections on which CONF_RDMA took effect (RFC 5666's compatibility mode).")
RRDK_CONNECTION_COUNTER(34, Rfc5666PaddedCalls, rfc5666_padded_calls,
                        "Calls sent or received as RDMA_MSGP.")
RRDK_CONNECTION_COUNTER(35, Rfc5666ReadReplies, rfc5666_read_replies,
                        "Replies read from the server, or by clients.")
RRDK_CONNECTION_COUNTER(36, Rfc5666Dones, rfc5666_dones,
                        "RDMA_DONE messages sent, or received for a reply.")

// Established connections that have ended, by cause (Ending in rrdk/connection.h).
RRDK_CONNECTION_COUNTER(158, EndedByPeer, ended_by_peer,
                        "Connections that the peer ended: it closed, died, or broke the protocol.")
RRDK_CONNECTION_COUNTER(
    159, EndedByProgram, ended_by_program,
    "Connections that this program ended: it closed or drained, or dropped a call.")
RRDK_CONNECTION_COUNTER(160, EndedByLimit, ended_by_limit,
                        "Connections that a time-out, a quota or a lack at this end ended.")
RRDK_CONNECTION_COUNTER(161, EndedByNetwork, ended_by_network,
                        "Connections that the network, the device or the operating system ended.")

// Counted by the dispatcher for each connection, and summed likewise. Mistakes are those of our own
// handlers: calls that they could not, or did not, answer, so that the peer got SYSTEM_ERR. The
// first of each kind and procedure is logged.
RRDK_DISPATCHER_COUNTER(37, CallsRejected, calls_rejected,
                        "Calls that a handler, or the library for it, ended without success.")
RRDK_MISTAKE(38, InvalidMemory, invalid_memory,
             "put_item() of memory that is not registered, or too short.")
RRDK_MISTAKE(39, UnusableMemory, unusable_memory,
             "put_item() of memory without a descriptor, over shm.")
RRDK_MISTAKE(40, TooLarge, too_large, "Results longer than max_reply, or of too many segments.")
RRDK_MISTAKE(41, NoBuffers, no_buffers,
             "No buffer was left for the results, or for result_buffer().")
RRDK_MISTAKE(42, Failed, failed, "Encoder::fail() was called.")
RRDK_MISTAKE(43, Unanswered, unanswered,
             "The ServerCall was destroyed, or assigned to, without an answer.")

// Calls that the program makes: by a ClientConnection, or by a Server to its clients
// (BackwardClient).
RRDK_CALLER_COUNTER(44, CallsMade, calls_made, "Calls made.")
RRDK_CALLER_COUNTER(45, CallsOk, calls_ok, "Calls that succeeded.")
RRDK_CALLER_COUNTER(46, CallsFailed, calls_failed, "Calls that ended in an error.")
RRDK_CALLER_COUNTER(47, CallsTimedOut, calls_timed_out,
                    "Calls that ended by their deadline; among those that failed.")
RRDK_COUNTER(162, CallsFull, calls_full, kServer | kClient,
             "Calls that submit() refused with kFull: max_queued was reached.")

// At either end.
RRDK_COUNTER(48, ProtocolBreaches, protocol_breaches, kServer | kClient,
             "Breaches of the protocol by the peer: refusals that are its fault.")
RRDK_GAUGE(49, Connections, connections, kServer | kClient | kCore, "Connections now.")

// A Server's connections: accepted, refused and ended.
RRDK_SERVER_COUNTER(50, ConnectionsAccepted, connections_accepted, "Connections accepted.")
RRDK_SERVER_COUNTER(51, ConnectionsRefused, connections_refused,
                    "Connections refused: too many, no buffers or descriptors, or by on_open; the "
                    "log has the reason.")
RRDK_SERVER_COUNTER(52, ConnectionsRefusedPerClient, connections_refused_per_client,
                    "Connections refused because their client had too many; among those refused.")
RRDK_SERVER_COUNTER(53, ConnectionsEnded, connections_ended,
                    "Connections ended by peers, by their death or a breach, or by the network.")
RRDK_SERVER_COUNTER(54, ClosedIdle, closed_idle,
                    "Connections closed for idleness (idle_timeout_ms).")
RRDK_SERVER_COUNTER(55, ClosedSilent, closed_silent,
                    "Connections closed before their first call (first_call_timeout_ms).")
RRDK_SERVER_COUNTER(56, ClosedForRoom, closed_for_room,
                    "Connections without a call closed to make room for another.")
RRDK_SERVER_COUNTER(57, ClosedStalled, closed_stalled,
                    "Connections closed because they took no replies (send_timeout_ms).")

// A Server's duplicate request cache (ReplayOptions).
RRDK_REPLAY_COUNTER(58, ReplayAnswered, replay_answered,
                    "Repeated calls answered with a kept reply.")
RRDK_REPLAY_COUNTER(59, ReplayWaits, replay_waits,
                    "Repeated calls that waited for the first one to end.")
RRDK_REPLAY_COUNTER(60, ReplayKept, replay_kept, "Replies kept.")
RRDK_REPLAY_COUNTER(61, ReplayForgotten, replay_forgotten,
                    "Calls forgotten: by age, or because their clients had the replies.")
RRDK_REPLAY_COUNTER(62, ReplayNotKept, replay_not_kept,
                    "Calls that ran and whose replies were not kept: too large, or no room.")
RRDK_REPLAY_COUNTER(63, ReplayLost, replay_lost,
                    "Repeated calls answered SYSTEM_ERR because the reply had not been kept.")
RRDK_REPLAY_COUNTER(64, ReplayUnprotected, replay_unprotected,
                    "Calls run without the cache's protection (entries 0, or run_unprotected).")
RRDK_REPLAY_COUNTER(
    65, ReplayRefused, replay_refused,
    "Calls answered SYSTEM_ERR and not run because the cache could not protect them.")
RRDK_REPLAY_COUNTER(66, ReplayMadeWay, replay_made_way,
                    "Clients forgotten before window_ms for lack of places.")
RRDK_GAUGE(67, ReplayClients, replay_clients, kServer,
           "Clients that the cache remembers: places taken.")
RRDK_GAUGE(68, ReplayPlaces, replay_places, kServer, "Clients that the cache can remember.")

// A ClientConnection, over all its reconnections.
RRDK_GAUGE(69, CallsInFlight, calls_in_flight, kClient,
           "Calls that have not ended, those that wait for a connection included.")
RRDK_GAUGE(70, Credits, credits, kClient,
           "Credits of the server's last grant; 0 while there is no connection.")
RRDK_CLIENT_COUNTER(71, Reconnections, reconnections, "Connections established after the first.")
RRDK_CLIENT_COUNTER(72, AttemptsFailed, attempts_failed, "Attempts at a connection that failed.")
RRDK_CLIENT_COUNTER(73, CallsCarriedOver, calls_carried_over,
                    "Calls that had waited for a connection when one was there.")
RRDK_CLIENT_COUNTER(74, Keepalives, keepalives, "NULL calls made to ask a silent server.")
RRDK_CLIENT_COUNTER(75, KeepaliveEnds, keepalive_ends,
                    "Connections ended because a silent server did not answer.")
RRDK_CLIENT_COUNTER(
    76, VersionFallbacks, version_fallbacks,
    "Fallbacks to version 1 by RpcRdmaVersion::kAuto: on a connection, or for the next one.")

// A poll core (Runtime::stats()).
RRDK_CORE_COUNTER(77, Passes, passes, "Passes of the core's loop.")
RRDK_CORE_COUNTER(78, BusyPasses, busy_passes, "Passes that found work.")
RRDK_CORE_COUNTER(79, Completions, completions, "Completions of the fabric handled.")
RRDK_CORE_COUNTER(80, Sleeps, sleeps,
                  "Times that the core slept, or that arm_wake() let the application sleep.")

// A class of buffers (PoolAudit).
RRDK_GAUGE(81, Buffers, buffers, kPool, "Buffers that the size class has.")
RRDK_GAUGE(82, BuffersFree, buffers_free, kPool, "Buffers that are not in use.")
RRDK_GAUGE(83, BuffersMore, buffers_more, kPool, "Buffers that the budget could still give.")
RRDK_GAUGE(84, BuffersLeast, buffers_least, kPool, "Low-water mark of free and more.")
RRDK_COUNTER(85, BuffersMissing, buffers_missing, kPool,
             "Requests for a buffer that failed because none was left.")

// A procedure (ProcedureStats).
RRDK_COUNTER(86, Calls, calls, kProcedure, "Calls that have ended.")
RRDK_COUNTER(87, Errors, errors, kProcedure, "Calls that ended without success.")
RRDK_GAUGE(88, CallsInProgress, calls_in_progress, kProcedure, "Calls that have not ended.")
RRDK_COUNTER(89, ReceivedBytes, received_bytes, kProcedure, "Bytes of calls.")
RRDK_COUNTER(90, SentBytes, sent_bytes, kProcedure, "Bytes of replies.")

// A message's transport header (RFC 8166 section 4), at either end.
RRDK_HEADER_REFUSAL(91, TooShort, too_short, kBreach, "message too short",
                    "Ignored: too few bytes for its type.")
RRDK_HEADER_REFUSAL(92, BadVersion, bad_version, kNoBreach, "unknown transport version",
                    "Refused: a version of RPC-over-RDMA that this end does not support.")
RRDK_HEADER_REFUSAL(93, BadType, bad_type, kBreach, "unknown message type",
                    "Refused: no such message type.")
RRDK_HEADER_REFUSAL(94, Truncated, truncated, kBreach, "truncated header",
                    "Refused: a list runs past the end of the message.")
RRDK_HEADER_REFUSAL(95, BadDiscriminator, bad_discriminator, kBreach, "bad list discriminator",
                    "Refused: a list whose word for another entry is neither 0 nor 1.")
RRDK_HEADER_REFUSAL(96, BadPosition, bad_position, kBreach, "unaligned Position",
                    "Refused: a Position that is not a multiple of four.")
RRDK_HEADER_REFUSAL(97, PositionZeroInMsg, position_zero_in_msg, kBreach,
                    "Position-Zero chunk beside an inline message",
                    "Refused: RDMA_MSG with a chunk at Position zero.")
RRDK_HEADER_REFUSAL(98, NoMessage, no_message, kBreach, "no message",
                    "Refused: RDMA_NOMSG without a chunk that holds the message.")
RRDK_HEADER_REFUSAL(99, Overlap, overlap, kBreach, "overlapping Read chunks",
                    "Refused: Read chunks that overlap.")
RRDK_HEADER_REFUSAL(100, BeyondMessage, beyond_message, kBreach, "Position beyond the message",
                    "Refused: a Position beyond the end of the message.")
RRDK_HEADER_REFUSAL(101, BadDirection, bad_direction, kBreach, "bad direction",
                    "Refused if a call, else ignored: another direction than the RPC message has.")
RRDK_HEADER_REFUSAL(102, TooManyReadChunks, too_many_read_chunks, kNoBreach, "too many Read chunks",
                    "Refused: more Read chunks than the limit.")
RRDK_HEADER_REFUSAL(103, TooManyWriteChunks, too_many_write_chunks, kNoBreach,
                    "too many Write chunks", "Refused: more Write chunks than the limit.")
RRDK_HEADER_REFUSAL(104, TooManySegments, too_many_segments, kNoBreach, "too many segments",
                    "Refused: more segments than the limit.")
RRDK_HEADER_REFUSAL(105, TooManyBytes, too_many_bytes, kNoBreach, "too many bytes",
                    "Refused: chunks that are larger than the limit.")
RRDK_REFUSAL(106, TrailingBytes, trailing_bytes, kNoBreach, "trailing bytes",
             "Ignored: bytes after a header that no message follows.")
RRDK_REFUSAL(107, Done, done, kNoBreach, "RDMA_DONE", "Ignored: RDMA_DONE.")
RRDK_REFUSAL(108, UnknownOption, unknown_option, kNoBreach, "unknown RDMA_OPTIONAL",
             "Refused by a server, ignored by a client: an RDMA_OPTIONAL of unknown type.")

// Messages of a registered type (rrdk/extensions.h).
RRDK_REFUSAL(109, BadOption, bad_option, kBreach, "malformed RDMA_OPTIONAL",
             "Refused: an RDMA_OPTIONAL with data or an RPC message that its type does not have.")
RRDK_REFUSAL(110, LongOption, long_option, kNoBreach, "RDMA_OPTIONAL too long",
             "Refused: an RDMA_OPTIONAL longer than the limit.")
RRDK_REFUSAL(111, OptionDirection, option_direction, kNoBreach,
             "RDMA_OPTIONAL in the wrong direction",
             "A request to a client: ignored. A request of a type that is an answer: refused.")
RRDK_REFUSAL(112, UnsolicitedOption, unsolicited_option, kBreach,
             "RDMA_OPTIONAL that answers nothing",
             "Ignored: an RDMA_OPTIONAL that answers no request.")
RRDK_REFUSAL(113, OptionNotServed, option_not_served, kNoBreach,
             "RDMA_OPTIONAL that could not be served",
             "Refused: the type's function set no answer, or there was no buffer.")
RRDK_REFUSAL(114, LongProperty, long_property, kNoBreach, "transport property too long",
             "Ignored: a value of a registered property that is longer than the limit.")
RRDK_REFUSAL(115, Properties, properties, kNoBreach, "transport properties",
             "Refused: transport properties, which are switched off.")
RRDK_REFUSAL(116, BadProperties, bad_properties, kBreach, "bad transport properties",
             "Refused: transport properties that cannot be read.")
RRDK_REFUSAL(117, ManyRequests, many_requests, kNoBreach,
             "request for properties before the last one was answered",
             "Ignored: a request to change properties before the last one was answered.")
RRDK_REFUSAL(118, FixedProperty, fixed_property, kBreach, "change of a fixed property",
             "Ignored: a change of a property that was announced as fixed.")
RRDK_REFUSAL(119, SmallReceives, small_receives, kBreach, "Receives too small for the version",
             "Kept to: a Receive Buffer Size below version 2's 4096 bytes.")
RRDK_REFUSAL(120, UnknownHandle, unknown_handle, kBreach, "invalidation of an unknown handle",
             "Ignored: a request to invalidate a handle that does not belong to the call.")

// Calls, at a server.
RRDK_REFUSAL(121, Error, error, kNoBreach, "RDMA_ERROR to a server",
             "Ignored: RDMA_ERROR to a server; it only answers calls.")
RRDK_REFUSAL(122, ReplyToServer, reply_to_server, kBreach, "reply to a server",
             "Ignored: an RPC reply to a server.")
RRDK_REFUSAL(123, CreditOverrun, credit_overrun, kBreach, "call beyond the credits",
             "Served up to a limit, then ended: a call beyond the credits granted.")
RRDK_REFUSAL(124, Xid, xid, kBreach, "XIDs differ",
             "Refused: a message with another XID than its header.")
RRDK_REFUSAL(125, NoReplyRoom, no_reply_room, kBreach, "no room for the reply",
             "Refused: a call that ran and left its reply no room inline or in chunks.")
RRDK_REFUSAL(126, NoBuffers, no_buffers, kNoBreach, "no buffers",
             "Refused: a call waited too long for buffers.")
RRDK_REFUSAL(127, BindingChunks, binding_chunks, kBreach, "chunks that the binding does not allow",
             "Refused: chunks, or a long message, that the binding does not allow.")
RRDK_REFUSAL(128, NotACall, not_a_call, kBreach, "no RPC call",
             "Ended: an RPC message that is neither call nor reply, or has no type.")
RRDK_REFUSAL(129, RpcVersion, rpc_version, kNoBreach, "unknown RPC version",
             "Refused with RPC_MISMATCH: another version of ONC RPC.")
RRDK_REFUSAL(130, GarbageCall, garbage_call, kNoBreach, "truncated RPC header",
             "Refused with GARBAGE_ARGS: an RPC header that ends too early.")
RRDK_REFUSAL(131, BadCredential, bad_credential, kNoBreach, "credential too long",
             "Refused with AUTH_BADCRED: a credential longer than RFC 5531 allows.")
RRDK_REFUSAL(132, BadVerifier, bad_verifier, kNoBreach, "verifier too long",
             "Refused with AUTH_BADVERF: a verifier longer than RFC 5531 allows.")
RRDK_REFUSAL(133, NoProgram, no_program, kNoBreach, "unknown program",
             "Refused with PROG_UNAVAIL: a program that is not served.")
RRDK_REFUSAL(134, NoVersion, no_version, kNoBreach, "unknown program version",
             "Refused with PROG_MISMATCH: a version of the program that is not served.")
RRDK_REFUSAL(135, NoProcedure, no_procedure, kNoBreach, "unknown procedure",
             "Refused with PROC_UNAVAIL: a procedure that the program does not have.")
RRDK_REFUSAL(136, ReadsForbidden, reads_forbidden, kBreach,
             "Read chunks of a client that serves no RDMA Reads",
             "Refused: Read chunks of a client that said it serves no RDMA Reads.")
RRDK_REFUSAL(137, NoDone, no_done, kNoBreach, "no RDMA_DONE",
             "Ended: no RDMA_DONE came for a reply that the client was to read.")
RRDK_REFUSAL(138, HeldBuffers, held_buffers, kNoBreach, "buffers held without sending data",
             "Ended: no data of its calls came while others waited for their buffers.")

// Replies, at a client.
RRDK_REFUSAL(139, UnknownXid, unknown_xid, kBreach, "unknown XID",
             "Ignored: a message that answers no call in flight.")
RRDK_REFUSAL(140, LateReply, late_reply, kNoBreach, "late reply",
             "Ignored: an answer to a call, or another request, that was given up.")
RRDK_REFUSAL(141, BackwardCall, backward_call, kNoBreach, "call to a client",
             "A call to a client without services: ignored, in draft-04 refused.")
RRDK_REFUSAL(142, BackwardChunks, backward_chunks, kNoBreach, "chunks in a call to a client",
             "Refused: a call with chunks, to a client that takes none.")
RRDK_REFUSAL(143, ForeignKey, foreign_key, kBreach, "invalidation of a foreign key",
             "Ended: invalidated a key that does not belong to the call that it answers.")
RRDK_REFUSAL(144, ReadListInReply, read_list_in_reply, kBreach, "Read list in a reply",
             "Refused: a reply with a Read list (RFC 8166 section 4.3.1).")
RRDK_REFUSAL(145, NotTheReply, not_the_reply, kBreach, "message that is not the reply",
             "Refused: the message inside has another XID, or is not a reply.")
RRDK_REFUSAL(146, MsgWithReplyChunk, msg_with_reply_chunk, kBreach,
             "RDMA_MSG with a used Reply chunk",
             "Refused: RDMA_MSG that says it used the Reply chunk.")
RRDK_REFUSAL(147, WriteListCount, write_list_count, kBreach, "wrong number of Write chunks",
             "Refused: a number of Write chunks that differs from the offer.")
RRDK_REFUSAL(148, AlteredSegment, altered_segment, kBreach, "altered segment",
             "Refused: segments that differ from the offered ones, or are longer.")
RRDK_REFUSAL(149, ReplyChunkNotGiven, reply_chunk_not_given, kBreach,
             "RDMA_NOMSG without an offered Reply chunk",
             "Refused: RDMA_NOMSG to a call that offered no Reply chunk.")
RRDK_REFUSAL(150, BadReplyHeader, bad_reply_header, kNoBreach, "bad RPC reply header",
             "Refused: an RPC reply header that cannot be decoded.")
RRDK_REFUSAL(151, UnknownError, unknown_error, kBreach, "unknown error code",
             "Refused: RDMA_ERROR with a code that the version does not define.")
RRDK_REFUSAL(152, NoCommonVersion, no_common_version, kNoBreach, "no common version",
             "Ended: ERR_VERS with a range without the versions that this end supports.")
RRDK_REFUSAL(153, NoAnswers, no_answers, kNoBreach, "no answers",
             "Ended: every credit was held by a call that was never answered.")

// Work that failed because of the peer; each ends the connection.
RRDK_REFUSAL(154, MessageTooLong, message_too_long, kBreach, "message longer than its Receive",
             "Ended: a message longer than its Receive.")
RRDK_REFUSAL(155, AccessRefused, access_refused, kNoBreach, "remote access refused",
             "Ended: an RDMA Read or Write of this end met a key that does not allow it.")
RRDK_REFUSAL(156, NotReceived, not_received, kNoBreach, "message not received",
             "Ended: the peer did not take a Send of this end.")
RRDK_REFUSAL(157, WorkFailed, work_failed, kNoBreach, "work request failed",
             "Ended: work of this end failed in another way.")

// RPCSEC_GSS (RFC 2203 section 5.3.3), and what services take.
RRDK_REFUSAL(163, Flavor, flavor, kNoBreach, "flavour that the service does not take",
             "Refused with AUTH_TOOWEAK: a flavour or protection that the service does not take.")
RRDK_REFUSAL(164, GssCredential, gss_credential, kNoBreach, "malformed RPCSEC_GSS credential",
             "Refused: an RPCSEC_GSS credential that cannot be decoded, or does not fit its call.")
RRDK_REFUSAL(165, GssContext, gss_context, kNoBreach, "unknown RPCSEC_GSS context",
             "Refused with RPCSEC_GSS_CREDPROBLEM: a context that does not exist, or has ended.")
RRDK_REFUSAL(166, GssVerifier, gss_verifier, kNoBreach, "wrong RPCSEC_GSS checksum",
             "Refused with RPCSEC_GSS_CREDPROBLEM: a call whose header has a wrong checksum.")
RRDK_REFUSAL(167, GssSequence, gss_sequence, kNoBreach, "RPCSEC_GSS sequence number too high",
             "Refused with RPCSEC_GSS_CTXPROBLEM: a sequence number above MAXSEQ.")
RRDK_REFUSAL(168, GssReplay, gss_replay, kNoBreach, "RPCSEC_GSS call seen before",
             "Not answered: a call with a sequence number that was used, or is too old.")
RRDK_REFUSAL(169, GssBody, gss_body, kNoBreach, "wrong RPCSEC_GSS body",
             "Refused with GARBAGE_ARGS: arguments that do not verify or decrypt, or a bad token.")
RRDK_REFUSAL(170, GssBusy, gss_busy, kNoBreach, "too many RPCSEC_GSS tokens",
             "Refused with SYSTEM_ERR: the token of a new context, while too many others wait.")
RRDK_REFUSAL(171, GssReply, gss_reply, kNoBreach, "wrong RPCSEC_GSS reply",
             "Refused by the caller: a reply with a wrong verifier, or wrongly protected results.")

RRDK_CLIENT_COUNTER(172, CallsForgotten, calls_forgotten,
                    "Calls sent again, since the server had forgotten their security context.")

#undef RRDK_COUNTER
#undef RRDK_GAUGE
#undef RRDK_CONNECTION_COUNTER
#undef RRDK_DISPATCHER_COUNTER
#undef RRDK_MISTAKE
#undef RRDK_CALLER_COUNTER
#undef RRDK_SERVER_COUNTER
#undef RRDK_REPLAY_COUNTER
#undef RRDK_CLIENT_COUNTER
#undef RRDK_CORE_COUNTER
#undef RRDK_REFUSAL
#undef RRDK_HEADER_REFUSAL

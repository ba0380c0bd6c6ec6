"""Follows one connection: what becomes of each call, and which rules of dump_rules.py are broken.

A Conversation takes the events of one connection (dump_frames.py) and emits a record, a dict, for each call
when it is over, for each transport property message, and for each breach that belongs to no call. If a rule
depends on something that the capture does not show (the beginning of a connection, packets that were dropped,
RDMA operations of the other end), the rule counts as kept.
"""
from collections import Counter

from lib import dump_rpc
from lib.dump_capture import Closed, Damaged, Lost, Opened, Read, Response, Send, Write
from lib.dump_rpc import (ACCEPTED, CALL, CONF_RDMA, CONFIGURATION, DONE, DRAFT_00, DRAFT_04, ERR_VERS, MOUNT,
                          MSG, MSGP, NFS, NFSACL, NOMSG, PERF, PERF_CALLBACK, REPLY, VERSION_1)
from lib.dump_rules import INLINE, NONE, RULES, Agreements, Call, Calls, End, Sent, total

MOST_WAITING, HEAD = 65536, 512  # calls, bytes of a long message

# The rules of version 1, draft-00, draft-04.
PAYLOAD = {VERSION_1: "V1-HDR-12", DRAFT_00: "V2D0-HDR-06", DRAFT_04: "V2D4-HDR-06"}
REPLY_VERSION = {VERSION_1: "V1-HDR-03", DRAFT_00: "V2D0-NEG-09", DRAFT_04: "V2D4-NEG-07", "": "V1-ERR-03"}
BAD_HEADER = {VERSION_1: "V1-ERR-07", DRAFT_00: "V2D0-ERR-02", DRAFT_04: "V2D4-ERR-07"}
BAD_PROCEDURE = {VERSION_1: "V1-ERR-10", DRAFT_00: "V2D0-ERR-02", DRAFT_04: "V2D4-ERR-06"}
FIRST_ALONE = {VERSION_1: "V1-CREDIT-11", DRAFT_00: "V2D0-NEG-02", DRAFT_04: "V2D4-NEG-02"}
INVAL_PROC = 3
# The rules for the number of a chunk's segments, their contents, segments that received nothing, and pad.
WRITE_CHUNK, REPLY_CHUNK = ("V1-WL-06", "V1-WL-03", "V1-WL-05", "V1-PAD-10"), ("V1-RC-12",) * 4

# Bindings (RFC 8267; test/tirpc/perf.x). ELIGIBLE: the procedures with eligible arguments. COUNTED: the programs whose
# procedures have one such argument, an opaque<> or string<>, so that its count is the word before the chunk.
# RESULTS: where the count of an eligible result is.
ELIGIBLE = {(NFS, 2): (8, 13), (NFS, 3): (7, 10), (NFS, 4): (1,), (PERF, 1): (3, 4), (PERF_CALLBACK, 1): (),
            **dict.fromkeys([(MOUNT, 1), (MOUNT, 2), (MOUNT, 3), (NFSACL, 2), (NFSACL, 3)], ())}
COUNTED = ((NFS, 2), (NFS, 3), (PERF, 1))
NFS3_ATTRIBUTES = 84
# Whether attributes come before the count, and how many other bytes.
RESULTS = {(NFS, 3, 5): (True, 0), (NFS, 3, 6): (True, 8), (PERF, 1, 2): (False, 4)}


def padded(length):
    return (length + 3) & ~3


def holds(segments, event):
    """Returns the segment that contains the event's bytes."""
    return next((s for s in segments if s[0] == event.handle and s[2] <= event.offset and
                 event.offset + event.length <= s[2] + s[1]), None)


class Conversation(Agreements):
    """One connection. `client` is a side of its link, once it is known."""

    def __init__(self, link, draft, emit, lost=False):
        self.link, self.draft, self.emit, self.lost = link, draft, emit, lost
        self.client = link.client
        self.calls, self.ends = (Calls(link.whole), Calls(link.whole)), (End(), End())
        self.version = None  # of forward calls
        self.spoke_two = [False, False]
        self.old = False  # RFC 5666 with its configuration protocol
        self.known = self.told_private = False
        self.foreign, self.versions = 0, set()
        self.cut = False  # some header is incomplete in the capture
        self.misplaced_to = None  # where the last misplaced operation ended
        self.handlers = {
            Opened: self.learn_private, Send: self.take_send, Write: self.take_write, Read: self.take_read,
            Response: self.take_response, Lost: self.take_loss, Damaged: self.take_damage,
            Closed: self.take_end}

    def finish(self, call, result, sent=None):
        record = call.record(self.link.number, result, sent)
        call.sent.payload = None  # calls are remembered without their bytes
        self.emit(record)

    # ---- what happens

    def take(self, event):
        self.handlers[type(event)](event)

    def stray(self, breaches):
        for breach in breaches:
            self.emit({"type": "breach", "connection": self.link.number, **breach})

    def fault(self, event, rule, text):
        assert rule in RULES, rule
        self.stray([{"id": rule, "text": text, "frame": event.frame}])

    def take_loss(self, _):
        self.lost = True
        for calls in self.calls:
            calls.doubt()

    def take_damage(self, event):
        self.fault(event, "SEC-14", "the CRC of an MPA frame is wrong")

    def take_end(self, _=None):
        for calls in self.calls:
            for xid in list(calls.waiting):
                self.finish(calls.take(xid), "no reply")
            calls.answered.clear()

    def doubtful(self):
        return self.lost or self.link.one_sided or not self.link.whole

    # ---- Sends

    def take_send(self, event):
        if event.length == 0:  # RFC 6581 section 9: a client may say so that it is ready
            return
        header = dump_rpc.parse(event.data, event.length, self.draft)
        if not self.known and not self.plausible(header):
            self.foreign += 1
            return
        self.known = True
        if header is None:
            if event.length < dump_rpc.FIXED:
                self.fault(event, "V1-HDR-01", f"a message of {event.length} bytes")
            else:
                self.take_loss(event)
            return
        self.cut = self.cut or not header.seen
        sent = Sent(event, header)
        self.check_payload(sent)
        self.versions.add(header.version)
        if header.dialect == DRAFT_04 and header.kind in dump_rpc.PROPERTIES:
            self.take_property(sent)
        elif header.dialect == VERSION_1 and header.kind == DONE:
            sent.need(self.old, "V1-DONE-02", "RDMA_DONE outside of RFC 5666's compatibility mode")
            self.stray(sent.breaches)
        else:
            is_call = self.is_call(sent)
            if self.client is None:
                self.client = sent.side if is_call else 1 - sent.side
            self.check_size(sent)
            (self.take_call if is_call else self.take_reply)(sent)
        if header.version == 2 and not (header.is_error() and header.error == ERR_VERS):
            self.spoke_two[sent.side] = True

    def plausible(self, header):
        return header is not None and bool(header.dialect) and header.kind < len(dump_rpc.KIND_NAMES)

    # An end that sends this private data speaks RPC-over-RDMA, whatever its first message is.
    def learn_private(self, event):
        if self.told_private or None in self.link.private:
            return
        self.told_private = True
        for side, octets in enumerate(self.link.private):
            found = dump_rpc.private_data(octets)
            self.known = self.known or found is not None
            if found is not None and found.flags & ~1:
                end = "client" if side == self.client else "server"
                self.fault(event, "PD-03", f"the private data of the {end} have flags {found.flags:#04x}")

    def check_payload(self, sent):
        header = sent.header
        if sent.payload is None:
            return
        rule = PAYLOAD[header.dialect]
        sent.need(sent.payload_size >= 8, rule, f"{sent.payload_size} bytes behind {header.kind_name()}")
        if sent.rpc is None:
            return
        if sent.rpc.kind not in (CALL, REPLY):
            sent.breach(rule, f"what follows {header.kind_name()} is neither a call nor a reply")
        elif header.direction is not None and header.direction != sent.rpc.kind:
            sent.breach("V2D4-DIR-01", f"direction {header.direction} with a message of type {sent.rpc.kind}")
        sent.need(sent.rpc.xid == header.xid, "V1-HDR-02",
                  f"rdma_xid {header.xid:#010x}, but the message has {sent.rpc.xid:#010x}")
        if header.kind == MSGP:
            sent.need(self.old, "V1-MSGP-02", "RDMA_MSGP outside of RFC 5666's compatibility mode")

    # In draft-04 the header has a field for the direction. In version 1 the RPC message shows it, if it is in
    # the capture (RFC 8167 section 4.1). Other messages are calls only if a client sends them, since long
    # backward calls are not used.
    def is_call(self, sent):
        header = sent.header
        if header.is_error():
            return False
        if header.direction in (0, 1):
            return header.direction == CALL
        if sent.rpc is not None and sent.rpc.kind in (CALL, REPLY):
            return sent.rpc.kind == CALL
        if self.client is None:
            return bool(header.reads) or not header.reply
        if sent.side == self.client and header.kind == NOMSG:
            return True
        if header.xid in self.calls[1 - sent.side].waiting:
            return False
        return sent.side == self.client or bool(header.reads)

    # ---- calls

    def take_call(self, sent):
        calls, header = self.calls[sent.side], sent.header
        call = Call(sent, sent.side == self.client)
        if header.xid in calls.waiting:
            sent.breach("V1-CREDIT-23", "the call is sent again before it is answered")
            self.finish(calls.take(header.xid), f"sent again in frame {sent.frame}")
        elif len(calls.waiting) >= MOST_WAITING:
            self.finish(calls.take(next(iter(calls.waiting))), "not followed any longer")
        calls.add(call)
        self.check_asked(sent, calls, call)
        if not call.forward:
            self.check_backward(sent)
        if sent.invalidates is not None:
            rule = {DRAFT_04: "V2D4-RINV-04", DRAFT_00: "V2D0-RINV-01"}.get(header.dialect, "PD-28")
            sent.breach(rule, f"a call invalidates handle {sent.invalidates:#x}")
        if call.readable and header.kind in (MSG, NOMSG):
            self.check_offer(sent)
            self.check_binding(sent)

    def check_asked(self, sent, calls, call):
        header = sent.header
        sent.need(header.credit, "V1-CREDIT-18", "it asks for no credit")
        if self.link.one_sided:
            return
        outstanding, limit = len(calls.waiting) - len(calls.unsure), calls.granted.most(sent.time)
        if outstanding <= limit:
            return
        if not call.forward:
            rule = "BIDIR-06"
        else:
            rule = "V1-CREDIT-08" if calls.replied else FIRST_ALONE.get(header.dialect, "V1-CREDIT-11")
        sent.breach(rule, f"{outstanding} calls wait, and {limit} may")

    # RFC 8167 section 4, draft-04 section 5.2.2.
    def check_backward(self, sent):
        header, forward = sent.header, self.calls[self.client]
        if header.dialect and self.version and not self.doubtful():
            sent.need(header.version == self.version, "BIDIR-12",
                      f"a backward call of version {header.version}, forward calls have {self.version}")
        if header.dialect == DRAFT_04 and not self.doubtful():
            support = self.ends[self.client].backward.most(sent.time)
            chunks = header.kind == NOMSG or header.segments()
            sent.need(support != NONE, "V2D4-PROP-28", "a backward call to a client that takes none")
            sent.need(support != INLINE or not chunks, "V2D4-PROP-28",
                      "a backward call with chunks to a client that takes inline calls")
        elif not self.doubtful():
            sent.need(forward.count, "BIDIR-13", "a backward call before any forward call")

    # RFC 8166 section 3.4 for the lists, section 3.4.5 for Positions.
    def check_offer(self, sent):
        header = sent.header
        positions = [entry[0] for entry in header.reads]
        sent.need(not any(p % 4 for p in positions), "V1-RL-05", f"at Position {positions[:8]}")
        sent.need(positions == sorted(positions), "EXP-05", f"Positions descend: {positions[:8]}")
        if header.kind == MSG:
            sent.need(0 not in positions, "V1-LONG-07", "RDMA_MSG with a chunk at Position zero")
        else:
            sent.need(0 in positions, "V1-LONG-09", "RDMA_NOMSG without a chunk at Position zero")
        self.check_positions(sent)
        if header.inv_handle:
            sent.need(header.inv_handle in {s[0] for s in header.segments()}, "V2D4-RINV-01",
                      f"rdma_inv_handle {header.inv_handle:#x} is no handle of this header")

    def check_positions(self, sent):
        lengths = Counter()
        for position, _, length, _ in sent.header.reads:
            lengths[position] += length
        present = sent.payload_size if sent.header.kind == MSG else lengths[0]
        end = moved = 0
        for position in sorted(lengths.keys() - {0}):
            if position > present + moved or position < end:
                what = "the chunk before ends at" if position < end else "the stream before it ends at"
                sent.breach("V1-RL-08", f"Position {position}, and {what} {max(end, present + moved)}")
                return
            end, moved = position + lengths[position], moved + padded(lengths[position])

    def check_binding(self, sent):
        header, rpc = sent.header, sent.rpc
        if rpc is None or rpc.kind != CALL or (rpc.program, rpc.version) not in ELIGIBLE:
            return
        positions = {entry[0] for entry in header.reads} - {0}
        name = dump_rpc.procedure_name(rpc)
        sent.need(not positions or rpc.procedure in ELIGIBLE[rpc.program, rpc.version], "V1-CHUNK-02",
                  f"{name} has no argument that may have a chunk")
        # RFC 5666 section 3.4: the count stays in the stream, before the chunk.
        if len(positions) == 1 and (rpc.program, rpc.version) in COUNTED and not sent.breaches:
            position, length = positions.pop(), total(entry[1:] for entry in header.reads if entry[0])
            word = sent.payload[position - 4:position]
            count = int.from_bytes(word, "big")
            sent.need(len(word) < 4 or length in (count, padded(count)), "V1-CHUNK-04",
                      f"the count is {count}, and the chunk has {length} bytes")

    # ---- replies

    def take_reply(self, sent):
        calls, header = self.calls[1 - sent.side], sent.header
        call = calls.take(header.xid)
        self.check_grant(sent, calls)
        if call is None:
            self.check_stranger(sent, calls)
            self.stray(sent.breaches)
            return
        call.by_error = header.is_error()
        self.check_answer(sent, call)
        self.check_invalidation(sent, call)
        if call.readable and not header.is_error() and header.readable and header.seen and header.dialect:
            self.check_returned(sent, call)
        if call.forward and header.dialect and not header.is_error():
            self.version = header.version
        calls.remember(call)
        self.finish(call, self.result(sent, call), sent)

    def check_grant(self, sent, calls):
        header = sent.header
        counts = not header.is_error() or header.dialect == VERSION_1 and header.error != ERR_VERS
        if header.credit == 0 and header.is_error():
            sent.need(header.dialect != DRAFT_04, "V2D4-ERR-03", "the error grants no credit")
        elif header.credit == 0:
            sent.breach("V1-CREDIT-06" if calls.waiting else "V1-CREDIT-05", "the reply grants no credit")
        if counts:
            calls.grant(header.credit, sent.time)
            calls.replied = True

    # For an answer to no waiting call.
    def check_stranger(self, sent, calls):
        header = sent.header
        if header.xid in self.ends[1 - sent.side].asked:
            return
        asked_too = self.calls[sent.side].answered.get(header.xid)
        if header.is_error() and asked_too is not None:
            rule, text = ("V1-ERR-11", "an error") if asked_too.by_error else ("V1-ERR-12", "a reply")
            rule = "V2D4-ERR-04" if header.dialect == DRAFT_04 else rule
            sent.breach(rule, f"an RDMA_ERROR answers {text}")
        elif header.xid in calls.answered:
            sent.breach("V1-INLINE-01", "a second answer to the same call")
        else:
            calls.strangers += 1
            if self.doubtful() and (self.lost or self.link.one_sided or calls.strangers <= calls.largest):
                return
            rule = "V1-INLINE-01" if not header.is_error() else \
                "V2D4-ERR-04" if header.dialect == DRAFT_04 else "V1-ERR-22"
            sent.breach(rule, f"an answer to no call: XID {header.xid:#010x}")

    def check_answer(self, sent, call):
        header, asked = sent.header, call.header
        if header.is_error() and header.error == ERR_VERS:
            low, high = (header.words + [1, 0])[:2]
            rule = dump_rpc.FORMS["versions"][header.dialect or VERSION_1]
            sent.need(not low <= asked.version <= high, rule,
                      f"ERR_VERS for version {asked.version}, which it says is supported")
        elif header.is_error():
            rule = "V2D4-ERR-03" if asked.dialect == DRAFT_04 else "V1-ERR-04"
            sent.need(header.version == asked.version, rule,
                      f"an error of version {header.version} to a call of version {asked.version}")
        else:
            sent.need(header.version == asked.version, REPLY_VERSION[asked.dialect],
                      f"version {header.version} answers version {asked.version}")
        if not asked.dialect or asked.readable:
            return
        rules = BAD_PROCEDURE if asked.kind not in dump_rpc.KINDS[asked.dialect] else BAD_HEADER
        wrong_code = rules is BAD_PROCEDURE and asked.dialect == DRAFT_04 and header.error != INVAL_PROC
        sent.need(header.is_error() and not wrong_code, rules[asked.dialect],
                  f"a faulty header is answered by {self.named(header)}")

    def named(self, header):
        return header.error_name() if header.is_error() else header.kind_name()

    # Invalidation is allowed only if the caller permits it: in version 1 for all calls (RFC 8797 section 4.1),
    # in draft-04 for this call and a named handle (section 6.2.3).
    def check_invalidation(self, sent, call):
        handle, dialect = sent.invalidates, call.header.dialect
        if handle is None or not call.readable:
            return
        if dialect == DRAFT_00:
            sent.breach("V2D0-RINV-01", f"handle {handle:#x} is invalidated")
        elif dialect == DRAFT_04:
            named = call.header.inv_handle
            sent.need(handle == named, "V2D4-RINV-04" if named else "V2D4-RINV-03",
                      f"handle {handle:#x} is invalidated, the call named {named:#x}")
        elif handle not in call.handles():
            sent.breach("PD-28", f"handle {handle:#x}, which is invalidated, is not one of the call")
        elif self.link.private[1 - sent.side] is not None:
            # Linux's server clears R itself and invalidates nevertheless. That is harmless: the caller's R counts.
            found = dump_rpc.private_data(self.link.private[1 - sent.side])
            sent.need(found is not None and found.invalidation(), "PD-27",
                      f"handle {handle:#x} is invalidated, and the caller does not allow it")

    # RFC 8166 sections 3.4.6 and 4.3: the lists come back, with the lengths that were written.
    def check_returned(self, sent, call):
        header, offered = sent.header, call.header
        sent.need(not header.reads or self.old, "V1-RL-14", "a Read list in a reply")
        if len(header.writes) != len(offered.writes):
            sent.breach("V1-WL-06", f"{len(header.writes)} Write chunks of {len(offered.writes)} come back")
        else:
            for given, returned in zip(offered.writes, header.writes):
                self.check_chunk(sent, call, given, returned, WRITE_CHUNK)
        self.check_reply_chunk(sent, call)
        self.check_results(sent, call)
        self.check_fetched(sent, call)

    def check_reply_chunk(self, sent, call):
        header, offered = sent.header, call.header.reply
        if header.kind == NOMSG:
            if not offered:
                sent.need(self.old and header.reads, "V1-RC-03", "RDMA_NOMSG to a call without a Reply chunk")
            elif not total(header.reply or []):
                sent.breach("V1-RC-14", "RDMA_NOMSG without bytes in a Reply chunk")
            else:
                self.check_chunk(sent, call, offered, header.reply, REPLY_CHUNK)
                self.check_head(sent, header.xid, call.reply_head)
        elif header.reply is not None:
            if total(header.reply):
                sent.breach("V1-RC-09", f"RDMA_MSG with {total(header.reply)} bytes in the Reply chunk")
            else:
                sent.need(offered is not None and [s[::2] for s in offered] == [s[::2] for s in header.reply],
                          "V1-RC-10", "a Reply chunk that is not the one that was offered")

    def check_head(self, sent, xid, head):
        rpc = dump_rpc.rpc_of(head)
        if rpc is not None:
            sent.need(rpc.xid == xid, "V1-HDR-02",
                      f"rdma_xid {xid:#010x}, but the message has {rpc.xid:#010x}")

    def check_chunk(self, sent, call, given, returned, rules):
        number, same, empty, pad = rules
        if len(given) != len(returned):
            sent.breach(number, f"{len(returned)} segments of {len(given)} come back")
            return
        full = True
        for (handle, room, offset), (now, length, place) in zip(given, returned):
            if (handle, offset) != (now, place):
                sent.breach(same, f"segment {handle:#x} at {offset:#x} comes back as {now:#x} at {place:#x}")
                return
            if length > room:
                sent.breach(same, f"{length} bytes in a segment of {room}")
                return
            if length and not full:
                sent.breach("V1-WL-04", "a segment is used before the one before it is full")
                return
            full = full and length == room
        if call.sure and self.link.shows_rdma and not self.link.one_sided:
            for handle, length, offset in returned:
                written = call.written[handle, offset]
                rule = empty if not written else pad if written == padded(length) else same
                # RFC 5666 section 3.7 counts the pad although it is not written.
                sent.need(length in (written, padded(written)), rule,
                          f"{length} bytes are claimed, and {written} were written")

    # The results of some procedures contain the length of their chunk.
    def check_results(self, sent, call):
        rpc, answer, chunks = call.rpc, sent.rpc, sent.header.writes
        where = RESULTS.get((rpc.program, rpc.version, rpc.procedure)) if rpc and rpc.kind == CALL else None
        if not where or not chunks or not call.header.writes[:1] or answer is None or answer.results is None:
            return
        results, moved = sent.payload[answer.results:], total(chunks[0])
        if len(results) >= 4 and any(results[:4]):
            sent.need(not moved, "V1-WL-07", f"{moved} bytes in a chunk, and no result")
            return
        attributes, at = where
        if attributes:
            at += 8 + (NFS3_ATTRIBUTES if results[4:8] == b"\0\0\0\1" else 0)
        else:
            at += 4
        if len(results) < at + 4:
            return
        count = int.from_bytes(results[at:at + 4], "big")
        if count and not moved and total(call.header.writes[0]):
            sent.breach("V1-WL-02", f"{count} bytes are not in the chunk that was offered for them")
        else:
            sent.need(moved in (count, padded(count)), "V1-CHUNK-04",
                      f"the count is {count}, and the chunk has {moved} bytes")

    def check_fetched(self, sent, call):
        accepted = sent.rpc is not None and sent.rpc.status == ACCEPTED[0]
        if not accepted or not call.sure or not self.link.shows_rdma:
            return
        for segment, length in Counter({s: s[1] for s in call.sources}).items():
            if call.fetched[segment] != length:
                sent.breach("V1-RL-10", f"{call.fetched[segment]} of {length} bytes of a segment were read")
                return

    def result(self, sent, call):
        header = sent.header
        if header.is_error():
            words = " ".join(map(str, header.words))
            return f"RDMA_ERROR {header.error_name()} {words}".rstrip()
        rpc = sent.rpc or dump_rpc.rpc_of(call.reply_head)
        if call.rpc is not None and rpc is not None and rpc.status == ACCEPTED[0]:
            self.old = self.old or (call.rpc.program, call.rpc.procedure) == (CONFIGURATION, CONF_RDMA)
        return rpc.status if rpc and rpc.status else "answered"

    # ---- RDMA operations: the called end accesses memory that waiting calls of the other end offer

    def take_write(self, event):
        if event.length == 0:  # RFC 6581 section 9: a client may say so that it is ready
            return
        calls = self.calls[1 - event.side]
        for call in calls.offers.get(event.handle, ()):
            segment = holds(call.sinks, event)
            if segment is not None:
                call.written[segment[0], segment[2]] += event.length
                if call.header.reply and segment == call.header.reply[0] and event.offset == segment[2]:
                    call.reply_head = event.data[:HEAD]
                return
        self.misplaced(event, "sinks", "sources", "V1-WL-17", "V1-WL-14", "Write")

    def take_read(self, event):
        if event.length == 0:
            return
        for call in self.calls[1 - event.side].offers.get(event.handle, ()):
            segment = holds(call.sources, event)
            if segment is not None:
                event.owner = call, segment
                call.fetched[segment] += event.length
                return
        self.misplaced(event, "sources", "sinks", "V1-PAD-15", "V1-RL-11", "Read")

    def misplaced(self, event, right, wrong, outside, late, name):
        if not self.known or self.old or self.lost or self.cut or self.link.one_sided:
            return
        again = self.misplaced_to == (event.side, event.handle, event.offset)
        self.misplaced_to = event.side, event.handle, event.offset + event.length
        if again:  # the next packet of the same
            return
        calls = self.calls[1 - event.side]
        what = f"an RDMA {name} of {event.length} bytes at {event.offset:#x} of handle {event.handle:#x}"
        offering = calls.offers.get(event.handle, ())
        if any(holds(getattr(call, wrong), event) for call in offering):
            self.fault(event, "V1-MEM-15", f"{what}, which is offered for the opposite")
        elif offering:
            self.fault(event, outside, f"{what}, outside of what is offered")
        elif any(holds(getattr(call, right), event) for call in calls.answered.values()):
            self.fault(event, late, f"{what}, whose call is answered already")
        elif self.link.whole and calls.count == 0:
            self.fault(event, "V1-CHUNK-16", f"{what} by an end that was never called")
        elif self.link.whole:
            self.fault(event, outside, f"{what}, which no call offers")

    def take_response(self, event):
        if event.read is None or event.read.owner is None:
            return
        call, segment = event.read.owner
        if segment == call.first_source() and event.read.offset + event.at == segment[2] and call.rpc is None:
            call.rpc = dump_rpc.rpc_of(event.data[:HEAD])
            self.check_head(call.sent, call.header.xid, event.data[:HEAD])

#!/usr/bin/env python3
"""scripts/rrdk-dump.py finds each breach of version 1 and of what is below it, and no others: one is planted
in each conversation here, over RoCEv2 and over iWARP. Those of version 2 are in dump_version2_test.py.
"""
import unittest

from dump_writers import (ALLOWED, DATA, PLAIN, SINK, SOURCE, Files, Iwarp, RrdkOwn, breaches_in, call_body,
                          mixed, opaque, read_back, read_call, read_results, reply_body, words, write_call)
from lib import dump_rules  # found by dump_writers
from lib.dump_rpc import DONE, MSG, MSGP, NOMSG

CASES = []
breaks = breaches_in(CASES)


@breaks("V1-HDR-01")
def too_short(t):
    t.null()
    t.raw(0, 7, 1)


@breaks("V1-HDR-02")
def xids_differ(t):
    t.call(5)
    t.reply(5, body=reply_body(6))


@breaks("V1-HDR-02")
def xids_of_a_long_call_differ(t):
    body = call_body(6)
    t.call(5, kind=NOMSG, reads=[(0, 0x61, len(body), 0)])
    t.wire.read(1, 0x61, 0, body)
    t.reply(5)


@breaks("V1-HDR-02")
def xids_of_a_long_reply_differ(t):
    t.call(5, reply=[SINK])
    t.wire.write(1, SINK[0], SINK[2], reply_body(6))
    t.reply(5, kind=NOMSG, reply=[(SINK[0], 24, SINK[2])])


@breaks("V1-HDR-03", dialect="v2-00")
def reply_of_another_version(t):
    t.null()
    t.call(5)
    t.reply(5, version=2)


@breaks("V1-HDR-06")
def unknown_procedure(t):
    t.call(5, kind=7)
    t.error(5, 2)


@breaks("V1-HDR-06", "V1-ERR-10")
def unknown_procedure_is_served(t):
    t.call(5, kind=7)
    t.reply(5)


@breaks("V1-HDR-07")
def header_too_short(t):
    t.raw(0, 5, 1, 8, MSG, 0)
    t.error(5, 2)


@breaks("V1-HDR-08")
def read_list_runs_out(t):
    t.raw(0, 5, 1, 8, MSG, 1, 4, 0x61, 100, 0)
    t.error(5, 2)


@breaks("V1-HDR-09")
def write_list_runs_out(t):
    t.raw(0, 5, 1, 8, MSG, 0, 1, 0xFFFFFFFF, 0x51, 100, 0, 0)
    t.error(5, 2)


@breaks("V1-HDR-10")
def reply_chunk_runs_out(t):
    t.raw(0, 5, 1, 8, MSG, 0, 0, 1, 9, 0x51)
    t.error(5, 2)


@breaks("V1-HDR-08", "V1-ERR-07")
def faulty_header_is_served(t):
    t.raw(0, 5, 1, 8, MSG, 1, 4, 0x61, 100, 0)
    t.reply(5)


@breaks("V1-HDR-12")
def reply_without_message(t):
    t.call(5)
    t.reply(5, body=b"")


@breaks("V1-HDR-13")
def bytes_behind_nomsg(t):
    body = call_body(5)
    t.call(5, kind=NOMSG, reads=[(0, 0x61, 40, 0)], tail=bytes(8))
    t.wire.read(1, 0x61, 0, body)
    t.reply(5)


@breaks("V1-HDR-14")
def bytes_behind_error(t):
    t.call(5)
    t.error(5, 2, tail=bytes(36))


@breaks("V1-HDR-17")
def list_goes_on_with_two(t):
    t.raw(0, 5, 1, 8, MSG, 2, 0, 0, tail=call_body(5))
    t.error(5, 2)


@breaks("V1-INLINE-01")
def answered_twice(t):
    t.null()
    t.reply(1)


@breaks("V1-INLINE-01")
def answer_to_no_call(t):
    t.null()
    t.reply(0xBAD)


@breaks("V1-INLINE-06", private=(b"", b""))
def too_long_without_private_data(t):
    t.null()
    t.call(5, 1, opaque(bytes(960)))
    t.reply(5)


@breaks("PD-09")
def call_too_long(t):
    t.null()
    t.call(5, 1, opaque(bytes(4040)))
    t.reply(5)


@breaks("PD-10", private=(bytes.fromhex("f6ab0e1801010301"), ALLOWED))
def reply_too_long(t):
    t.null()
    t.call(5, 1, opaque(bytes(3000)))
    t.reply(5, opaque(bytes(3000)))


@breaks("PD-03", private=(bytes.fromhex("f6ab0e1801810303"), PLAIN))
def reserved_flags(t):
    t.null()


@breaks("PD-27", private=(PLAIN, ALLOWED))
def invalidation_not_allowed(t):
    read_call(t)
    read_back(t, invalidates=SINK[0])


@breaks("PD-28")
def foreign_handle_invalidated(t):
    read_call(t)
    read_back(t, invalidates=0x99)


@breaks("V1-CHUNK-02")
def chunk_of_what_is_not_eligible(t):
    t.call(5, 1, words(8000), reads=[(44, *SOURCE)])
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA)
    t.reply(5)


@breaks("V1-CHUNK-04")
def count_and_chunk_differ(t):
    write_call(t, count=7000)
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA)
    t.reply(5)


@breaks("V1-CHUNK-04")
def result_and_chunk_differ(t):
    read_call(t)
    read_back(t, count=7000)


@breaks("V1-CHUNK-16")
def requester_writes(t):
    t.null()
    t.call(5)
    t.wire.write(0, 0x77, 0, bytes(100))
    t.reply(5)


@breaks("V1-RL-05", "V1-RL-08")
def position_not_aligned(t):
    write_call(t, position=62)
    t.error(5, 2)


@breaks("EXP-05")
def positions_descend(t):
    t.call(5, 4, words(0, 0, 8000, 0, 0, 0), program=0x30000000, reads=[(52, 0x62, 8, 0), (44, 0x61, 8, 0)])
    t.error(5, 2)


@breaks("V1-RL-08")
def position_beyond_the_stream(t):
    write_call(t, position=400)
    t.error(5, 2)


@breaks("V1-RL-08")
def chunks_overlap(t):
    t.call(5, 4, bytes(24), program=0x30000000, reads=[(44, 0x61, 100, 0), (52, 0x62, 8, 0)])
    t.error(5, 2)


@breaks("V1-RL-10")
def not_all_was_read(t):
    write_call(t)
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA[:4000])
    t.reply(5)


@breaks("V1-RL-11")
def read_after_the_reply(t):
    write_call(t)
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA)
    t.reply(5)
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA)


@breaks("V1-RL-14")
def read_list_in_a_reply(t):
    t.call(5)
    t.reply(5, reads=[(28, 0x71, 100, 0)])


@breaks("V1-WL-02")
def result_is_inline_in_spite_of_its_chunk(t):
    read_call(t)
    t.reply(5, words(0, 0) + opaque(bytes(100)), writes=[[(SINK[0], 0, SINK[2])]])


@breaks("V1-WL-03")
def more_claimed_than_offered(t):
    read_call(t)
    read_back(t, length=8004, written=8000)


@breaks("V1-WL-03")
def more_claimed_than_written(t):
    read_call(t)
    read_back(t, length=8000, written=4000)


@breaks("V1-WL-03")
def other_handle_comes_back(t):
    read_call(t)
    read_back(t, segment=(0x52, 0, SINK[2]))


@breaks("V1-WL-04")
def second_segment_first(t):
    second = (0x52, 8000, 0)
    read_call(t, sinks=(SINK, second))
    t.wire.write(1, SINK[0], SINK[2], DATA[:100])
    t.wire.write(1, 0x52, 0, DATA[:100])
    t.reply(5, read_results(200), writes=[[(SINK[0], 100, SINK[2]), (0x52, 100, 0)]])


@breaks("V1-WL-05")
def nothing_was_written(t):
    read_call(t)
    read_back(t, written=0)


@breaks("V1-WL-06")
def write_list_does_not_come_back(t):
    read_call(t)
    t.reply(5, words(1))


@breaks("V1-WL-06")
def segments_get_lost(t):
    read_call(t, sinks=(SINK, (0x52, 8000, 0)))
    read_back(t)


@breaks("V1-WL-07")
def chunk_is_used_without_a_result(t):
    read_call(t)
    t.wire.write(1, SINK[0], SINK[2], DATA)
    t.reply(5, words(1), writes=[[SINK]])


@breaks("V1-WL-14")
def write_after_the_reply(t):
    read_call(t)
    read_back(t)
    t.wire.write(1, SINK[0], SINK[2], DATA)


@breaks("V1-WL-17")
def write_beyond_the_segment(t):
    read_call(t)
    t.wire.write(1, SINK[0], SINK[2] + 7000, DATA[:1004])
    t.reply(5, words(1), writes=[[(SINK[0], 0, SINK[2])]])


@breaks("V1-WL-17")
def write_to_what_nobody_offers(t):
    t.call(5)
    t.wire.write(1, 0x77, 0, DATA[:100])
    t.reply(5)


@breaks("V1-RC-03")
def nomsg_without_a_reply_chunk(t):
    t.call(5)
    t.reply(5, kind=NOMSG, reply=[(0x51, 24, 0)])


@breaks("V1-RC-09")
def reply_chunk_and_inline(t):
    t.call(5, reply=[SINK])
    t.wire.write(1, SINK[0], SINK[2], reply_body(5))
    t.reply(5, reply=[(SINK[0], 24, SINK[2])])


@breaks("V1-RC-10")
def reply_chunk_that_was_not_offered(t):
    t.call(5)
    t.reply(5, reply=[(0x51, 0, 0)])


@breaks("V1-RC-12")
def long_reply_shorter_than_it_says(t):
    t.call(5, reply=[SINK])
    t.wire.write(1, SINK[0], SINK[2], reply_body(5))
    t.reply(5, kind=NOMSG, reply=[(SINK[0], 48, SINK[2])])


@breaks("V1-RC-14")
def long_reply_without_bytes(t):
    t.call(5, reply=[SINK])
    t.reply(5, kind=NOMSG, reply=[(SINK[0], 0, SINK[2])])


@breaks("V1-PAD-10")
def pad_is_written(t):
    read_call(t)
    read_back(t, length=101, written=104)


@breaks("V1-PAD-15")
def read_beyond_the_segment(t):
    write_call(t)
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA)
    t.wire.read(1, SOURCE[0], SOURCE[2] + 8000, DATA[:4])
    t.reply(5)


@breaks("V1-MEM-15")
def read_of_a_write_chunk(t):
    read_call(t)
    t.wire.read(1, SINK[0], SINK[2], DATA)
    read_back(t)


@breaks("V1-LONG-07")
def position_zero_in_msg(t):
    t.call(5, program=0x30000000, reads=[(0, 0x61, 40, 0)])
    t.error(5, 2)


@breaks("V1-LONG-09")
def nomsg_without_position_zero(t):
    t.call(5, kind=NOMSG, reply=[SINK])
    t.error(5, 2)


@breaks("V1-CREDIT-05")
def grant_of_zero(t):
    t.call(5)
    t.reply(5, credit=0)


@breaks("V1-CREDIT-06")
def grant_of_zero_with_calls_in_progress(t):
    t.null()
    t.call(5)
    t.call(6)
    t.reply(5, credit=0)
    t.reply(6)


@breaks("V1-CREDIT-08")
def more_calls_than_granted(t):
    t.call(1)
    t.reply(1, credit=2)
    for xid in (5, 6, 7):
        t.call(xid)
    for xid in (5, 6, 7):
        t.reply(xid)


@breaks("V1-CREDIT-08")
def more_calls_than_granted_a_while_ago(t):
    t.null()
    t.call(2)
    t.reply(2, credit=1)
    t.wire.time += 2 * dump_rules.SLACK
    t.call(5)
    t.call(6)
    t.reply(5)
    t.reply(6)


@breaks("V1-CREDIT-11")
def two_calls_at_first(t):
    t.call(5)
    t.call(6)
    t.reply(5)
    t.reply(6)


@breaks("V1-CREDIT-18")
def no_credit_asked_for(t):
    t.call(5, credit=0)
    t.reply(5)


@breaks("V1-CREDIT-23")
def sent_again_while_it_waits(t):
    t.null()
    t.call(5)
    t.call(5)
    t.reply(5)


@breaks("V1-DONE-02")
def done(t):
    t.null()
    t.raw(0, 1, 1, 8, DONE)


@breaks("V1-MSGP-02")
def msgp(t):
    t.call(5, kind=MSGP, between=words(8, 1024))
    t.reply(5)


@breaks("V1-ERR-01")
def unknown_error(t):
    t.call(5)
    t.error(5, 9)


@breaks("V1-ERR-02")
def versions_upside_down(t):
    t.call(5)
    t.error(5, 1, 3, 2)


@breaks("V1-ERR-02")
def version_is_supported_after_all(t):
    t.call(5)
    t.error(5, 1, 1, 1)


@breaks("V1-ERR-03")
def unknown_version_is_served(t):
    t.null()
    t.call(5, version=7)
    t.reply(5)


@breaks("V1-ERR-04")
def error_of_another_version(t):
    t.call(5)
    t.error(5, 2, version=2)


@breaks("V1-ERR-11")
def error_answers_an_error(t):
    t.call(5)
    t.error(5, 2)
    t.error(5, 2, side=0)


@breaks("V1-ERR-12")
def error_answers_a_reply(t):
    t.call(5)
    t.reply(5)
    t.error(5, 2, side=0)


@breaks("V1-ERR-22")
def error_to_no_call(t):
    t.null()
    t.error(0xBAD, 2)


@breaks("BIDIR-06")
def two_backward_calls_at_first(t):
    t.null()
    t.call(5, side=1)
    t.call(6, side=1)
    t.reply(5, side=0)
    t.reply(6, side=0)


@breaks("BIDIR-12", dialect="v2-00")
def backward_call_of_another_version(t):
    t.null()
    t.call(5, side=1, version=2)
    t.reply(5, side=0, version=2)


@breaks("BIDIR-13")
def server_calls_first(t):
    t.call(5, side=1)
    t.reply(5, side=0)


class Breaches(Files):
    def test_each_is_found_and_nothing_else(self):
        self.assert_found(CASES)

    def test_a_wrong_crc(self):
        wire = self.talk(Iwarp(crc=True), mixed)
        self.assert_right(self.report(wire.capture()), 8)
        time, frame = wire.frames[-6]
        wire.frames[-6] = time, frame[:-1] + bytes((frame[-1] ^ 1,))
        self.assertEqual(self.report(wire.capture()).whole.breaches, {"SEC-14": 1})

    def test_own_captures_show_breaches_too(self):
        for function in (xids_differ, answered_twice, read_list_in_a_reply, more_claimed_than_offered,
                         grant_of_zero, unknown_error, segments_get_lost):
            with self.subTest(function.__name__):
                rules = next(case[0] for case in CASES if case[1] is function)
                report = self.report(self.talk(RrdkOwn(), function).capture())
                self.assertEqual(report.whole.breaches, dict.fromkeys(rules, 1), self.said(report))


if __name__ == "__main__":
    unittest.main()

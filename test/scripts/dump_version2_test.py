#!/usr/bin/env python3
"""scripts/rrdk-dump.py finds each breach of both drafts of version 2, and no others, as dump_rules_test.py
has it for version 1. Between them the two plant one for every rule.
"""
import unittest

from dump_rules_test import CASES as CASES_OF_VERSION_1, bytes_behind_nomsg, two_calls_at_first
from dump_writers import (DATA, ROOT, SINK, Files, backward, breaches_in, call_body, connprop, lists, opaque,
                          propset, read_back, read_call, read_results, receives, reply_body, subset, words)
from lib import dump_rules  # found by dump_writers
from lib.dump_rpc import CONNPROP, MSG, MSGP, OPTIONAL, REQPROP, RESPROP, UPDPROP

CASES = []
breaks = breaches_in(CASES)


@breaks("V2D0-HDR-02", version=2, dialect="v2-00")
def draft_00_reserved_procedure(t):
    t.null()
    t.raw(0, 5, 2, 8, MSGP)
    t.error(5, 2)


@breaks("V2D0-HDR-02", "V2D0-ERR-02", version=2, dialect="v2-00")
def draft_00_reserved_procedure_is_served(t):
    t.null()
    t.raw(0, 5, 2, 8, MSGP)
    t.reply(5)


@breaks("V2D0-HDR-03", version=2, dialect="v2-00")
def draft_00_header_too_short(t):
    t.null()
    t.raw(0, 5, 2, 8, MSG, 0)
    t.error(5, 2)


@breaks("V2D0-HDR-04", version=2, dialect="v2-00")
def draft_00_write_list_runs_out(t):
    t.null()
    t.raw(0, 5, 2, 8, MSG, 0, 1, 9, 0x51, 100, 0, 0)
    t.error(5, 2)


@breaks("V2D0-HDR-06", version=2, dialect="v2-00")
def draft_00_reply_without_message(t):
    t.call(5)
    t.reply(5, body=b"")


@breaks("V2D0-HDR-08", version=2, dialect="v2-00")
def draft_00_bytes_behind_error(t):
    t.call(5)
    t.error(5, 2, tail=bytes(4))


@breaks("V2D0-INL-02", version=2, dialect="v2-00")
def draft_00_too_long(t):
    t.null()
    t.call(5, 1, opaque(bytes(4096)))
    t.reply(5)


@breaks("V2D0-OPT-01", version=2, dialect="v2-00")
def draft_00_option_runs_out(t):
    t.null()
    t.raw(0, 5, 2, 8, OPTIONAL, 1, 100)
    t.error(5, 2)


@breaks("V2D0-ERR-01", version=2, dialect="v2-00")
def draft_00_unknown_error(t):
    t.call(5)
    t.error(5, 10)


@breaks("V2D0-NEG-01", version=2, dialect="v2-00")
def draft_00_first_message_too_long(t):
    t.call(5, 1, opaque(bytes(1000)))
    t.reply(5)


@breaks("V2D0-NEG-02", version=2, dialect="v2-00")
def draft_00_two_calls_at_first(t):
    two_calls_at_first(t)


@breaks("V2D0-NEG-09", version=2, dialect="v2-00")
def draft_00_reply_of_another_version(t):
    t.call(5)
    t.reply(5, version=1)


@breaks("V2D0-RINV-01", version=2, dialect="v2-00")
def draft_00_invalidates(t):
    read_call(t)
    read_back(t, invalidates=SINK[0])


@breaks("V2D4-HDR-02", version=2)
def draft_04_unknown_procedure(t):
    t.null()
    t.raw(0, 5, 2, 8, 10)
    t.error(5, 3)


@breaks("V2D4-HDR-02", "V2D4-ERR-06", version=2)
def draft_04_unknown_procedure_gets_another_error(t):
    t.null()
    t.raw(0, 5, 2, 8, 10)
    t.error(5, 10)


@breaks("V2D4-HDR-03", version=2)
def draft_04_header_too_short(t):
    t.null()
    t.raw(0, 5, 2, 8, MSG, 0, 0, 0, 0)
    t.error(5, 2)


@breaks("V2D4-HDR-04", version=2)
def draft_04_read_list_runs_out(t):
    t.null()
    t.raw(0, 5, 2, 8, MSG, 0, 0, 1, 4, 0x61, 100, 0)
    t.error(5, 2)


@breaks("V2D4-HDR-04", "V2D4-ERR-07", version=2)
def draft_04_faulty_header_is_served(t):
    t.null()
    t.raw(0, 5, 2, 8, MSG, 0, 0, 1, 4, 0x61, 100, 0)
    t.reply(5)


@breaks("V2D4-HDR-05", version=2)
def draft_04_no_direction(t):
    t.null()
    t.call(5, direction=2)
    t.error(5, 2)


@breaks("V2D4-HDR-06", version=2)
def draft_04_reply_without_message(t):
    t.call(5)
    t.reply(5, body=b"")


@breaks("V2D4-HDR-07", version=2)
def draft_04_bytes_behind_error(t):
    t.call(5)
    t.error(5, 10, tail=bytes(4))


@breaks("V2D4-HDR-09", version=2)
def draft_04_bytes_behind_nomsg(t):
    bytes_behind_nomsg(t)


@breaks("V2D4-INL-02", version=2)
def draft_04_too_long(t):
    t.null()
    t.call(5, 1, opaque(bytes(4096)))
    t.reply(5)


@breaks("V2D4-NEG-01", version=2)
def draft_04_first_message_too_long(t):
    t.call(5, 1, opaque(bytes(1000)))
    t.reply(5)


@breaks("V2D4-NEG-02", version=2)
def draft_04_two_calls_at_first(t):
    two_calls_at_first(t)


@breaks("V2D4-NEG-07", version=2)
def draft_04_reply_of_another_version(t):
    t.call(5)
    t.wire.send(1, words(5, 1, 8, MSG) + lists() + reply_body(5))


@breaks("V2D4-NEG-10", version=2)
def draft_04_long_connprop_at_first(t):
    connprop(t, 0, receives(4096), (0x1000, bytes(1100)))
    connprop(t, 1, receives(4096))


@breaks("V2D4-DIR-01", version=2)
def draft_04_direction_of_another_message(t):
    t.null()
    t.call(5)
    t.reply(5, body=call_body(5))


@breaks("V2D4-RINV-01", version=2)
def draft_04_names_a_foreign_handle(t):
    read_call(t, handle=0x99)
    read_back(t)


@breaks("V2D4-RINV-03", version=2)
def draft_04_invalidates_unasked(t):
    read_call(t)
    read_back(t, invalidates=SINK[0])


@breaks("V2D4-RINV-04", version=2)
def draft_04_invalidates_another_handle(t):
    read_call(t, sinks=(SINK, (0x52, 8000, 0)), handle=SINK[0])
    t.wire.write(1, SINK[0], SINK[2], DATA)
    t.reply(5, read_results(8000), writes=[[SINK, (0x52, 0, 0)]], invalidates=0x52)


@breaks("V2D4-OPT-01", version=2)
def draft_04_option_runs_out(t):
    t.null()
    t.raw(0, 5, 2, 8, OPTIONAL, 0, 1, 100)
    t.error(5, 2)


@breaks("V2D4-ERR-01", version=2)
def draft_04_unknown_error(t):
    t.call(5)
    t.error(5, 11)


@breaks("V2D4-ERR-02", version=2)
def draft_04_error_without_its_words(t):
    t.call(5)
    t.error(5, 7, 1)


@breaks("V2D4-ERR-03", version=2)
def draft_04_error_grants_nothing(t):
    t.call(5)
    t.error(5, 10, credit=0)


@breaks("V2D4-ERR-03", version=2)
def draft_04_error_of_another_version(t):
    t.null()
    t.call(5)
    t.error(5, 2, version=1)


@breaks("V2D4-ERR-04", version=2)
def draft_04_error_from_the_requester(t):
    t.null()
    t.error(1, 2, side=0)


@breaks("V2D4-ERR-05", version=2)
def draft_04_version_is_supported_after_all(t):
    t.call(5)
    t.error(5, 1, 1, 2)


@breaks("V2D4-PROP-08", version=2)
def draft_04_property_runs_out(t):
    t.null()
    t.property(0, CONNPROP, 9, words(1, 1, 100, 8192))


@breaks("V2D4-PROP-09", version=2)
def draft_04_property_too_short(t):
    t.null()
    connprop(t, 0, (1, b"\0\0"))


@breaks("V2D4-PROP-13", version=2)
def draft_04_property_too_long(t):
    t.null()
    connprop(t, 0, (1, bytes(8)))


@breaks("V2D4-PROP-20", version=2)
def draft_04_longer_than_announced(t):
    t.null()
    connprop(t, 1, receives(8192))
    t.call(5, 1, opaque(bytes(8192)))
    t.reply(5)


@breaks("V2D4-PROP-23", version=2)
def draft_04_receives_shrink_unasked(t):
    t.null()
    connprop(t, 1, receives(8192))
    t.property(1, UPDPROP, 9, propset(receives(4096)))


@breaks("V2D4-PROP-24", version=2)
def draft_04_longer_than_asked_for(t):
    t.null()
    connprop(t, 1, receives(8192))
    t.property(0, REQPROP, 9, propset(receives(4096)))
    t.call(5, 1, opaque(bytes(5000)))
    t.reply(5)


@breaks("V2D4-PROP-25", version=2)
def draft_04_small_receives(t):
    t.null()
    connprop(t, 1, receives(2048))


@breaks("V2D4-PROP-27", version=2)
def draft_04_unknown_backward_support(t):
    t.null()
    connprop(t, 0, backward(3))


@breaks("V2D4-PROP-28", version=2)
def draft_04_backward_call_that_is_not_taken(t):
    t.null()
    connprop(t, 0, backward(0))
    t.wire.time += 2 * dump_rules.SLACK
    t.call(5, side=1)
    t.error(5, 10, side=0)


@breaks("V2D4-PROP-28", version=2)
def draft_04_backward_call_with_chunks(t):
    t.null()
    t.call(5, side=1, reply=[SINK])
    t.error(5, 8, 0, side=0)


@breaks("V2D4-POP-01", version=2)
def draft_04_connprop_runs_out(t):
    t.null()
    t.property(0, CONNPROP, 9, propset(receives(8192)))


@breaks("V2D4-POP-02", version=2)
def draft_04_updprop_runs_out(t):
    t.null()
    t.property(0, UPDPROP, 9, words(2), *(words(1), opaque(words(8192))))


@breaks("V2D4-POP-10", version=2)
def draft_04_what_should_stay_changes(t):
    t.null()
    connprop(t, 1, receives(8192), stay=(0,))
    t.property(1, UPDPROP, 9, propset(receives(16384)))


@breaks("V2D4-POP-11", version=2)
def draft_04_what_was_left_out_changes(t):
    t.null()
    connprop(t, 0, receives(8192))
    t.property(0, UPDPROP, 9, propset(backward(2)))


def asked(t, *pairs):
    t.null()
    connprop(t, 1, receives(4096), backward(1))
    t.property(0, REQPROP, 9, propset(*pairs))


@breaks("V2D4-POP-17", version=2)
def draft_04_response_to_another_request(t):
    asked(t, receives(8192))
    t.property(1, RESPROP, 10, subset(0), subset(), propset())


@breaks("V2D4-POP-21", version=2)
def draft_04_response_says_more_than_asked(t):
    asked(t, receives(8192))
    t.property(1, RESPROP, 9, subset(0), subset(), propset(backward(2)))


@breaks("V2D4-POP-23", version=2)
def draft_04_response_contradicts_itself(t):
    asked(t, receives(8192))
    t.property(1, RESPROP, 9, subset(0), subset(0), propset())


@breaks("V2D4-POP-31", version=2)
def draft_04_bytes_behind_property(t):
    t.null()
    t.property(0, UPDPROP, 9, propset(), words(0))


class Breaches(Files):
    def test_each_is_found_and_nothing_else(self):
        self.assert_found(CASES)

    def test_there_is_one_for_each_rule(self):
        planted = {rule for rules, *_ in CASES_OF_VERSION_1 + CASES for rule in rules}
        planted.add("SEC-14")  # by a test of dump_rules_test.py
        self.assertEqual(planted, set(dump_rules.RULES))

    def test_rules_are_those_of_the_list(self):
        table = (ROOT / "test" / "data" / "requirements.tsv").read_text().splitlines()[1:]
        self.assertEqual(set(dump_rules.RULES) - {line.split("\t")[0] for line in table}, set())


if __name__ == "__main__":
    unittest.main()

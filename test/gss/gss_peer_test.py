#!/usr/bin/env python3
"""testrpc's two ends against an implementation of RPCSEC_GSS (RFC 2203) of another make, gss_peer.py: as a right peer
and as a hostile one. Runs in the realm of test/gss/realm.py, with Debian's Python, which has python3-gssapi."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../apps"))

import testrpc_harness as harness  # noqa: E402

try:
    import gssapi
    import gss_peer as peer
except ImportError as lacking:
    print(f"{lacking}: it is Debian's package python3-gssapi, for {sys.executable}")
    sys.exit(77)

SERVICES = {"krb5": peer.NONE, "krb5i": peer.INTEGRITY, "krb5p": peer.PRIVACY}
BADCRED, REJECTEDCRED, CREDPROBLEM, CTXPROBLEM = 1, 2, 13, 14
GARBAGE_ARGS = 4
ECHOED = peer.opaque(b"five bytes and more")


class Callers(harness.Case):
    """The peer calls our server."""

    def setUp(self):
        super().setUp()
        self.server = self.start("--server", "iwarp://127.0.0.1:0", "--sec", "krb5,krb5i,krb5p", "--idle", "adaptive")
        self.uri = self.server.wait_for_line("listening on").split()[-1]

    def caller(self):
        made = peer.Caller(self.uri)
        self.addCleanup(made.close)
        return made

    def assert_denied(self, reply, why):
        self.assertEqual((reply.denied, reply.status), (True, why), reply)

    # Shows: GSS-CRED-01, GSS-INIT-01, GSS-VERF-01, GSS-DATA-01, GSS-DATA-03, GSS-DATA-04, GSS-INTEG-01,
    # GSS-PRIV-01, GSS-SEQ-04
    def test_calls_of_all_services_are_answered_in_one_context(self):
        caller = self.caller().establish()
        for size in (0, 1, 100, 3000):
            data = peer.opaque(bytes(at % 251 for at in range(size)))
            for service in SERVICES.values():
                self.assertEqual(caller.call(peer.NULL, service), b"")
                self.assertEqual(caller.call(peer.ECHO, service, data), data)
        for number in (900, 400, 899, 401, 1900):
            self.assertEqual(caller.call(peer.ECHO, peer.PRIVACY, ECHOED, number), ECHOED)
        self.stop_server(self.server)

    # Shows: GSS-DESTROY-01, GSS-DESTROY-02, GSS-CTX-01
    def test_a_context_ends_when_its_caller_says_so(self):
        caller, heir = self.caller().establish(), self.caller()
        self.assert_denied(caller.answer(caller.message(peer.NULL, peer.NONE, control=peer.DESTROY,
                                                        header_sum=peer.flipped)), CREDPROBLEM)
        heir.context, heir.handle, heir.sequence = caller.context, caller.handle, 10
        self.assertEqual(heir.call(peer.ECHO, peer.INTEGRITY, ECHOED), ECHOED)
        ended = heir.answer(heir.message(peer.NULL, peer.NONE, control=peer.DESTROY))
        heir.verify(ended, heir.sequence)
        self.assertEqual((ended.denied, ended.status), (False, 0))
        self.assert_denied(caller.answer(caller.message(peer.NULL, peer.NONE, number=20)), CREDPROBLEM)
        self.stop_server(self.server)

    # Kerberos needs one token; in the style of DCE there is a second one.
    # Shows: GSS-INIT-05
    def test_a_context_may_take_several_tokens(self):
        caller = self.caller()
        reply = caller.init(caller.begin(gssapi.RequirementFlag.dce_style))
        self.assertEqual((reply.flavor, reply.verifier), (peer.AUTH_NONE, b""))
        major, token = caller.take(reply)
        self.assertEqual(major, peer.GSS_CONTINUE)
        handle = caller.handle
        self.assertEqual(caller.take(caller.init(token, peer.CONTINUE_INIT))[0], peer.GSS_COMPLETE)
        self.assertEqual(caller.handle, handle)
        for service in SERVICES.values():
            self.assertEqual(caller.call(peer.ECHO, service, ECHOED), ECHOED)
        self.assert_denied(caller.init(token, peer.CONTINUE_INIT), CREDPROBLEM)
        self.stop_server(self.server)

    # Shows: GSS-VERS-01, GSS-CRED-04, GSS-INIT-02, GSS-INIT-08
    def test_tokens_are_refused_by_the_rules(self):
        caller, right = self.caller(), self.caller().establish()
        token = caller.begin()
        self.assert_denied(caller.init(token, procedure=peer.ECHO), BADCRED)
        for version in (0, 2, 3):
            self.assert_denied(caller.init(token, version=version), REJECTEDCRED)
        self.assert_denied(caller.init(token, control=peer.CONTINUE_INIT), CREDPROBLEM)
        behind = caller.init(token, behind=bytes(4))
        self.assertEqual((behind.denied, behind.flavor, behind.status), (False, peer.AUTH_NONE, GARBAGE_ARGS))
        for wrong in (b"", b"garbage", bytes(900), token[:-1], peer.flipped(token)):
            reply = caller.init(wrong)
            self.assertEqual((reply.denied, reply.flavor, reply.verifier, reply.status), (False, 0, b"", 0))
            results = peer.Reader(reply.results)
            self.assertEqual(results.opaque(), b"", "no handle")
            self.assertGreaterEqual(results.word(), 1 << 16, "an error of the GSS-API")
            self.assertEqual(right.call(peer.ECHO, peer.PRIVACY, ECHOED), ECHOED)
        self.assertEqual(caller.take(caller.init(token, sequence=peer.MAXSEQ + 1, service=99))[0], peer.GSS_COMPLETE)
        self.assertEqual(caller.call(peer.ECHO, peer.PRIVACY, ECHOED), ECHOED)
        self.stop_server(self.server)

    # Shows: GSS-VERS-02, GSS-CRED-02, GSS-CRED-03, GSS-SEQ-03, GSS-ERR-02, GSS-ERR-03, GSS-PRIV-02
    def test_calls_are_refused_by_the_rules(self):
        caller, right = self.caller().establish(), self.caller().establish()
        unsealed = peer.opaque(peer.words(1) + ECHOED)
        for why, service, change in (
                (BADCRED, peer.NONE, {"version": 0}), (BADCRED, peer.NONE, {"version": 2}),
                (BADCRED, peer.NONE, {"behind": bytes(4)}), (BADCRED, peer.NONE, {"control": 5}),
                (BADCRED, 0, {}), (BADCRED, 4, {}),
                (CREDPROBLEM, peer.NONE, {"handle": b""}), (CREDPROBLEM, peer.NONE, {"handle": bytes(16)}),
                (CREDPROBLEM, peer.NONE, {"handle": right.handle}), (CREDPROBLEM, peer.NONE, {"handle": bytes(300)}),
                (CREDPROBLEM, peer.PRIVACY, {"header_sum": peer.flipped}),
                (CREDPROBLEM, peer.INTEGRITY, {"header_sum": lambda right: b"", "number": peer.MAXSEQ}),
                (CTXPROBLEM, peer.INTEGRITY, {"number": peer.MAXSEQ + 1}),
                (CTXPROBLEM, peer.NONE, {"number": 0xffffffff})):
            with self.subTest(change, service=service):
                self.assert_denied(caller.answer(caller.message(peer.ECHO, service, ECHOED, **change)), why)
                self.assertEqual(right.call(peer.ECHO, peer.PRIVACY, ECHOED), ECHOED)
        for service, change in (
                (peer.INTEGRITY, {"inner": 7}), (peer.PRIVACY, {"inner": 7}),
                (peer.INTEGRITY, {"body": peer.flipped}), (peer.PRIVACY, {"body": peer.flipped}),
                (peer.INTEGRITY, {"body": lambda right: right[:-4]}),
                (peer.PRIVACY, {"body": lambda right: right[:-4]}),
                (peer.INTEGRITY, {"body": lambda right: right + bytes(4)}),
                (peer.PRIVACY, {"body": lambda right: right + bytes(4)}),
                (peer.INTEGRITY, {"body": lambda right: ECHOED}), (peer.PRIVACY, {"body": lambda right: ECHOED}),
                (peer.INTEGRITY, {"body": lambda right: unsealed}), (peer.PRIVACY, {"body": lambda right: unsealed}),
                (peer.PRIVACY, {"body": lambda right: peer.opaque(b"")}),
                (peer.PRIVACY, {"body": lambda right: peer.opaque(
                    caller.context.wrap(peer.words(caller.sequence) + ECHOED, False).message)})):
            with self.subTest(change, service=service):
                reply = caller.answer(caller.message(peer.ECHO, service, ECHOED, **change))
                self.assertEqual((reply.denied, reply.status, reply.results), (False, GARBAGE_ARGS, b""))
                caller.verify(reply, caller.sequence)
                self.assertEqual(right.call(peer.ECHO, peer.PRIVACY, ECHOED), ECHOED)
        self.assertEqual(caller.call(peer.ECHO, peer.PRIVACY, ECHOED), ECHOED)
        self.stop_server(self.server)

    # What has no answer is followed by a call that has one: answers come in order.
    # Shows: GSS-SEQ-01, GSS-SEQ-02, GSS-VERF-01
    def test_replays_and_old_numbers_have_no_answer(self):
        caller, right = self.caller().establish(), self.caller().establish()
        first = caller.message(peer.ECHO, peer.PRIVACY, ECHOED)
        self.assertEqual(caller.answer(first).status, 0)
        caller.link.send(first)
        self.assertEqual(caller.call(peer.ECHO, peer.INTEGRITY, ECHOED), ECHOED)
        right.link.send(first)  # over another connection
        self.assertEqual(right.call(peer.ECHO, peer.NONE, ECHOED), ECHOED)
        forged = caller.message(peer.ECHO, peer.NONE, ECHOED, number=1_000_000, header_sum=peer.flipped)
        self.assert_denied(caller.answer(forged), CREDPROBLEM)
        self.assertEqual(caller.call(peer.ECHO, peer.NONE, ECHOED), ECHOED, "the window has not moved")
        self.assertEqual(caller.call(peer.ECHO, peer.NONE, ECHOED, number=100_000), ECHOED)
        self.assertEqual(caller.call(peer.ECHO, peer.NONE, ECHOED, number=100_001 - caller.window), ECHOED)
        for old in (100_000, 100_001 - caller.window, 50_000, 0):
            caller.link.send(caller.message(peer.ECHO, peer.NONE, ECHOED, number=old))
            caller.sequence = 100_001 + old % 7  # others than before
            self.assertEqual(caller.call(peer.ECHO, peer.NONE, ECHOED), ECHOED)
        self.stop_server(self.server)


class Responders(harness.Case):
    """The peer answers our client."""
    COUNT = 40

    def run_client(self, responder, kind):
        return self.run_testrpc("--client", responder.uri, "--sec", kind, "--target", "nfs@localhost", "--engine",
                                "echo", "--size", "100", "--count", self.COUNT, "--idle", "adaptive", "--verify",
                                "--json", self.json_path)

    def assert_followed(self, responder):
        """The responder has come to the end without finding a fault in the client."""
        responder.join(harness.PATIENCE)
        if responder.failure is not None:
            raise responder.failure

    # Shows: GSS-VERS-04, GSS-VERS-05, GSS-CRED-05, GSS-INIT-03, GSS-INIT-04, GSS-VERF-01, GSS-INTEG-01, GSS-PRIV-01,
    # GSS-SEQ-05, GSS-RDMA-01
    def test_calls_keep_to_the_rules(self):
        for kind, service in SERVICES.items():
            with self.subTest(kind):
                responder = peer.Responder()
                process = self.run_client(responder, kind)
                self.assert_followed(responder)
                self.assert_all_right(process, self.COUNT)
                first, *calls = responder.calls
                self.assertEqual((first.control, first.handle), (peer.INIT, b""))
                self.assertEqual({call.version for call in responder.calls}, {1})
                data = [call for call in calls if call.control == peer.DATA]
                self.assertGreaterEqual(len(data), self.COUNT)
                self.assertEqual({call.service for call in data}, {service})
                numbers = [call.sequence for call in data]
                self.assertEqual(numbers, sorted(set(numbers)))
                self.assertLess(numbers[-1], peer.MAXSEQ)
                flags = responder.context.actual_flags
                self.assertFalse(flags & (gssapi.RequirementFlag.replay_detection
                                          | gssapi.RequirementFlag.out_of_sequence_detection))

    # Shows: GSS-INIT-06, GSS-CRED-05
    def test_the_client_goes_on_until_both_ends_are_complete(self):
        class InTwoSteps(peer.Responder):
            def take_token(self, call, arguments):
                if call.control == peer.CONTINUE_INIT:
                    if (arguments.opaque(), call.handle) != (b"", self.HANDLE):
                        raise ValueError("a token where none is left, or no handle")
                    return self.complete(b"")
                super().take_token(call, arguments)
                return (peer.words(peer.AUTH_NONE, 0, 0) + peer.opaque(self.HANDLE)
                        + peer.words(peer.GSS_CONTINUE, 0, self.WINDOW) + peer.opaque(self.answer))

            def complete(self, answer):
                self.answer = answer
                return super().complete(b"")

        responder = InTwoSteps()
        process = self.run_client(responder, "krb5p")
        self.assert_followed(responder)
        self.assert_all_right(process, self.COUNT)

    # Shows: GSS-INIT-07
    def test_a_server_without_the_key_is_found_out(self):
        class OtherWindow(peer.Responder):
            def sum_of_window(self):
                return self.context.get_signature(peer.words(self.WINDOW + 1))

        class NoToken(peer.Responder):
            def complete(self, answer):
                return super().complete(b"")

        class NoVerifier(peer.Responder):
            def complete(self, answer):
                right = peer.Reader(super().complete(answer))
                right.word(), right.opaque()
                return peer.words(peer.AUTH_NONE, 0) + right.rest()

        for kind in (OtherWindow, NoToken, NoVerifier):
            with self.subTest(kind):
                self.assert_fails_with_one_line(self.run_client(kind(), "krb5p"), "no security context")

    # Shows: GSS-DATA-02, GSS-INTEG-02, GSS-PRIV-02, GSS-RDMA-05, GSS-RDMA-06
    def test_replies_that_are_wrong_end_their_calls(self):
        class Hostile(peer.Responder):
            """Has a fault in each answer to an echo, another one each time."""

            def fault_of(self, call):
                if call.procedure != peer.ECHO:
                    return None
                faults = ["other number", "flipped sum", "no sum"]
                if call.service != peer.NONE:
                    faults += ["flipped", "other number inside", "cut", "longer", "bare", "empty", "empty inside"]
                echoes = sum(other.procedure == peer.ECHO for other in self.calls)
                return faults[echoes % len(faults)]

            def sum_of_number(self, call):
                right = super().sum_of_number(call)
                if self.fault_of(call) == "other number":
                    return self.context.get_signature(peer.words(call.sequence + 1))
                return {"flipped sum": peer.flipped(right), "no sum": b""}.get(self.fault_of(call), right)

            def results(self, call, data):
                right = super().results(call, data)
                if self.fault_of(call) == "other number inside":
                    return peer.protect(self.context, call.service, call.sequence + 1, data)
                return {"flipped": right and peer.flipped(right), "cut": right[:-4], "longer": right + bytes(4),
                        "bare": data, "empty": b"", "empty inside": peer.opaque(b"")}.get(self.fault_of(call), right)

        for kind in SERVICES:
            with self.subTest(kind):
                responder = Hostile()
                process = self.run_client(responder, kind)
                self.assert_followed(responder)
                self.assert_status(process, 1)
                run, = self.result()["runs"]
                made = run["calls"] + run["warmup_calls"]
                self.assertEqual(run["errors_by_reason"], {"authentication error": made})
                self.assertEqual((run["calls_right"], run["wrong_bytes"]), (0, 0))


if __name__ == "__main__":
    harness.main()

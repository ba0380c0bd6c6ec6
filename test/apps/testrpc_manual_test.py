#!/usr/bin/env python3
"""Manual pages agree with --help, and the shells complete testrpc's options."""
import pathlib
import re
import shutil
import subprocess
import sys

import testrpc_harness as harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "doc/man"
C_HEADER = ROOT / "lib/include/rrdk/rrdk.h"
TOOLS = {"rrdk-top.1": "rrdk-top.py", "rrdk-dump.1": "rrdk-dump.py", "rrdk-doctor.1": "rrdk-doctor.py",
         "rrdk-latency-profile.1": "latency-profile.py", "rrdk-hdr-log.1": "hdr-log.py",
         "rrdk-trace.1": "rrdk-trace.py", "rrdk-bind.1": "rrdk-bind.py"}
BY_HELP = re.compile(r"(?<![\w-])(-[a-z]|--[a-z][\w-]*)")
BY_PAGE = re.compile(r"\bFl (-?[a-z][\w-]*)")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def options_of_page(text):
    """Options that have a paragraph, or are in the synopsis."""
    lines = [line for line in text.splitlines() if line.startswith((".It Fl", ".Op", ".Fl"))]
    return {f"-{name}" for line in lines for name in BY_PAGE.findall(line)}


def options_of_help(text):
    """Options at the beginning of a line: elsewhere they are part of an explanation."""
    lines = re.findall(r"^ {2,4}(-[^ ].*?)(?:  |$)", text, re.MULTILINE)
    return {name for line in lines for name in BY_HELP.findall(line)}


class Manual(harness.Case):
    def page_of_testrpc(self):
        return output_of(sys.executable, PAGES / "testrpc_page.py", harness.TESTRPC, PAGES / "testrpc.1.in")

    def test_pages_are_well_formed(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is missing: apt-get install mandoc")
        generated = pathlib.Path(self.folder, "testrpc.1")
        generated.write_text(self.page_of_testrpc())
        subprocess.run([sys.executable, PAGES / "c_pages.py", C_HEADER, self.folder], check=True)
        of_c = [page for page in pathlib.Path(self.folder).glob("*.3") if not page.read_text().startswith(".so")]
        self.assertGreater(len(of_c), 10)
        for page in (*PAGES.glob("*.[17]"), generated, *of_c):
            run = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True)
            self.assertEqual(run.stdout, "")

    def test_each_function_for_c_has_a_page(self):
        pages = set(output_of(sys.executable, PAGES / "c_pages.py", C_HEADER, "--list").split())
        functions = set(re.findall(r"^(?!typedef)[^/ ].*?\b(rrdk_\w+)\(", C_HEADER.read_text(), re.MULTILINE))
        self.assertGreater(len(functions), 150)
        self.assertEqual({f"{function}.3" for function in functions} - pages, set())

    def test_testrpc_page_has_each_option(self):
        text = output_of(harness.TESTRPC, "--help")
        wanted = set(re.findall(r"^  (--?[a-z][\w-]*)", text, re.MULTILINE))
        self.assertGreater(len(wanted), 50)
        self.assertEqual(wanted - options_of_page(self.page_of_testrpc()), set())

    def test_pages_have_each_option(self):
        for page, script in TOOLS.items():
            run = subprocess.run([sys.executable, ROOT / "scripts" / script, "--help"], capture_output=True, text=True)
            if "is missing" in run.stderr:
                continue  # a Python module that only this tool needs
            shown = options_of_page((PAGES / page).read_text())
            known = options_of_help(run.stdout)
            if script != "hdr-log.py":  # has none
                self.assertTrue(known, run.stdout + run.stderr)
            self.assertEqual(known - shown - {"-h", "--help"}, set(), f"options that {page} does not have")
            self.assertEqual(shown - set(BY_HELP.findall(run.stdout)), set(), f"options that only {page} has")


class Completion(harness.Case):
    def complete(self, *words):
        """What bash offers for the last word."""
        script = output_of(harness.TESTRPC, "--completion", "bash")
        line = " ".join(f"'{word}'" for word in words)
        return output_of("bash", "-c", f"{script}\ncompopt() {{ echo files; }}\nCOMP_WORDS=({line})\n"
                         f"COMP_CWORD={len(words) - 1}\n_testrpc\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"").split()

    def test_bash(self):
        self.assertEqual(self.complete("testrpc", "--eng"), ["--engine"])
        self.assertEqual(self.complete("testrpc", "--engine", "sand"), ["sandwich"])
        self.assertEqual(self.complete("testrpc", "--idle", "=", "ad"), ["adaptive"])
        self.assertEqual(self.complete("testrpc", "--idle", "="), ["busy", "yield", "adaptive"])
        self.assertEqual(self.complete("testrpc", "--client", "iw"), ["iwarp://"])
        self.assertEqual(self.complete("testrpc", "--json", "x"), ["files"])
        self.assertEqual(self.complete("testrpc", "--count", "1"), [])
        self.assertEqual(self.complete("testrpc", "--self", "--ver"), ["--version", "--verify"])

    def test_zsh(self):
        if shutil.which("zsh") is None:
            self.skipTest("zsh is missing: apt-get install zsh")
        script = pathlib.Path(self.folder, "_testrpc")
        script.write_text(output_of(harness.TESTRPC, "--completion", "zsh"))
        # Replaces zsh's own function: its arguments for each option.
        told = output_of("zsh", "-f", "-c", f"_arguments() {{ print -rl -- \"$@\" }}; . {script}").splitlines()
        self.assertIn("*--engine[", "\n".join(told))
        self.assertTrue(any(line.startswith("*--self=[") and "::" in line for line in told), told)
        self.assertTrue(any(line.endswith(":(busy yield adaptive)") for line in told), told)
        self.assertEqual(len(told), 3 + len(re.findall(r"^  --(?!help|version|completion)[a-z]",
                                                       output_of(harness.TESTRPC, "--help"), re.MULTILINE)))

    def test_other_shells(self):
        run = self.run_testrpc("--completion", "fish")
        self.assert_fails_with_one_line(run, "bash and zsh", status=2)


if __name__ == "__main__":
    harness.main()

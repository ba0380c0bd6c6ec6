#!/usr/bin/env python3
"""What the compiler says of programs that use the public headers wrongly.

Usage: public_headers_test.py FOLDER COMPILER...
"""
import subprocess
import sys

INCLUDES, COMPILER = sys.argv[1], sys.argv[2:]
IGNORED = ['server.listen("nonsense")', "server.add_service({})", "rrdk::ensure_eal()",
           "rrdk::Server::create(runtime)", "memory.allocate(1)", "runtime.set_faults({})"]


def said_of(statements, standard="-std=c++20"):
    """The compiler's messages about a program with one function for each statement. Statement N is line N of a file
    of that name: the headers take far longer to compile than all the functions."""
    program = """#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/faults.h"
#include "rrdk/server.h"
"""
    for number, statement in enumerate(statements, 1):
        program += f"""void use{number}(rrdk::Server& server, rrdk::Runtime& runtime, rrdk::Memory& memory) {{
(void)server; (void)runtime; (void)memory;
#line {number} "statement"
{statement};
}}
"""
    return subprocess.run([*COMPILER, standard, "-fsyntax-only", "-I", INCLUDES, "-x", "c++", "-"],
                          input=program, capture_output=True, text=True).stderr


said = said_of(IGNORED)
for line, ignored in enumerate(IGNORED, 1):
    about_it = [text for text in said.splitlines() if text.startswith(f"statement:{line}:")]
    assert any("nodiscard" in text or "ignoring return value" in text for text in about_it), (ignored, said)
assert "error" not in said, said
said = said_of([f"rrdk::must({ignored})" for ignored in IGNORED])
assert said == "", said
said = said_of([], "-std=c++17")
assert "RRDK's headers need C++20" in said, said
print("the compiler says what it should")

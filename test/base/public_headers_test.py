#!/usr/bin/env python3
"""What the compiler says of programs that use the public headers wrongly.

Usage: public_headers_test.py FOLDER COMPILER...
"""
import subprocess
import sys

INCLUDES, COMPILER = sys.argv[1], sys.argv[2:]


def warnings_of(body, standard="-std=c++20"):
    program = f"""#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/faults.h"
#include "rrdk/server.h"
void use(rrdk::Server& server, rrdk::Runtime& runtime, rrdk::Memory& memory) {{ {body}; }}
"""
    return subprocess.run([*COMPILER, standard, "-fsyntax-only", "-I", INCLUDES, "-x", "c++", "-"],
                          input=program, capture_output=True, text=True).stderr


quiet = "(void)server; (void)runtime; (void)memory; "
assert warnings_of(quiet) == "", warnings_of(quiet)
for ignored in ['server.listen("nonsense")', "server.add_service({})", "rrdk::ensure_eal()",
                "rrdk::Server::create(runtime)", "memory.allocate(1)", "runtime.set_faults({})"]:
    said = warnings_of(quiet + ignored)
    assert "nodiscard" in said or "ignoring return value" in said, (ignored, said)
    kept = warnings_of(quiet + f"rrdk::must({ignored})")
    assert "error" not in kept, (ignored, kept)
old = warnings_of("", "-std=c++17")
assert "RRDK's headers need C++20" in old, old
print("the compiler says what it should")

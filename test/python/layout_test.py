#!/usr/bin/env python3
"""What the module rrdk declares of the C API is what rrdk/rrdk.h declares: a C compiler compares structures, constants
and functions.

Usage: layout_test.py INCLUDE_FOLDER [CASE...]; CC is the compiler, RRDK_LIBRARY the library.
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import python_harness as harness
from rrdk import _c

INCLUDE = sys.argv[1]


def header():
    """The declarations in rrdk.h and release.h, without comments."""
    text = "".join(Path(INCLUDE, "rrdk", name).read_text(encoding="utf-8") for name in ("rrdk.h", "release.h"))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def printed(expressions):
    """Returns {expression: its value} of integers, from a C program."""
    lines = "".join(f'  printf("%lld\\n", (long long)({each}));\n' for each in expressions)
    source = (f"#include <stddef.h>\n#include <stdio.h>\n#include <rrdk/rrdk.h>\n"
              f"int main(void) {{\n{lines}  return 0;\n}}\n")
    with tempfile.TemporaryDirectory(prefix="rrdk-python-") as folder:
        program = f"{folder}/program"
        Path(f"{program}.c").write_text(source, encoding="utf-8")
        made = subprocess.run([*os.environ.get("CC", "cc").split(), "-std=c11", f"-I{INCLUDE}", f"{program}.c", "-o",
                               program], capture_output=True, text=True)
        if made.returncode != 0:
            raise AssertionError(made.stderr)
        output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, output.split())))


# The types of the header that are not structures, handles or pointers, and what ctypes passes for them.
PLAIN = {"void": None, "bool": ctypes.c_bool, "int": ctypes.c_int, "uint32_t": ctypes.c_uint32,
         "uint16_t": ctypes.c_uint16, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "char*": ctypes.c_char_p,
         "char* const*": ctypes.POINTER(ctypes.c_char_p), "char**": ctypes.POINTER(ctypes.c_char_p),
         "uint32_t*": ctypes.POINTER(ctypes.c_uint32), "uint64_t*": ctypes.POINTER(ctypes.c_uint64),
         "void*": ctypes.c_void_p, "rrdk_completion": _c.OnDone, "rrdk_handler": _c.OnCall,
         "rrdk_on_state": _c.OnState}
ENUMERATIONS = {_c.ErrorCode: "errc", _c.CallStatus: "call_status", _c.AcceptStat: "accept_stat",
                _c.AuthStat: "auth_stat", _c.LogLevel: "log_level", _c.Hugepages: "hugepages",
                _c.IdlePolicy: "idle_policy", _c.Version: "rpc_rdma_version", _c.Draft: "draft",
                _c.State: "connection_state", _c.EndedBy: "ended_by", _c.Protection: "gss_protection",
                _c.Acceptance: "acceptance"}


def expected_types(in_c):
    """What may be declared for a type, as the header has it."""
    if "(*" in in_c:
        return [_c.OnReleased, _c.OnConnection]
    plain = in_c.removeprefix("const ")
    structures = {structure.__name__: structure for structure in _c.STRUCTURES}
    if plain in structures:
        return [structures[plain]]
    if plain.removesuffix("*") in structures:
        return [ctypes.POINTER(structures[plain[:-1]])]
    if plain in PLAIN:
        return [PLAIN[plain], ctypes.c_char_p] if in_c == "const void*" else [PLAIN[plain]]
    if plain.removeprefix("rrdk_") in {*ENUMERATIONS.values(), "ddp"}:
        return [ctypes.c_int]
    pointers = re.fullmatch(r"rrdk_\w+(\*| const\*|\* const\*|\*\*)", plain)
    return [ctypes.c_void_p if pointers[1] == "*" else ctypes.POINTER(ctypes.c_void_p)]


class Layout(harness.Case):
    def test_structures_have_the_same_fields_at_the_same_places(self):
        expected = {}
        for structure in _c.STRUCTURES:
            name = structure.__name__
            expected[f"sizeof({name})"] = ctypes.sizeof(structure)
            for field, _ in structure._fields_:
                expected[f"offsetof({name}, {field})"] = getattr(structure, field).offset
                expected[f"sizeof((({name}*)0)->{field})"] = getattr(structure, field).size
        self.assertEqual(printed(list(expected)), expected)

    def test_structures_lack_no_field(self):
        text = header()
        for structure in _c.STRUCTURES:
            body = re.search(rf"typedef struct {structure.__name__} {{(.*?)\n}}", text, re.DOTALL)[1]
            body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)  # a pointer to a function
            fields = [re.search(r"(\w+)(\[\d+\])?$", part.strip())[1]
                      for declaration in body.split(";")[:-1] for part in declaration.split(",")]
            self.assertEqual(fields, [name for name, _ in structure._fields_], structure)

    def test_the_enumerations_have_the_same_values(self):
        expected = {}
        for kind, prefix in _c.ENUMS.items():
            for name, member in kind.__members__.items():
                if not name.startswith("RPCSEC_GSS"):
                    name = prefix.removeprefix("RRDK_") + name
                expected["RRDK_" + name] = int(member)
        for name in ("DDP_NO", "DDP_ELIGIBLE", "OTHER_PROCEDURES", "NO_ID", "URI_BYTES"):
            expected["RRDK_" + name] = getattr(_c, name)
        self.assertEqual(printed(list(expected)), expected)

    def test_the_enumerations_lack_no_value(self):
        text = header()
        self.assertEqual(set(ENUMERATIONS), set(_c.ENUMS))
        for kind, name in ENUMERATIONS.items():
            body = re.search(rf"typedef enum rrdk_{name} {{(.*?)}}", text, re.DOTALL)[1]
            values = set(re.findall(r"RRDK_\w+", body)) - {"RRDK_OK", "RRDK_AUTH_OK"}
            self.assertEqual(len(values), len(kind.__members__), (name, values))

    def test_functions_have_the_same_types(self):
        prototypes = {name: (result, arguments) for result, name, arguments in re.findall(
            r"^((?:const )?\w+\*?) ?rrdk_(\w+)\(((?:[^()]|\([^()]*\))*)\);", header(), re.MULTILINE)}
        for name, (result, *arguments) in [*_c.FUNCTIONS.items(), *_c.HELD.items()]:
            result_in_c, arguments_in_c = prototypes[name]
            parts = [part.strip() for part in re.split(r",(?![^()]*\))", arguments_in_c) if part.strip() != "void"]
            self.assertEqual(len(parts), len(arguments), name)
            for part, kind in zip([f"{result_in_c} result", *parts], [result, *arguments]):
                in_c = part if "(*" in part else re.sub(r"\w+$", "", part).strip()
                self.assertIn(kind, expected_types(in_c), (name, part))


if __name__ == "__main__":
    harness.main()

#!/usr/bin/env python3
"""Joins test files into one translation unit; test/meson.build runs it.

    unity.py OUTPUT FILE...

Most of the time that a test file takes to compile goes into headers and templates that its
neighbours need as well: four files together take little longer than one. Each file's anonymous
namespace gets a named one around it, so that two files may use the same names. Messages of the
compiler and of GoogleTest name the original files and lines.

So in a test file everything lies in one anonymous namespace. What other files call (a fixture's
member functions, say) goes into a file that is not called *_test.cc; such files are compiled alone.
"""
import os
import re
import sys
from pathlib import Path

OPENS = re.compile(r"^namespace \{$", re.MULTILINE)
CLOSES = re.compile(r"^\}  // namespace$", re.MULTILINE)
NEAR = re.compile(r'^#include "(.*)"$', re.MULTILINE)


def joined(source, folder):
    """The file's text as it stands in the unit, which is written to the folder."""
    text = source.read_text(encoding="utf-8")
    # Includes beside the file are found from the unit's folder; the path is relative for the sake
    # of ccache.
    text = NEAR.sub(lambda m: f'#include "{os.path.relpath(source.parent / m[1], folder)}"'
                    if (source.parent / m[1]).is_file() else m[0], text)
    name = re.sub(r"\W", "_", source.stem)
    text = OPENS.sub(f"namespace {name} {{ namespace {{", text)
    text = CLOSES.sub("} }", text)
    return f'#line 1 "{os.path.relpath(source)}"\n{text}\n'


output = Path(sys.argv[1])
output.write_text("".join(joined(Path(name), output.parent) for name in sys.argv[2:]), encoding="utf-8")

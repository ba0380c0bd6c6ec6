#!/usr/bin/env python3
"""Checks by meson's records whether a build directory is set up as requested. Exit status 0: it is.

    configured.py DIRECTORY CC CXX MESON_SETUP_OPTIONS...

ccache in front of a compiler makes no difference.
"""
import configparser
import json
import re
import subprocess
import sys
from pathlib import Path

from source import ROOT

COMPILER = re.compile(r'^(?:C|C\+\+) compiler for the host machine: (?:\S*ccache )?(\S+) .*"(.*)"\)$', re.MULTILINE)


def wanted_options(words):
    """Returns options such as --werror, -Dname=value and --name=value in the form of meson's records."""
    options = {}
    for word in words:
        name, _, value = re.sub("^(--|-D)", "", word).partition("=")
        options[name] = value or "True"
    return options


def version(compiler):
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]


def is_configured(build, compilers, options):
    records = configparser.ConfigParser(interpolation=None)
    records.optionxform = str
    try:
        if not (build / "build.ninja").exists() or not records.read(build / "meson-private/cmd_line.txt"):
            return False
        info = json.loads((build / "meson-info/meson-info.json").read_text(encoding="utf-8"))
        log = (build / "meson-logs/meson-log.txt").read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, configparser.Error):
        return False
    return (info["directories"]["source"] == str(ROOT) and not info.get("error")
            and {name: value.strip("'") for name, value in records["options"].items()} == wanted_options(options)
            and dict(COMPILER.findall(log)) == {name: version(name) for name in compilers})


sys.exit(0 if is_configured(Path(sys.argv[1]), sys.argv[2:4], sys.argv[4:]) else 1)

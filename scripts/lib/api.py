"""The public interface, as doxygen reads it in lib/include/rrdk/."""
import dataclasses
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from lib.source import ROOT


@dataclasses.dataclass(frozen=True)
class Symbol:
    name: str         # rrdk::Server::listen
    kind: str         # class, struct, function, variable, typedef, enum, enumvalue, define
    header: Path      # relative to the root
    line: int
    documented: bool  # by a comment of its own
    arguments: str    # of a function, from the parenthesis to the end of its declaration
    is_inline: bool   # defined in the header
    is_private: bool


def run_doxygen(*settings):
    """Runs doxygen over the headers; returns its warnings."""
    config = "\n".join(["@INCLUDE = doc/Doxyfile", *settings])
    try:
        run = subprocess.run(["doxygen", "-"], input=config, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("doxygen is missing: apt-get install doxygen")
    if run.returncode != 0:
        sys.exit(f"doxygen failed:\n{run.stderr}")
    return run.stderr


def symbols():
    """Returns everything public in the headers: members of namespaces and classes, and macros."""
    with tempfile.TemporaryDirectory() as folder:
        run_doxygen(f"OUTPUT_DIRECTORY = {folder}", "GENERATE_XML = YES", "XML_PROGRAMLISTING = NO")
        found = set()
        for page in sorted(Path(folder, "xml").glob("*.xml")):
            for compound in ET.parse(page).getroot().iter("compounddef"):
                found.update(_of_compound(compound))
    return sorted(found, key=lambda symbol: (symbol.header, symbol.line, symbol.name))


def _of_compound(compound):
    kind, name = compound.get("kind"), compound.findtext("compoundname")
    if compound.get("prot") == "private":
        return
    if kind in ("class", "struct", "union"):
        yield _symbol(compound, name, kind)
    elif kind not in ("namespace", "file"):
        return
    for member in compound.iter("memberdef"):
        member_kind = member.get("kind")
        if member_kind == "friend":
            continue
        if kind == "file" and member_kind not in ("define", "function"):
            continue
        qualified = member.findtext("name") if kind == "file" else f"{name}::{member.findtext('name')}"
        yield _symbol(member, qualified, member_kind)
        for value in member.iter("enumvalue"):
            yield dataclasses.replace(_symbol(member, qualified, "enumvalue"), documented=_has_text(value),
                                      name=f"{qualified}::{value.findtext('name')}")


def _symbol(element, name, kind):
    location = element.find("location")
    arguments = element.findtext("argsstring") or ""
    is_inline = (element.get("inline") == "yes" or element.find("templateparamlist") is not None or
                 "constexpr" in (element.findtext("type") or ""))
    return Symbol(name, kind, Path("lib/include", location.get("file")), int(location.get("line")), _has_text(element), arguments,
                  is_inline, element.get("prot") == "private")


def _has_text(element):
    return any((element.find(part) is not None and "".join(element.find(part).itertext()).strip())
               for part in ("briefdescription", "detaileddescription"))

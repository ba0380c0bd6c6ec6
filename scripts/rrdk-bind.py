#!/usr/bin/env python3
"""Writes the binding file of an rpcgen program from its .x (doc/porting-rpcgen.md).

    rrdk-bind kv.x > kv.bind
    rrdk-bind --largest 1M perf.x     the bound of opaque<> that has none
    rrdk-bind -D LARGE -I include -Y /usr/bin kv.x

The C preprocessor is run as rpcgen runs it for the header (RPC_HDR is defined): -D and -I are passed to it,
and -Y names the folder that contains cpp. Constants of "%#define" lines are known too. A bound that is
defined only in a C header is unknown, and counts as unbounded.

Fields followed by a comment that contains the word DDP-eligible become items:

    opaque value<KV_LARGEST_VALUE>;      /* DDP-eligible */

A procedure whose other results are bounded by at most 1 MiB gets a line with that bound.
"""
import argparse
import os
import re
import subprocess
import sys

from lib import output

MARK = " @eligible "
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
TOKEN = re.compile(r'@eligible|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|-?\d+|"[^"]*"|[{}()\[\]<>;:,=*]')
DEFINE = re.compile(r"^%\s*#\s*define\s+(\w+)[ \t]+(.+)$", re.MULTILINE)
WORD = re.compile(r"0[xX][0-9a-fA-F]+|\w+")
SUM = re.compile(r"[\d\s()+*-]+")
SIZES = {"int": 4, "long": 4, "short": 4, "char": 4, "bool": 4, "float": 4, "hyper": 8, "double": 8,
         "quadruple": 16, "unsigned": 4, "enum": 4, "void": 0, "u_int": 4, "u_long": 4, "u_char": 4,
         "u_short": 4, "int32_t": 4, "uint32_t": 4, "u_int32_t": 4, "int64_t": 8, "uint64_t": 8,
         "u_int64_t": 8, "u_hyper": 8, "int8_t": 4, "uint8_t": 4, "int16_t": 4, "uint16_t": 4}
UNBOUNDED = float("inf")
MOST_REPLY = 1 << 20
MOST_ITEM = 8 << 20


class Mistake(Exception):
    pass


class Field:
    """A declaration: the type's name, its own name, and its form: plain, fixed, variable or pointer."""

    def __init__(self, type_name, name, form, bound):
        self.type, self.name, self.form, self.bound = type_name, name, form, bound
        self.eligible = False


class Parser:
    """Parses the declarations: aliases and structs are lists of fields, unions lists of such lists."""

    def __init__(self, text, largest):
        self.tokens = TOKEN.findall(without_comments(text))
        self.at, self.largest = 0, largest
        self.constants, self.types, self.programs = {}, {}, []
        self.defines = {name: value.split("/*")[0] for name, value in DEFINE.findall(text)}
        while self.at < len(self.tokens):
            self.definition()

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted=None):
        token = self.peek()
        if not token or wanted not in (None, token):
            raise Mistake(f"'{wanted or 'more'}' is missing before '{token}'")
        self.at += 1
        return token

    def value(self, word, within=()):
        """Returns the value of a number in C's syntax or of a constant, or None if it is not known."""
        if re.fullmatch(r"-?\d\w*", word):
            try:
                return int(word, 8 if re.fullmatch(r"-?0\d+", word) else 0)
            except ValueError:
                return None
        if word in self.constants or word not in self.defines or word in within:
            return self.constants.get(word)
        words = WORD.sub(lambda found: str(self.value(found[0], (*within, word))), self.defines[word])
        try:
            return eval(words, {"__builtins__": {}}) if SUM.fullmatch(words) else None  # digits and signs only
        except SyntaxError:
            return None

    def number(self, word):
        value = self.value(word)
        if value is None:
            raise Mistake(f"'{word}' is no number and no const")
        return value

    def bound(self, word):
        """Returns the bound, or UNBOUNDED for a name that only a C header may define."""
        value = self.value(word)
        if value is None and not re.fullmatch(r"[A-Za-z_]\w*", word):
            raise Mistake(f"'{word}' is no number and no const")
        return UNBOUNDED if value is None else value

    def definition(self):
        kind = self.take()
        if kind in (";", "@eligible"):
            return
        if kind == "const":
            name = self.take()
            self.take("=")
            word = self.take()
            self.constants[name] = None if word.startswith('"') else self.number(word)
        elif kind == "typedef":
            field = self.declaration()
            self.end_of(field)
            self.types[field.name] = ("alias", [[field]])
        elif kind in ("struct", "union", "enum"):
            name = self.take()
            self.types[name] = (kind, {"struct": self.struct, "union": self.union, "enum": self.enum}[kind]())
        elif kind == "program":
            self.program()
        else:
            raise Mistake(f"no definition begins with '{kind}'")

    def type_name(self):
        word = self.take()
        if word in ("struct", "enum", "union"):
            return self.take()
        if word == "unsigned":
            return self.take() if self.peek() in SIZES else word
        return word

    def declaration(self):
        type_name = self.type_name()
        if type_name == "void":
            return Field("void", "", "plain", 0)
        form, bound = "plain", 0
        if self.peek() == "*":
            self.take()
            form = "pointer"
        name = self.take()
        if self.peek() in ("<", "["):
            form = "variable" if self.take() == "<" else "fixed"
            bound = UNBOUNDED if self.peek() == ">" else self.bound(self.take())
            self.take(">" if form == "variable" else "]")
        return Field(type_name, name, form, bound)

    def end_of(self, field):
        self.take(";")
        if self.peek() != "@eligible":
            return
        self.take()
        if field.type != "opaque" or field.form != "variable":
            raise Mistake(f"{field.name} is no opaque<>, so it cannot be DDP-eligible")
        field.eligible = True

    def struct(self):
        self.take("{")
        fields = []
        while self.peek() != "}":
            field = self.declaration()
            self.end_of(field)
            fields.append(field)
        self.take("}")
        return [fields]

    def union(self):
        self.take("switch")
        self.take("(")
        discriminant = self.declaration()
        self.take(")")
        self.take("{")
        arms = []
        while self.peek() != "}":
            if self.take() == "case":
                self.take()
            self.take(":")
            if self.peek() in ("case", "default"):
                continue
            field = self.declaration()
            self.end_of(field)
            arms.append([discriminant, field])
        self.take("}")
        return arms

    def enum(self):
        self.take("{")
        last = -1
        while self.peek() != "}":
            name = self.take()
            if self.peek() == "=":
                self.take()
                last = self.value(self.take())
            elif last is not None:
                last += 1
            self.constants[name] = last
            if self.peek() == ",":
                self.take()
        self.take("}")
        return []

    def program(self):
        self.take()
        self.take("{")
        versions = []
        while self.peek() != "}":
            self.take("version")
            self.take()
            self.take("{")
            procedures = []
            while self.peek() != "}":
                procedures.append(self.procedure())
            self.take("}")
            versions.append((self.number_behind(), procedures))
        self.take("}")
        program = self.number_behind()
        self.programs += [(program, version, procedures) for version, procedures in versions]

    def procedure(self):
        results = self.type_name()
        self.take()
        self.take("(")
        arguments = [self.type_name()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.type_name())
        self.take(")")
        return self.number_behind(), arguments, results

    def number_behind(self):
        self.take("=")
        number = self.number(self.take())
        self.take(";")
        while self.peek() == "@eligible":
            self.take()
        return number

    def items(self, type_name, within=()):
        """Returns the eligible items of a type in their order: (name, bytes)."""
        if type_name not in self.types or type_name in within:
            return []
        kind, arms = self.types[type_name]
        found = []
        for arm in arms:
            for field in arm:
                if field.eligible:
                    name = type_name if kind == "alias" else f"{type_name}.{field.name}"
                    found.append((name, min(field.bound, self.largest if field.bound == UNBOUNDED else MOST_ITEM)))
                else:
                    found += self.items(field.type, (*within, type_name))
        return list(dict.fromkeys(found))

    def most_bytes(self, type_name, within=()):
        """Returns the size of a type's longest XDR; eligible items count with their length word only."""
        if type_name in SIZES:
            return SIZES[type_name]
        if type_name in within or type_name not in self.types:
            return UNBOUNDED
        kind, arms = self.types[type_name]
        if kind == "enum":
            return 4
        return max(sum(self.field_bytes(field, (*within, type_name)) for field in arm) for arm in arms)

    def field_bytes(self, field, within):
        if field.eligible:
            return 4
        length_word = 4 if field.form == "variable" else 0
        if field.type in ("opaque", "string"):
            return length_word + (field.bound + 3) // 4 * 4 if field.bound != UNBOUNDED else UNBOUNDED
        element = self.most_bytes(field.type, within)
        if field.form == "plain":
            return element
        if field.form == "pointer":
            return 4 + element
        return length_word + (field.bound * element if element else 0)


def without_comments(text):
    text = re.sub(r"^[%#].*$", "", text, flags=re.MULTILINE)
    text = COMMENT.sub(lambda found: MARK if "DDP-eligible" in found[0] else " ", text)
    # A comment before all fields is about the whole structure, and marks no field.
    return re.sub(r"([{}]\s*)@eligible", r"\1", text.lstrip().removeprefix(MARK.strip()))


def size_text(size):
    return f"{size >> 20}M" if size and size % (1 << 20) == 0 else str(size)


def lines_of(parser):
    for program, version, procedures in parser.programs:
        for number, arguments, results in procedures:
            if number == 0:
                continue
            begin = f"{program:#x} {version} {number}"
            for what, types in (("args", arguments), ("results", [results])):
                for name, size in dict.fromkeys(item for one in types for item in parser.items(one)):
                    yield f"{begin} {what} {name} {size_text(size)}"
            most = parser.most_bytes(results)
            if 0 < most <= MOST_REPLY:
                yield f"{begin} reply {most}"


def size_argument(text):
    found = re.fullmatch(r"(\d+)([KM]?)", text)
    size = int(found[1]) << {"": 0, "K": 10, "M": 20}[found[2]] if found else MOST_ITEM + 1
    if size > MOST_ITEM:
        raise argparse.ArgumentTypeError("bytes, or a number with K or M, at most 8M")
    return size


def preprocessed(chosen):
    with open(chosen.file, "rb"):  # reports why if it cannot be read
        pass
    cpp = os.path.join(chosen.cpp, "cpp") if chosen.cpp else "cpp"
    # Only -traditional joins continued %-lines into one. -nostdinc keeps gcc from including its own header
    # before the file.
    command = [cpp, "-traditional", "-C", "-DRPC_HDR", *(f"-D{one}" for one in chosen.define), *(f"-I{one}" for one in chosen.include),
               "-nostdinc", "-idirafter", "/usr/include", chosen.file]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    except OSError as error:
        raise Mistake(f"{cpp}, the C preprocessor, cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise Mistake("the C preprocessor refuses it: " + (done.stderr.strip().splitlines() or [""])[0])
    return done.stdout


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--largest", type=size_argument, default=4 << 20, metavar="SIZE")
    options.add_argument("-D", action="append", default=[], metavar="NAME[=VALUE]", dest="define")
    options.add_argument("-I", action="append", default=[], metavar="FOLDER", dest="include")
    options.add_argument("-Y", metavar="FOLDER", dest="cpp")
    options.add_argument("file", metavar="FILE.x")
    chosen = options.parse_args()
    try:
        parser = Parser(preprocessed(chosen), chosen.largest)
    except (OSError, Mistake) as error:
        sys.exit(f"rrdk-bind: {chosen.file}: {getattr(error, 'strerror', None) or error}")
    for line in lines_of(parser):
        print(line)


if __name__ == "__main__":
    sys.exit(output.run("rrdk-bind", main))

"""Output of tools: written completely, or with an error message and an exit status.

    if __name__ == "__main__":
        sys.exit(output.run("hdr-log", main))
"""
import codecs
import contextlib
import errno
import os
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path

PLAIN = {"µ": "u", "…": "...", "–": "-", "—": "-", "’": "'"}


def plain(error):
    """Replaces characters that stdout's encoding lacks, for instance ASCII, and lone surrogates."""
    text = error.object[error.start:error.end]
    return "".join(PLAIN.get(character, "?") for character in text), error.end


codecs.register_error("rrdk-plain", plain)


def run(name, main, failed=2):
    """Runs main() and returns its result. If the reader of stdout closes it, or on Ctrl-C, the process dies of the
    signal, silently, as other programs do. For a file that cannot be written it prints an error and returns
    `failed`."""
    if sys.stdout is None:
        print(f"{name}: stdout is closed", file=sys.stderr)
        return failed
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="rrdk-plain")
    # argparse ignores errors of printing, so output is buffered and the final flush reports them.
    sys.stdout.reconfigure(write_through=False)
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt) as error:
        give_up_stdout()
        number = signal.SIGPIPE if isinstance(error, BrokenPipeError) else signal.SIGINT
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    except OSError as error:
        print(f"{name}: {error.filename or 'cannot write to stdout'}: {error.strerror or error}", file=sys.stderr)
        give_up_stdout()
    return failed


def give_up_stdout():
    """Keeps the interpreter from writing the rest of the output at its end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def file(path, newline=None):
    """Opens a text file to write. It replaces `path` when it is complete; if that is impossible, `path` itself
    is written."""
    path, how = Path(os.path.realpath(path)), {"encoding": "utf-8", "errors": "replace", "newline": newline}
    try:
        made = make_beside(path)
        if made is None:
            with open(path, "w", **how) as into:
                yield into
            return
        handle, name = made
        try:
            with os.fdopen(handle, "w", **how) as into:
                yield into
                into.flush()
                os.fsync(handle)
            os.chmod(name, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~umask())
            put(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        error.filename = str(path)
        raise


def make_beside(path):
    """Makes a file that can replace `path`. Returns None if `path` is a pipe or a device, or if it can be written
    but its folder cannot."""
    if path.exists() and not path.is_file():
        return None
    try:
        return tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError:
        if not os.access(path, os.W_OK):
            raise
        return None


def put(name, path):
    """Moves the file to its place. A mount point, such as a container's single file, can be written but not
    replaced; for a bind mount within one file system only the error of renaming shows that."""
    try:
        os.replace(name, path)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        shutil.copyfile(name, path)
        os.unlink(name)


@contextlib.contextmanager
def folder(path):
    """Makes an empty folder whose files move to the folder `path` when all are complete."""
    path = Path(path)
    before = next(parent for parent in (path, *path.parents) if parent.exists())
    path.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=path))
    try:
        yield staging
        for made in sorted(staging.iterdir()):
            put(made, path / made.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        while path != before and not any(path.iterdir()):
            path.rmdir()
            path = path.parent


def umask():
    now = os.umask(0o077)
    os.umask(now)
    return now

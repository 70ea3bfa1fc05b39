"""What a command writes: checked before the work, and written so that one output that fails does not take others along.

Files appear complete or not at all (io.atomic).  Standard output may be closed or full at any time: the command goes on
without it, writes its files, and says so by its exit code.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from tightmap.errors import ModelError, OptionError
from tightmap.runtime.interruption import Guard

STDOUT = "-"
STDOUT_NAMES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
STREAMABLE = ("--json", "--labels", "--trace")  # options that take "-"
FAILED, BROKEN_PIPE = 2, 141  # exit codes; the second is what a shell reports of programs that end by SIGPIPE


class Session:
    """The outputs of one command: what failed is remembered, with its sentence, and the rest goes on."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.failed = False
        self.pipe_closed = False
        self.stdout: TextIO | None = sys.stdout  # None when it was closed from the start, or is lost

    def check(self, outputs: Mapping[str, str | None], inputs: Mapping[str, str | None] | None = None) -> None:
        """Refuse, before any work, outputs that could not be written: {option: path}, None where it is not asked for.

        An output may not be the same file as another one, nor as one of ``inputs``.
        """
        seen = [(name, path) for name, path in (inputs or {}).items() if path is not None]
        for name, path in outputs.items():
            if path is None:
                continue
            for other, elsewhere in seen:
                if _same_file(path, elsewhere):
                    raise OptionError(f"{name} {path}: {other} names the same file")
            seen.append((name, path))
            if path == STDOUT:
                if name not in STREAMABLE:
                    raise OptionError(f"{name} -: this is not written to standard output, give a file")
                if self.stdout is None:
                    raise OptionError(f"{name} -: standard output is closed")
                continue
            from tightmap.io.atomic import check_writable

            with named(name):
                check_writable(path)

    def attempt(self, name: str, path: str, work: Callable[[], Any]) -> bool:
        """Do the work that writes one output; True when it went well, else its sentence is on standard error."""
        try:
            work()
            return True
        except ModelError as error:
            self.complain(f"{name} {error}")
        except MemoryError:
            self.complain(f"{name} {path}: cannot be written, out of memory")
        except Exception as error:
            self.complain(f"{name} {path}: cannot be written ({type(error).__name__}: {error})")
        self.failed = True
        return False

    def put(self, path: str, text: str) -> None:
        """Write text to standard output for "-", else to a file."""
        if path == STDOUT:
            self.say(text)
            return
        from tightmap.io.atomic import writing

        with writing(path) as file:
            file.write(text.encode())

    def say(self, text: str) -> None:
        """Text for standard output, at once; without one (closed by its reader, or full) the command goes on."""
        if self.stdout is None:
            return
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except OSError as error:
            self._lose_stdout(self.stdout, error)

    def flush(self) -> None:
        """Let what others have printed fail here, not in the last breath of the interpreter."""
        self.say("")

    def _lose_stdout(self, stream: TextIO, error: OSError) -> None:
        self.stdout = None
        if isinstance(error, BrokenPipeError):
            self.pipe_closed = True  # the usual end of `tightmap ... | head`: nothing to talk about
        else:
            self.failed = True
            self.complain(f"standard output: cannot be written ({error.strerror or error})")
        with suppress(OSError, ValueError, io.UnsupportedOperation):
            # what is still in the buffer goes nowhere, quietly
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)

    def remark(self, text: str) -> None:
        print(text, file=sys.stderr)

    def complain(self, sentence: str) -> None:
        print(f"tightmap: {' '.join(sentence.splitlines())}", file=sys.stderr)

    def exit_code(self, otherwise: int = 0) -> int:
        """Signals first, then failures, then a reader that went away, then what the command has to say itself."""
        if self.guard.first is not None:
            return 128 + self.guard.first
        if self.failed:
            return FAILED
        return BROKEN_PIPE if self.pipe_closed else otherwise


@contextmanager
def named(option: str) -> Iterator[None]:
    """Put the option before what is wrong with its file."""
    try:
        yield
    except ModelError as error:
        raise OptionError(f"{option} {error}") from None


def plain_path(path: str | None) -> str | None:
    """The path, with "-" for the other names of standard output: writing there twice over would mix up a file."""
    return STDOUT if path is not None and os.path.abspath(path) in STDOUT_NAMES else path


def _same_file(a: str, b: str) -> bool:
    if STDOUT in (a, b):
        return a == b
    if os.path.realpath(a) == os.path.realpath(b):
        return os.path.isfile(a) or not os.path.exists(a)  # everything may go to /dev/null
    try:
        return os.path.isfile(a) and os.path.samefile(a, b)
    except OSError:
        return False


class _Patient(io.TextIOBase):
    """Standard error that takes everything: messages must not end a run because nobody can read them."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if self.stream is not None:
            with suppress(OSError, ValueError):
                self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self.stream is not None:
            with suppress(OSError, ValueError):
                self.stream.flush()

    def isatty(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def fileno(self) -> int:
        return 2 if self.stream is None else self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8" if self.stream is None else self.stream.encoding


@contextmanager
def dependable_streams() -> Iterator[None]:
    """Standard streams that cannot break a command: closed ones lead nowhere, unprintable characters are escaped."""
    before = sys.stdout, sys.stderr
    if None in (sys.stdin, *before):
        # the numbers 0, 1 and 2 would be given to the next files that are opened
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may hold anything
    sys.stderr = _Patient(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before

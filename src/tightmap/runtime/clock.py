"""A clock that stands still while kernels are compiled.

Numba compiles a kernel when it is first called and keeps it on disk; that happens once per machine, takes seconds, and
says nothing about the method.  Limits and times are therefore measured on this clock: seconds of wall time minus the
seconds in which any kernel was being compiled or read from disk.  Where nothing is compiled, reading may take no more
than a moment beyond a limit (``Reading``): whoever gives two seconds to many methods waits no longer than two and a
bit.  The first compilation of a process is announced by the logger "tightmap": as a warning to a person at a terminal
and by the command line, else as information.

A limit on everything (``wall``) is the exception: it ends a compilation between two passes of the compiler.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from tightmap.runtime.forks import at_fork

COMPILE = "numba:compile"
PREPARE = "tightmap:prepare"  # a function that Python called is compiled or read from disk; unknown to plain Numba
PASS = "numba:run_pass"
MOMENT = 0.3  # seconds that a run may take beyond its limit to read kernels

logger = logging.getLogger("tightmap")


class _Compilation(event.Listener):
    """Adds up the time in which at least one compilation is under way, in whatever thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.since = 0.0
        self.total = 0.0
        self.compiled = 0  # kernels that were not on disk
        self.announced = False
        self.always = False

    def begin(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.since = time.perf_counter()
            self.depth += 1

    def end(self) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                self.total += time.perf_counter() - self.since

    def on_start(self, event: Any) -> None:
        self.begin()
        with self.lock:
            self.compiled += event.kind == COMPILE
            if event.kind == COMPILE and not self.announced:
                self.announced = True
                announce("compiling kernels, first run only")

    def on_end(self, event: Any) -> None:
        self.end()

    def forked(self) -> None:
        """In a new process: whoever was compiling in another thread is not here."""
        self.lock = threading.Lock()
        if self.depth:
            self.depth = 0
            self.total += time.perf_counter() - self.since

    def seconds(self) -> float:
        with self.lock:
            return self.total + (time.perf_counter() - self.since if self.depth else 0.0)

    def others(self) -> float:
        """All other seconds.  One look at the time for both: else a compilation that another thread begins between two
        looks would set the clock back."""
        with self.lock:
            return (self.since if self.depth else time.perf_counter()) - self.total


class WallTimeUp(BaseException):
    """The limit on everything has passed.  Not an Exception: the compiler takes those for errors of its own."""


class _Wall(threading.local):
    end = math.inf  # of what this thread does, by time.perf_counter()


_wall = _Wall()


def wall_end() -> float:
    """The moment at which everything that this thread does has to be over."""
    return _wall.end


class wall:
    """No kernel is compiled, nor read from disk, by this thread after that moment: WallTimeUp is raised instead."""

    __slots__ = ("_before", "_end")

    def __init__(self, end: float) -> None:
        self._end = end

    def __enter__(self) -> None:
        self._before = _wall.end
        _wall.end = min(self._before, self._end)

    def __exit__(self, *raised: object) -> None:
        _wall.end = self._before


def check_wall() -> None:
    if time.perf_counter() > _wall.end:
        raise WallTimeUp


class _Passes(event.Listener):
    """Looks at the limit between two passes of the compiler; what is half compiled is forgotten."""

    def on_start(self, event: Any) -> None:
        check_wall()

    def on_end(self, event: Any) -> None:
        pass


_compilation = _Compilation()
event.register(PASS, _Passes())
event.register(COMPILE, _compilation)
event.register(PREPARE, _compilation)
at_fork(in_child=_compilation.forked)


class stopped:
    """Work that is done once per process, such as importing modules, and counts against no limit."""

    __slots__ = ()

    def __enter__(self) -> None:
        _compilation.begin()

    def __exit__(self, *raised: object) -> None:
        _compilation.end()


def now() -> float:
    """Seconds since some fixed moment, compilation left out."""
    return _compilation.others()


class Reading:
    """Seconds since this was made in which kernels were read from disk, beyond the moment that nobody minds."""

    def __init__(self) -> None:
        self._begin, self._compiled = _compilation.seconds(), _compilation.compiled

    def too_long(self) -> float:
        if _compilation.compiled != self._compiled:  # the first run on this machine: it takes what it takes
            return 0.0
        return max(0.0, _compilation.seconds() - self._begin - MOMENT)


def announce(message: str) -> None:
    """Say something about kernels: a warning to a person at a terminal and by the command line, else information."""
    seen = _compilation.always or (sys.stderr is not None and sys.stderr.isatty())
    logger.log(logging.WARNING if seen else logging.INFO, message)


def announce_always(yes: bool) -> None:
    """Say when the first kernel is compiled even if nobody seems to be looking."""
    _compilation.always = yes


def announce_never() -> None:
    """In a helper process, whose starter has told people what they should know."""
    _compilation.announced = True


def compiling_seconds() -> float:
    """Seconds of this process that went into compiling kernels."""
    return _compilation.seconds()


@contextmanager
def compilation(restart: Callable[[], object] | None = None) -> Iterator[list[float]]:
    """A list that fills with the seconds that Numba compiles (loading compiled kernels from its cache is no part).

    While it compiles ``restart`` is called every second, so that whoever watches the clock waits.
    """
    seconds: list[float] = []
    begun: list[float] = []  # a stack: compiling one kernel compiles those that it calls
    over = threading.Event()

    class Clock(event.Listener):
        def on_start(self, _: Any) -> None:
            begun.append(time.perf_counter())

        def on_end(self, _: Any) -> None:
            first = begun.pop()
            if not begun:
                seconds.append(time.perf_counter() - first)

    def heartbeat() -> None:
        while not over.wait(1.0):
            if begun and restart is not None:
                restart()

    thread = threading.Thread(target=heartbeat, daemon=True)
    thread.start()
    try:
        with event.install_listener(COMPILE, Clock()):
            yield seconds
    finally:
        over.set()
        thread.join()

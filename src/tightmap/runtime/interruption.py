"""Signals that ask a command to end: Ctrl-C, SIGTERM, and a terminal that hangs up.

The command line handles them from its beginning to its end with one Guard.  Where nothing would be lost, a signal ends
the process at once.  Inside ``patient`` one signal is only taken note of: a run of solve() sees the flag and returns
its best so far, and what is finished is written; one more signal ends the process.

The process ends right in the handler, after temporary files are removed, and not by an exception: one that comes out of
nowhere gets lost in other people's code (an import that is tried, a callback, a destructor), and the command would go
on.  Signals that were ignored when the process started (nohup, a job in the background) stay ignored.

Programs that use the library keep their own handlers: solve() then cares for Ctrl-C alone, and only while it runs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

try:  # what ``signal`` wraps: to make members of enumerations of handlers and back takes as long as a small model does
    _system: Any = import_module("_signal")
except ImportError:
    _system = signal

SIGNALS = tuple(signal.Signals[s] for s in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, s))
FOREIGN = (signal.SIG_IGN, None)  # left alone; None is a handler that is not Python's and could not be put back

unfinished: set[str] = set()  # files under temporary names, which nobody needs when the process ends now


class Interrupted(BaseException):
    """A signal asked the command to end.  Not an Exception: nothing on the way may take it for an error of its own."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum


class Guard:
    """What the signals of one command do.

    exits     the process belongs to the command and ends in the handler; else Interrupted is raised
    farewell  what to say then
    leaving   what to do before
    """

    def __init__(self, exits: bool = False) -> None:
        self.exits = exits
        self.farewell = "tightmap: interrupted"
        self.leaving: Callable[[], None] | None = None
        self.flag = threading.Event()  # set by a signal that was taken note of
        self.first: int | None = None  # the first signal that came
        self.count = 0
        self._allowance = 0  # signals that are only taken note of

    def handle(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.first is None:
            self.first = signum
        if self._allowance > 0:
            self._allowance -= 1  # before the flag: setting it takes a lock, and another signal may come meanwhile
            self.flag.set()
            return
        if self.leaving is not None:
            self.leaving()
        if self.exits:
            self._leave()
        raise Interrupted(signum)

    def _leave(self) -> NoReturn:
        assert self.first is not None
        for path in list(unfinished):
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            # past Python's buffer, which may be in use just now; a terminal gets its cursor back
            os.write(2, (("\r\x1b[K\x1b[?25h" if os.isatty(2) else "") + self.farewell + "\n").encode())
        os._exit(128 + self.first)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """One signal inside of the block sets the flag and does nothing else."""
        self._allowance = 1
        try:
            yield
        finally:
            self._allowance = 0

    def renew(self) -> None:
        """Allow one signal more, inside of ``patient``: what came before belonged to the part that is over."""
        self._allowance = 1


class interrupt_flag:
    """While solving, Ctrl-C sets a flag instead of tearing a step apart; a second one raises as usual.

    A command that handles its signals itself shares its flag.  Where Ctrl-C is ignored (a job in the background) or
    belongs to a program around Python, it is left alone.
    """

    __slots__ = ("_before", "_came", "_flag")

    def __enter__(self) -> threading.Event:
        self._before: Any = None  # the handler to put back; None: nothing was changed
        shared = shared_flag()
        if shared is not None:
            return shared
        self._came = False
        self._flag = threading.Event()
        if threading.current_thread() is threading.main_thread() and _system.getsignal(signal.SIGINT) not in FOREIGN:
            self._before = _system.signal(signal.SIGINT, self._handle)
        return self._flag

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True  # before the flag: setting it takes a lock, and the next Ctrl-C may come meanwhile
        self._flag.set()

    def __exit__(self, *raised: object) -> None:
        if self._before is not None:
            _system.signal(signal.SIGINT, self._before)


_guard: Guard | None = None


def shared_flag() -> threading.Event | None:
    """The flag of the command that runs in this process, where there is one."""
    return None if _guard is None else _guard.flag


@contextmanager
def guarded() -> Iterator[Guard]:
    """Handle the signals of a command inside of a larger program, which gets its handlers back at the end."""
    global _guard
    outer, before = _guard, {s: signal.getsignal(s) for s in SIGNALS}
    try:
        yield install(exits=False)
    finally:
        _guard = outer
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler not in FOREIGN:
                    signal.signal(number, handler)


def install(exits: bool) -> Guard:
    """Handle the signals of this process from now on."""
    global _guard
    _guard = Guard(exits)
    _set_all(_guard.handle)
    return _guard


def ignore_signals() -> None:
    """For the last moments of a process, when the exit code is known and nothing is left to be done."""
    _set_all(signal.SIG_IGN)


def _set_all(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) not in FOREIGN:
                signal.signal(number, handler)

"""Signals that ask a command to end: Ctrl-C, SIGTERM, and a terminal that hangs up.

The command line handles them from its beginning to its end with one Guard.  Where nothing would be lost, a signal
raises Interrupted at once.  Inside ``patient`` one signal is only taken note of: a run of solve() sees the flag and
returns its best so far, and what is finished is written; one more signal raises.  Signals that were ignored when the
process started (nohup, a job in the background) stay ignored.

Programs that use the library keep their own handlers: solve() then cares for Ctrl-C alone, and only while it runs.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(signal.Signals[s] for s in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, s))
FOREIGN = (signal.SIG_IGN, None)  # left alone; None is a handler that is not Python's and could not be put back
# seconds after raising in which further signals change nothing: whatever is cleaned up on the way out gets its time
HURRY = 1.0


class Interrupted(BaseException):
    """A signal asked the command to end.  Not an Exception: nothing on the way may take it for an error of its own."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum


class Guard:
    """What the signals of one command do."""

    def __init__(self) -> None:
        self.flag = threading.Event()  # set by a signal that did not raise
        self.first: int | None = None  # the first signal that came
        self.count = 0
        self.leaving: Callable[[], None] | None = None  # called before a signal raises
        self._allowance = 0  # signals that are taken note of without raising
        self._raised = -float("inf")

    def handle(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.first is None:
            self.first = signum
        if self._allowance > 0:
            self._allowance -= 1  # first of all: another signal may come inside of the next line
            self.flag.set()
            return
        now = time.monotonic()
        if now - self._raised >= HURRY:
            self._raised = now
            if self.leaving is not None:
                self.leaving()
            raise Interrupted(signum)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """One signal inside of the block sets the flag instead of raising."""
        self._allowance = 1
        try:
            yield
        finally:
            self._allowance = 0

    def renew(self) -> None:
        """Allow one signal more, inside of ``patient``: what came before belonged to the part that is over."""
        self._allowance = 1


_guard: Guard | None = None


def shared_flag() -> threading.Event | None:
    """The flag of the command that runs in this process, where there is one."""
    return None if _guard is None else _guard.flag


@contextmanager
def guarded() -> Iterator[Guard]:
    """Handle the signals of a command; the handlers that were there before come back at the end."""
    global _guard
    outer, before = _guard, {s: signal.getsignal(s) for s in SIGNALS}
    try:
        yield install()
    finally:
        _guard = outer
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler not in FOREIGN:
                    signal.signal(number, handler)


def install() -> Guard:
    """Handle the signals of this process from now on."""
    global _guard
    _guard = Guard()
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

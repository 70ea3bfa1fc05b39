"""Kernels that helper processes compile while this process solves.

A method that is used for the first time compiles for seconds.  A helper is another process that gets the kernels of
one method after the other onto disk and says after each that it is ready; ``auto`` gives its turns to methods that
nobody is compiling.  There are helpers only where somebody asked for them: the command line allows them, and they are
started by the first run of ``auto`` that has to compile anything at all; a program calls
``tightmap.warm_up(background=True)``.  Processes are started elsewhere (compile_ahead.py): this is what is known of
them.  They are looked at when somebody asks, there is no thread that waits for them, and they end with this process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from numba.core import event

from tightmap.runtime.clock import COMPILE

Job = tuple[str, Mapping[str, Any]]  # a method and its options
Start = Callable[[Sequence[Job], bool | None], None]

_start: Start | None = None
_helpers: list[Helper] = []


class _Compilations(event.Listener):
    """Whether this process has compiled a kernel: then nothing, or not everything, is on disk."""

    seen = False

    def on_start(self, event: Any) -> None:
        self.seen = True

    def on_end(self, event: Any) -> None:
        pass


_compilations = _Compilations()
event.register(COMPILE, _compilations)


class Helper:
    """A process that writes a line after each of its methods."""

    def __init__(self, process: subprocess.Popen[bytes], methods: Sequence[str]) -> None:
        assert process.stdout is not None
        self.process, self.left = process, list(methods)
        self.owner = os.getpid()
        self._text = b""
        os.set_blocking(process.stdout.fileno(), False)

    def look(self) -> list[str]:
        """The methods that it has not finished yet, the one at work first; none when the process has ended."""
        if os.getpid() != self.owner:  # after a fork: whoever started it listens to it
            return []
        assert self.process.stdout is not None
        if not self.left:
            self.end()
        while self.left:
            try:
                more = os.read(self.process.stdout.fileno(), 4096)
            except BlockingIOError:
                break
            except OSError:
                more = b""
            if not more:
                self.end()
                break
            *lines, self._text = (self._text + more).split(b"\n")
            for line in lines:
                with suppress(ValueError):
                    self.left.remove(line.decode(errors="replace"))
        return self.left

    def end(self) -> None:
        """End the process, whatever it is doing; files that it was writing are not there yet."""
        if os.getpid() == self.owner:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self.left.clear()


def allow(start: Start | None) -> None:
    """Let runs of ``auto`` start helpers in this way; None: no more of them."""
    global _start
    _start = start


def add(helper: Helper) -> None:
    _helpers[:] = [other for other in _helpers if other.look()]
    _helpers.append(helper)


def end_all() -> None:
    """End all helpers."""
    for helper in _helpers:
        helper.end()
    _helpers.clear()


def wanted(jobs: Sequence[Job], pairs: bool | None) -> None:
    """These methods will be used, the first one now: get the others compiled if compiling there is."""
    if _start is not None and _compilations.seen and not _helpers and len(jobs) > 1:
        _start(jobs[1:], pairs)


def has_compiled() -> bool:
    """Whether this process has compiled a kernel, so that others may be missing on disk, too."""
    return _compilations.seen


def being_compiled() -> list[str]:
    """The methods that helpers have still to finish, those at work first."""
    queues = [list(helper.look()) for helper in _helpers]
    longest = max(map(len, queues), default=0)
    return [queue[k] for k in range(longest) for queue in queues if k < len(queue)]

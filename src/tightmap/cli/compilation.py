"""Compilation in other processes.

``tightmap compile`` stands between its processes and the signals: one that comes ends them, and they are not waited
for.  Commands that solve let ``auto`` start helpers, which end with the command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from subprocess import Popen
from threading import Thread

from tightmap.compile_ahead import compile_kernels, start_helpers
from tightmap.runtime import background
from tightmap.runtime.interruption import Guard

POLL = 0.1  # seconds between looks at the flag


@contextmanager
def compile_meanwhile() -> Iterator[None]:
    """While a command solves, cores that have nothing to do may compile the kernels that it needs next."""
    background.allow(start_helpers)
    try:
        yield
    finally:
        background.allow(None)
        background.end_all()


def compile_in_processes(methods: Sequence[str], processes: int | None, guard: Guard) -> Iterator[tuple[str, float]]:
    """Compile for the methods; yields each with its seconds of compilation, and ends early after a signal."""
    if min(processes or os.cpu_count() or 1, len(methods)) == 1:
        yield from compile_kernels(methods, processes)  # in this process, which a signal ends
        return
    ready: SimpleQueue[tuple[str, float] | BaseException | None] = SimpleQueue()
    started: list[Popen[str]] = []

    def work() -> None:
        try:
            for item in compile_kernels(methods, processes, started):
                ready.put(item)
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    # in a thread: a signal would come in the middle of starting a process
    with guard.patient():
        Thread(target=work, daemon=True).start()
        while True:
            try:
                item = ready.get(timeout=POLL)
            except Empty:
                if guard.flag.is_set():
                    for process in list(started):  # again and again: some may still be starting
                        process.kill()
                continue
            if isinstance(item, tuple):
                yield item
            elif item is None or guard.flag.is_set():
                return  # without its processes it has given up
            else:
                raise item

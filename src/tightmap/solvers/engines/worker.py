"""A process in which another program searches: it is given a problem, tells what it finds, and can be ended any time.

Libraries that search for minutes look at signals and clocks when they like, keep the interpreter's lock, and have
options that are shared by the whole process.  In a process of their own none of that matters: whoever waits for an
answer keeps the time, and when the time is up the process is gone.

    to it      a pickled dict, with its length before
    from it    lines of text: "@" and JSON is a message, anything else is what the library prints

A process that has finished its problem can be kept for the next one, since loading a library takes longer than
solving a small model.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tightmap.runtime.forks import at_fork

Message = dict[str, Any]
GONE: Message = {"gone": True}  # the process has ended
SOURCES = str(Path(__file__).resolve().parents[3])  # where the package is imported from

_idle: dict[str, Worker] = {}
_lost: list[Any] = []  # processes of the process that we were forked from


class Worker:
    """One process and what it has said so far."""

    def __init__(self, search: str) -> None:
        """``search`` is the module that the process runs (child.py)."""
        self.search = search
        path = os.pathsep.join(p for p in (SOURCES, os.environ.get("PYTHONPATH", "")) if p)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tightmap.solvers.engines.child", search],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the search
        )
        self.heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError, OSError):
            for line in self.process.stdout:
                self.heard.put(line.decode(errors="replace"))
        self.heard.put(None)

    def give(self, problem: dict[str, Any]) -> None:
        """Send a problem.  A large one takes longer than we can wait, until the library is loaded."""
        data = pickle.dumps(problem, protocol=pickle.HIGHEST_PROTOCOL)
        threading.Thread(target=self._send, args=(len(data).to_bytes(8, "little") + data,), daemon=True).start()

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):  # it is gone, and whoever listens is told
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def next(self, seconds: float) -> Message | None:
        """What comes next, None when nothing does in that time."""
        try:
            line = self.heard.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None
        if line is None:
            return GONE
        if line.startswith("@"):
            message: Message = json.loads(line[1:])
            return message
        return {"line": line}

    def pause(self, yes: bool) -> None:
        """Stand still, or go on, where the system can do that."""
        if hasattr(signal, "SIGSTOP"):
            with suppress(OSError):
                self.process.send_signal(signal.SIGSTOP if yes else signal.SIGCONT)

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError, ValueError, RuntimeError):  # the thread that listens may still hold it
                    stream.close()

    def __del__(self) -> None:
        with suppress(Exception):
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def hire(search: str) -> Worker:
    """A process for a search: one that has finished an earlier problem, where there is one, or a new one."""
    worker = _idle.pop(search, None)
    if worker is not None and worker.process.poll() is None:
        return worker
    return Worker(search)


def release(worker: Worker) -> None:
    """Keep a process that has finished its problem for the next one."""
    if worker.process.poll() is None and worker.search not in _idle:
        _idle[worker.search] = worker
    else:
        worker.end()


def dismiss_all() -> None:
    """End the processes that are kept."""
    while _idle:
        _idle.popitem()[1].end()


def _forked() -> None:
    _lost.extend(_idle.values())  # they belong to another process, and must not be ended with ours
    _idle.clear()


atexit.register(dismiss_all)
at_fork(in_child=_forked)

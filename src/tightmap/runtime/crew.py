"""Calls that run beside one another, each on a thread of its own, while the calling thread waits for the next to end.

    crew = Crew(threads=1)
    crew.begin("a", f);  crew.begin("b", g)
    key, value = crew.wait()        # of whichever ends first; an exception of it is raised here

Unlike ``parallel.share``, where threads have one piece of work in common, nobody waits for all: whoever is done gets
something else to do.  The threads are those of ``parallel``.  A fork waits until no call is under way, because its
child would have the half of it, and no thread to go on with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from tightmap.runtime import clock, parallel
from tightmap.runtime.forks import at_fork

Key = TypeVar("Key", bound=Hashable)
PATIENCE = 5.0  # seconds that a fork waits for calls, which look at the clock more often than that


class _Gate:
    """Counts the calls that are under way, and lets none begin while the process forks."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """As in a process where nothing is under way."""
        self.changed = threading.Condition()
        self.at_work = 0
        self.closed = False
        self.inside = threading.local()  # whether this thread is in such a call: it does not wait for itself

    def enter(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: not self.closed, PATIENCE)
            self.at_work += 1

    def leave(self) -> None:
        with self.changed:
            self.at_work -= 1
            self.changed.notify_all()

    def close(self) -> None:
        if getattr(self.inside, "yes", False):
            return
        with self.changed:
            self.closed = True
            self.changed.wait_for(lambda: self.at_work == 0, PATIENCE)

    def open(self) -> None:
        with self.changed:
            self.closed = False
            self.changed.notify_all()


_gate = _Gate()
at_fork(before=_gate.close, in_parent=_gate.open, in_child=_gate.renew)


class Crew(Generic[Key]):
    """Calls of one run.  Only the thread that made it begins calls and waits for them."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads  # that kernels of each call may use
        self.at_work: set[Key] = set()
        self._done: SimpleQueue[tuple[Key, Any, BaseException | None]] = SimpleQueue()

    def begin(self, key: Key, call: Callable[[], Any]) -> bool:
        """Run this beside everything else; False where the system gives no thread for it."""
        workers = parallel.hire(1)
        if not workers:
            return False
        _gate.enter()
        self.at_work.add(key)
        workers[0].inbox.put((_Call(key, call, self, workers[0]), 0))
        return True

    def wait(self) -> tuple[Key, Any]:
        """The next call that has ended, and what it returned."""
        key, value, error = self._done.get()
        self.at_work.discard(key)
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback leads here
        return key, value

    def rest(self) -> list[tuple[Key, Any]]:
        """Wait for all that are under way; what they returned."""
        results: list[tuple[Key, Any]] = []
        failure: BaseException | None = None
        while self.at_work:
            try:
                results.append(self.wait())
            except BaseException as error:
                failure = error
        if failure is not None:
            raise failure
        return results


class _Call(Generic[Key]):
    """What a thread of ``parallel`` attends to."""

    def __init__(self, key: Key, call: Callable[[], Any], crew: Crew[Key], worker: parallel.Worker) -> None:
        self.key, self.call, self.crew, self.worker = key, call, crew, worker
        self.wall = clock.wall_end()  # whoever helps keeps to the limit of whoever asks

    def attend(self, seat: int) -> None:
        value, failure = None, None
        _gate.inside.yes = True
        try:
            with clock.wall(self.wall), parallel.using(self.crew.threads):
                value = self.call()
        except BaseException as error:
            failure = error
        _gate.inside.yes = False
        parallel.dismiss(self.worker)
        self.crew._done.put((self.key, value, failure))  # before a fork may go on: its child finds the result there
        _gate.leave()

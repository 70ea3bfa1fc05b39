"""Kernels on several threads: plain Python threads that run nogil kernels.

Numba's own threads (``parallel=True``) are not used anywhere.  Of its three threading layers one cannot be forked, one
aborts the process when two threads use it at once, none hands on an exception.  Here

* results do not depend on the number of threads: work is cut into fixed blocks, and sums are kept per block;
* the threads are made when they are first needed, shared by all runs of the process, and ended before a fork, so that
  a child finds none and makes its own;
* whoever calls works too, and takes whatever is left to do: it never waits for a thread that has not yet woken up; and
  where waking others takes longer than the work, it does that alone;
* an exception in any thread, also Ctrl-C in the calling one, ends the work of all and is raised in the calling one.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from tightmap.runtime import clock
from tightmap.runtime.forks import at_fork

PIECES = 4  # per thread: the work of blocks differs, and cores may be busy with something else
LONG = 0.01  # seconds of a call beside which it does not matter what threads cost
TRIAL = 4  # runs of each kind in a trial
SLOW = 0.1  # seconds of a call from which on one run on a single thread tells enough
RECENT = 12  # times that are remembered
AGAIN = 128  # runs until both numbers of threads are tried again

Piece = Callable[[], Any]


def available() -> int:
    """Threads to use unless told otherwise: NUMBA_NUM_THREADS where it is set, else the cores this process may use."""
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Teams:
    """How many threads to take: all or one, whichever was faster of late.

    Where other work keeps the cores busy, threads that wait for one another can be many times slower than one alone:
    every handing over then takes as long as the system lets the other work run.  So both are timed, now and then
    again.  Results never depend on it.
    """

    def __init__(self, threads: int, long: float = math.inf) -> None:
        self.threads, self.long = max(1, threads), long  # what costs more than that is not tried on one thread
        self._calls: dict[Any, int] = {}
        self._costs: dict[Any, deque[float]] = {}

    def choose(self, task: Any) -> int:
        if self.threads == 1:
            return 1
        call = self._calls[task] = self._calls.get(task, -1) + 1
        trial = call % AGAIN
        if trial == 0:  # times may have changed
            self._costs.pop((task, self.threads), None)
            self._costs.pop((task, 1), None)
        together, alone = (self._costs.get((task, team)) for team in (self.threads, 1))
        if trial < TRIAL or together is None or min(together) > self.long:
            return self.threads
        if trial < TRIAL + (1 if min(together) > SLOW else TRIAL) or alone is None:
            return 1
        # means, not minima: what counts is how long it takes with the disturbances
        return self.threads if sum(together) / len(together) <= sum(alone) / len(alone) else 1

    def report(self, task: Any, team: int, cost: float) -> None:
        """What the last run cost, in seconds or seconds per unit of work."""
        if self._calls.get(task, 0) > 0:  # the first time a kernel may be read from disk
            self._costs.setdefault((task, team), deque(maxlen=RECENT)).append(cost)


class _Current(threading.local):
    threads: int | None = None
    teams: Teams | None = None


_current = _Current()


class using:
    """Kernels that are called from this thread use at most that many threads."""

    __slots__ = ("_before", "_threads")

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)

    def __enter__(self) -> None:
        self._before = _current.threads, _current.teams
        _current.threads, _current.teams = self._threads, None

    def __exit__(self, *raised: object) -> None:
        _current.threads, _current.teams = self._before


def threads() -> int:
    """How many threads the present run may use."""
    return _current.threads or available()


def run(kernel: Callable[..., Any], blocks: int, *arguments: Any) -> None:
    """kernel(first, last, *arguments) for ranges that together are 0..blocks, on the threads of the present run."""
    most = min(threads(), blocks)
    if most <= 1:
        if blocks > 0:
            kernel(0, blocks, *arguments)
        return
    if _current.teams is None:
        _current.teams = Teams(threads(), LONG)
    teams, task = _current.teams, (kernel, blocks)
    team = teams.choose(task)
    begin = time.perf_counter()
    if team > 1:
        count = min(blocks, PIECES * most)
        cuts = [blocks * k // count for k in range(count + 1)]
        pieces: list[Piece] = [partial(kernel, cuts[k], cuts[k + 1], *arguments) for k in range(count)]
        share(most, lambda _: pieces)
    else:
        kernel(0, blocks, *arguments)
    teams.report(task, team, time.perf_counter() - begin)


def share(team: int, pieces: Callable[[int], list[Piece]], stop: Callable[[], Any] = lambda: None) -> None:
    """Do pieces(threads) on ``team`` threads, on fewer where the system gives no more; the last one on this thread.

    Pieces may wait for one another if there are no more of them than threads.  ``stop`` is called when one fails: what
    others are in the middle of has to end then.
    """
    workers = hire(team - 1)
    job = _Job(pieces(1 + len(workers)), stop, len(workers))
    try:
        try:
            own = job.pieces.pop()  # before anybody else can take it
            for seat, worker in enumerate(workers):
                worker.inbox.put((job, seat))
            own()
            job.work()
        except BaseException as error:
            job.fail(error)
        while True:
            try:
                job.wait()
                break
            except BaseException as error:  # Ctrl-C while others are at work
                job.fail(error)
        dismiss(*workers)
    finally:
        if not job.over:  # interrupted once more, in the lines above
            job.fail(KeyboardInterrupt())
    failure, job.failure = job.failure, None
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback leads here


class _Job:
    """Pieces of work, and who is at it.  Flags and lists are changed by single operations of the interpreter."""

    def __init__(self, pieces: list[Piece], stop: Callable[[], Any], seats: int) -> None:
        self.pieces, self.stop = pieces, stop
        self.failure: BaseException | None = None
        self.over = False
        self.wall = clock.wall_end()  # whoever helps keeps to the limit of whoever asks
        self.came, self.left = [False] * seats, [False] * seats
        self.bells = [threading.Lock() for _ in range(seats)]
        for bell in self.bells:
            bell.acquire()

    def work(self) -> None:
        """Take pieces until none is left."""
        while True:
            try:
                piece = self.pieces.pop()
            except IndexError:
                return
            piece()

    def attend(self, seat: int) -> None:
        """What a worker does, early or late."""
        self.came[seat] = True
        try:
            with clock.wall(self.wall):
                self.work()
        except BaseException as error:
            self.fail(error)
        self.left[seat] = True
        self.bells[seat].release()

    def fail(self, error: BaseException) -> None:
        if self.failure is None or not isinstance(error, Exception):  # an interruption goes before everything else
            self.failure = error
        self.pieces.clear()
        self.stop()

    def wait(self) -> None:
        """Until nobody is at work any more; who comes later finds nothing to do."""
        for seat, bell in enumerate(self.bells):
            while not self.left[seat] and (self.came[seat] or self.pieces):
                bell.acquire(timeout=1.0)
        self.over = True


class Work(Protocol):
    """What a thread is given to do."""

    def attend(self, seat: int) -> None: ...


class Worker:
    """A thread that attends to one job after the other."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[tuple[Work, int] | None] = SimpleQueue()
        self.thread = threading.Thread(target=_serve, args=(self.inbox,), name="tightmap", daemon=True)
        self.thread.start()


def _serve(inbox: SimpleQueue[tuple[Work, int] | None]) -> None:
    _current.threads = 1
    while True:
        call = inbox.get()
        if call is None:
            return
        job, seat = call
        job.attend(seat)
        del call, job  # nothing is kept in memory while there is nothing to do


_idle: list[Worker] = []  # whoever takes one out has it alone


def hire(count: int) -> list[Worker]:
    """So many threads for the caller alone, fewer where the system gives no more."""
    workers: list[Worker] = []
    while len(workers) < count:
        try:
            workers.append(_idle.pop())
        except IndexError:
            try:
                workers.append(Worker())
            except RuntimeError:  # no more threads for this process, or it is about to end
                break
    return workers


def dismiss(*workers: Worker) -> None:
    """These have nothing to do any more."""
    _idle.extend(workers)


def _end_idle() -> None:
    """End the threads that have nothing to do."""
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            return
        worker.inbox.put(None)
        worker.thread.join(timeout=1.0)


at_fork(before=_end_idle, in_child=_idle.clear)

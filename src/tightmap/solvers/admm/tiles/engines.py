"""Who does the steps: this process, or several with shared memory.  (ray_engine.py: several machines.)

An engine has one worker per range of tiles.  ``run`` gives every worker its part of a step and returns one result per
tile; afterwards all that was written can be read by all.  How the tiles are shared out changes no result.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import weakref
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from tightmap.solvers.admm.tiles.rows import GridRows
from tightmap.solvers.admm.tiles.store import FileStore, Layout, LocalStore, SharedStore
from tightmap.solvers.admm.tiles.worker import Step, Worker

DEATHS = 5  # of one worker in one step: whatever kills it will do so again
JOURNAL = "position.json"


class Engine(Protocol):
    def run(self, step: Step) -> list[Any]: ...

    def read(self, name: str, first: int, last: int) -> npt.NDArray[Any]: ...

    def save(self, position: dict[str, Any]) -> None:
        """Where the run is, after a step; kept if there is a folder for it."""

    def saved(self) -> dict[str, Any] | None:
        """Where an earlier run in the same folder was, its arrays being in place again."""

    def close(self) -> None: ...


def shares(tiles: int, workers: int) -> list[tuple[int, int]]:
    """Ranges of tiles, one for every worker that gets any."""
    workers = max(1, min(workers, tiles))
    cuts = [tiles * k // workers for k in range(workers + 1)]
    return list(itertools.pairwise(cuts))


def write_position(folder: str, position: dict[str, Any]) -> None:
    """Whole or not at all."""
    place = Path(folder) / JOURNAL
    beside = place.with_suffix(".tmp")
    beside.write_text(json.dumps(position), encoding="utf-8")
    os.replace(beside, place)


def read_position(folder: str) -> dict[str, Any] | None:
    place = Path(folder) / JOURNAL
    if not place.is_file():
        return None
    position: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return position


class _Kept:
    """The store of the engines of one machine: in memory, or in files of a checkpoint's folder."""

    def __init__(self, store: LocalStore | SharedStore | FileStore, folder: str | None) -> None:
        self.store, self.folder = store, folder

    def read(self, name: str, first: int, last: int) -> npt.NDArray[Any]:
        return self.store.read(name, first, last)

    def save(self, position: dict[str, Any]) -> None:
        if self.folder is not None:
            write_position(self.folder, position)

    def saved(self) -> dict[str, Any] | None:
        return None if self.folder is None else read_position(self.folder)


class Inline(_Kept):
    """All workers in this process, one after the other."""

    def __init__(
        self, model: GridRows, arrays: dict[str, Layout], workers: int, folder: str | None, visit: int | None
    ) -> None:
        store = LocalStore(arrays, 0, model.height) if folder is None else FileStore(arrays, model.height, folder)
        super().__init__(store, folder)
        self.workers = [Worker(model, store, a, b, visit) for a, b in shares(model.tiles, workers)]

    def run(self, step: Step) -> list[Any]:
        return [result for w in self.workers for result in w.run(step.part(w.first, w.last))]

    def close(self) -> None:
        self.workers = []


class _Hand:
    """One worker process and the pipe to it."""

    def __init__(
        self, model: GridRows, store: SharedStore | FileStore, first: int, last: int, visit: int | None
    ) -> None:
        reach = model.tile  # rows beyond its own that a worker may read
        lo, hi = model.rows_of(first, last)
        self.first, self.last = first, last
        model = model.cut(max(0, lo - reach), min(model.height, hi + reach))
        self._arguments = (model, store, first, last, visit)
        self.process: Any = None
        self.pipe: Connection | None = None
        self.deaths = 0
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        # not as arguments: starting a process that is killed while it reads long ones would never end
        self._tell(self._arguments)

    def send(self, step: Step) -> None:
        self._tell(step.part(self.first, self.last))

    def _tell(self, message: Any) -> None:
        assert self.pipe is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it is dead: whoever waits for it will see that
            self.pipe.send(message)

    def receive(self) -> Any:
        """What the worker sent, None where it died before that or in the middle of it."""
        assert self.pipe is not None
        with suppress(EOFError, OSError):  # OSError: the message has begun and has no end
            if self.pipe.poll():
                return self.pipe.recv()
        return None

    def stop(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        if self.process is not None:
            self.process.terminate()
            self.process.join(5.0)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()


def _serve(pipe: Connection) -> None:
    """The main loop of a worker process; it ends when the other side of the pipe is gone."""
    with suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when it ends
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        worker = Worker(*pipe.recv())
        while True:
            step = pipe.recv()
            try:
                answer: Any = (True, worker.run(step))
            except Exception as error:
                answer = (False, error)
            pipe.send(answer)


class Processes(_Kept):
    """Worker processes on this machine.  One that dies is started again and does its part of the step again."""

    def __init__(
        self, model: GridRows, arrays: dict[str, Layout], workers: int, folder: str | None, visit: int | None
    ) -> None:
        store: SharedStore | FileStore
        if folder is None:
            store = SharedStore(arrays, model.height)
        else:
            store = FileStore(arrays, model.height, folder)
        super().__init__(store, folder)
        self.hands: list[_Hand] = []
        self._close = weakref.finalize(self, _stop, self.hands, store)
        for a, b in shares(model.tiles, workers):
            self.hands.append(_Hand(model, store, a, b, visit))

    @property
    def pids(self) -> list[int]:
        return [hand.process.pid for hand in self.hands]

    def run(self, step: Step) -> list[Any]:
        open_ = dict(enumerate(self.hands))
        results: dict[int, list[Any]] = {}
        for hand in self.hands:
            hand.deaths = 0
            hand.send(step)
        while open_:
            ready = wait([h.pipe for h in open_.values() if h.pipe] + [h.process.sentinel for h in open_.values()])
            for k, hand in list(open_.items()):
                if hand.pipe in ready or hand.process.sentinel in ready:
                    answer = self._answer(hand, step)
                    if answer is not None:
                        results[k] = answer
                        del open_[k]
        return [result for k in sorted(results) for result in results[k]]

    def _answer(self, hand: _Hand, step: Step) -> list[Any] | None:
        """What a worker sent, or None after it was started again."""
        sent = hand.receive()
        if sent is not None:
            good, answer = sent
            if not good:
                raise answer
            return list(answer)
        hand.deaths += 1
        if hand.deaths >= DEATHS:
            raise RuntimeError(
                f"the worker of the tiles {hand.first}..{hand.last} died {DEATHS} times in the step {step.name!r} "
                f"(exit code {hand.process.exitcode}); is there enough memory?"
            )
        hand.stop()
        hand.start()
        hand.send(step)
        return None

    def close(self) -> None:
        self._close()


def _stop(hands: list[_Hand], store: SharedStore | FileStore) -> None:
    """All processes end and the shared memory goes, also when a run is abandoned in the middle."""
    for hand in hands:
        hand.stop()
    hands.clear()
    store.close()

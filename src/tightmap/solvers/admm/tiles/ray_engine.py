"""Workers on several machines: Ray actors, each with the rows of its tiles and a margin of its neighbours' rows.

Before a step that reads beyond a tile, every actor gives its outer rows to the actors above and below; they travel from
actor to actor as references, never through this process.  With a checkpoint, a folder that all machines see, the rows
of every tile are saved now and then.  When an actor is lost, a new one takes its place, all go back to the last
checkpoint (or to the beginning) and do again what was done since: nothing in a step depends on when it runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import OptionError
from tightmap.solvers.admm.tiles.engines import DEATHS, read_position, shares, write_position
from tightmap.solvers.admm.tiles.rows import GridRows
from tightmap.solvers.admm.tiles.store import Layout, LocalStore
from tightmap.solvers.admm.tiles.worker import Step, Worker

SAVE_EVERY = 10  # steps between two checkpoints
Rows = dict[str, npt.NDArray[Any]]


class StripActor:
    """What runs in an actor: a worker whose store has the rows of its own tiles and a margin."""

    def __init__(self, model: GridRows, arrays: dict[str, Layout], first: int, last: int, visit: int | None) -> None:
        self.model, self.first, self.last = model, first, last
        self.lo, self.hi = model.rows_of(first, last)
        self.store = LocalStore(arrays, max(0, self.lo - model.tile), min(model.height, self.hi + model.tile))
        self.worker = Worker(model, self.store, first, last, visit)

    def pid(self) -> int:
        return os.getpid()

    def give(self, halo: dict[str, int]) -> tuple[Rows, Rows]:
        """The first and the last of this actor's rows, as many as the neighbours read."""
        top = {name: self.store.read(name, self.lo, self.lo + depth).copy() for name, depth in halo.items()}
        return top, {name: self.store.read(name, self.hi - depth, self.hi).copy() for name, depth in halo.items()}

    def run(self, step: Step, above: Rows | None, below: Rows | None) -> list[Any]:
        for name, rows in (above or {}).items():
            self.store.write(name, self.lo - len(rows), rows)
        for name, rows in (below or {}).items():
            self.store.write(name, self.hi, rows)
        return self.worker.run(step)

    def read(self, name: str) -> npt.NDArray[Any]:
        return self.store.read(name, self.lo, self.hi)

    def save(self, folder: str, generation: int) -> None:
        """A file per tile, so that another number of workers can go on."""
        for tile in range(self.first, self.last):
            rows = {name: self.store.read(name, *self.model.rows_of(tile, tile + 1)) for name in self.store.arrays}
            with open(_file(folder, generation, tile), "wb") as file:
                np.savez(file, **rows)  # type: ignore[arg-type]

    def load(self, folder: str, generation: int) -> None:
        for tile in range(self.first, self.last):
            with np.load(_file(folder, generation, tile)) as rows:
                for name in self.store.arrays:
                    self.store.write(name, self.model.rows_of(tile, tile + 1)[0], rows[name])


def _file(folder: str, generation: int, tile: int) -> Path:
    return Path(folder) / f"rows.{generation}.{tile}.npz"


class RayEngine:
    """Actors of the Ray cluster that this process is connected to, or of one that is started on this machine."""

    def __init__(
        self, model: GridRows, arrays: dict[str, Layout], workers: int, folder: str | None, visit: int | None
    ) -> None:
        try:
            import ray  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise OptionError('engine "ray" needs the package ray: pip install "tightmap[ray]"') from None
        self.ray, self.model, self.arrays, self.visit, self.folder = ray, model, arrays, visit, folder
        self.parts = shares(model.tiles, workers)
        self._started = not ray.is_initialized()
        if self._started:
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray starts its workers at low priority
            os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of calls that follow a lost actor
            if os.environ.get("RAY_ADDRESS"):
                ray.init(log_to_driver=False)
            else:
                ray.init(
                    num_cpus=max(len(self.parts), os.cpu_count() or 1), include_dashboard=False, log_to_driver=False
                )
        self._class = ray.remote(num_cpus=1, max_restarts=0)(StripActor)
        self._generation = -1  # of the checkpoint to go back to
        self._since: list[Step] = []  # the steps after it
        self.actors = [self._actor(k) for k in range(len(self.parts))]

    def _actor(self, k: int) -> Any:
        first, last = self.parts[k]
        lo, hi = self.model.rows_of(first, last)
        model = self.model.cut(max(0, lo - self.model.tile), min(self.model.height, hi + self.model.tile))
        return self._class.remote(model, self.arrays, first, last, self.visit)

    @property
    def pids(self) -> list[int]:
        return [self.ray.get(actor.pid.remote()) for actor in self.actors]

    def _once(self, step: Step) -> list[Any]:
        count = len(self.actors)
        above: list[Any] = [None] * count
        below: list[Any] = [None] * count
        if step.halo:
            given = [actor.give.options(num_returns=2).remote(step.halo) for actor in self.actors]
            above[1:] = [bottom for _, bottom in given[:-1]]
            below[:-1] = [top for top, _ in given[1:]]
        work = [
            actor.run.remote(step.part(*part), above[k], below[k])
            for k, (actor, part) in enumerate(zip(self.actors, self.parts, strict=True))
        ]
        return [result for results in self.ray.get(work) for result in results]

    def _safely(self, work: Any) -> Any:
        """Do something with the actors, after which all are alive; lost ones are replaced and brought to this point."""
        for attempt in range(DEATHS):
            try:
                if attempt:
                    self._recover()
                return work()
            except self.ray.exceptions.RayActorError:
                if attempt + 1 == DEATHS:
                    raise
        raise AssertionError

    def _recover(self) -> None:
        for k, actor in enumerate(self.actors):
            try:
                if self._generation < 0:
                    self.ray.kill(actor)
                self.ray.get(actor.pid.remote())
            except self.ray.exceptions.RayActorError:
                self.actors[k] = self._actor(k)
        if self._generation >= 0:
            self.ray.get([actor.load.remote(self.folder, self._generation) for actor in self.actors])
        for step in self._since:
            self._once(step)

    def run(self, step: Step) -> list[Any]:
        results: list[Any] = self._safely(lambda: self._once(step))
        self._since.append(step)
        return results

    def read(self, name: str, first: int, last: int) -> npt.NDArray[Any]:
        parts = self._safely(lambda: self.ray.get([actor.read.remote(name) for actor in self.actors]))
        return np.concatenate(parts)[first:last]

    def save(self, position: dict[str, Any]) -> None:
        if self.folder is None or (len(self._since) < SAVE_EVERY and position["position"]["phase"] != "done"):
            return
        folder, generation = self.folder, self._generation + 1
        self._safely(lambda: self.ray.get([actor.save.remote(folder, generation) for actor in self.actors]))
        write_position(folder, {**position, "generation": generation})
        self._generation, self._since = generation, []
        for tile in range(self.model.tiles):
            _file(folder, generation - 1, tile).unlink(missing_ok=True)

    def saved(self) -> dict[str, Any] | None:
        position = None if self.folder is None else read_position(self.folder)
        if position is None or "generation" not in position:
            return None
        self._generation = int(position["generation"])
        self.ray.get([actor.load.remote(self.folder, self._generation) for actor in self.actors])
        return position

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []
        if self._started:
            self._started = False
            self.ray.shutdown()

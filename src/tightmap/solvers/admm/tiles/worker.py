"""What a worker does: one step after another on its tiles, reading and writing a store."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tightmap.solvers.admm.tiles.chains import bound_tile
from tightmap.solvers.admm.tiles.labelling import ROUNDS, descend, fuse, labels_around, tile_energy, tile_of
from tightmap.solvers.admm.tiles.rows import GridRows
from tightmap.solvers.admm.tiles.store import Store
from tightmap.solvers.admm.tiles.sweep import Strip, round_tile, sweep_tiles


@dataclass(frozen=True)
class Step:
    """One step on all tiles.  What it reads and what it writes are different arrays."""

    name: str  # of a method of Worker
    options: dict[str, Any] = field(default_factory=dict)
    halo: dict[str, int] = field(default_factory=dict)  # rows that are read beyond a tile, by array
    by_tile: dict[int, Any] = field(default_factory=dict)  # what is for one tile only

    def part(self, first: int, last: int) -> Step:
        """The step as it is sent to the worker of some tiles."""
        mine = {t: v for t, v in self.by_tile.items() if first <= t < last}
        return Step(self.name, self.options, self.halo, mine)


class Worker:
    """The tiles first..last of a model, ``visit`` of them at a time where memory is short."""

    def __init__(self, model: GridRows, store: Store, first: int, last: int, visit: int | None) -> None:
        self.model, self.store, self.first, self.last = model, store, first, last
        self.visit = max(1, visit) if visit is not None else last - first
        self._strip: Strip | None = None

    def run(self, step: Step) -> list[Any]:
        """One result per tile."""
        if step.name == "sweep":
            return self._sweep(**step.options)
        work = getattr(self, f"_{step.name}")
        return [work(t, step.by_tile.get(t), **step.options) for t in range(self.first, self.last)]

    def _survey(self, tile: int, _: None) -> tuple[float, int]:
        """Sum of the sizes of the weights, and a checksum of the costs."""
        lo, hi = self.model.rows_of(tile, tile + 1)
        planes = self.model.planes(lo, hi)
        code = zlib.crc32(planes.tobytes())
        for row in range(lo, hi):
            code = zlib.crc32(np.ascontiguousarray(self.model.unaries(row, row + 1)).tobytes(), code)
        return float(np.abs(planes).sum()), code

    def _sweep(self, segment: Any) -> list[float]:
        residuals: list[float] = []
        for first in range(self.first, self.last, self.visit):
            last = min(first + self.visit, self.last)
            some, strip = sweep_tiles(self.model, self.store, first, last, segment, self._strip)
            residuals += some
            self._strip = strip if last - first == self.last - self.first else None
            del strip
        return residuals

    def _round(self, tile: int, _: None, side: int, double: bool, into: str) -> None:
        self._strip = None
        lo, _hi = self.model.rows_of(tile, tile + 1)
        self.store.write(into, lo, round_tile(self.model, self.store, tile, side, double))

    def _improve(self, tile: int, _: None, colour: int, source: str, proposal: str | None, into: str) -> None:
        """Labels from ``source`` to ``into``, those of one colour fused with a proposal and descended."""
        lo, hi = self.model.rows_of(tile, tile + 1)
        if tile % 2 != colour:
            self.store.write(into, lo, self.store.read(source, lo, hi))
            return
        costs = tile_of(self.model, tile)
        labels = labels_around(self.model, self.store, source, tile)
        if proposal is not None:
            other = labels.copy()
            other[1:-1] = self.store.read(proposal, lo, hi)
            fuse(costs, labels, other)
        descend(costs, labels, ROUNDS)
        self.store.write(into, lo, labels[1:-1].astype(self.model.label_type))

    def _energy(self, tile: int, _: None, labels: str) -> float:
        return float(tile_energy(tile_of(self.model, tile), labels_around(self.model, self.store, labels, tile)))

    def _bound(self, tile: int, seams: Any, colour: int, rounds: int) -> Any:
        self._strip = None
        if tile % 2 != colour:
            return None
        above, below = seams if seams is not None else (None, None)
        return bound_tile(self.model, tile, rounds, above, below)

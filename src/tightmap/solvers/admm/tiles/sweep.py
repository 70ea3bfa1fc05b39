"""ADMM iterations on some rows of a grid, exactly as on the whole grid.

One iteration (solvers/admm/grid_kernels.py) reads the neighbours' x2 in its first phase and their x1 in its second, so
what a row becomes depends on two rows to each side.  Rows first..last after k iterations therefore follow from the rows
first - 2k..last + 2k before: these are copied, swept as a grid of their own, and the wrong outer rows are dropped.

The penalty is a function of the iteration alone, rho(t) = rho0 growth^(10 floor(t / 10)), so that k is free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Kind
from tightmap.graph.stencil import Stencil
from tightmap.runtime.simd import LANES
from tightmap.solvers.admm.grid_layout import (
    grid_place,
    grid_plan,
    grid_ranges,
    grid_read,
    grid_state,
    grid_write,
)
from tightmap.solvers.admm.grid_sweeps import grid_sweeps, grid_touch
from tightmap.solvers.admm.tiles.rows import DIRECTIONS, GridRows
from tightmap.solvers.admm.tiles.store import ITERATES, Store

SAME_RHO = 10  # iterations between two changes of rho: a change invalidates everything that is cached
PART = 16  # rows that are prepared at a time
DEAD_BAND = 1e-8  # a vector that would change by less than this (squared distance) stays as it is


class Segment(NamedTuple):
    """Some iterations of one cycle, the same for all tiles."""

    cycle: int
    iteration: int  # the first one
    length: int
    rho0: float
    growth: float  # per iteration
    relax: float
    noise: float  # standard deviation on the unaries
    seed: int
    side: int  # which of the two arrays of every iterate is read; the other one is written
    double: bool

    @property
    def dtype(self) -> type:
        return np.float64 if self.double else np.float32

    def rho(self, iteration: int) -> float:
        return self.rho0 * self.growth ** (iteration // SAME_RHO * SAME_RHO)


class Strip:
    """The grid of the rows first..last of the image, with the unaries of one cycle."""

    def __init__(self, model: GridRows, first: int, last: int, segment: Segment) -> None:
        self.model, self.first, self.last, self.cycle = model, first, last, segment.cycle
        planes = model.planes(first, last)
        stencil = Stencil(
            last - first, model.width, model.labels, Kind.POTTS, np.array(DIRECTIONS[: model.directions]), planes,
            np.array(model.profile),
        )  # fmt: skip
        self.plan = grid_plan(stencil, segment.dtype)
        del planes, stencil
        self.state = grid_state(self.plan)
        self.whole = np.array([0, last - first], np.int64)
        for begin in range(0, last - first, PART):
            end = min(begin + PART, last - first)
            rows = model.unaries(first + begin, first + end).reshape(-1, model.labels)
            cap = grid_ranges(self.plan, begin, end)
            rows = np.minimum(rows, rows.min(axis=1, keepdims=True) + cap[:, None]).astype(segment.dtype)
            if segment.noise > 0.0:
                noise = [
                    row_noise(segment, row, model.width * model.labels) for row in range(first + begin, first + end)
                ]
                rows += np.concatenate(noise).reshape(rows.shape)
            grid_write(self.plan, self.plan.unary, rows, begin)

    def uniform(self) -> None:
        """The start of a cycle."""
        labels = self.model.labels
        x = np.full((self.model.width * (self.last - self.first), labels), 1.0 / labels, self.state.x1.dtype)
        grid_place(self.plan, self.state.x1, x, 0)
        self.state.x2[:] = self.state.x1
        self.state.y[:] = 0

    def _inside(self, flat: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """The rows of the image, as they are kept in a store."""
        margin = self.plan.labels * LANES
        rows = flat[margin:-margin].reshape(self.plan.height + 2, -1)
        return rows[1:-1]

    def load(self, store: Store, side: int) -> None:
        for name, flat in zip(ITERATES, self.state[:3], strict=True):
            self._inside(flat)[:] = store.read(f"{name}.{side}", self.first, self.last)

    def save(self, store: Store, side: int, first: int, last: int) -> None:
        for name, flat in zip(ITERATES, self.state[:3], strict=True):
            store.write(f"{name}.{side}", first, self._inside(flat)[first - self.first : last - self.first])

    def sweep(self, segment: Segment) -> None:
        kind = segment.dtype
        at, end = segment.iteration, segment.iteration + segment.length
        while at < end:
            count = min(SAME_RHO - at % SAME_RHO, end - at)
            grid_touch(self.state)
            grid_sweeps(
                self.plan, self.state, kind(segment.rho(at)), kind(segment.relax), kind(DEAD_BAND), count, self.whole,
                True, 1,
            )  # fmt: skip
            at += count

    def residual(self, first: int, last: int) -> float:
        """Squared residual of the last iteration, summed over some rows in their order."""
        rows = self.state.residual[:, first - self.first : last - self.first].sum(axis=0)
        return float(np.cumsum(rows)[-1])


def row_noise(segment: Segment, row: int, size: int) -> npt.NDArray[np.floating]:
    """Noise on the unaries of a row, which depends on the seed, the cycle and the row only."""
    key = np.random.SeedSequence([segment.seed, segment.cycle, row]).generate_state(2, np.uint64)
    generator = np.random.Generator(np.random.Philox(key=key))
    return segment.dtype(segment.noise) * generator.standard_normal(size, dtype=segment.dtype)


def sweep_tiles(
    model: GridRows, store: Store, first: int, last: int, segment: Segment, kept: Strip | None
) -> tuple[list[float], Strip]:
    """A segment on the tiles first..last: their residuals, and the strip, which may serve for the next segment."""
    lo, hi = model.rows_of(first, last)
    a, b = max(0, lo - 2 * segment.length), min(model.height, hi + 2 * segment.length)
    strip = kept
    if strip is None or (strip.first, strip.last, strip.cycle) != (a, b, segment.cycle):
        strip = None  # before the next one is made
        strip = Strip(model, a, b, segment)
    if segment.iteration == 0:
        strip.uniform()
    else:
        strip.load(store, segment.side)
    strip.sweep(segment)
    strip.save(store, 1 - segment.side, lo, hi)
    return [strip.residual(*model.rows_of(t, t + 1)) for t in range(first, last)], strip


def round_tile(model: GridRows, store: Store, tile: int, side: int, double: bool) -> npt.NDArray[np.integer]:
    """Largest entry of every vector of the first copy."""
    lo, hi = model.rows_of(tile, tile + 1)
    labels: npt.NDArray[np.integer] = np.empty((hi - lo, model.width), model.label_type)
    outline = Stencil(
        PART, model.width, model.labels, Kind.POTTS, np.array(DIRECTIONS[: model.directions]),
        np.zeros((model.directions, PART, model.width)), np.array(model.profile),
    )  # fmt: skip
    plan = grid_plan(outline, np.float64 if double else np.float32)
    flat = plan.unary  # a place with the right layout
    margin = plan.labels * LANES
    for begin in range(lo, hi, PART):
        end = min(begin + PART, hi)
        flat[margin:-margin].reshape(PART + 2, -1)[1 : 1 + end - begin] = store.read(f"x1.{side}", begin, end)
        x = grid_read(plan, flat, 0, end - begin)
        labels[begin - lo : end - lo] = x.argmax(axis=1).reshape(end - begin, model.width)
    return labels

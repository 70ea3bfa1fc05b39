"""ADMM on a regular grid whose factors share one table: the engine around the kernels of grid_sweeps.py."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Arrays
from tightmap.graph.stencil import Stencil
from tightmap.moves.context import Labels, Vector
from tightmap.runtime.pace import EVER
from tightmap.runtime.parallel import Teams
from tightmap.solvers.admm.engine import Heated, Iterates, Noise, Splitting, Start, Step, worthwhile_threads
from tightmap.solvers.admm.grid_layout import (
    grid_place,
    grid_plan,
    grid_ranges,
    grid_read,
    grid_state,
    grid_write,
)
from tightmap.solvers.admm.grid_sweeps import grid_sweeps, grid_touch

PART = 16  # rows of an image that are copied at a time, because a copy of all rows would need much memory


class GridSplitting(Splitting):
    """Copies and multipliers of a grid, in single or double precision."""

    def __init__(
        self,
        stencil: Stencil,
        unary: Vector,
        eps: float,
        dtype: type,
        threads: int,
        cached: bool,
        teams: Teams | None = None,
    ) -> None:
        self.stencil, self.eps, self.dtype, self.cached = stencil.outline(), eps, dtype, cached
        self.variables = stencil.height * stencil.width
        self.effort = float(unary.size)
        self.kappa = float(stencil.profile.max()) * stencil.total_weight / self.variables
        self.unary = unary.reshape(self.variables, stencil.labels)
        self.plan = grid_plan(stencil, dtype)
        self.state = grid_state(self.plan)
        strips = min(worthwhile_threads(unary.size, threads), max(1, stencil.height // 8))
        self.strips = np.linspace(0, stencil.height, strips + 1).astype(np.int64)
        self.teams = Teams(strips) if teams is None else teams

    def _parts(self) -> Iterator[tuple[int, slice]]:
        """Some rows of the image at a time: first row, pixels.  A copy of all would be a quarter of the memory."""
        width = self.stencil.width
        for first in range(0, self.stencil.height, PART):
            yield first, slice(first * width, min(first + PART, self.stencil.height) * width)

    def reset(self, start: Start, noise: Noise | None = None) -> None:
        plan, state, labels = self.plan, self.state, self.stencil.labels
        for first, pixels in self._parts():
            rows = self.unary[pixels].astype(np.float64, copy=False)
            cap = grid_ranges(plan, first, first + PART)
            rows = np.minimum(rows, rows.min(axis=1, keepdims=True) + cap[:, None]).astype(self.dtype)
            if noise is not None:
                rows += noise.draw(rows.size).reshape(rows.shape)
            grid_write(plan, plan.unary, rows, first)
            x = np.full(rows.shape, 1.0 / labels)
            if isinstance(start, Heated):
                x = start.vectors(pixels, np.full(len(rows), labels)).reshape(rows.shape)
            elif start is not None:
                x = start.reshape(self.unary.shape)[pixels]
            grid_place(plan, state.x1, x, first)
        state.x2[:] = state.x1
        state.y[:] = 0
        grid_touch(state)

    def iterate(self, count: int, how: Step, left: float = EVER) -> tuple[float, float]:
        kind = self.dtype
        if how.fresh:
            grid_touch(self.state)
        team = self.teams.choose(self.variables) if len(self.strips) > 2 else 1
        begin = time.perf_counter()
        residual, tiles = grid_sweeps(
            self.plan, self.state, kind(how.rho), kind(how.relax), kind(self.eps),
            count, self.strips, self.cached, team, left,
        )  # fmt: skip
        self.teams.report(self.variables, team, (time.perf_counter() - begin) / max(1, tiles))
        return residual / self.variables, tiles / max(1, count * self.plan.height * self.plan.tiles)

    def _flat(self, vectors: npt.NDArray[np.floating]) -> Vector:
        return grid_read(self.plan, vectors).reshape(-1).astype(np.float64)

    def relaxed(self) -> Vector:
        return self._flat(self.state.x1)

    def labels(self) -> Labels:
        labels = np.empty(self.variables, np.int64)
        for first, pixels in self._parts():
            labels[pixels] = grid_read(self.plan, self.state.x1, first, first + PART).argmax(axis=1)
        return labels

    def export(self) -> Iterates:
        y = self._flat(self.state.y)
        copies = np.stack([self._flat(self.state.x1), self._flat(self.state.x2)])
        return Iterates(copies, np.stack([np.zeros_like(y), y]))

    def load(self, content: Iterates) -> None:
        self.reset(content.copies[0])
        grid_place(self.plan, self.state.x2, content.copies[1].reshape(self.unary.shape), 0)
        grid_write(self.plan, self.state.y, content.multipliers[1].reshape(self.unary.shape), 0)

    def close(self) -> None:
        del self.state, self.plan, self.unary

    def searched(self, g: Arrays) -> Arrays:
        return g._replace(unary=self._flat(self.plan.unary))

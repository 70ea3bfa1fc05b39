"""Two engines with one interface: grids with a shared table (grid.py) and everything else (general.py).

An engine holds the iterates of one run and knows its natural penalty kappa: the mean over variables of the ranges of
the factors around a variable, divided by the number of copies; the gradient of a copy moves within that.  ADMM is
invariant under (E, rho, y) -> (a E, a rho, a y), so penalties are counted in kappa and tables are never rescaled.

Unaries are capped at their minimum plus the ranges of the factors around: a label above that never pays, whatever the
neighbours do, so capping changes no minimiser and keeps huge costs from deciding the steps.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import factor_spreads, workspace
from tightmap.graph.graph import Arrays
from tightmap.graph.stencil import Stencil
from tightmap.moves.context import Labels, Vector
from tightmap.runtime.pace import EVER
from tightmap.runtime.parallel import Teams
from tightmap.solvers.admm import grid
from tightmap.solvers.admm.general import Form, general_state, general_sweeps

PART = 16  # rows of an image that are copied at a time, because a copy of all rows would need much memory
SERIAL = 300_000  # models with fewer labels in all run on one thread, which is then faster than two


def incident_ranges(g: Arrays) -> Vector:
    """(n,) sum of the ranges of the factors around every variable."""
    spread = np.repeat(factor_spreads(g), np.diff(g.scope_start))
    return np.bincount(g.scope, spread, minlength=len(g.cards)).astype(np.float64)


def capped(g: Arrays, ranges: Vector) -> Vector:
    """Unaries at most their row's minimum plus the incident ranges."""
    low = np.minimum.reduceat(g.unary, g.offset[:-1])
    return np.minimum(g.unary, np.repeat(low + ranges, g.cards))


def without_extremes(g: Arrays) -> Arrays:
    """The same model with labels priced out whose unary is in the upper half of a wide range.

    With hard constraints such a label is often a way to opt out ("no match"); iterates that hide there freeze early.
    """
    low = np.repeat(np.minimum.reduceat(g.unary, g.offset[:-1]), g.cards)
    gap = g.unary - low
    wide = np.repeat(np.maximum.reduceat(gap, g.offset[:-1]), g.cards)
    ranges = np.repeat(incident_ranges(g), g.cards)
    return g._replace(unary=np.where((gap > 0.5 * wide) & (wide > 0.01 * ranges), low + ranges, g.unary))


class Heated(NamedTuple):
    """A starting point between a labelling and the uniform point (heat 1)."""

    labels: Labels
    heat: float

    def vectors(self, part: slice, cards: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Of some variables, flat."""
        x = np.repeat((self.heat / cards).astype(np.float32), cards)
        x[np.cumsum(cards) - cards + self.labels[part]] += np.float32(1.0 - self.heat)
        return x


Start = npt.NDArray[np.floating] | Heated | None  # vectors (flat), a heated labelling, or the uniform point


class Noise:
    """Normal noise for the unaries, drawn piece by piece."""

    def __init__(self, scale: float, seed: list[int]) -> None:
        largest = float(np.finfo(np.float32).max) / 64.0  # no draw is beyond single precision
        self.scale, self._generator = np.float32(min(scale, largest)), np.random.default_rng(seed)

    def draw(self, size: int) -> npt.NDArray[np.float32]:
        return self.scale * self._generator.standard_normal(size, dtype=np.float32)


class Engine(ABC):
    """Iterates of one run."""

    kappa: float
    variables: int
    effort: float  # of an iteration on one thread, in nanoseconds, very roughly

    @abstractmethod
    def reset(self, start: Start, noise: Noise | None = None) -> None:
        """Start there in every copy, multipliers zero, noise added to the unaries."""

    @abstractmethod
    def sweeps(self, rho: float, relax: float, iterations: int, fresh: bool, left: float = EVER) -> tuple[float, float]:
        """Iterate at one rho, fresh if it differs from the last; (squared residual per variable, part computed).

        After ``left`` seconds the last iteration may stay unfinished.
        """

    @abstractmethod
    def relaxed(self) -> Vector:
        """The first copy, flat."""

    @abstractmethod
    def labels(self) -> Labels:
        """Largest entry of every vector of the first copy."""

    @abstractmethod
    def export(self) -> tuple[Vector, Vector]:
        """(D, N) copies and multipliers, for diagnostics and warm starts."""

    @abstractmethod
    def load(self, x: Vector, y: Vector) -> None:
        """Continue from exported copies and multipliers."""

    @abstractmethod
    def searched(self, g: Arrays) -> Arrays:
        """The model whose energy the iterates descend: the given one with capped and perturbed unaries."""


class GridEngine(Engine):
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
        self.kappa = float(stencil.profile.max()) * float(np.abs(stencil.weights).sum()) / self.variables
        self.unary = unary.reshape(self.variables, stencil.labels)
        self.plan = grid.grid_plan(stencil, dtype)
        self.state = grid.grid_state(self.plan)
        strips = min(threads, max(1, stencil.height // 8)) if unary.size > SERIAL else 1
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
            rows = self.unary[pixels]
            cap = grid.grid_ranges(plan, first, first + PART)
            rows = np.minimum(rows, rows.min(axis=1, keepdims=True) + cap[:, None]).astype(self.dtype)
            if noise is not None:
                rows += noise.draw(rows.size).reshape(rows.shape)
            grid.grid_write(plan, plan.unary, rows, first)
            x = np.full(rows.shape, 1.0 / labels)
            if isinstance(start, Heated):
                x = start.vectors(pixels, np.full(len(rows), labels)).reshape(rows.shape)
            elif start is not None:
                x = start.reshape(self.unary.shape)[pixels]
            grid.grid_place(plan, state.x1, x, first)
        state.x2[:] = state.x1
        state.y[:] = 0
        grid.grid_touch(state)

    def sweeps(self, rho: float, relax: float, iterations: int, fresh: bool, left: float = EVER) -> tuple[float, float]:
        kind = self.dtype
        if fresh:
            grid.grid_touch(self.state)
        team = self.teams.choose(self.variables) if len(self.strips) > 2 else 1
        begin = time.perf_counter()
        residual, tiles = grid.grid_sweeps(
            self.plan, self.state, kind(rho), kind(relax), kind(self.eps), iterations, self.strips, self.cached, team
        )
        self.teams.report(self.variables, team, (time.perf_counter() - begin) / max(1, tiles))
        return residual / self.variables, tiles / max(1, iterations * self.plan.height * self.plan.tiles)

    def relaxed(self) -> Vector:
        return grid.grid_read(self.plan, self.state.x1).reshape(-1).astype(np.float64)

    def labels(self) -> Labels:
        labels = np.empty(self.variables, np.int64)
        for first, pixels in self._parts():
            labels[pixels] = grid.grid_read(self.plan, self.state.x1, first, first + PART).argmax(axis=1)
        return labels

    def export(self) -> tuple[Vector, Vector]:
        def flat(a: npt.NDArray[np.floating]) -> Vector:
            return grid.grid_read(self.plan, a).reshape(-1).astype(np.float64)

        y = flat(self.state.y)
        return np.stack([flat(self.state.x1), flat(self.state.x2)]), np.stack([np.zeros_like(y), y])

    def load(self, x: Vector, y: Vector) -> None:
        self.reset(x[0])
        grid.grid_place(self.plan, self.state.x2, x[1].reshape(self.unary.shape), 0)
        grid.grid_write(self.plan, self.state.y, y[1].reshape(self.unary.shape), 0)

    def searched(self, g: Arrays) -> Arrays:
        unary = grid.grid_read(self.plan, self.plan.unary)
        return g._replace(unary=unary.reshape(-1).astype(np.float64))


class GeneralEngine(Engine):
    def __init__(self, g: Arrays, form: Form, eps: float, threads: int, cached: bool) -> None:
        self.form, self.eps, self.cached = form, eps, cached
        sizes = np.add.reduceat(g.cards[g.scope], g.scope_start[:-1]) if len(g.kind) else np.zeros(1)
        entries = float(sizes.sum()) * float(g.cards.mean())
        self.effort = entries * form.copies
        self.teams = Teams(threads if entries > SERIAL else 1)
        ranges = incident_ranges(g)
        self.variables = len(g.cards)
        self.kappa = float(ranges.mean()) / form.copies
        self.arrays = g._replace(unary=capped(g, ranges))
        self.noisy = self.arrays
        self.scratch = workspace(g)
        self.state = general_state(g, form)

    def reset(self, start: Start, noise: Noise | None = None) -> None:
        g = self.arrays
        self.noisy = g if noise is None else g._replace(unary=g.unary + noise.draw(len(g.unary)))
        x = np.repeat(1.0 / g.cards, g.cards) if start is None else start
        if isinstance(start, Heated):
            x = start.vectors(slice(None), g.cards)
        self.state.x.reshape(self.form.copies, -1)[:] = x
        self.state.y[:] = 0.0
        self.state.dirty[:] = 1

    def sweeps(self, rho: float, relax: float, iterations: int, fresh: bool, left: float = EVER) -> tuple[float, float]:
        if fresh:
            self.state.dirty[:] = 1
        form = self.form._replace(relax=relax)
        team = self.teams.choose(self.variables)
        begin = time.perf_counter()
        residual, work = general_sweeps(
            self.noisy, form, self.state, rho, self.eps, iterations, self.cached, self.scratch, left, team
        )
        self.teams.report(self.variables, team, (time.perf_counter() - begin) / max(1, work))
        return residual / self.variables, work / max(1, iterations * self.variables * form.copies)

    def _copies(self, flat: Vector) -> Vector:
        return flat.reshape(self.form.copies, -1)

    def relaxed(self) -> Vector:
        return self._copies(self.state.x)[0].copy()

    def labels(self) -> Labels:
        g = self.arrays
        x = self.relaxed()
        if (g.cards == g.cards[0]).all():
            return x.reshape(-1, int(g.cards[0])).argmax(axis=1)
        top = np.repeat(np.maximum.reduceat(x, g.offset[:-1]), g.cards)
        first = np.flatnonzero(x == top)
        owner = np.repeat(np.arange(self.variables), g.cards)[first]
        start = np.searchsorted(owner, np.arange(self.variables))
        return first[start] - g.offset[:-1]

    def export(self) -> tuple[Vector, Vector]:
        return self._copies(self.state.x).copy(), self._copies(self.state.y).copy()

    def load(self, x: Vector, y: Vector) -> None:
        self.reset(None)
        self._copies(self.state.x)[:] = x
        self._copies(self.state.y)[:] = y

    def searched(self, g: Arrays) -> Arrays:
        return self.noisy

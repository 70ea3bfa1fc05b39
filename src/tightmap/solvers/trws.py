"""TRW-S: sequential tree-reweighted message passing for pairwise models (algorithms.md, 1.6).

The nodes are visited in order and back again.  Each visit gathers the messages of all neighbours, shares the sum out
evenly over the monotone chains that pass through the node, and sends the min-marginals on.  The lower bound never falls,
is at most that of the local polytope, and is exact on forests after one iteration.  Labellings are rounded inside both
passes (a node takes its best label given the neighbours labelled before it and the messages of the others), and the
best one of every few iterations is polished by coordinate descent.

Two engines share the work:
  * 4-connected grids with one truncated linear, quadratic or Potts table: eight rows at a time, float32 or float64
    messages, several threads (trws_grid.py); the bound is certified by a float64 pass (trws_grid_bound.py);
  * everything else: float64 messages on the factor lists (trws_general.py), where every backward pass is a certificate.
Neither the labels nor the bound depend on the number of threads.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tightmap.energy import UNIT, certify
from tightmap.errors import OptionError
from tightmap.graph import FloatArray, Graph, Kind
from tightmap.simd import LANES
from tightmap.solvers import trws_general as general
from tightmap.solvers.base import Context, Final, Init, Labels, Progress, Solver
from tightmap.solvers.bcd import local_minimum
from tightmap.solvers.dual import Dual, given_messages
from tightmap.solvers.orders import node_order
from tightmap.solvers.trws_grid import Strips, build_strips, from_strips, sweep, to_strips
from tightmap.solvers.trws_grid_bound import bound_sweep
from tightmap.stencil import Stencil, find_stencil

BLOCK = 16  # iterations between two certificates of a grid, and between two looks at the convergence
SPAN = 2  # blocks over which the bound has to gain
STEP = 1_000_000  # message entries computed in one step, about
DOUBLE_BELOW = 1 << 20  # message entries up to which a grid keeps them in float64
WORTH_THREADS = 1 << 17  # message entries from which on threads pay
WIDEST = 16  # quadratic windows beyond this go to the general engine's parabolas


class Engine(Protocol):
    """What the solver needs of an engine; bounds and energies are those of graph.arrays, without the constant."""

    entries: int
    best: Labels
    best_energy: float

    def iterate(self, count: int, rounding: bool) -> None:
        """Iterations; with rounding, ``best`` is the best labelling since ``best_energy`` was last set to inf."""

    def bound(self) -> tuple[float, float]:
        """Bound and the error that rounding can have made in it."""

    def expand(self) -> FloatArray: ...

    def close(self) -> None: ...


class GeneralEngine:
    """Any pairwise model."""

    def __init__(self, graph: Graph, order: npt.NDArray[np.int64]) -> None:
        self.graph = graph
        self.sweeper = general.build_sweeper(graph, order)
        self.entries = len(self.sweeper.messages)
        self.labels = np.zeros(graph.n, dtype=np.int64)
        self.best = self.labels.copy()
        self.best_energy = math.inf
        self.last = (-math.inf, 0.0)

    def iterate(self, count: int, rounding: bool) -> None:
        self.best_energy, low, size = general.run(
            self.graph.arrays, self.sweeper, count, rounding, self.labels, self.best, self.best_energy
        )
        self.last = (low, UNIT * (size + 4.0 * (self.graph.n + self.graph.m) * abs(low)))

    def bound(self) -> tuple[float, float]:
        return self.last

    def accept(self, messages: FloatArray) -> None:
        general.collapse_messages(self.graph, self.sweeper, messages)

    def expand(self) -> FloatArray:
        return general.expanded_messages(self.graph, self.sweeper)

    def close(self) -> None:
        pass


class GridEngine:
    """A 4-connected grid with one table of differences."""

    def __init__(self, graph: Graph, stencil: Stencil, threads: int, dtype: npt.DTypeLike) -> None:
        self.graph, self.stencil = graph, stencil
        self.grid: Strips = build_strips(stencil, graph.arrays.unary, dtype)
        self.entries = graph.m * stencil.labels
        self.profile = np.concatenate(([stencil.profile.max()], stencil.profile[1:])).astype(np.float64)
        self.threads = max(1, min(threads, self.grid.strips // 2)) if self.entries >= WORTH_THREADS else 1
        self.pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None
        self.energies = np.zeros(self.grid.strips * LANES)
        self.best = np.zeros(graph.n, dtype=np.int64)
        self.best_energy = math.inf
        self.certificate: tuple[float, float] | None = None

    def _together(self, kernel: Any, *arguments: Any) -> None:
        progress = np.zeros(self.grid.strips * LANES, dtype=np.int64)
        others = []
        if self.pool is not None:
            others = [
                self.pool.submit(kernel, *arguments, thread, self.threads, progress)
                for thread in range(1, self.threads)
            ]
        kernel(*arguments, 0, self.threads, progress)
        for other in others:
            other.result()

    def _pass(self, forward: bool, rounding: bool) -> None:
        self.energies[:] = 0.0
        self._together(sweep, self.grid, forward, rounding, self.energies)
        if rounding:
            energy = math.fsum(self.energies)
            if energy < self.best_energy:
                self.best_energy = energy
                self.best = from_strips(self.grid.chosen[LANES:-LANES], self.grid.height, self.grid.width)

    def iterate(self, count: int, rounding: bool) -> None:
        """The last iteration certifies the bound between its two passes."""
        for k in range(count):
            self._pass(True, rounding)
            if k == count - 1:
                self._certify()
            self._pass(False, rounding)
        self.best = self.best.astype(np.int64).reshape(-1)

    def _certify(self) -> None:
        grid = self.grid
        sums = np.zeros((grid.strips, 2))
        rows = np.zeros((self.threads + 1, (grid.steps + LANES - 1) * grid.labels))
        self._together(bound_sweep, grid, self.graph.arrays.unary, self.profile, sums, rows)
        low, size = math.fsum(sums[:, 0]), math.fsum(sums[:, 1])
        # a strip adds up 24 numbers per step, one after the other; two-sweep messages pass through every label
        size = (64.0 + 4.0 * grid.labels * (grid.window < 0) + 24.0 * grid.steps) * size
        self.certificate = (low, UNIT * size)

    def bound(self) -> tuple[float, float]:
        assert self.certificate is not None
        return self.certificate

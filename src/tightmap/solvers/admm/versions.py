"""The versions of a model that the cycles of ADMM search, each in an engine.

A regular grid is searched itself or on coarse grids (coarse.py).  Any other model is searched as it is, but for hard
costs: the iterates see a moderate stand-in for them, and labels that only avoid them may be left out (ranges.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightmap.graph.graph import Graph
from tightmap.graph.stencil import Stencil, find_stencil
from tightmap.moves.soften import softened
from tightmap.runtime.parallel import Teams
from tightmap.solvers.admm.candidates import Squares
from tightmap.solvers.admm.coarse import coarsen
from tightmap.solvers.admm.engine import Splitting
from tightmap.solvers.admm.general import GeneralSplitting
from tightmap.solvers.admm.grid import GridSplitting
from tightmap.solvers.admm.ranges import without_extremes
from tightmap.solvers.admm.restarts import Treatment
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.updates import Form

SINGLE = 1e30  # costs from here on are searched in double precision: sums and products must stay finite


@dataclass
class Versions:
    """Makes the engines of a run; there is one at a time."""

    graph: Graph
    form: Form
    stencil: Stencil | None  # of a regular grid, without its weights
    eps: float  # a vector that would change by less than this (squared distance) stays as it is
    single: bool  # precision on grids
    cached: bool
    threads: int

    def __post_init__(self) -> None:
        self.teams = Teams(self.threads)  # shared by the engines of grids, which are made anew for every coarse one
        self.engine: Splitting | None = None  # of the present cycle
        self.full: Splitting | None = None  # of the model itself, kept until a coarse grid takes its place
        self.squares: Squares = None
        self.treatment: Treatment = (0.0, False)  # how the engine of the model itself treats hard costs

    @property
    def size(self) -> int:
        """Labels in all of the version that the present engine has."""
        if self.stencil is None or self.engine is None:
            return len(self.graph.unary)
        return self.engine.variables * self.stencil.labels

    def prepare(self, cycle: Cycle) -> Splitting:
        """The engine for a cycle."""
        self.squares = None
        self.engine = self._general(cycle) if self.stencil is None else self._grid(cycle)
        return self.engine

    def close(self) -> None:
        """Make room: two engines of large models would need too much memory together."""
        if self.engine is not None and self.engine is not self.full:
            self.engine.close()
        if self.full is not None:
            self.full.close()
        self.engine = self.full = None

    def _grid(self, cycle: Cycle) -> Splitting:
        unary = self.graph.unary
        if cycle.factor == 1 and self.full is not None:
            return self.full
        self.close()
        # the weights are found anew for each use: keeping them takes a sixteenth of the memory of a run
        stencil = find_stencil(self.graph, images=cycle.factor > 1)
        assert stencil is not None
        largest = max(float(np.abs(unary).max(initial=0.0)), float(stencil.profile.max()) * stencil.total_weight)
        dtype = np.float32 if self.single and largest < SINGLE else np.float64
        if cycle.factor == 1:
            self.full = GridSplitting(stencil, unary, self.eps, dtype, self.threads, self.cached, self.teams)
            return self.full
        coarse = coarsen(stencil, unary.reshape(self.graph.n, -1), cycle.factor, cycle.offset)
        del stencil
        self.squares = coarse.square
        return GridSplitting(coarse.stencil, coarse.unary, self.eps, dtype, self.threads, self.cached, self.teams)

    def _general(self, cycle: Cycle) -> Splitting:
        graph = self.graph
        treatment = (cycle.hard, cycle.ban and graph.hard > 0.0)
        if self.full is None or (graph.hard > 0.0 and self.treatment != treatment):
            self.close()
            self.treatment = treatment
            g = softened(graph, cycle.hard)
            if cycle.ban and graph.hard > 0.0:
                g = without_extremes(g)
            self.full = GeneralSplitting(g, self.form, self.eps, self.threads, self.cached)
        return self.full

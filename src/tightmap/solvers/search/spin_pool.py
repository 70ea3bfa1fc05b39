"""Tabu search on binary pairwise models: a population of labellings, crossed, cooled and walked on single flips.

    child = spins that two labellings of the population share, and random ones where they differ
    child <- cooled from a moderate temperature, then a tabu walk from the best of that         (moves/spin_flips.py)

A population begins with random spins that are cooled from a high temperature.  A child takes the place of a labelling
next to it, or of the worst one, if it is better.  When many children in a row brought nothing new, the best labelling
goes to a hall and another population begins; every few of these it begins from the hall.  Where there are no linear
terms s and -s are the same, and are compared so.

Without the graph in between, a flip costs nanoseconds.  Measured on max-cut with 800 vertices (one core): the best
known cuts of G1 and G11 in seconds, where the general walk ends 0.1 % above them.
"""

from __future__ import annotations

import numpy as np

from tightmap.energy.energies import energy
from tightmap.graph.graph import FloatArray, Graph
from tightmap.moves.context import Context, Labels
from tightmap.moves.spin_flips import cool, flip_changes, flip_walk
from tightmap.moves.spins import row_norms, spins_of
from tightmap.runtime.pace import SLICE, time_left
from tightmap.runtime.random_numbers import start_state

POPULATION = 12
SWEEPS = 2000  # of a child's cooling
WALK = 5  # steps of its tabu walk, for each spin
SCAN = 20_000_000  # numbers that a walk scans at most
HOT, WARM, COLD = 0.5, 0.15, 0.03  # temperatures of random spins, of crossed ones, and at the end: in units of a flip
STALE = 60  # children in a row that brought nothing new: the population has nothing more to give
HALL = 5  # the best of so many populations make a new one
NEXT_TO = 0.01  # labellings that differ in a smaller part of the spins take each other's place
TINY = 1e-9  # in units of a row of the form, whose norm is near 1
LARGE = 100_000, 1_000_000  # variables and factors up to which the form is made in a moment


def suits(graph: Graph) -> bool:
    """The model is one of spins, and not too large."""
    return graph.max_labels == 2 and graph.order == 2 and graph.n <= LARGE[0] and graph.m <= LARGE[1]


class SpinPool:
    """A run of it: the population, and the child that is being made."""

    def __init__(self, graph: Graph, context: Context, labels: Labels, tenure: int) -> None:
        self.graph, self.context = graph, context
        self.spins = spins_of(graph)
        a = self.spins.matrix
        self.rows = (a.indptr, a.indices, a.data)
        count, n = self.spins.count, self.spins.n
        self.tenure = tenure
        norms = row_norms(a.data, np.repeat(np.arange(count), np.diff(a.indptr)), count)
        self.unit = 2.0 * float(np.median(norms[norms > 0.0])) if len(a.data) else 1.0  # what a random flip changes
        self.rng = np.random.default_rng((context.seed, 3))
        self.random = start_state(context.seed)
        self.now, self.change, self.best = np.ones(count), np.zeros(count), np.ones(count)
        self.value = np.zeros(2)
        self.until = np.zeros(count, np.int64)
        self.pool: list[tuple[float, FloatArray]] = []
        self.hall: list[tuple[float, FloatArray]] = []
        self.champion = labels.copy()
        self.champion_energy = energy(graph, labels)
        self.children = 0
        self.stale = 0
        self.n = n
        self._begin(self.spins.of(labels).astype(np.float64), WARM)

    def _begin(self, spins: FloatArray, hot: float) -> None:
        self.now[:] = spins
        self.value[:] = flip_changes(*self.rows, self.now, self.change)
        self.best[:] = self.now
        self.hot, self.sweep, self.walked = hot, 0, 0

    def adopt(self, labels: Labels) -> None:
        """Another method has found a better labelling: it joins the population."""
        value = energy(self.graph, labels)
        if value < self.champion_energy:
            self.champion, self.champion_energy = labels.copy(), value
            spins = self.spins.of(labels).astype(np.float64)
            self._join(float(flip_changes(*self.rows, spins, np.empty(len(spins)))), spins)

    def advance(self) -> bool:
        """Work on the present child for a slice of time; True when it is complete and the next one has begun."""
        if self.sweep < SWEEPS:
            self.sweep = cool(
                *self.rows, self.n, self.now, self.change, self.best, self.hot * self.unit, COLD * self.unit,
                self.sweep, SWEEPS, self.random, self.value, TINY, time_left(self.context, SLICE),
            )  # fmt: skip
            if self.sweep < SWEEPS:
                return False
            # afresh from the best of the cooling: rounding errors have added up
            self.now[:] = self.best
            self.value[:] = flip_changes(*self.rows, self.now, self.change)
            self.until[:] = 0
        steps = min(WALK * self.n, SCAN // self.n)
        made, _ = flip_walk(
            *self.rows, self.n, self.now, self.change, self.best, self.until, self.walked, steps - self.walked, 0,
            self.tenure, 10, self.random, self.value, TINY, time_left(self.context, SLICE),
        )  # fmt: skip
        self.walked += made
        if self.walked < steps:
            return False
        self._complete()
        return True

    def _complete(self) -> None:
        self.children += 1
        labels = self.spins.labels(self.best)
        value = energy(self.graph, labels)
        if value < self.champion_energy:
            self.champion, self.champion_energy = labels, value
        least = min((v for v, _ in self.pool), default=np.inf)
        form = float(self.value[1])
        self._join(form, self.best.copy())
        self.stale = 0 if form < least - TINY or len(self.pool) < POPULATION else self.stale + 1
        if self.stale >= STALE:
            self._new_population()
        if len(self.pool) < POPULATION:
            self._begin(self._fresh(), HOT)
        else:
            self._begin(self._cross(), WARM)

    def _fresh(self) -> FloatArray:
        spins = self.rng.choice([-1.0, 1.0], self.spins.count)
        spins[self.n :] = 1.0
        return spins

    def _cross(self) -> FloatArray:
        i, j = self.rng.choice(len(self.pool), 2, replace=False)
        a, b = self.pool[i][1], self.pool[j][1]
        if not self.spins.extra and a @ b < 0.0:
            b = -b
        return np.where(a == b, a, self._fresh())

    def _join(self, value: float, spins: FloatArray) -> None:
        """Into the population, unless it is full of better ones or has one like it."""
        apart = [self._distance(spins, other) for _, other in self.pool]
        near = int(np.argmin(apart)) if apart else -1
        if near >= 0 and apart[near] <= NEXT_TO * self.n:
            if value < self.pool[near][0]:
                self.pool[near] = (value, spins)
        elif len(self.pool) < POPULATION:
            self.pool.append((value, spins))
        else:
            worst = max(range(len(self.pool)), key=lambda k: self.pool[k][0])
            if value < self.pool[worst][0]:
                self.pool[worst] = (value, spins)

    def _distance(self, a: FloatArray, b: FloatArray) -> float:
        same = float(a @ b)
        return 0.5 * (len(a) - (same if self.spins.extra else abs(same)))

    def _new_population(self) -> None:
        self.hall.append(min(self.pool, key=lambda pair: pair[0]))
        self.pool, self.stale = [], 0
        if len(self.hall) >= HALL:
            for value, spins in self.hall:
                self._join(value, spins)
            self.hall = []

"""Convex quadratic relaxation of a pairwise model (Ravikumar and Lafferty; paper supplement B), with a certified bound.

    E_cqp(x) = E(x) - sum_i d_i' x_i + sum_i x_i' diag(d_i) x_i,     d_i(s) = 1/2 sum_(j, t) |f_ij(s, t)|

equals E at labellings, and diagonal dominance makes it convex.  Costs of one variable can be moved between a table and
its unaries without changing E on the simplices, and d only has to dominate what is left in the table: the smaller that
is, the closer the relaxation stays to E.  Medians of rows and columns leave least: a Potts table becomes -w on its
diagonal and d = w / 2 whatever the number of labels, where the table as it stands asks for (labels - 1) w / 2.

For convex F every point gives a bound, F(y) >= F(x) + <grad F(x), y - x> for all y, whose minimum over the simplices is
F(x) minus the Frank-Wolfe gap.  It is evaluated in float64 with an allowance for rounding, so the method proves a bound
(a weak one) where the paper reports none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from tightmap.energy import UNIT, certify, energy
from tightmap.errors import OptionError
from tightmap.factors.kernels import LINEAR, POTTS, QUADRATIC, workspace
from tightmap.factors.tabulate import tabulate
from tightmap.graph import Arrays, Graph
from tightmap.solvers.base import Context, Final, Init, Labels, Progress, Solver, Vector
from tightmap.solvers.bcd import local_minimum, round_and_descend
from tightmap.solvers.descent import PAIRWISE, PLAIN, PROJECTED, REFRESH, Descent, limit_threads
from tightmap.solvers.multistart import Relaxed, check_search
from tightmap.solvers.soften import softened

STEPS = {"plain": PLAIN, "pairwise": PAIRWISE, "projected": PROJECTED}
POLISH = 3  # rounds of row and column medians


@njit(cache=True, nogil=True)
def _shift(table, medians):
    """Subtract from every row, then from every column, its median or its minimum, in place."""
    for s in range(table.shape[0]):
        table[s, :] -= np.median(table[s, :]) if medians else table[s, :].min()
    for t in range(table.shape[1]):
        table[:, t] -= np.median(table[:, t]) if medians else table[:, t].min()


@njit(cache=True, nogil=True)
def _dominate(table, d):
    """d[:rows] and d[rows:]: half the absolute row and column sums of the table without its separable part."""
    rows, columns = table.shape
    low = table.copy()
    _shift(low, False)
    left = np.abs(low)
    middle = table.copy()
    for _ in range(POLISH):
        _shift(middle, True)
        if np.abs(middle).sum() < left.sum():
            left = np.abs(middle)
    for s in range(rows):
        d[s] = 0.5 * left[s, :].sum()
    for t in range(columns):
        d[rows + t] = 0.5 * left[:, t].sum()


@njit(cache=True, nogil=True)
def convexity(g, d, size, scratch):
    """Fill d, and size[i] >= every number that enters a derivative of variable i through its factors.

    Tables that differ only by their weight are looked at once in a row.
    """
    buffer = np.empty(scratch)
    unit = np.empty(2 * max(2, g.cards.max()))
    seen = -1
    largest = 0.0
    for f in range(len(g.kind)):
        i = g.scope[g.scope_start[f]]
        j = g.scope[g.scope_start[f] + 1]
        ci = g.cards[i]
        cj = g.cards[j]
        w = abs(g.weight[f])
        if w == 0.0:
            continue
        if g.kind[f] == POTTS:
            for s in range(min(ci, cj)):
                d[g.offset[i] + s] += 0.5 * w
                d[g.offset[j] + s] += 0.5 * w
            size[i] += w
            size[j] += w
            continue
        same = seen >= 0 and g.kind[seen] == g.kind[f] and g.param[seen] == g.param[f] and g.iparam[seen] == g.iparam[f]
        if same:
            a = g.scope_start[seen]
            same = g.cards[g.scope[a]] == ci and g.cards[g.scope[a + 1]] == cj
            same = same and (g.weight[seen] > 0.0) == (g.weight[f] > 0.0)
        if not same:
            entries = tabulate(g, f, buffer)
            table = buffer[:entries].reshape(ci, cj) / w
            largest = np.abs(table).max()
            if g.kind[f] == LINEAR or g.kind[f] == QUADRATIC:
                largest = max(largest, float(max(ci, cj)) ** 2)  # prefix sums of t^2 x
            _dominate(table, unit)
            seen = f
        for s in range(ci):
            d[g.offset[i] + s] += w * unit[s]
        for t in range(cj):
            d[g.offset[j] + t] += w * unit[ci + t]
        size[i] += w * largest
        size[j] += w * largest


def convex_diagonal(arrays: Arrays) -> tuple[Vector, Vector]:
    """(d, size) of a pairwise model: see ``convexity``; d is rounded up so that it dominates despite rounding."""
    d, size = np.zeros(len(arrays.unary)), np.zeros(len(arrays.cards))
    pairs = arrays.cards[arrays.scope].astype(np.int64).reshape(-1, 2)
    convexity(arrays, d, size, max(workspace(arrays), int(pairs.prod(axis=1).max(initial=1))))
    return d * (1.0 + 1e-10), size


def convex_bound(graph: Graph, arrays: Arrays, d: Vector, size: Vector, x: Vector, grad: Vector) -> float:
    """E_cqp(x) - gap(x), certified; ``grad`` is the gradient of E_cqp at x, computed from scratch.

    With Q the quadratic part of E, the linear terms cancel: c + sum_i min grad_i - Q(x) - x' D x, where
    <grad, x> = <unary - d, x> + 2 Q(x) + 2 x' D x gives Q(x) + x' D x without another pass over the factors.
    """
    at = arrays.offset[:-1]
    low = np.minimum.reduceat(grad, at)
    quadratic = 0.5 * np.add.reduceat((grad - arrays.unary + d) * x, at)
    raw = math.fsum((graph.constant, *low.tolist(), *(-quadratic).tolist()))
    # what every derivative is made of, how many roundings it went through, and how far x is off its simplex
    parts = np.maximum.reduceat(np.abs(arrays.unary), at) + size + 3.0 * np.maximum.reduceat(d, at)
    terms = np.zeros(graph.n)
    other = arrays.cards[arrays.scope.reshape(-1, 2)[:, ::-1]].astype(np.float64)
    np.add.at(terms, arrays.scope, other.reshape(-1) + 1.0)
    off = np.abs(np.add.reduceat(x, at) - 1.0) + UNIT * arrays.cards
    error = float((parts * (8.0 * UNIT * (terms + arrays.cards + 8.0) + 4.0 * off)).sum())
    return certify(graph, raw, error)


@dataclass
class State:
    graph: Graph
    descent: Descent
    size: Vector
    finished: bool = False


@dataclass(frozen=True)
class CQP(Solver):
    """Options of the convex relaxation.

    steps        "projected" gradient, or "pairwise" or "plain" (the paper's) Frank-Wolfe steps
    line_search  "exact", "armijo", "nonmonotone" (exact for Frank-Wolfe steps) or "diminishing"
    tolerance    converged when the Frank-Wolfe gap is below tolerance * (1 + |energy|)
    iterations   at most this many
    hard_cost    what stands for a forbidden combination in the search, in units of the largest soft range
    """

    steps: str = "projected"
    line_search: str = "nonmonotone"
    tolerance: float = 1e-4
    iterations: int = 1000
    hard_cost: float = 1.0

    name: ClassVar[str] = "cqp"
    summary: ClassVar[str] = "convex quadratic relaxation of a pairwise model, BCD rounding, certified (weak) bound"
    max_order: ClassVar[int | None] = 2
    needs: ClassVar[str] = "pairwise model"
    gives_bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.steps not in STEPS:
            raise OptionError(f"cqp: steps must be 'projected', 'pairwise' or 'plain', got {self.steps!r}")
        check_search(self.name, self.line_search, self.tolerance, self.iterations, self.hard_cost)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        limit_threads(graph)
        arrays = softened(graph, self.hard_cost)
        d, size = convex_diagonal(arrays)
        rule = STEPS[self.steps]
        spectral = rule == PROJECTED and self.line_search != "diminishing"
        descent = Descent(graph, arrays, rule, self.line_search, spectral, self.tolerance, self.iterations, d)
        x = np.repeat(1.0 / arrays.cards, arrays.cards)
        if init.relaxed is not None:
            x = init.relaxed
        elif isinstance(init.state, Relaxed) and len(init.state.x) == len(x):
            x = init.state.x
        descent.begin(x)
        return State(graph, descent, size)

    def step(self, state: State) -> Progress:
        """One iteration; with a certified bound now and then, and with the rounding at the end."""
        d = state.descent
        moved = d.iterate()
        info = {"relaxed_energy": d.value, "gap": d.gap}
        if moved:
            bound = self._bound(state) if d.count % REFRESH == 0 else None
            return Progress(bound=bound, info=info)
        state.finished = True
        bound = self._bound(state)
        return Progress(labels=self._round(state), bound=bound, done=True, iterations=0, info=info)

    def _bound(self, state: State) -> float:
        d = state.descent
        d.settle()
        d.refresh()
        return convex_bound(state.graph, d.arrays, d.diagonal, state.size, d.x, d.grad)

    def _round(self, state: State) -> Labels:
        """The better of BCD from the relaxed vectors and BCD from their largest entries."""
        graph, x = state.graph, state.descent.settle()
        labels = [round_and_descend(graph, x), local_minimum(graph, _largest(graph.arrays, x))]
        return min(labels, key=lambda l: energy(graph, l))

    def finish(self, state: State) -> Final:
        x = state.descent.settle().copy()
        if state.finished:
            return Final(state=Relaxed(x))
        return Final(labels=self._round(state), bound=self._bound(state), state=Relaxed(x))


def _largest(g: Arrays, x: Vector) -> Labels:
    """The label with the largest entry of every variable, the lowest on ties."""
    top = np.repeat(np.maximum.reduceat(x, g.offset[:-1]), g.cards)
    where = np.flatnonzero(x == top)
    owner = np.repeat(np.arange(len(g.cards)), g.cards)[where]
    first = np.unique(owner, return_index=True)[1]
    return where[first] - g.offset[:-1]

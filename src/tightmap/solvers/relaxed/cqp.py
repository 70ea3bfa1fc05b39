"""Convex quadratic relaxation of a pairwise model (Ravikumar and Lafferty; paper supplement B.2), with a bound.

    minimise E_cqp(x) = E(x) - sum_i d_i' x_i + sum_i x_i' diag(d_i) x_i   over the product of the simplices,

    d_i(s) = 1/2 sum_(j, t) |f_ij(s, t)|,   g = gradient of E_cqp at x
    s = projection of x - beta g on the simplices, or s_i = e_(argmin g_i) (Frank-Wolfe, as in the paper)
    x <- x + alpha (s - x),   alpha in [0, 1] from E_cqp(x + alpha r) = A' alpha^2 + B' alpha + C'

E_cqp equals E at labellings, and diagonal dominance makes it convex.  Costs of one variable can be moved between a
table and its unaries without changing E on the simplices, and d only has to dominate what is left in the table: the
smaller that is, the closer the relaxation stays to E.  Medians of rows and columns leave least: a Potts table becomes
-w on its diagonal and d = w / 2 whatever the number of labels, where the table as it stands asks for
(labels - 1) w / 2.

For convex F every point gives a bound, F(y) >= F(x) + <grad F(x), y - x> for all y, whose minimum over the simplices is
F(x) minus the Frank-Wolfe gap.  It is evaluated in float64 with an allowance for rounding, so the method proves a bound
(a weak one) where the paper reports none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import UNIT, certify
from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.factors.kernels import tabulate
from tightmap.factors.pairs import DENSE, LINEAR, POTTS, QUADRATIC
from tightmap.graph.graph import Arrays, Graph, IntArray
from tightmap.moves.context import Context, Labels, Vector
from tightmap.moves.coordinate_descent import local_minimum, round_and_descend
from tightmap.moves.soften import softened
from tightmap.runtime.pace import TimeUp, check_time
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.relaxed.descent import PAIRWISE, PLAIN, PROJECTED, REFRESH, Descent
from tightmap.solvers.relaxed.multistart import Relaxed, check_search

STEPS = {"plain": PLAIN, "pairwise": PAIRWISE, "projected": PROJECTED}
POLISH = 3  # how often the medians of rows, then of columns, are taken off a table
CHUNK = 4_000_000  # most table entries that are in memory at a time
PATIENCE = 0.2  # no more medians are taken after this part of the time limit
GRACE = 0.2  # seconds that computing the last bound may take after the time limit


def _dominating(tables: Vector, patient: Callable[[], bool]) -> tuple[Vector, Vector]:
    """Half the absolute row and column sums of (k, rows, columns) tables without their separable parts.

    Taking off medians leaves less than taking off minima; there are as many rounds of that as time allows.
    """
    left = np.abs(_shifted(tables, np.min))
    middle = tables
    for _ in range(POLISH):
        if not patient():
            break
        middle = _shifted(middle, np.median)
        better = np.abs(middle).sum(axis=(1, 2)) < left.sum(axis=(1, 2))
        left[better] = np.abs(middle[better])
    return 0.5 * left.sum(axis=2), 0.5 * left.sum(axis=1)


def _shifted(tables: Vector, reduce: Callable[..., Vector]) -> Vector:
    """The tables with ``reduce`` of every row, then of every column, taken off."""
    tables = tables - reduce(tables, axis=2, keepdims=True)
    return tables - reduce(tables, axis=1, keepdims=True)


def _difference_sums(kind: int, limit: float, shape: tuple[int, int]) -> tuple[Vector, Vector]:
    """Half the row and column sums of a table of differences as it stands, without the table."""
    power = 1.0 if kind == LINEAR else 2.0
    terms = np.minimum(np.arange(float(max(shape))) ** power, limit)
    sums = np.concatenate(([0.0], np.cumsum(terms)))  # of the first differences 0, 1, ..

    def side(own: int, other: int) -> Vector:
        s = np.arange(own)
        below = sums[s + 1] - sums[np.maximum(s + 1 - other, 0)]  # labels up to s of the other side
        return 0.5 * (below + sums[np.maximum(other - s, 1)])

    return side(*shape), side(shape[1], shape[0])


def _tables(g: Arrays, factors: IntArray, shape: tuple[int, int]) -> Vector:
    """(k, rows, columns) tables of factors of one shape, weights of size 1 (their signs count)."""
    out = np.empty((len(factors), shape[0] * shape[1]))
    gap = np.abs(np.subtract.outer(np.arange(float(shape[0])), np.arange(float(shape[1])))).ravel()
    for kind in np.unique(g.kind[factors]):
        own = np.flatnonzero(g.kind[factors] == kind)
        at = g.param[factors[own]]
        if kind == POTTS:
            out[own] = gap > 0.0
        elif kind == LINEAR or kind == QUADRATIC:
            out[own] = np.minimum(gap if kind == LINEAR else gap**2, g.params[at][:, None])
        elif kind == DENSE:
            out[own] = g.params[at[:, None] + np.arange(out.shape[1])]
        else:
            for k in own:
                tabulate(g, factors[k], out[k])
                out[k] /= g.weight[factors[k]]
    return out.reshape(-1, *shape) * np.sign(g.weight[factors])[:, None, None]


def convex_diagonal(g: Arrays, context: Context | None = None) -> tuple[Vector, Vector]:
    """(d, size) of a pairwise model; size[i] >= every number that enters a derivative of variable i by its factors.

    Tables that differ by the size of their weights only are looked at once.  d is rounded up, so that it dominates.
    TimeUp when the time limit of the context passes before.
    """
    least = 0.0 if context is None else (1.0 - PATIENCE) * context.remaining()

    def patient() -> bool:
        return context is None or context.remaining() > least

    d, size = np.zeros(len(g.unary)), np.zeros(len(g.cards))
    ends = g.scope.reshape(-1, 2)
    active = np.flatnonzero(g.weight)
    potts = g.kind == POTTS
    columns = (g.kind, np.where(potts, 0, g.param), np.where(potts, 0, g.iparam), *g.cards[ends].T, g.weight > 0.0)
    group = np.zeros(len(active), dtype=np.int64)
    for column in columns:  # one after the other: sorting rows as such is many times slower
        values, rank = np.unique(column[active], return_inverse=True)
        group = np.unique(group * len(values) + rank, return_inverse=True)[1] if len(values) > 1 else group
    first = active[np.unique(group, return_index=True)[1]]
    shapes = g.cards[ends[first]]
    for shape in sorted({(int(a), int(b)) for a, b in shapes}):
        these = np.flatnonzero((shapes == shape).all(axis=1))
        per = max(1, CHUNK // (shape[0] * shape[1]))
        for begin in range(0, len(these), per):
            some = these[begin : begin + per]
            check_time(context)
            kinds, smooth = g.kind[first[some]], np.isin(g.kind[first[some]], (LINEAR, QUADRATIC))
            halves: tuple[Vector, Vector]
            if smooth.all() and shape[0] * shape[1] > CHUNK:  # a single table that is too large to be written out
                limit = float(g.params[g.param[first[some[0]]]])
                sums = _difference_sums(int(kinds[0]), limit, shape)
                halves, largest = (sums[0][None], sums[1][None]), np.array([limit])
            else:
                tables = _tables(g, first[some], shape)
                halves, largest = _dominating(tables, patient), np.abs(tables).max(axis=(1, 2))
            # the kernels of label differences form prefix sums of t^2 x(t), which are larger than the costs
            largest[smooth] = np.maximum(largest[smooth], float(max(shape)) ** 2)
            place = np.full(len(first), -1)
            place[some] = np.arange(len(some))
            mine = np.flatnonzero(place[group] >= 0)
            which, factors = place[group[mine]], active[mine]
            w = np.abs(g.weight[factors])
            for p, half in enumerate(halves):
                nodes = ends[factors, p]
                np.add.at(size, nodes, w * largest[which])
                _add_rows(d, g, nodes, w, half, which)
    return d * (1.0 + 1e-10), size


def _add_rows(d: Vector, g: Arrays, nodes: IntArray, w: Vector, sums: Vector, which: IntArray) -> None:
    """d_i += w * sums[which] for every factor: one table after the other where they are few."""
    labels = np.arange(sums.shape[1])
    if len(sums) > 16:
        np.add.at(d, g.offset[nodes][:, None] + labels, w[:, None] * sums[which])
        return
    for k, row in enumerate(sums):
        own = which == k
        weight = np.bincount(nodes[own], w[own], len(g.cards))
        touched = np.flatnonzero(weight)
        d[g.offset[touched][:, None] + labels] += weight[touched][:, None] * row


def convex_bound(graph: Graph, arrays: Arrays, d: Vector, size: Vector, x: Vector, grad: Vector) -> float:
    """E_cqp(x) - gap(x), certified; ``grad`` is the gradient of E_cqp at x, computed from scratch.

    With Q the quadratic part of E, the linear terms cancel: c + sum_i min grad_i - Q(x) - x' D x, where
    <grad, x> = <unary - d, x> + 2 Q(x) + 2 x' D x gives Q(x) + x' D x without another pass over the factors.
    """
    at = arrays.offset[:-1]
    low = np.minimum.reduceat(grad, at)
    quadratic = 0.5 * np.add.reduceat((grad - arrays.unary + d) * x, at)
    raw = math.fsum((graph.constant, *low.tolist(), *(-quadratic).tolist()))
    # per variable: the size of the terms of a derivative, the number of roundings, and how far x is off its simplex
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
    context: Context
    descent: Descent
    size: Vector
    finished: bool = False


@dataclass(frozen=True)
class CQP(Solver):
    """Options of the convex relaxation.

    steps        "projected" gradient, or "pairwise" or "plain" (the paper's) Frank-Wolfe steps
    line_search  "exact", "armijo", "nonmonotone" (exact for Frank-Wolfe steps) or "diminishing"
    tolerance    converged when the Frank-Wolfe gap is below tolerance * max(|energy|, a typical cost)
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
    capabilities: ClassVar[Capabilities] = Capabilities(largest_order=2, bounds=True, hard_costs=False)

    def __post_init__(self) -> None:
        if self.steps not in STEPS:
            raise OptionError(f"cqp: steps must be 'projected', 'pairwise' or 'plain', got {self.steps!r}")
        check_search(self.name, self.line_search, self.tolerance, self.iterations, self.hard_cost)

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=True)

    def start(self, graph: Graph, init: Init, context: Context) -> State | None:
        arrays = softened(graph, self.hard_cost)
        try:
            d, size = convex_diagonal(arrays, context)
        except TimeUp:
            return None
        rule = STEPS[self.steps]
        spectral = rule == PROJECTED and self.line_search != "diminishing"
        descent = Descent(graph, arrays, rule, self.line_search, spectral, self.tolerance, self.iterations, d, context)
        x = np.repeat(1.0 / arrays.cards, arrays.cards)
        if init.relaxed is not None:
            x = init.relaxed
        elif isinstance(init.state, Relaxed) and len(init.state.x) == len(x):
            x = init.state.x
        with suppress(TimeUp):
            descent.begin(x)
        return State(graph, context, descent, size)

    def step(self, state: State | None) -> Progress:
        """One iteration; with a certified bound now and then, and with the rounding at the end."""
        if state is None:
            return Progress(iterations=0)
        d = state.descent
        try:
            moved = d.iterate()
            bound = self._bound(state) if not moved or d.count % REFRESH == 0 else None
        except TimeUp:
            return Progress(iterations=0, pending=True)
        info = {"relaxed_energy": d.value, "gap": d.gap}
        if moved:
            return Progress(bound=bound, info=info)
        state.finished = True
        return Progress(labels=self._round(state), bound=bound, done=True, iterations=0, info=info)

    def _bound(self, state: State, left: float | None = None) -> float:
        d = state.descent
        d.take_pending_step()
        d.refresh(left)
        return convex_bound(state.graph, d.arrays, d.diagonal, state.size, d.x, d.grad)

    def _round(self, state: State) -> Labels:
        """The better of BCD from the relaxed vectors and BCD from their largest entries."""
        graph, x = state.graph, state.descent.take_pending_step()
        labels = [round_and_descend(graph, x, state.context)]
        if state.context.remaining() > 0.0:  # else the first is these already
            labels.append(local_minimum(graph, _largest(graph.arrays, x), state.context))
        return min(labels, key=lambda l: energy(graph, l))

    def finish(self, state: State | None) -> Final:
        if state is None:
            return Final()
        x = state.descent.take_pending_step().copy()
        if state.finished:
            return Final(state=Relaxed(x))
        labels, bound = self._round(state), None
        with suppress(TimeUp):
            bound = self._bound(state, GRACE)
        return Final(labels=labels, bound=bound, state=Relaxed(x))


def _largest(g: Arrays, x: Vector) -> Labels:
    """The label with the largest entry of every variable, the lowest on ties."""
    top = np.repeat(np.maximum.reduceat(x, g.offset[:-1]), g.cards)
    where = np.flatnonzero(x == top)
    owner = np.repeat(np.arange(len(g.cards)), g.cards)[where]
    first = np.unique(owner, return_index=True)[1]
    return where[first] - g.offset[:-1]

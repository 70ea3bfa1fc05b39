"""The iterations of AD3 on one graph: copies, consensus, multipliers, restarts, penalty, bounds and labellings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import Certified
from tightmap.energy.energies import lower_bound, message_offsets, unary_argmin
from tightmap.factors.kernels import workspace
from tightmap.graph.graph import FloatArray, Graph, Kind
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime import parallel
from tightmap.runtime.pace import SLICE, time_left
from tightmap.solvers.decomposition.ad3_kernels import (
    FACTORS,
    MOST,
    VARIABLES,
    Sizes,
    agree,
    exclude,
    from_messages,
    independent_labellings,
    likeliest,
    make_sets,
    solve_factors,
    to_messages,
)

FIRST_PERIOD = 40  # iterations before the first restart
LONGER = 1.2  # each period is by so much longer than the one before
LEAST = 2.0**-100  # typical range of factors, relative to that of all costs, that is told from zero
WIDEST = 1e3  # by which the penalty may differ from the first one
SAMPLE = 500  # factors whose size decides on the first penalty


def typical_range(graph: Graph) -> float:
    """Median over some factors of the difference between their largest and smallest soft cost."""
    g = graph.arrays
    ranges = []
    for f in np.linspace(0, graph.m - 1, min(graph.m, SAMPLE)).astype(np.int64):
        kind, weight = Kind(int(g.kind[f])), abs(float(g.weight[f]))
        cards = g.cards[g.scope[g.scope_start[f] : g.scope_start[f + 1]]].astype(np.int64)
        spread = 1.0
        if kind in (Kind.LINEAR, Kind.QUADRATIC):
            reach = float(cards.max() - 1) ** (2 if kind is Kind.QUADRATIC else 1)
            spread = min(reach, float(g.params[g.param[f]]))
        elif kind is Kind.SECOND_DIFFERENCE:
            spread = float(g.params[g.param[f]])
        elif kind is not Kind.POTTS:
            count = 2  # patterns: all equal, and all but one
            if kind is Kind.DENSE:
                count = int(cards.prod())
            elif kind is Kind.PN_POTTS:
                count = 1 + int(cards.min())
            elif kind is Kind.SPARSE:
                count = 1 + int(g.ints[g.iparam[f]])
            part = slice(int(g.param[f]), int(g.param[f]) + count)
            own = g.params[part]
            if graph.params_hard is not None:
                own = own[~graph.params_hard[part]]
            spread = float(np.ptp(own)) if len(own) else 0.0
        if 0.0 < weight * spread < math.inf:
            ranges.append(weight * spread)
    return float(np.median(ranges)) if ranges else 1.0


class Run:
    """One relaxation: the graph's, or with another unary the one of a node of a search tree."""

    def __init__(self, graph: Graph, context: Context, eta: float, relaxation: float, balance: float) -> None:
        g = graph.arrays
        self.graph, self.context = graph, context
        self.relaxation, self.balance = relaxation, balance
        # costs are divided by the penalty: beside factors that cost next to nothing all of them would be infinite
        self.eta = self.first_eta = eta * max(typical_range(graph), LEAST * graph.typical)
        self.unary = g.unary
        self.at = message_offsets(graph)
        size = int(self.at[-1])
        lengths = self.at[g.scope_start[1:]] - self.at[g.scope_start[:-1]]
        most = min(MOST, int(independent_labellings(graph).max()))
        self.sizes = Sizes(graph.order, int(lengths.max()), most, workspace(g))
        self.multipliers, self.copies, self.mean = np.zeros((3, size))
        self.point = np.repeat(1.0 / g.cards, g.cards)
        alone = np.diff(g.adj_start) == 0  # variables without factors take their best label
        self.point[np.repeat(alone, g.cards)] = 0.0
        self.point[(g.offset[:-1] + unary_argmin(graph))[alone]] = 1.0
        self.mean_point = self.point.copy()
        self.still = np.zeros(graph.n, dtype=np.uint8)
        self.sets = make_sets(graph)
        self.iterations = 0
        self.primal = self.dual = math.inf  # residuals: copies from their mean, and change of the mean
        self.solved = 0  # programs in the last iteration, the others stood still
        self.messages: FloatArray | None = None  # of the last bound
        self.begin(FIRST_PERIOD)

    # ------------------------------------------------------------------------------------------------ beginnings

    def begin(self, period: int) -> None:
        """Forget the means of the period before."""
        self.period, self.counted = period, 0
        self.imbalance = 0.0  # sum of log(primal / dual)
        self.still[:] = 0

    def accept(self, messages: FloatArray) -> None:
        """Begin with the messages of another method."""
        from_messages(self.graph.arrays, self.at, messages, self.multipliers)

    def restrict(self, unary: FloatArray, multipliers: FloatArray, point: FloatArray) -> None:
        """Begin with other unaries."""
        self.unary = unary
        self.multipliers[:], self.point[:] = multipliers, point
        self.begin(FIRST_PERIOD)

    # ------------------------------------------------------------------------------------------------ iterations

    def iterate(self) -> Iterator[None]:
        """One iteration, in slices of time."""
        g = self.graph.arrays
        blocks = (self.graph.m + FACTORS - 1) // FACTORS
        done, solved = np.zeros((2, blocks), dtype=np.int64)
        while True:
            parallel.run(
                solve_factors, blocks, g, self.unary, self.at, self.multipliers, self.point, self.still, self.eta,
                self.copies, self.sets, self.sizes, done, solved, time_left(self.context, SLICE),
            )  # fmt: skip
            if int(done.sum()) == self.graph.m:
                break
            yield
        primal, dual = np.zeros((2, (self.graph.n + VARIABLES - 1) // VARIABLES))
        self.counted += 1
        parallel.run(
            agree, len(primal), g, self.at, self.copies, self.eta, self.relaxation, self.multipliers, self.point,
            self.mean, self.mean_point, 1.0 / self.counted, self.still, primal, dual,
        )  # fmt: skip
        self.primal = math.sqrt(float(primal.sum()) / len(self.copies))
        self.dual = math.sqrt(float(dual.sum()) / len(self.copies))
        if self.primal > 0.0 and self.dual > 0.0:
            self.imbalance += math.log(self.primal / self.dual)
        self.solved = int(solved.sum())
        self.iterations += 1

    @property
    def period_over(self) -> bool:
        return self.counted >= self.period

    def bound(self) -> Certified:
        """The certified bound of the multipliers; at the end of a period of them or of their mean, and a restart."""
        best, messages = self._bound_of(self.multipliers)
        if self.period_over:
            other, smoother = self._bound_of(self.mean)
            if other > best:
                best, messages = other, smoother
                self.multipliers[:], self.point[:] = self.mean, self.mean_point
            self._adapt()
            self.begin(math.ceil(LONGER * self.period))
        self.messages = messages
        return best

    def _adapt(self) -> None:
        """Copies far from their mean ask for a larger penalty, a mean that moves far for a smaller one."""
        typical = math.exp(self.imbalance / self.counted)  # the geometric mean: no single iteration decides
        if typical > self.balance and self.eta < WIDEST * self.first_eta:
            self.eta *= 2.0
        elif typical < 1.0 / self.balance and self.eta > self.first_eta / WIDEST:
            self.eta /= 2.0

    def _bound_of(self, multipliers: FloatArray) -> tuple[Certified, FloatArray]:
        messages = np.empty(len(multipliers))
        to_messages(self.graph.arrays, self.unary, self.at, multipliers, messages)
        graph = self.graph
        if self.unary is not graph.arrays.unary:
            graph = replace(graph, arrays=graph.arrays._replace(unary=self.unary))
        return lower_bound(graph, messages), messages

    def exclude(self, room: float, allowed: npt.NDArray[np.uint8]) -> int:
        """Forbid labels that would raise the last bound by ``room`` or more."""
        assert self.messages is not None
        left = time_left(self.context)
        return int(exclude(self.graph.arrays, self.at, self.messages, self.sizes, room, allowed, left))

    def labelling(self) -> Labels:
        """The likeliest label of every variable."""
        return likeliest(self.graph.arrays, self.point)

    def polished(self, labels: Labels) -> Labels:
        return local_minimum(self.graph, labels, self.context)

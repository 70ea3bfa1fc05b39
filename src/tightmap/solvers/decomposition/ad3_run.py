"""The iterations of AD3 on one graph: copies, consensus, multipliers, penalty, bounds and labellings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tightmap.energy.certificate import Certified
from tightmap.energy.energies import lower_bound, message_offsets
from tightmap.factors.kernels import workspace
from tightmap.graph.graph import FloatArray, Graph, Kind
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime import parallel
from tightmap.runtime.pace import SLICE, TimeUp, time_left
from tightmap.solvers.decomposition.ad3_kernels import (
    FACTORS,
    MOST,
    VARIABLES,
    Sizes,
    agree,
    ascend,
    beliefs_of,
    from_messages,
    independent_labellings,
    likeliest,
    make_sets,
    solve_factors,
    to_messages,
)

ADAPT = 10  # iterations after which the penalty is looked at
BALANCE = 10.0  # ratio of the residuals beyond which it changes
FACTOR = 2.0  # by how much
SAMPLE = 500  # factors whose size decides on the first penalty


def typical_range(graph: Graph) -> float:
    """Median over some factors of the difference between their largest and smallest soft cost."""
    g = graph.arrays
    ranges = []
    for f in np.linspace(0, graph.m - 1, min(graph.m, SAMPLE)).astype(np.int64):
        kind, weight = g.kind[f], abs(float(g.weight[f]))
        cards = g.cards[g.scope[g.scope_start[f] : g.scope_start[f + 1]]].astype(np.int64)
        spread = 1.0
        if kind in (Kind.LINEAR, Kind.QUADRATIC):
            reach = float(cards.max() - 1) ** (2 if kind == Kind.QUADRATIC else 1)
            spread = min(reach, float(g.params[g.param[f]]))
        elif kind == Kind.SECOND_DIFFERENCE:
            spread = float(g.params[g.param[f]])
        elif kind != Kind.POTTS:
            counts = {Kind.DENSE: int(cards.prod()), Kind.PN_POTTS: 1 + int(cards.min())}
            if kind == Kind.SPARSE:
                counts[Kind.SPARSE] = 1 + int(g.ints[g.iparam[f]])
            part = slice(int(g.param[f]), int(g.param[f]) + counts.get(Kind(int(kind)), 2))
            own = g.params[part]
            if graph.params_hard is not None:
                own = own[~graph.params_hard[part]]
            spread = float(np.ptp(own)) if len(own) else 0.0
        if weight * spread > 0.0 and math.isfinite(weight * spread):
            ranges.append(weight * spread)
    return float(np.median(ranges)) if ranges else 1.0


class Run:
    """One relaxation: the graph's, or with another unary the one of a node of the search tree."""

    def __init__(self, graph: Graph, context: Context, eta: float, relaxation: float, adaptive: bool) -> None:
        g = graph.arrays
        self.graph, self.context = graph, context
        self.relaxation, self.adaptive = relaxation, adaptive
        self.scale = typical_range(graph)
        self.eta = self.first_eta = eta * self.scale
        self.unary = g.unary
        self.at = message_offsets(graph)
        size = int(self.at[-1])
        lengths = self.at[g.scope_start[1:]] - self.at[g.scope_start[:-1]]
        most = min(MOST, int(independent_labellings(graph).max()))
        self.sizes = Sizes(graph.order, int(lengths.max()), most, workspace(g))
        self.multipliers = np.zeros(size)
        self.copies = np.zeros(size)
        self.point = np.repeat(1.0 / g.cards, g.cards)
        self.still = np.zeros(graph.n, dtype=np.uint8)
        self.sets = make_sets(graph)
        self.iterations = 0
        self.primal = self.dual = math.inf  # residuals: copies from their mean, and change of the mean
        self.solved = 0  # programs in the last iteration, the others stood still
        self._settle_lonely()

    def _settle_lonely(self) -> None:
        """Variables without factors take their best label."""
        g = self.graph.arrays
        for i in np.flatnonzero(np.diff(g.adj_start) == 0):
            own = self.unary[g.offset[i] : g.offset[i + 1]]
            self.point[g.offset[i] : g.offset[i + 1]] = np.arange(len(own)) == np.argmin(own)

    def restrict(self, unary: FloatArray) -> None:
        """Go on with other unaries."""
        self.unary = unary
        self.still[:] = 0
        self._settle_lonely()

    def accept(self, messages: FloatArray) -> None:
        """Begin with the messages of another method."""
        from_messages(self.graph.arrays, self.unary, self.at, messages, self.multipliers)
        self.still[:] = 0

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
        parallel.run(
            agree, len(primal), g, self.at, self.copies, self.eta, self.relaxation, self.multipliers, self.point,
            self.still, primal, dual,
        )  # fmt: skip
        self.primal = math.sqrt(float(primal.sum()) / len(self.copies))
        self.dual = math.sqrt(float(dual.sum()) / len(self.copies))
        self.solved = int(solved.sum())
        self.iterations += 1
        if self.adaptive and self.iterations % ADAPT == 0:
            self._adapt()

    def _adapt(self) -> None:
        """Copies far from their mean ask for a larger penalty, a mean that moves far for a smaller one."""
        if self.primal > BALANCE * self.dual and self.eta < 1e3 * self.first_eta:
            self.eta *= FACTOR
        elif self.dual > BALANCE * self.primal and self.eta > 1e-3 * self.first_eta:
            self.eta /= FACTOR
        else:
            return
        self.still[:] = 0

    def messages(self, sweeps: int, left: float) -> FloatArray:
        """The multipliers as messages, after some sweeps of block ascent (fewer when time is up)."""
        g = self.graph.arrays
        messages = np.empty(len(self.multipliers))
        to_messages(g, self.unary, self.at, self.multipliers, messages)
        if sweeps:
            beliefs = np.empty(len(self.unary))
            beliefs_of(g, self.unary, self.at, messages, beliefs)
            for _ in range(sweeps):
                if ascend(g, self.at, messages, beliefs, self.sizes, 0, left) < self.graph.m:
                    break
        return messages

    def bound(self, messages: FloatArray) -> Certified:
        if self.context.remaining() <= -1.0:
            raise TimeUp
        graph = self.graph
        if self.unary is not graph.arrays.unary:
            graph = replace(graph, arrays=graph.arrays._replace(unary=self.unary))
        return lower_bound(graph, messages)

    def labelling(self) -> Labels:
        """The likeliest label of every variable, improved by coordinate descent."""
        return local_minimum(self.graph, likeliest(self.graph.arrays, self.point), self.context)

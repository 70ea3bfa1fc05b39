"""FastPD: the primal-dual view of alpha-expansion, with its dual variables and their bounds.

Every edge (p, q) has duals y_pq(a) = -y_qp(a), one per label a, and every variable the heights

    h_p(a) = theta_p(a) + sum_q y_pq(a).

The move on label c lets the variables choose between x_p and c by a maximum flow whose terminal capacities are
h_p(x_p) - h_p(c); the flow f becomes part of the duals, y_pq(c) <- y_pq(c) + f_pq - f_qp, and keeps the invariant
y_pq(x_p) + y_qp(x_q) = theta_pq(x_p, x_q), which makes the energy the sum of the heights of the current labels
(graphcut/moves.py).  At the end the duals are a certificate: as messages they give a valid lower bound, and so does any
multiple kappa of them,

    E(x) >= sum_p min_a [theta_p(a) + kappa sum_q y_pq(a)]
            + sum_pq min_(a, b) [theta_pq(a, b) - kappa (y_pq(a) + y_qp(b))]          for every labelling x.

kappa = 1, kappa = 1/2 and dual fitting (kappa = d_min / (2 d_max), the factor by which the duals of a metric may have
to shrink to become feasible) are tried and the best one is returned.

Reference: Komodakis, Tziritas and Paragios 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.duals import Dual
from tightmap.energy.energies import lower_bound, message_offsets
from tightmap.factors.effort import operation_seconds
from tightmap.graph.graph import FloatArray, Graph, Kind
from tightmap.graphcut.expansion import Expansion as Moves
from tightmap.graphcut.pairwise import pair_model
from tightmap.graphcut.potts_bound import has_closed_form, potts_bounds
from tightmap.moves.context import Context
from tightmap.runtime.memory import require
from tightmap.runtime.pace import TimeUp, check_time
from tightmap.solvers.base import Final, Init, Progress
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.cuts.expansion import Expansion, OneCut, State, dual_bytes, first_labels, label_order

GRACE = 0.2  # seconds that bounds may take when time is up


def fitting_factor(graph: Graph) -> float:
    """d_min / (2 d_max) over the positive table entries."""
    g = graph.arrays
    ratio = 1.0
    for kind in (Kind.LINEAR, Kind.QUADRATIC):
        rows = g.kind == kind
        if rows.any():
            limits = g.params[g.param[rows]]
            positive = limits[limits > 0.0]
            if len(positive):
                ratio = min(ratio, 1.0 / float(positive.max()), float(positive.min()))
    if (~np.isin(g.kind, (Kind.POTTS, Kind.LINEAR, Kind.QUADRATIC))).any():
        entries = np.abs(g.params[g.params != 0.0])
        if len(entries):
            ratio = min(ratio, float(entries.min() / entries.max()))
    return 0.5 * ratio


@dataclass(frozen=True)
class FastPD(Expansion):
    """Options of FastPD.

    order    of the labels in a sweep: "ascending" (as published), "descending" or "random"
    largest  among equal cuts switch the most variables instead of the fewest (as published)
    nonmetric, restart  as for expansion
    """

    order: str = "ascending"
    largest: bool = False
    nonmetric: str = "truncate"
    restart: bool | None = False

    name: ClassVar[str] = "fastpd"
    summary: ClassVar[str] = "primal-dual graph cuts: expansion moves with dual variables and a certified bound"
    capabilities: ClassVar[Capabilities] = Capabilities(largest_order=2, metric=True, bounds=True)

    def optimal_at_once(self, graph: Graph, context: Context) -> bool:
        return False  # it is asked for its duals

    def start(self, graph: Graph, init: Init, context: Context) -> State | None:
        needed = dual_bytes(graph)
        if (graph.arrays.kind != Kind.POTTS).any() or not graph.uniform:
            needed += 8.0 * float(message_offsets(graph)[-1])
        require(needed, f"{self.name}: the duals of {graph.m} factors")
        try:
            moves = Moves(pair_model(graph, context=context), self.largest)
            check_time(context)
        except TimeUp:
            return None
        moves.begin(first_labels(graph, init, context))
        return State(graph, context, moves, label_order(graph, self.order, context))

    def step(self, state: State | OneCut | None) -> Progress:
        progress = super().step(state)
        if progress.done and isinstance(state, State):
            progress.bound, _ = best_bound(state)
        return progress

    def finish(self, state: State | OneCut | None) -> Final:
        final = super().finish(state)
        if not isinstance(state, State):
            return final
        bound, share = best_bound(state)

        def expand() -> FloatArray:
            return state.moves.messages(state.graph, share)

        return Final(
            final.labels, bound, Dual(state.graph, expand), f"{final.note}; bound with {share:.3g} of the duals"
        )


def best_bound(state: State) -> tuple[float, float]:
    """The best certificate of the three multiples, and the multiple; evaluated once per state.

    When time is up, those that take long are left out.
    """
    if state.bound is None:
        shares = sorted({1.0, 0.5, fitting_factor(state.graph)}, reverse=True)
        if has_closed_form(state.graph, state.moves):
            bounds = potts_bounds(state.graph, state.moves, shares)
        else:
            bounds = [-np.inf]
            each = float(operation_seconds(state.graph, contraction=False).sum()) if state.graph.m else 0.0
            for k, share in enumerate(shares):
                if state.context.remaining() < each and (k + 1) * each > GRACE:
                    break
                bounds[k:] = [lower_bound(state.graph, state.moves.messages(state.graph, share))]
        best = int(np.argmax(bounds))
        state.bound = (bounds[best], shares[best])
    return state.bound

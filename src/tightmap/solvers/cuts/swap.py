"""alpha-beta swap: for every pair of labels, the best exchange among variables that have them.

    x <- argmin E(x')  over all x' with x'_i in {a, b} where x_i is a or b, and x'_i = x_i elsewhere,   for all a, b

A swap needs less than an expansion, theta(a, a) + theta(b, b) <= theta(a, b) + theta(b, a): every truncated difference
qualifies, also the truncated quadratic, and the swap is a minimum cut (graphcut/swap.py).  Where a table violates even
that, roof duality decides what it can and the other variables keep their labels.  The energy falls with every accepted
swap; the method stops after a sweep over all pairs without one.  Pairs whose variables and their neighbours have not
changed since they were last tried are skipped.

Reference: Boykov, Veksler and Zabih 2001.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.energies import energy
from tightmap.graph.graph import Graph
from tightmap.graphcut.pairwise import pair_model
from tightmap.graphcut.qpbo import best_choice
from tightmap.graphcut.quadratise import quadratise
from tightmap.graphcut.swap import Swaps
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime.pace import TimeUp, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.start_labels import given_or_descended

STEP_SECONDS = 0.1  # seconds of moves after which a step ends


@dataclass
class State:
    graph: Graph
    context: Context
    moves: Swaps
    before: int = 0  # swaps that had lowered the energy when this sweep began
    undecided: int = 0  # choices that roof duality left open


@dataclass(frozen=True)
class Swap(Solver):
    """alpha-beta swap has no options."""

    name: ClassVar[str] = "swap"
    summary: ClassVar[str] = "alpha-beta swap by graph cuts; exact moves for every truncated difference, metric or not"
    capabilities: ClassVar[Capabilities] = Capabilities(largest_order=2, metric=True)

    def start(self, graph: Graph, init: Init, context: Context) -> State | None:
        # descent first: lower energies in less time than from the labels of the cheapest unaries themselves
        labels = given_or_descended(graph, init, context)
        try:
            return State(graph, context, Swaps(pair_model(graph, context=context), labels))
        except TimeUp:
            return None

    def step(self, state: State | None) -> Progress:
        """Swaps until all pairs had their turn or a tenth of a second is over."""
        if state is None:
            return Progress(iterations=0)
        begin = time.perf_counter()
        moves = state.moves
        while not moves.swept:
            stuck = moves.advance(time_left(state.context))
            if stuck is not None:
                moves.skip(self._roof_swap(state, *stuck))
            if not moves.swept and (time.perf_counter() - begin > STEP_SECONDS or state.context.remaining() <= 0):
                return Progress(labels=moves.labels, iterations=0)
        done = moves.swaps == state.before and state.context.remaining() > 0  # else the last one may be cut short
        moves.again()
        state.before = moves.swaps
        return Progress(labels=moves.labels, done=done)

    def _roof_swap(self, state: State, a: int, b: int) -> Labels | None:
        """The labels after what roof duality can say of a swap that is no cut, if they are better."""
        graph, labels = state.graph, state.moves.labels
        member = ((labels == a) | (labels == b)) & (graph.arrays.cards > max(a, b))
        q = quadratise(graph, np.where(member, a, labels), np.where(member, b, labels))
        assert q is not None  # pairwise factors are never too large
        choice = best_choice(q.linear, q.first, q.second, q.weight)
        state.undecided += int((choice < 0).sum())
        out = labels.copy()
        out[q.variables[choice == 0]] = a
        out[q.variables[choice == 1]] = b
        return out if energy(graph, out) < energy(graph, labels) else None

    def finish(self, state: State | None) -> Final:
        if state is None:
            return Final()
        note, labels = f"{state.moves.swaps} swaps lowered the energy", state.moves.labels
        if state.undecided:
            labels = local_minimum(state.graph, labels, state.context)
            note += f"; tables that are no semi-metric left {state.undecided} choices undecided by roof duality"
        return Final(labels=labels, note=note)

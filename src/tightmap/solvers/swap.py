"""alpha-beta swap: for every pair of labels, the best exchange among variables that have them.

A swap needs less than an expansion, theta(a, a) + theta(b, b) <= theta(a, b) + theta(b, a): every truncated difference
qualifies, also the truncated quadratic.  Where a table violates even that, roof duality decides what it can and the
other variables keep their labels.  The energy falls with every accepted swap; the method stops after a sweep over all
pairs without one.

Reference: Boykov, Veksler and Zabih 2001.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy import energy, unary_argmin
from tightmap.graph import Graph, IntArray
from tightmap.graphcut.qpbo import best_choice
from tightmap.graphcut.quadratise import quadratise
from tightmap.solvers.base import Context, Final, Init, Labels, Progress, Solver
from tightmap.solvers.bcd import local_minimum, round_and_descend

STEP = 0.1  # seconds between two reports to the driver


@dataclass
class State:
    graph: Graph
    context: Context
    labels: Labels
    energy: float
    pairs: IntArray
    position: int = 0
    quiet: int = 0  # pairs in a row that brought nothing
    swaps: int = 0
    undecided: int = 0  # choices that roof duality left open


@dataclass(frozen=True)
class Swap(Solver):
    """alpha-beta swap has no options."""

    name: ClassVar[str] = "swap"
    summary: ClassVar[str] = "alpha-beta swap by graph cuts; exact moves for every truncated difference, metric or not"
    max_order: ClassVar[int | None] = 2
    needs: ClassVar[str] = "pairwise"

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        if init.labels is not None:
            labels = init.labels.copy()
        elif init.relaxed is not None:
            labels = round_and_descend(graph, init.relaxed)
        else:
            labels = unary_argmin(graph)
        pairs = np.stack(np.triu_indices(graph.max_labels, 1), axis=1)
        return State(graph, context, labels, energy(graph, labels), pairs)

    def step(self, state: State) -> Progress:
        begin = time.perf_counter()
        while True:
            a, b = (int(v) for v in state.pairs[state.position])
            if self._swap(state, a, b):
                state.quiet = 0
                state.swaps += 1
            else:
                state.quiet += 1
            state.position = (state.position + 1) % len(state.pairs)
            done = state.quiet >= len(state.pairs)
            swept = state.position == 0
            if done or swept or time.perf_counter() - begin > STEP or state.context.remaining() <= 0:
                return Progress(labels=state.labels, done=done, iterations=int(swept or done))

    def _swap(self, state: State, a: int, b: int) -> bool:
        """The best assignment of a and b to the variables that have one of them and could have both."""
        graph, labels = state.graph, state.labels
        member = ((labels == a) | (labels == b)) & (graph.arrays.cards > max(a, b))
        if not member.any():
            return False
        q = quadratise(graph, np.where(member, a, labels), np.where(member, b, labels))
        assert q is not None  # pairwise factors are never too large
        choice = best_choice(q.linear, q.first, q.second, q.weight)
        state.undecided += int((choice < 0).sum())
        out = labels.copy()
        out[q.variables[choice == 0]] = a
        out[q.variables[choice == 1]] = b
        value = energy(graph, out)
        if not value < state.energy:
            return False
        state.labels, state.energy = out, value
        return True

    def finish(self, state: State) -> Final:
        note, labels = f"{state.swaps} swaps lowered the energy", state.labels
        if state.undecided:
            labels = local_minimum(state.graph, labels)
            note += f"; tables that are no semi-metric left {state.undecided} choices undecided by roof duality"
        return Final(labels=labels, note=note)
